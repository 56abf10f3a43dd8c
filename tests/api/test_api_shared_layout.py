"""A broker in the shared layout: one write and one sync for all that a turn of its loop brings."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from api_site import Asked, Site, batch

from tidelog.log.file_segment import FileSegment
from tidelog.log.shared.queue_segment import QueueSegment
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

PRODUCE, FETCH, INCREMENTAL_ALTER_CONFIGS = 0, 1, 44
PARTITIONS = 20


@pytest.fixture
def site(new_site: Callable[..., Site]) -> Site:
    return new_site(**{"log.layout": "shared"})


def produces(site: Site, acks: int = -1) -> list[Asked]:
    """One request for each of some partitions, and one for all of the others."""
    singles = [site.send(PRODUCE, 9, acks=acks, timeout_ms=1000, topic_data=[one(at)]) for at in range(PARTITIONS // 2)]
    rest = [{"index": at, "records": batch()} for at in range(PARTITIONS // 2, PARTITIONS)]
    together = [{"name": "t", "partition_data": rest}]
    return [*singles, site.send(PRODUCE, 9, acks=acks, timeout_ms=1000, topic_data=together)]


def one(partition: int) -> dict[str, object]:
    return {"name": "t", "partition_data": [{"index": partition, "records": batch()}]}


def in_one_turn(site: Site, send: Callable[[], list[Asked]]) -> list[Asked]:
    asked: list[Asked] = []

    def turn() -> None:
        asked.extend(send())
        assert not any(each.exchange.answered for each in asked)

    site.workers.call_soon(turn)
    return asked


def codes(asked: list[Asked]) -> set[int]:
    answers = [
        partition for each in asked for topic in each.answer.responses for partition in topic.partition_responses
    ]
    return {answer.error_code for answer in answers}


@pytest.mark.parametrize("acks", [1, -1])
def test_all_partitions_of_a_turn_are_written_with_one_write_and_answered_after_it(site: Site, acks: int) -> None:
    site.topic("t", PARTITIONS)
    writes = site.disk.counts["write"]
    asked = in_one_turn(site, lambda: produces(site, acks))
    assert codes(asked) == {0}
    assert site.disk.counts["write"] - writes == 1


def test_all_partitions_of_a_turn_are_flushed_with_one_sync(site: Site) -> None:
    site.topic("t", PARTITIONS, flush_messages="1")
    # The first ones make sure of names, too: those of the partitions, and that of the commit log.
    for _ in range(2):
        in_one_turn(site, lambda: produces(site))
    writes, syncs = site.disk.counts["write"], site.disk.counts["sync"]
    sync_dirs, sync_alls = site.disk.counts["sync_dir"], site.disk.counts["sync_all"]
    asked = in_one_turn(site, lambda: produces(site))
    assert codes(asked) == {0}
    assert (site.disk.counts["write"] - writes, site.disk.counts["sync"] - syncs) == (1, 1)
    assert (site.disk.counts["sync_dir"], site.disk.counts["sync_all"]) == (sync_dirs, sync_alls)


def test_the_first_flush_of_many_partitions_costs_a_few_syncs(site: Site) -> None:
    site.topic("t", PARTITIONS, flush_messages="1")
    before = dict(site.disk.counts)
    assert codes(in_one_turn(site, lambda: produces(site))) == {0}
    syncs = sum(site.disk.counts[name] - before.get(name, 0) for name in ("sync", "sync_dir", "sync_all"))
    assert syncs <= 3


@pytest.mark.parametrize("partitions", [1, 10])
def test_a_topic_that_is_deleted_while_it_is_flushed_disturbs_nobody_else(site: Site, partitions: int) -> None:
    """The first flush of a log writes files of its own: for many logs together, for few one by one."""
    site.topic("t", PARTITIONS, flush_messages="1")
    site.topic("dying", partitions, flush_messages="1")

    def send() -> list[Asked]:
        data = [{"index": at, "records": batch()} for at in range(partitions)]
        dying = [{"name": "dying", "partition_data": data}]
        site.send(PRODUCE, 9, acks=1, timeout_ms=1000, topic_data=dying)
        return produces(site)

    with site.workers.held():
        asked = in_one_turn(site, send)
        assert site.ask(20, 4, topic_names=["dying"], timeout_ms=0).responses[0].error_code == 0
    assert codes(asked) == {0}
    assert site.reports == []


def test_a_file_that_cannot_be_written_is_the_trouble_of_its_log(site: Site) -> None:
    site.topic("t", PARTITIONS, flush_messages="1")
    with site.workers.held():
        asked = in_one_turn(site, lambda: produces(site))
        # The first of the files that are written beside those that they replace.
        site.disk.fail("open", errno.ENOSPC)
    assert sorted(codes(asked)) == [0, ErrorCode.KAFKA_STORAGE_ERROR]


def test_what_was_acknowledged_is_there_after_a_kill(site: Site) -> None:
    site.topic("t", PARTITIONS)
    assert codes(in_one_turn(site, lambda: produces(site))) == {0}
    site.stop(clean=False)
    site.start()
    assert all(site.broker.data.logs.logs["t", at].log_end_offset == 1 for at in range(PARTITIONS))


def test_who_waits_for_records_gets_them_with_the_write_of_the_turn(site: Site) -> None:
    site.topic("t", PARTITIONS)
    wanted = [{"partition": at, "fetch_offset": 0, "partition_max_bytes": 1000} for at in range(PARTITIONS)]
    waits = {"max_wait_ms": 1000, "min_bytes": 1, "max_bytes": 1 << 20}
    fetch = site.send(FETCH, 12, replica_id=-1, topics=[{"topic": "t", "partitions": wanted}], **waits)
    assert not fetch.exchange.answered
    writes = site.disk.counts["write"]
    in_one_turn(site, lambda: produces(site))
    (topic,) = fetch.answer.responses
    assert sum(bool(partition.records) for partition in topic.partitions) == PARTITIONS
    assert site.disk.counts["write"] - writes == 1


def test_a_write_that_fails_acknowledges_nothing(site: Site) -> None:
    site.topic("t", PARTITIONS)
    site.disk.fail("write", errno.EIO)
    asked = in_one_turn(site, lambda: produces(site))
    assert codes(asked) == {ErrorCode.KAFKA_STORAGE_ERROR}
    # Offsets were given away for what is not there.
    assert site.broker.data.logs.dirs[0].failure is not None


def test_a_topic_that_becomes_compacted_leaves_the_commit_log(site: Site) -> None:
    topic_id = site.topic("t", 2)
    for partition in (0, 1):
        for _ in range(5):
            site.produce("t", 3, partition)
    logs = site.broker.data.logs.logs
    assert {type(logs["t", at].segments.active) for at in (0, 1)} == {QueueSegment}
    change = {"name": "cleanup.policy", "config_operation": 0, "value": "compact"}
    resource = {"resource_type": 2, "resource_name": "t", "configs": [change]}
    (answer,) = site.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]).responses
    assert answer.error_code == 0
    assert {type(logs["t", at].segments.active) for at in (0, 1)} == {FileSegment}
    assert site.produce("t", 1, 1).base_offset == 15
    site.stop(clean=False)
    site.start()
    log = site.broker.data.logs.logs[TopicPartition("t", 1)]
    assert (log.topic_id, log.log_end_offset, log.store) == (topic_id, 16, None)


def test_a_topic_that_became_compacted_while_nobody_copied_it_leaves_the_commit_log_with_the_next_start(
    new_site: Callable[..., Site],
) -> None:
    site = new_site(**{"log.layout": "shared", "replica.alter.log.dirs.io.max.bytes.per.second": "1"})
    site.topic("t")
    site.produce("t", 3)
    change = {"name": "cleanup.policy", "config_operation": 0, "value": "compact"}
    resource = {"resource_type": 2, "resource_name": "t", "configs": [change]}
    site.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    assert site.broker.data.logs.logs["t", 0].store is not None
    site.stop(clean=False)
    site.start()
    site.pass_time(1_000_000)
    log = site.broker.data.logs.logs["t", 0]
    assert (log.store, log.log_end_offset) == (None, 3)
