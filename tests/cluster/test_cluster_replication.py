"""Brokers that replicate: followers fetch, ISRs shrink and grow, leaders change, replicas move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from replica_cluster import TIMESTAMP_MS, Asked, ReplicaCluster, batch, content, values

from tidelog.control.events import PartitionChanged
from tidelog.log.append import AppendInfo
from tidelog.log.producers import NOT_REQUIRED
from tidelog.replica.nearest import RACK_AWARE_SELECTOR
from tidelog.replica.partition import Partition
from tidelog.wire import messages
from tidelog.wire.batch import InvalidBatch
from tidelog.wire.compression import GZIP
from tidelog.wire.errors import ErrorCode

pytestmark = pytest.mark.layouts


@pytest.fixture
def new_cluster() -> Iterator[Callable[..., ReplicaCluster]]:
    made: list[ReplicaCluster] = []

    def make(brokers: int = 3, **settings: Any) -> ReplicaCluster:
        made.append(ReplicaCluster(brokers, **settings))
        return made[-1]

    yield make
    for cluster in made:
        cluster.check()


@pytest.fixture
def cluster(new_cluster: Callable[..., ReplicaCluster]) -> ReplicaCluster:
    return new_cluster()


def test_what_is_acknowledged_by_all_is_on_every_replica(cluster: ReplicaCluster) -> None:
    cluster.topic()
    asked = cluster[1].produce(3)
    assert not asked.is_answered
    assert asked.result == (0, 0)
    assert len(cluster.contents()) == 1


def test_a_produce_whose_rest_took_long_is_answered_if_its_followers_have_caught_up_meanwhile(
    cluster: ReplicaCluster,
) -> None:
    cluster.topic()
    cluster.topic("alone", replicas=(1,))
    cluster[1].node.life.work_ms = 100
    request = messages.ProduceRequest
    wanted = [
        request.TopicProduceData(name=name, partition_data=[request.PartitionProduceData(records=records)])
        for name, records in {"t": batch(1), "alone": batch(1, bytes(1 << 20), codec=GZIP)}.items()
    ]
    asked = Asked(cluster, cluster.send(1, request(acks=-1, timeout_ms=30_000, topic_data=wanted), 12))
    cluster.run(50)
    assert cluster[1].partition().high_watermark == 1
    assert not asked.is_answered
    cluster.run(1000)
    assert asked.is_answered
    assert [topic.partition_responses[0].error_code for topic in asked.answer.responses] == [0, 0]


def test_a_follower_hears_of_a_high_watermark_with_the_next_records_or_when_its_fetch_has_waited(
    new_cluster: Callable[..., ReplicaCluster],
) -> None:
    cluster = new_cluster(replica_fetch_wait_max_ms="400")
    cluster.topic()
    assert cluster[1].produce(3).result == (0, 0)
    assert cluster[1].produce(1).result == (0, 3)
    assert [cluster[broker].partition().high_watermark for broker in (1, 2, 3)] == [4, 3, 3]
    cluster.run(450)
    assert [cluster[broker].partition().high_watermark for broker in (1, 2, 3)] == [4, 4, 4]


def test_a_follower_that_consumers_read_from_hears_of_a_high_watermark_without_waiting_for_records(
    new_cluster: Callable[..., ReplicaCluster],
) -> None:
    cluster = new_cluster(replica_fetch_wait_max_ms="900", replica_selector_class=RACK_AWARE_SELECTOR)
    cluster.topic()
    cluster[1].produce(3)
    cluster.run(50)
    assert [cluster[broker].partition().high_watermark for broker in (1, 2, 3)] == [3, 3, 3]


def test_a_follower_is_told_once_of_all_that_came_together(new_cluster: Callable[..., ReplicaCluster]) -> None:
    cluster = new_cluster(2, replica_fetch_wait_max_ms="900")
    for name in ("a", "b", "c"):
        cluster.topic(name, (1, 2))
    cluster.run(50)
    leader = cluster[1].node.broker
    (session,) = leader.data.fetch_sessions._sessions.values()
    before = session.epoch
    for name in ("a", "b", "c"):
        partition = cluster[1].partition(name)
        partition.append(memoryview(bytearray(batch())), -1, TIMESTAMP_MS)
        leader.data.appended(partition)
    cluster.run(50)
    assert [cluster[2].partition(name).log.log_end_offset for name in ("a", "b", "c")] == [1, 1, 1]
    assert session.epoch - before == 1


def test_acks_1_does_not_wait_for_followers_and_is_not_visible_before_they_have_it(cluster: ReplicaCluster) -> None:
    cluster.topic()
    cluster.deaf = {2, 3}
    cluster.network.cut("b1", "b2")
    asked = cluster[1].produce(2, acks=1)
    assert asked.result == (0, 0)
    assert cluster[1].fetch(0).high_watermark == 0
    cluster.network.mend("b1", "b2")
    cluster.run(300)
    assert cluster[1].fetch(0).high_watermark == 2


def test_followers_leave_the_isr_when_they_are_cut_off_and_come_back_when_they_are_not(cluster: ReplicaCluster) -> None:
    cluster.topic(min_insync_replicas="2")
    for machine in ("b1", "b2"):
        cluster.network.cut(machine, "b3")
        cluster.network.cut("b3", machine)
    asked = cluster[1].produce(1)
    cluster.run(200)
    assert not asked.is_answered, "broker 3 is in the ISR and does not have it"
    assert asked.result == (0, 0)
    assert cluster.isr() == (1, 2)
    cluster.network.cut("b1", "b2")
    asked = cluster[1].produce(1)
    assert asked.result[0] == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "it is told as soon as that is so"
    assert cluster.isr() == (1,)
    assert cluster[1].produce(1).result == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert cluster[1].partition().high_watermark == 1
    for machine in ("b1", "b2"):
        cluster.network.mend(machine, "b3")
        cluster.network.mend("b3", machine)
    cluster.network.mend("b1", "b2")
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    cluster.run(100)
    assert len(cluster.contents()) == 1
    assert cluster[1].partition().high_watermark == 2


def test_a_leader_that_cannot_shrink_its_isr_stalls_rather_than_acknowledging_with_fewer(
    cluster: ReplicaCluster,
) -> None:
    cluster.topic()
    cluster.isr_is_stuck = True
    cluster.network.cut("b1", "b2")
    asked = cluster[1].produce(1, timeout_ms=5000)
    cluster.run(4000)
    assert not asked.is_answered
    cluster.run(2000)
    assert asked.result[0] == ErrorCode.REQUEST_TIMED_OUT
    assert cluster[1].partition().high_watermark == 0
    cluster.network.mend("b1", "b2")
    cluster.run(200)


def test_the_next_leader_has_what_was_acknowledged_and_the_old_one_is_cut_to_it(cluster: ReplicaCluster) -> None:
    cluster.topic()
    asked = cluster[1].produce(batch(3, b"acknowledged"))
    cluster.run_until(lambda: asked.is_answered)
    for broker in ("b2", "b3"):
        cluster.network.cut("b1", broker)
    cluster[1].produce(batch(2, b"lost"))
    cluster.run(10)
    cluster[1].kill()
    assert cluster.leading().id == 2
    asked = cluster[2].produce(batch(4, b"kept"))
    assert asked.result == (0, 3)
    for broker in ("b2", "b3"):
        cluster.network.mend("b1", broker)
    cluster[1].start()
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    assert values(cluster[1].partition()) == [b"acknowledged"] * 3 + [b"kept"] * 4
    assert len(cluster.contents()) == 1


def test_a_zombie_leader_acknowledges_nothing_and_is_fenced(cluster: ReplicaCluster) -> None:
    cluster.topic()
    zombie = cluster[1] if cluster.controller.id != 1 else None
    if zombie is None:
        # It must not be the controller as well: that one would hear of its own end.
        cluster[1].kill()
        cluster[1].start()
        cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
        cluster.elect_preferred()
        zombie = cluster[1]
    assert cluster.leading() is zombie
    cluster.deaf = {1}
    cluster.expire(zombie.node)
    cluster.run_until(lambda: cluster.leading().id == 2)
    asked = zombie.produce(batch(2, b"zombie"), timeout_ms=3000)
    written = cluster[2].produce(batch(1, b"true"))
    cluster.run_until(lambda: written.is_answered)
    cluster.run(3000)
    assert asked.result[0] in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert zombie.partition().high_watermark == 0
    zombie.kill()
    cluster.deaf = set()
    zombie.start()
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    assert len(cluster.contents()) == 1
    assert values(zombie.partition()) == [b"true"]


def test_a_produce_that_waits_is_told_when_its_leader_resigns(cluster: ReplicaCluster) -> None:
    cluster.topic(replicas=(1, 2))
    cluster.network.cut("b1", "b2")
    asked = cluster[1].produce(1)
    cluster.run(10)
    assert not asked.is_answered
    partition = cluster[1].partition()
    partition.resign(2, partition.leader_epoch + 1, partition.partition_epoch + 1, (1, 2), (2,))
    cluster[1].node.broker.data.wake_all(partition.key)
    assert asked.result[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_deleted_records_are_deleted_on_the_whole_isr_when_that_is_answered(cluster: ReplicaCluster) -> None:
    cluster.topic()
    cluster.write("t", 5)
    asked = cluster.delete_records(3)
    (result,) = asked.answer.topics[0].partitions
    assert (result.error_code, result.low_watermark) == (0, 3)
    assert [cluster[broker].partition().log.log_start_offset for broker in (1, 2, 3)] == [3, 3, 3]


def test_a_deletion_that_a_follower_does_not_carry_out_times_out(cluster: ReplicaCluster) -> None:
    cluster.topic()
    cluster.write("t", 5)
    cluster.network.cut("b1", "b3")
    (result,) = cluster.delete_records(3, timeout_ms=300).answer.topics[0].partitions
    assert (result.error_code, result.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    cluster.network.mend("b1", "b3")
    cluster.run(200)


def test_a_follower_that_was_away_for_so_long_that_its_end_is_deleted_starts_anew(cluster: ReplicaCluster) -> None:
    cluster.topic()
    cluster.write("t", 5)
    cluster[3].kill()
    for _ in range(4):
        cluster.write("t", 5)
    for broker in (1, 2):
        cluster[broker].partition().log.roll(0)
    assert cluster.delete_records(12).answer.topics[0].partitions[0].low_watermark == 12
    cluster[3].start()
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    assert cluster[3].partition().log.log_start_offset == 12
    assert any("starts anew at offset 12" in notice for notice in cluster[3].node.notices)
    cluster.write("t", 1)
    assert content(cluster[3].partition()) == content(cluster[1].partition())


# --- trouble with one partition


@pytest.mark.files
def test_a_damaged_batch_stops_only_its_own_partition_and_is_not_taken(
    new_cluster: Callable[..., ReplicaCluster],
) -> None:
    cluster = new_cluster(2)
    for topic in ("good", "bad"):
        cluster.topic(topic, replicas=(1, 2))
        cluster.write(topic, 3)
    cluster[2].kill()
    cluster.write("bad", batch(1, b"damaged"))
    path = cluster[1].partition("bad").log.path + "/00000000000000000000.log"
    data = cluster[1].disk.content(path)
    data[-3] ^= 1
    cluster[2].start()
    cluster.run(3_000)
    cluster.write("good", 2)
    assert cluster[2].partition("bad").log.log_end_offset == 3
    assert (cluster.isr("good"), cluster.isr("bad")) == ((1, 2), (1,))
    (told,) = [notice for notice in cluster[2].node.notices if "whose copy is damaged" in notice]
    assert "bad-0" in told and "fails its CRC" in told
    data[-3] ^= 1
    cluster.run(300)
    assert cluster[2].partition("bad").log.log_end_offset == 4


@pytest.mark.files
def test_what_arrives_damaged_once_is_fetched_again_and_nobody_is_alarmed(cluster: ReplicaCluster) -> None:
    cluster.topic(replicas=(1, 2))
    cluster.write("t", 3)
    cluster[2].kill()
    cluster.write("t", 1)
    data = cluster[1].disk.content(cluster[1].partition().log.path + "/00000000000000000000.log")
    data[-3] ^= 1
    refused: list[int] = []
    cluster.begin(2)
    append = Partition.append_as_follower

    def watched(partition: Partition, records: memoryview, now_ms: int) -> AppendInfo:
        try:
            return append(partition, records, now_ms)
        except InvalidBatch:
            if not refused:
                data[-3] ^= 1
            refused.append(now_ms)
            raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Partition, "append_as_follower", watched)
        cluster.run_until(lambda: cluster.isr() == (1, 2))
    assert len(refused) == 1
    assert len(cluster.contents("t", 1, 2)) == 1


@pytest.mark.files
def test_a_full_disk_stops_a_follower_until_there_is_room(cluster: ReplicaCluster) -> None:
    cluster.topic(min_insync_replicas="2")
    cluster[3].disk.fail_writes_after(0)
    asked = cluster[1].produce(3)
    assert asked.result == (0, 0)
    assert cluster.isr() == (1, 2)
    assert any("is full" in notice for notice in cluster[3].node.notices)
    cluster[3].disk.room_bytes = None
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    assert len(cluster.contents()) == 1


def test_an_unclean_leader_is_followed_and_what_that_costs_is_told(cluster: ReplicaCluster) -> None:
    cluster.topic(replicas=(2, 3), unclean_leader_election_enable="true")
    cluster.write("t", batch(2, b"both"))
    cluster[3].kill()
    cluster.write("t", batch(3, b"lost"))
    cluster.run(6000)  # the high watermark is checkpointed
    cluster[2].kill()
    cluster[3].start()
    cluster.run_until(lambda: cluster.leading().id == 3)
    cluster.write("t", batch(1, b"new"))
    cluster[2].start()
    cluster.run_until(lambda: cluster.isr() == (2, 3))
    assert values(cluster[2].partition()) == [b"both", b"both", b"new"]
    assert len(cluster.contents("t", 2, 3)) == 1
    assert any("is cut from offset 5 to 2, below its high watermark 5" in notice for notice in cluster[2].node.notices)


def test_a_follower_that_returns_with_an_empty_disk_is_in_the_isr_only_when_it_has_everything(
    cluster: ReplicaCluster,
) -> None:
    cluster.topic(replicas=(2, 3, 1))
    cluster.write("t", 5)
    cluster[3].kill()
    cluster[3].lose_disk()
    cluster.separate(2, 3)
    cluster[3].start()
    cluster.run(300)
    assert cluster.isr() == (1, 2)
    cluster.join(2, 3)
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    assert len(cluster.contents()) == 1


def test_a_fetch_under_an_older_registration_brings_nobody_into_the_isr(cluster: ReplicaCluster) -> None:
    cluster.topic(replicas=(2, 3, 1))
    cluster[3].kill()
    cluster.run(100)
    leader, partition = cluster[2].node.broker.data, cluster[2].partition()
    assert not leader.follower(3, 1).is_eligible, "it is not registered"
    cluster.separate(2, 3)
    cluster[3].start()
    cluster.agree()
    epoch = cluster[3].node.broker.cluster.broker_epoch
    stale = leader.follower(3, epoch - 1)
    assert not stale.is_eligible
    leader.follower_fetched(partition, stale, partition.log.log_end_offset, 0)
    cluster.run(50)
    assert cluster.isr() == (1, 2)
    leader.follower_fetched(partition, leader.follower(3, epoch), partition.log.log_end_offset, 0)
    cluster.run(50)
    assert cluster.isr() == (1, 2, 3)


# --- replicas that come and go


def test_a_replica_that_is_moved_fills_up_and_the_old_one_is_stopped_and_removed(cluster: ReplicaCluster) -> None:
    cluster.topic(replicas=(1, 2))
    cluster.write("t", 5)
    cluster.reassign(1, 3)
    cluster.run_until(lambda: cluster.isr() == (1, 3))
    cluster.run(100)
    cluster.write("t", 2)
    assert len(cluster.contents("t", 1, 3)) == 1
    assert ("t", 0) not in cluster[2].node.broker.data.replicas.partitions
    assert ("t", 0) not in cluster[2].node.broker.data.logs.logs
    cluster.run(61_000)
    assert not [entry for entry in cluster[2].disk.list("/data") if entry.name.startswith("t-0")]


def test_the_leader_itself_can_be_moved(cluster: ReplicaCluster) -> None:
    cluster.topic(replicas=(1, 2))
    cluster.write("t", 5)
    cluster.reassign(3, 2)
    cluster.run_until(lambda: cluster.isr() == (2, 3) and cluster.leading().id in (2, 3))
    cluster.write("t", 2)
    assert len(cluster.contents("t", 2, 3)) == 1
    assert ("t", 0) not in cluster[1].node.broker.data.replicas.partitions


def test_a_replica_that_is_assigned_again_by_the_time_it_would_be_removed_stays(cluster: ReplicaCluster) -> None:
    cluster.topic(replicas=(1, 2))
    cluster.write("t", 5)
    node = cluster[2].node
    topic = node.image.topics["t"]
    (assigned,) = topic.partitions
    gone = PartitionChanged(topic, assigned, assigned._replace(replicas=(1, 3), isr=(1, 3)))
    node.broker.assignments.carry_out([gone])
    assert len(cluster.contents("t", 1, 2)) == 1


@pytest.mark.parametrize("is_dead", [True, False])
def test_a_topic_that_was_deleted_and_created_again_behind_a_brokers_back_starts_empty_there(
    new_cluster: Callable[..., ReplicaCluster], is_dead: bool
) -> None:
    cluster = new_cluster(2)
    cluster.topic(replicas=(1, 2))
    cluster.write("t", batch(5, b"old"))
    assert cluster.controller.id == 1
    if is_dead:
        cluster[2].kill()
    else:
        cluster.deaf = {2}
    cluster.delete_topic("t")
    cluster.topic(replicas=(1,) if is_dead else (1, 2))
    cluster.deaf = set()
    if is_dead:
        cluster[2].start()
        cluster.reassign(1, 2)
        cluster.run_until(lambda: cluster.isr() == (1, 2))
    cluster.write("t", batch(1, b"new"))
    assert values(cluster[2].partition()) == [b"new"]
    assert len(cluster.contents("t", 1, 2)) == 1


# --- reading from followers


def test_a_consumer_is_sent_to_the_replica_in_its_rack_and_reads_there_what_is_committed(
    new_cluster: Callable[..., ReplicaCluster],
) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    cluster = new_cluster(racks=("a", "b", "b"), replica_selector_class=selector)
    cluster.topic()
    cluster.write("t", 3)
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


def test_without_a_selector_everybody_reads_from_the_leader(new_cluster: Callable[..., ReplicaCluster]) -> None:
    cluster = new_cluster(racks=("a", "b", "b"))
    cluster.topic()
    cluster.write("t", 3)
    assert cluster[1].fetch(0, rack_id="b").preferred_read_replica == -1


def test_a_client_too_old_to_know_better_reads_only_from_the_leader(cluster: ReplicaCluster) -> None:
    cluster.topic()
    cluster.write("t", 3)
    assert cluster[2].fetch(0, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster[2].fetch(0, version=11).error_code == 0


# --- throttles


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_replica_fills_up_slowly_and_those_in_sync_are_not_held_up(
    cluster: ReplicaCluster, side: str
) -> None:
    cluster.topic(replicas=(1, 2))
    for _ in range(20):
        cluster.write("t", batch(1, b"x" * 50_000))
    cluster[1].partition().log.roll(0)
    throttled = {"leader": "0:1", "follower": "0:3"}[side]
    cluster.alter(2, "t", **{f"{side}.replication.throttled.replicas": throttled})
    cluster.alter(4, "", **{f"{side}.replication.throttled.rate": "20000"})
    for node in cluster.nodes.values():
        # Small answers, so that the rate is what decides.
        node.broker.config.values.replica_fetch_max_bytes = 60_000
    cluster.reassign(1, 2, 3)
    cluster.run(500)
    began_ms = cluster.clock.now_ms
    cluster.write("t", 1)
    assert cluster.clock.now_ms - began_ms < 100, "broker 2 is in sync and not throttled"
    assert cluster.isr() == (1, 2)
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3), 60_000)
    elapsed_ms = cluster.clock.now_ms - began_ms
    assert 20_000 < elapsed_ms < 55_000, "a megabyte at 20 kB/s, of which the window gives some in advance"


# --- many partitions, and time


def test_a_new_partition_does_not_wait_for_the_fetch_that_is_parked(cluster: ReplicaCluster) -> None:
    cluster.topic("old")
    cluster.run(200)
    cluster.topic("new")
    began_ms = cluster.clock.now_ms
    cluster.write("new")
    assert cluster.clock.now_ms - began_ms < 50, "a fetch is parked for 500 ms"


def test_a_fetch_looks_only_at_partitions_to_which_something_happened(
    new_cluster: Callable[..., ReplicaCluster],
) -> None:
    cluster = new_cluster(2)
    for name in ("a", "b", "c"):
        cluster.topic(name, (1, 2))
    cluster.run(1_200)
    (session,) = cluster[1].node.broker.data.fetch_sessions.of_followers()
    assert (len(session.partitions), len(session.stirred)) == (3, 0)
    reads = {name: cluster[1].partition(name).traffic.fetches for name in ("a", "b", "c")}
    asked = cluster[1].produce(1, topic="b")
    assert asked.result == (0, 0)
    assert [place.topic for place in session.stirred] == ["b"]
    cluster.run(1_200)
    assert not session.stirred
    assert [cluster[1].partition(name).traffic.fetches - reads[name] for name in ("a", "c")] == [0, 0]
    assert cluster[2].partition("b").high_watermark == 1


def test_what_a_session_was_not_told_of_is_found_when_all_of_it_is_looked_at(cluster: ReplicaCluster) -> None:
    cluster.topic()
    cluster.write("t", 3)
    cluster.run(1_200)
    cluster[1].partition().log.advance_log_start_offset(2)
    cluster.run(2_000)
    assert [cluster[broker].partition().log.log_start_offset for broker in (1, 2, 3)] == [2, 2, 2]


def test_a_follower_of_an_idle_partition_is_not_taken_for_a_laggard_when_something_is_written(
    cluster: ReplicaCluster,
) -> None:
    cluster.topic()
    cluster.write("t")
    cluster.run(10_000)
    partition, data = cluster[1].partition(), cluster[1].node.broker.data
    partition.append(memoryview(bytearray(batch())), 1, cluster.clock.wall_ms())
    data.shrink_isrs()
    assert partition.in_sync.pending is None


def test_a_hundred_partitions_travel_in_a_fetch_and_those_that_have_nothing_new_are_not_named(
    new_cluster: Callable[..., ReplicaCluster],
) -> None:
    cluster = new_cluster(2)
    assert cluster.create("many", partitions=100, factor=2).error_code == 0
    cluster.run(200)
    sizes: list[int] = []
    sessions = cluster[1].node.broker.data.fetch_sessions
    begin = sessions.begin

    def counted(body: Any, *rest: Any) -> Any:
        sizes.append(sum(len(topic.partitions) for topic in body.topics))
        return begin(body, *rest)

    sessions.begin = counted  # type: ignore[method-assign]
    led = next(p for p in cluster[1].node.broker.data.replicas.partitions.values() if p.is_leader)
    led.append(memoryview(bytearray(batch())), 1, cluster.clock.wall_ms())
    cluster[1].node.broker.data.appended(led)
    cluster.run(300)
    assert led.high_watermark == 1
    assert max(sizes) == 1, sizes


# --- what the broker writes itself


class Ending:
    """A transaction that a coordinator ends."""

    producer_id, producer_epoch, coordinator_epoch, commit, transaction_version = 9, 0, 0, True, 0


def test_a_transaction_marker_counts_when_the_isr_has_it(cluster: ReplicaCluster) -> None:
    cluster.topic(replicas=(1, 2))
    written = bytes(batch(1, b"in a transaction", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True))
    partition = cluster[1].partition()
    partition.append(memoryview(bytearray(written)), -1, cluster.clock.wall_ms(), guard=NOT_REQUIRED)
    cluster[1].node.broker.data.appended(partition)
    cluster.run(50)
    cluster.separate(1, 2)
    done: list[ErrorCode] = []
    cluster[1].node.broker.markers.write("t", 0, Ending(), done.append)
    cluster.run(300)
    assert not done and partition.last_stable_offset == 0
    cluster.join(1, 2)
    cluster.run_until(lambda: bool(done))
    assert done == [ErrorCode.NONE]
    assert partition.last_stable_offset == 2


# --- followers that go when they have just come ---------------------------------------------------------

LONG_LAG = {"replica_lag_time_max_ms": "30000"}


def test_a_follower_that_dies_after_it_came_back_holds_nobody_up(new_cluster: Callable[..., ReplicaCluster]) -> None:
    cluster = new_cluster(**LONG_LAG)
    cluster.topic()
    cluster[3].kill()
    cluster.run_until(lambda: cluster.isr() == (1, 2))
    cluster.write()
    cluster[3].start()
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    cluster[3].kill()
    asked, before_ms = cluster[1].produce(), cluster.clock.now_ms
    assert asked.result == (0, 1)
    assert cluster.clock.now_ms - before_ms < 5_000, "it left the ISR long before it lagged"


@pytest.mark.parametrize("goes", [True, False], ids=["dies", "falls silent"])
def test_a_follower_that_goes_before_it_has_joined_is_not_waited_for(
    new_cluster: Callable[..., ReplicaCluster], goes: bool
) -> None:
    cluster = new_cluster(**(LONG_LAG if goes else {}))
    cluster.deaf = {3}
    cluster.topic()
    cluster.run_until(lambda: cluster.isr() == (1, 2))
    in_sync = cluster[1].partition().in_sync
    in_sync.followers[3].fetched(0, 0, cluster.clock.now_ms)
    in_sync.await_if(in_sync.followers[3], True)
    asked, before_ms = cluster[1].produce(), cluster.clock.now_ms
    cluster.run(100)
    assert not asked.is_answered
    if goes:
        cluster[3].kill()
    assert asked.result == (0, 0)
    assert cluster.clock.now_ms - before_ms < 5_000


@pytest.mark.files
def test_a_leader_whose_disk_is_full_has_another_lead_and_follows_when_there_is_room(cluster: ReplicaCluster) -> None:
    cluster.topic()
    cluster.write()
    cluster[1].disk.fail_writes_after(0)
    assert cluster[1].produce().result[0] == ErrorCode.KAFKA_STORAGE_ERROR
    cluster.run_until(lambda: cluster.leader("t", 0) in (2, 3))
    cluster.run(100)
    assert cluster.leading().produce().result == (0, 1)
    assert 1 not in cluster.isr()
    cluster[1].disk.fail_writes_after(1 << 40)
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    cluster.write()
    assert len(cluster.contents()) == 1


@pytest.mark.files
def test_leaders_do_not_go_round_when_every_disk_is_full(cluster: ReplicaCluster) -> None:
    cluster.topic()
    cluster.write()
    for broker in (1, 2, 3):
        cluster[broker].disk.fail_writes_after(0)
    for _ in range(20):
        assert cluster.leading().produce().result[0] != 0
        cluster.run(1_000)
    assert cluster.leading().partition().leader_epoch <= 3
    for broker in (1, 2, 3):
        cluster[broker].disk.fail_writes_after(1 << 40)
    cluster.run(10_000)
    cluster.write()


def test_batches_that_were_not_committed_when_a_broker_stopped_are_known_when_they_are_sent_again(
    cluster: ReplicaCluster,
) -> None:
    cluster.topic(replicas=(1, 2), min_insync_replicas="2")

    def send(sequence: int) -> Any:
        return cluster[1].produce(batch(producer_id=7, producer_epoch=0, base_sequence=sequence))

    assert send(0).result == (0, 0)
    cluster.separate(2, 1, 3)
    for sequence in (1, 2, 3):
        send(sequence)
    cluster.run(50)
    cluster[2].kill()
    cluster.run_until(lambda: cluster.isr() == (1,))
    assert cluster[1].partition().high_watermark == 1 and cluster[1].partition().log.log_end_offset == 4
    cluster.stop(1)
    cluster.join(2, 1, 3)
    for broker in (1, 2):
        cluster[broker].start()
    cluster.run_until(lambda: cluster.isr() == (1, 2) and cluster[1].partition().is_leader)
    assert [send(sequence).result for sequence in (1, 2, 3, 4)] == [(0, 1), (0, 2), (0, 3), (0, 4)]
