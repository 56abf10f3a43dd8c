"""Delay topics over several brokers: the delay partition and its target are led by different ones, and both move."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from replica_cluster import ReplicaCluster

from tidelog.wire.records import Record, build_batch, iter_records


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    cluster = ReplicaCluster(3)
    make_topics(cluster)
    yield cluster
    cluster.check()


def make_topics(cluster: ReplicaCluster) -> None:
    cluster.topic("orders", (1, 2, 3), min_insync_replicas="2")
    cluster.topic("later", (2, 3, 1), min_insync_replicas="2", tidelog_delay_target="orders")


def put(cluster: ReplicaCluster, value: bytes, delay_ms: int) -> None:
    """Without repeats: what became of it is in the log."""
    leader = cluster.leader("later", 0)
    if leader in cluster.nodes:
        headers = [("tidelog-delay", b"%d" % delay_ms)]
        batch = bytes(build_batch([(cluster.clock.wall_ms(), b"key", value, headers)]))
        cluster[leader].produce(batch, topic="later", timeout_ms=2_000)


def records(cluster: ReplicaCluster, topic: str) -> list[Record]:
    """What consumers see."""
    partition = cluster[cluster.leader(topic, 0)].partition(topic)
    found: list[Record] = []
    offset = partition.log.log_start_offset
    while (piece := partition.log.read(offset, 1 << 20, partition.high_watermark)) is not None:
        found += iter_records(piece.read())
        offset = piece.next_offset
    return found


def values(cluster: ReplicaCluster) -> list[bytes | None]:
    return [record.value for record in records(cluster, "orders")]


def test_a_record_is_delivered_to_a_target_that_another_broker_leads(cluster: ReplicaCluster) -> None:
    put(cluster, b"b", 2_000)
    put(cluster, b"a", 1_000)
    cluster.run(900)
    assert values(cluster) == []
    cluster.run(1_500)
    assert values(cluster) == [b"a", b"b"]


def test_what_waits_is_delivered_by_the_next_leader(cluster: ReplicaCluster) -> None:
    put(cluster, b"soon", 100)
    put(cluster, b"far", 4_000)
    cluster.run(500)
    cluster[2].kill()
    cluster.run_until(lambda: cluster.leader("later", 0) not in (2, -1))
    cluster.run(6_000)
    assert values(cluster) == [b"soon", b"far"]
    cluster[2].start()
    cluster.run(2_000)
    assert values(cluster) == [b"soon", b"far"]


def test_nothing_is_delivered_before_the_decision_is_committed(cluster: ReplicaCluster) -> None:
    """The next leader would not know of it, and give its sequence to another record."""
    cluster.topic("alone", (1,))
    cluster.topic("soon", (2, 3), min_insync_replicas="2", tidelog_delay_target="alone")
    headers = [("tidelog-delay", b"2000")]
    cluster.write("soon", bytes(build_batch([(cluster.clock.wall_ms(), b"key", b"a", headers)])))
    cluster.run(1_900)
    cluster.network.cut("b3", "b2")
    cluster.run(600)
    assert records(cluster, "alone") == []
    cluster.network.mend("b3", "b2")
    cluster.run(3_000)
    assert [record.value for record in records(cluster, "alone")] == [b"a"]


def test_a_follower_keeps_what_waits_whatever_its_retention_says(cluster: ReplicaCluster) -> None:
    put(cluster, b"far", 30_000)
    cluster.run(1_000)
    cluster.clock.now_ms += 15 * 24 * 60 * 60 * 1000
    for site in cluster.sites.values():
        site.node.broker.housekeeping.retain()
        assert site.partition("later").log.log_start_offset == 0


@pytest.mark.parametrize("seed", range(3))
def test_each_committed_record_arrives_once_in_order_while_leaders_die(seed: int) -> None:
    cluster, chance = ReplicaCluster(3, seed=seed), Random(seed)
    make_topics(cluster)
    down: int | None = None
    for number in range(60):
        put(cluster, b"%d" % number, chance.choice([0, 50, 700, 3_000]))
        cluster.run(chance.choice([0, 5, 40, 300]))
        if number % 10 == 9:
            if down is None:
                down = chance.choice([cluster.leader("later", 0), cluster.leader("orders", 0), 1, 2, 3])
                down = down if down in cluster.nodes else None
                if down is not None:
                    cluster[down].kill()
            else:
                cluster[down].start()
                down = None
    if down is not None:
        cluster[down].start()
    cluster.run(8_000)
    cluster.bring_in_sync()
    sent = {record.offset: record for record in records(cluster, "later")}
    arrived = [
        (int(dict(record.headers)["tidelog-origin-offset"] or b""), record) for record in records(cluster, "orders")
    ]
    assert len(sent) > 30
    assert sorted(offset for offset, _ in arrived) == sorted(sent)
    for offset, record in arrived:
        due_ms = sent[offset].timestamp + int(dict(sent[offset].headers)["tidelog-delay"] or b"")
        assert record.value == sent[offset].value
        assert record.timestamp >= due_ms
    cluster.check()


@pytest.mark.parametrize("dies", [2, 1], ids=["the deliverer", "the leader of the target"])
def test_a_delivery_that_arrived_and_is_refused_when_it_is_repeated_arrives_once(
    cluster: ReplicaCluster, dies: int
) -> None:
    """A broker dies as soon as the target has the record, and the target takes none without a key from then on."""
    headers = [("tidelog-delay", b"500")]
    cluster.write("later", bytes(build_batch([(cluster.clock.wall_ms(), None, b"keyless", headers)])))
    leader = cluster[1].partition("orders")
    cluster.run_until(lambda: leader.log.log_end_offset == 1)
    cluster.run_until(lambda: all(cluster[at].partition("orders").log.log_end_offset == 1 for at in (1, 2, 3)))
    cluster[dies].kill()
    cluster.alter(2, "orders", **{"cleanup.policy": "compact"})
    cluster.run_until(lambda: -1 not in (cluster.leader("later", 0), cluster.leader("orders", 0)))
    cluster.run_until(lambda: dies not in (cluster.leader("later", 0), cluster.leader("orders", 0)))
    cluster.run(3_000)
    put(cluster, b"next", 100)
    cluster.run(3_000)
    assert values(cluster) == [b"keyless", b"next"]
    (delayed,) = cluster[cluster.leader("later", 0)].node.broker.delays.partitions.values()
    assert not delayed.schedule.picture.stopped
    cluster.alter(2, "orders", **{"cleanup.policy": "delete"})
    cluster.run(3_000)
    assert values(cluster) == [b"keyless", b"next"]
    assert cluster[3].partition("orders").log.log_end_offset == 2
    cluster[dies].start()


def test_a_prepared_half_message_is_delivered_by_the_next_leader_when_it_is_committed(cluster: ReplicaCluster) -> None:
    cluster.topic("halves", (2, 3, 1), min_insync_replicas="2", tidelog_half_target="orders")

    def half(half_id: bytes, value: bytes | None, *end: tuple[str, bytes]) -> None:
        headers = [("tidelog-half-id", half_id), *end]
        cluster.write("halves", bytes(build_batch([(cluster.clock.wall_ms(), b"key", value, headers)])))

    half(b"1", b"one")
    half(b"2", b"two")
    half(b"2", None, ("tidelog-half-end", b"commit"))
    cluster.run(500)
    assert values(cluster) == [b"two"]
    cluster[2].kill()
    cluster.run_until(lambda: cluster.leader("halves", 0) not in (2, -1))
    cluster.run(1_000)
    half(b"1", None, ("tidelog-half-end", b"commit"))
    cluster.run(1_000)
    assert values(cluster) == [b"two", b"one"]
