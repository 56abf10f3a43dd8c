"""Brokers that replicate: followers fetch, ISRs shrink and grow, leaders change, replicas move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from node_cluster import Cluster, batch, content, values

from tidelog.wire.errors import ErrorCode


@pytest.fixture
def new_cluster() -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(brokers: int = 3, **settings: Any) -> Cluster:
        made.append(Cluster(brokers, **settings))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()
        assert not cluster.reports, cluster.reports


@pytest.fixture
def cluster(new_cluster: Callable[..., Cluster]) -> Cluster:
    return new_cluster()


def outcome(answer: Any) -> tuple[int, int]:
    """(error code, base offset) of a produce to one partition."""
    (partition,) = answer.responses[0].partition_responses
    return partition.error_code, partition.base_offset


def test_what_is_acknowledged_by_all_is_on_every_replica(cluster: Cluster) -> None:
    cluster.topic()
    asked = cluster[1].produce(3)
    assert not asked.is_answered
    cluster.run_until(lambda: asked.is_answered)
    assert outcome(asked.answer) == (0, 0)
    cluster.assert_identical()
    cluster.run(20)
    assert [cluster[broker].partition().high_watermark for broker in (1, 2, 3)] == [3, 3, 3]


def test_a_follower_hears_of_a_high_watermark_without_waiting_for_records(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(replica_fetch_wait_max_ms="900")
    cluster.topic()
    cluster[1].produce(3)
    cluster.run(50)
    assert [cluster[broker].partition().high_watermark for broker in (1, 2, 3)] == [3, 3, 3]


def test_acks_1_does_not_wait_for_followers_and_is_not_visible_before_they_have_it(cluster: Cluster) -> None:
    cluster.topic()
    cluster.deaf = {2, 3}
    cluster.network.cut("b1", "b2")
    asked = cluster[1].produce(2, acks=1)
    assert outcome(asked.answer) == (0, 0)
    assert cluster[1].fetch(0).high_watermark == 0
    cluster.network.mend("b1", "b2")
    cluster.run(300)
    assert cluster[1].fetch(0).high_watermark == 2


def test_followers_leave_the_isr_when_they_are_cut_off_and_come_back_when_they_are_not(cluster: Cluster) -> None:
    cluster.topic(min_insync_replicas="2")
    for machine in ("b1", "b2"):
        cluster.network.cut(machine, "b3")
        cluster.network.cut("b3", machine)
    asked = cluster[1].produce(1)
    cluster.run(200)
    assert not asked.is_answered, "broker 3 is in the ISR and does not have it"
    cluster.run_until(lambda: asked.is_answered)
    assert outcome(asked.answer) == (0, 0)
    assert cluster.isr() == (1, 2)
    cluster.network.cut("b1", "b2")
    asked = cluster[1].produce(1)
    cluster.run_until(lambda: asked.is_answered)
    assert outcome(asked.answer)[0] == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "it is told as soon as that is so"
    assert cluster.isr() == (1,)
    assert outcome(cluster[1].produce(1).answer) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert cluster[1].partition().high_watermark == 1
    for machine in ("b1", "b2"):
        cluster.network.mend(machine, "b3")
        cluster.network.mend("b3", machine)
    cluster.network.mend("b1", "b2")
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    cluster.run(100)
    cluster.assert_identical()
    assert cluster[1].partition().high_watermark == 2


def test_a_leader_that_cannot_shrink_its_isr_stalls_rather_than_acknowledging_with_fewer(cluster: Cluster) -> None:
    cluster.topic()
    cluster.isr_is_stuck = True
    cluster.network.cut("b1", "b2")
    asked = cluster[1].produce(1, timeout_ms=5000)
    cluster.run(4000)
    assert not asked.is_answered
    cluster.run(2000)
    assert outcome(asked.answer)[0] == ErrorCode.REQUEST_TIMED_OUT
    assert cluster[1].partition().high_watermark == 0
    cluster.network.mend("b1", "b2")
    cluster.run(200)


def test_the_next_leader_has_what_was_acknowledged_and_the_old_one_is_cut_to_it(cluster: Cluster) -> None:
    cluster.topic()
    asked = cluster[1].produce(batch(3, b"acknowledged"))
    cluster.run_until(lambda: asked.is_answered)
    for broker in ("b2", "b3"):
        cluster.network.cut("b1", broker)
    cluster[1].produce(batch(2, b"lost"))
    cluster.run(10)
    cluster[1].kill()
    assert cluster.leader().id == 2
    asked = cluster[2].produce(batch(4, b"kept"))
    cluster.run_until(lambda: asked.is_answered)
    assert outcome(asked.answer) == (0, 3)
    for broker in ("b2", "b3"):
        cluster.network.mend("b1", broker)
    cluster[1].start()
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    assert values(cluster[1].partition()) == [b"acknowledged"] * 3 + [b"kept"] * 4
    cluster.assert_identical()


def test_a_zombie_leader_acknowledges_nothing_and_is_fenced(cluster: Cluster) -> None:
    cluster.topic()
    zombie = cluster[1] if cluster.controller.id != 1 else None
    if zombie is None:
        # It must not be the controller as well: that one would hear of its own end.
        cluster[1].kill()
        cluster[1].start()
        cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
        _elect_preferred(cluster)
        zombie = cluster[1]
    assert cluster.leader() is zombie
    cluster.deaf = {1}
    cluster.ensemble.expire(zombie.store)
    cluster.run_until(lambda: cluster.leader().id == 2)
    asked = zombie.produce(batch(2, b"zombie"), timeout_ms=3000)
    written = cluster[2].produce(batch(1, b"true"))
    cluster.run_until(lambda: written.is_answered)
    cluster.run(3000)
    assert outcome(asked.answer)[0] in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert zombie.partition().high_watermark == 0
    zombie.kill()
    cluster.deaf = set()
    zombie.start()
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    cluster.assert_identical()
    assert values(zombie.partition()) == [b"true"]


def _elect_preferred(cluster: Cluster) -> None:
    wanted = [{"topic": "t", "partitions": [0]}]
    cluster.controller.ask(43, 2, election_type=0, topic_partitions=wanted, timeout_ms=1000)
    cluster.settle()


def test_a_produce_that_waits_is_told_when_its_leader_resigns(cluster: Cluster) -> None:
    cluster.topic(replicas=[(1, 2)])
    cluster.network.cut("b1", "b2")
    asked = cluster[1].produce(1)
    cluster.run(10)
    assert not asked.is_answered
    partition = cluster[1].partition()
    partition.resign(2, partition.leader_epoch + 1, partition.partition_epoch + 1, (1, 2), (2,))
    cluster[1].broker.data.wake_all(partition.key)
    assert outcome(asked.answer)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_deleted_records_are_deleted_on_the_whole_isr_when_that_is_answered(cluster: Cluster) -> None:
    cluster.topic()
    asked = cluster[1].produce(5)
    cluster.run_until(lambda: asked.is_answered)
    wanted = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 3}]}]
    asked = cluster[1].send(21, 2, topics=wanted, timeout_ms=5000)
    assert not asked.is_answered
    cluster.run_until(lambda: asked.is_answered)
    (result,) = asked.answer.topics[0].partitions
    assert (result.error_code, result.low_watermark) == (0, 3)
    assert [cluster[broker].partition().log.log_start_offset for broker in (1, 2, 3)] == [3, 3, 3]


def test_a_deletion_that_a_follower_does_not_carry_out_times_out(cluster: Cluster) -> None:
    cluster.topic()
    asked = cluster[1].produce(5)
    cluster.run_until(lambda: asked.is_answered)
    cluster.network.cut("b1", "b3")
    wanted = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 3}]}]
    (result,) = cluster[1].ask(21, 2, topics=wanted, timeout_ms=300).topics[0].partitions
    assert (result.error_code, result.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    cluster.network.mend("b1", "b3")
    cluster.run(200)


def test_a_follower_that_was_away_for_so_long_that_its_end_is_deleted_starts_anew(cluster: Cluster) -> None:
    cluster.topic()
    asked = cluster[1].produce(5)
    cluster.run_until(lambda: asked.is_answered)
    cluster[3].kill()
    for _ in range(4):
        asked = cluster[1].produce(5)
        cluster.run_until(lambda asked=asked: asked.is_answered)  # type: ignore[misc]
    for broker in (1, 2):
        cluster[broker].partition().log.roll(0)
    wanted = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 12}]}]
    cluster[1].ask(21, 2, topics=wanted, timeout_ms=5000)
    cluster[3].start()
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    assert cluster[3].partition().log.log_start_offset == 12
    assert any("starts anew at offset 12" in notice for notice in cluster[3].notices)
    asked = cluster[1].produce(1)
    cluster.run_until(lambda: asked.is_answered)
    assert content(cluster[3].partition()) == content(cluster[1].partition())
