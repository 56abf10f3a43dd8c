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


# --- trouble with one partition


def written(cluster: Cluster, topic: str, records: int | bytes = 1) -> None:
    asked = cluster.leader(topic).produce(records, topic=topic)
    cluster.run_until(lambda: asked.is_answered)
    assert outcome(asked.answer)[0] == 0


def test_a_damaged_batch_stops_only_its_own_partition_and_is_not_taken(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(2)
    for topic in ("good", "bad"):
        cluster.topic(topic, replicas=[(1, 2)])
        written(cluster, topic, 3)
    cluster[2].kill()
    written(cluster, "bad", batch(1, b"damaged"))
    path = cluster[1].partition("bad").log.path + "/00000000000000000000.log"
    data = cluster[1].disk.content(path)
    data[-3] ^= 1
    cluster[2].start()
    cluster.run(300)
    written(cluster, "good", 2)
    assert cluster[2].partition("bad").log.log_end_offset == 3
    assert (cluster.isr("good"), cluster.isr("bad")) == ((1, 2), (1,))
    assert {type(error).__name__ for _, _, error in cluster.reports} == {"InvalidBatch"}
    cluster.reports.clear()
    data[-3] ^= 1
    cluster.run(300)
    assert cluster[2].partition("bad").log.log_end_offset == 4


def test_a_full_disk_stops_a_follower_until_there_is_room(cluster: Cluster) -> None:
    cluster.topic(min_insync_replicas="2")
    cluster[3].disk.fail_writes_after(0)
    asked = cluster[1].produce(3)
    cluster.run_until(lambda: asked.is_answered)
    assert outcome(asked.answer) == (0, 0)
    assert cluster.isr() == (1, 2)
    assert any("is full" in notice for notice in cluster[3].notices)
    cluster[3].disk.room_bytes = None
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    cluster.assert_identical()


def test_an_unclean_leader_is_followed_and_what_that_costs_is_told(cluster: Cluster) -> None:
    cluster.topic(replicas=[(2, 3)], unclean_leader_election_enable="true")
    written(cluster, "t", batch(2, b"both"))
    cluster[3].kill()
    written(cluster, "t", batch(3, b"lost"))
    cluster.run(6000)  # the high watermark is checkpointed
    cluster[2].kill()
    cluster[3].start()
    cluster.run_until(lambda: cluster.leader().id == 3)
    written(cluster, "t", batch(1, b"new"))
    cluster[2].start()
    cluster.run_until(lambda: cluster.isr() == (2, 3))
    assert values(cluster[2].partition()) == [b"both", b"both", b"new"]
    cluster.assert_identical(brokers=(2, 3))
    assert any("is cut from offset 5 to 2, below its high watermark 5" in notice for notice in cluster[2].notices)


def test_a_follower_that_returns_with_an_empty_disk_is_in_the_isr_only_when_it_has_everything(
    cluster: Cluster,
) -> None:
    cluster.topic()
    written(cluster, "t", 5)
    cluster[3].kill()
    cluster[3].disk = type(cluster[3].disk)()
    cluster.network.cut("b1", "b3")
    cluster[3].start()
    cluster.run(300)
    assert cluster.isr() == (1, 2)
    cluster.network.mend("b1", "b3")
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    cluster.assert_identical()


def test_a_fetch_under_an_older_registration_brings_nobody_into_the_isr(cluster: Cluster) -> None:
    cluster.topic()
    cluster[3].kill()
    cluster.run(100)
    leader = cluster[1].broker.data
    epoch = cluster[1].broker.cluster.broker_epoch
    partition = cluster[1].partition()
    assert not leader.follower(3, 1).is_eligible, "it is not registered"
    cluster.network.cut("b1", "b3")
    cluster.network.cut("b3", "b1")
    cluster[3].start()
    stale = leader.follower(3, cluster[3].broker.cluster.broker_epoch - 1)
    assert not stale.is_eligible
    leader.follower_fetched(partition, stale, partition.log.log_end_offset, 0)
    cluster.run(50)
    assert cluster.isr() == (1, 2)
    leader.follower_fetched(
        partition, leader.follower(3, cluster[3].broker.cluster.broker_epoch), partition.log.log_end_offset, 0
    )
    cluster.run(50)
    assert cluster.isr() == (1, 2, 3)
    assert epoch == cluster[1].broker.cluster.broker_epoch


# --- replicas that come and go


def reassign(cluster: Cluster, replicas: tuple[int, ...] | None) -> None:
    wanted = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": replicas and list(replicas)}]}]
    answer = cluster.controller.ask(45, 0, topics=wanted, timeout_ms=1000)
    assert answer.responses[0].partitions[0].error_code == 0, answer


def test_a_replica_that_is_moved_fills_up_and_the_old_one_is_stopped_and_removed(cluster: Cluster) -> None:
    cluster.topic(replicas=[(1, 2)])
    written(cluster, "t", 5)
    reassign(cluster, (1, 3))
    cluster.run_until(lambda: cluster.isr() == (1, 3))
    cluster.run(100)
    written(cluster, "t", 2)
    cluster.assert_identical(brokers=(1, 3))
    assert ("t", 0) not in cluster[2].broker.data.replicas.partitions
    assert ("t", 0) not in cluster[2].broker.data.logs.logs
    cluster.run(61_000)
    assert not [entry for entry in cluster[2].disk.list("/data") if entry.name.startswith("t-0")]


def test_the_leader_itself_can_be_moved(cluster: Cluster) -> None:
    cluster.topic(replicas=[(1, 2)])
    written(cluster, "t", 5)
    reassign(cluster, (3, 2))
    cluster.run_until(lambda: cluster.isr() == (2, 3) and cluster.leader().id in (2, 3))
    written(cluster, "t", 2)
    cluster.assert_identical(brokers=(2, 3))
    assert ("t", 0) not in cluster[1].broker.data.replicas.partitions


def test_a_replica_that_is_assigned_again_by_the_time_it_would_be_removed_stays(cluster: Cluster) -> None:
    cluster.topic(replicas=[(1, 2)])
    written(cluster, "t", 5)
    cluster.deaf = {2}
    reassign(cluster, (1, 3))
    cluster.run_until(lambda: cluster.isr() == (1, 3))
    reassign(cluster, (1, 2))
    cluster.run(100)
    cluster.deaf = set()
    cluster.run_until(lambda: cluster.isr() == (1, 2))
    cluster.assert_identical(brokers=(1, 2))
    assert not [entry for entry in cluster[2].disk.list("/data") if "delete" in entry.name]


def test_a_topic_that_was_deleted_and_created_again_behind_a_brokers_back_starts_empty_there(
    new_cluster: Callable[..., Cluster],
) -> None:
    cluster = new_cluster(2)
    cluster.topic(replicas=[(1, 2)])
    written(cluster, "t", batch(5, b"old"))
    assert cluster.controller.id == 1
    cluster.deaf = {2}
    cluster.controller.ask(20, 5, topic_names=["t"], timeout_ms=1000)
    cluster.topic(replicas=[(1, 2)])
    cluster.deaf = set()
    written(cluster, "t", batch(1, b"new"))
    assert values(cluster[2].partition()) == [b"new"]
    cluster.assert_identical(brokers=(1, 2))


# --- reading from followers


def test_a_consumer_is_sent_to_the_replica_in_its_rack_and_reads_there_what_is_committed(
    new_cluster: Callable[..., Cluster],
) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    cluster = new_cluster(racks=("a", "b", "b"), replica_selector_class=selector)
    cluster.topic()
    written(cluster, "t", 3)
    cluster.run(20)
    sent = cluster[1].fetch(0, rack_id="b")
    assert (sent.error_code, sent.preferred_read_replica, bytes(sent.records)) == (0, 3, b"")
    read = cluster[3].fetch(0, rack_id="b")
    assert (read.error_code, read.preferred_read_replica, read.high_watermark) == (0, -1, 3)
    assert bytes(read.records) == content(cluster[1].partition())
    here = cluster[1].fetch(0, rack_id="a")
    assert (here.preferred_read_replica, bytes(here.records)) == (-1, content(cluster[1].partition()))
    assert cluster[1].fetch(0, rack_id="c").preferred_read_replica == -1
    cluster.network.cut("b3", "b1")
    cluster[1].produce(1, acks=1)
    cluster.run(10)
    beyond = cluster[3].fetch(4, rack_id="b")
    assert beyond.error_code == 0, "the follower has it, but does not know that it is committed"
    assert bytes(beyond.records) == b""
    assert cluster[3].fetch(5, rack_id="b").error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster[1].fetch(5, rack_id="b").error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    cluster.network.mend("b3", "b1")
    cluster.run(100)


def test_without_a_selector_everybody_reads_from_the_leader(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(racks=("a", "b", "b"))
    cluster.topic()
    written(cluster, "t", 3)
    assert cluster[1].fetch(0, rack_id="b").preferred_read_replica == -1


def test_a_client_too_old_to_know_better_reads_only_from_the_leader(cluster: Cluster) -> None:
    cluster.topic()
    written(cluster, "t", 3)
    assert cluster[2].fetch(0, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster[2].fetch(0, version=11).error_code == 0


# --- throttles


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_replica_fills_up_slowly_and_those_in_sync_are_not_held_up(cluster: Cluster, side: str) -> None:
    cluster.topic(replicas=[(1, 2)])
    for _ in range(20):
        written(cluster, "t", batch(1, b"x" * 50_000))
    cluster[1].partition().log.roll(0)
    throttled = {"leader": "0:1", "follower": "0:3"}[side]
    alter(cluster, 2, "t", **{f"{side}.replication.throttled.replicas": throttled})
    alter(cluster, 4, "", **{f"{side}.replication.throttled.rate": "20000"})
    for site in cluster.living:
        # Small answers, so that the rate is what decides.
        site.config.values.replica_fetch_max_bytes = 60_000
    reassign(cluster, (1, 2, 3))
    cluster.run(500)
    began_ms = cluster.clock.now_ms
    written(cluster, "t", 1)
    assert cluster.clock.now_ms - began_ms < 100, "broker 2 is in sync and not throttled"
    assert cluster.isr() == (1, 2)
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3), 60_000)
    elapsed_ms = cluster.clock.now_ms - began_ms
    assert 20_000 < elapsed_ms < 55_000, "a megabyte at 20 kB/s, of which the window gives some in advance"


def alter(cluster: Cluster, kind: int, name: str, **configs: str) -> None:
    settings = [{"name": key, "config_operation": 0, "value": value} for key, value in configs.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": settings}
    (result,) = cluster.controller.ask(44, 1, resources=[resource], validate_only=False).responses
    assert result.error_code == 0, result
    cluster.settle()
