"""A broker's life around its requests: starts, housekeeping, what it cannot go on without."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from api_site import START_MS, Site, batch

from tidelog.wire.errors import ErrorCode

OK = 0


def epoch_of(site: Site, topic: str) -> int:
    return site.broker.data.partition(topic, 0).leader_epoch


def test_a_start_after_a_crash_begins_a_new_leader_epoch_and_one_after_a_clean_stop_does_not(site: Site) -> None:
    site.topic("t")
    site.produce("t", 2)
    assert epoch_of(site, "t") == 0
    site.stop()
    site.start()
    assert epoch_of(site, "t") == 0
    site.stop(clean=False)
    site.start()
    assert epoch_of(site, "t") == 1
    assert site.produce("t").base_offset == 2


def test_overrides_of_a_topic_hold_after_a_restart(site: Site) -> None:
    site.topic("t", retention_ms="12345")
    site.stop()
    site.start()
    assert site.broker.data.partition("t", 0).log.config.retention_ms == 12345


def test_a_store_that_fails_is_fatal(site: Site) -> None:
    reasons: list[str] = []
    site.broker.on_fatal = reasons.append
    site.ensemble.expire(site.store)
    assert len(reasons) == 1
    assert "metadata store" in reasons[0]
    wanted = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    (refused,) = site.ask(19, 7, topics=[wanted], timeout_ms=0).topics
    assert refused.error_code == ErrorCode.NOT_CONTROLLER
    assert len(reasons) == 1


def test_a_broker_whose_every_directory_failed_stops(new_site: Callable[..., Site]) -> None:
    site = new_site(dirs=2)
    reasons: list[str] = []
    site.broker.on_fatal = reasons.append
    site.broker.data.logs.dirs[0].fail(OSError("gone"))
    site.housekeeping.checkpoint()
    assert reasons == []
    site.broker.data.logs.dirs[1].fail(OSError("gone"))
    site.housekeeping.checkpoint()
    assert "every log directory" in reasons[0]
    site.reports.clear()


def test_a_log_is_flushed_when_its_time_is_over(site: Site) -> None:
    site.topic("t", flush_ms="5000")
    site.topic("u")
    for topic in ("t", "u"):
        site.produce(topic, 3)
    log, other = (site.broker.data.partition(topic, 0).log for topic in ("t", "u"))
    assert log.unflushed_messages == 3
    for _ in range(7):
        site.pass_time(1000)
    assert (log.unflushed_messages, other.unflushed_messages) == (0, 3)


def test_a_producer_that_was_not_heard_of_for_long_is_forgotten(new_site: Callable[..., Site]) -> None:
    site = new_site(**{"producer.id.expiration.ms": "5000", "producer.id.expiration.check.interval.ms": "1000"})
    site.topic("t")
    site.produce("t", batch(1, producer_id=5, producer_epoch=0, base_sequence=0))
    producers = site.broker.data.partition("t", 0).log.producers
    for _ in range(4):
        site.pass_time(1000)
    assert len(producers) == 1
    for _ in range(3):
        site.pass_time(1000)
    assert len(producers) == 0


def test_retention_removes_old_segments_from_time_to_time(new_site: Callable[..., Site]) -> None:
    site = new_site(**{"log.retention.check.interval.ms": "10000"})
    site.topic("t", retention_ms="60000", segment_ms="1000")
    site.produce("t", batch(2, START_MS))
    site.pass_time(2000)
    site.produce("t", batch(2, START_MS + 3_600_000 - 1000))
    for _ in range(10):
        site.pass_time(10_000)
    assert site.broker.data.partition("t", 0).log.log_start_offset == 2


def test_a_broker_wide_change_of_retention_reaches_the_logs_that_have_none_of_their_own(site: Site) -> None:
    site.topic("t")
    site.topic("u", retention_ms="77")
    change = [{"name": "log.retention.ms", "config_operation": 0, "value": "1234"}]
    resources = [{"resource_type": 4, "resource_name": "", "configs": change}]
    assert site.ask(44, 1, resources=resources).responses[0].error_code == OK
    kept = [site.broker.data.partition(topic, 0).log.config.retention_ms for topic in ("t", "u")]
    assert kept == [1234, 77]


def test_a_smaller_message_limit_holds_from_the_next_produce_on(site: Site) -> None:
    site.topic("t")
    assert site.produce("t", 50).error_code == OK
    change = [{"name": "message.max.bytes", "config_operation": 0, "value": "100"}]
    resources = [{"resource_type": 4, "resource_name": "0", "configs": change}]
    assert site.ask(44, 1, resources=resources).responses[0].error_code == OK
    assert site.produce("t", 50).error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("delay_ms", [0, 5000])
def test_the_first_retention_comes_after_the_initial_delay(new_site: Callable[..., Site], delay_ms: int) -> None:
    site = new_site(**{"log.retention.ms": "1000", "log.initial.task.delay.ms": str(delay_ms)})
    site.topic("t")
    site.produce("t", batch(5, timestamp_ms=START_MS - 10_000))
    log = site.broker.data.partition("t", 0).log
    site.pass_time(delay_ms // 2)
    assert log.log_start_offset == 0
    site.pass_time(delay_ms - delay_ms // 2 + 1)
    assert log.log_start_offset == 5


def test_an_unclean_election_is_allowed_from_the_moment_that_it_is_set_for_all_brokers(site: Site) -> None:
    site.topic("t")
    assert not site.broker.cluster.controller.settings.unclean_leader_election_enable
    change = [{"name": "unclean.leader.election.enable", "config_operation": 0, "value": "true"}]
    resources = [{"resource_type": 4, "resource_name": "", "configs": change}]
    assert site.ask(44, 1, resources=resources).responses[0].error_code == OK
    assert site.broker.cluster.controller.settings.unclean_leader_election_enable
    site.stop()
    site.start()
    assert site.broker.cluster.controller.settings.unclean_leader_election_enable
