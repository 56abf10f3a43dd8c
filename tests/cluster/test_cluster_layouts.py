"""Brokers that store their logs in different layouts replicate with each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from replica_cluster import ReplicaCluster, batch, content, values

from tidelog.log.file_segment import FileSegment
from tidelog.log.shared.queue_segment import QueueSegment


@pytest.fixture(params=["shared first", "partitioned first"])
def cluster(request: pytest.FixtureRequest) -> Iterator[ReplicaCluster]:
    """Broker 1 is the first to lead."""
    layouts = ("shared", "partitioned", "shared") if request.param == "shared first" else ("partitioned", "shared") * 2
    cluster = ReplicaCluster(3, layouts=layouts)
    yield cluster
    cluster.check()


def test_all_replicas_hold_the_same_bytes_whoever_leads(cluster: ReplicaCluster) -> None:
    cluster.topic()
    kinds = {type(cluster[broker].partition().log.segments.active) for broker in (1, 2, 3)}
    assert kinds == {QueueSegment, FileSegment}
    for broker in (1, 2, 3):
        for _ in range(5):
            cluster.write("t", batch(3, b"%d" % broker))
        cluster.leading().kill()
        cluster.run_until(lambda: len(cluster.isr()) == 2)
        cluster.run(1000)
        cluster.write("t", batch(2, b"fewer"))
        for site in cluster.sites.values():
            if site.id not in cluster.nodes:
                site.start()
        cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    assert len(cluster.contents()) == 1
    assert len(values(cluster[1].partition())) == 3 * (15 + 2)


def test_a_leader_that_comes_back_is_cut_to_what_the_next_one_has(cluster: ReplicaCluster) -> None:
    cluster.topic()
    cluster.write("t", batch(3, b"acknowledged"))
    cluster.separate(1, 2, 3)
    cluster[1].produce(batch(2, b"lost"), acks=1)
    cluster.run(10)
    cluster[1].kill()
    cluster.run_until(lambda: cluster.leading().id != 1)
    cluster.join(1, 2, 3)
    cluster.run(1000)
    assert cluster.leading().produce(batch(4, b"kept")).result == (0, 3)
    cluster[1].start()
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    assert values(cluster[1].partition()) == [b"acknowledged"] * 3 + [b"kept"] * 4
    # And so it is after the next start.
    cluster[1].kill()
    cluster[1].start()
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    assert len(cluster.contents()) == 1


def test_a_replica_that_was_away_while_its_end_was_deleted_starts_anew(cluster: ReplicaCluster) -> None:
    cluster.topic()
    cluster.write("t", 5)
    for away in (2, 3):
        cluster[away].kill()
        cluster.run_until(lambda: len(cluster.isr()) == 2)
        cluster.run(1000)
        for _ in range(4):
            cluster.write("t", 5)
        end_offset = cluster.leading().partition().log.log_end_offset
        for site in cluster.sites.values():
            if site.id in cluster.nodes:
                site.partition().log.roll(0)
        low = cluster.delete_records(end_offset - 3).answer.topics[0].partitions[0].low_watermark
        cluster[away].start()
        cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
        assert cluster[away].partition().log.log_start_offset == low == end_offset - 3
        cluster.write("t", 1)
        assert content(cluster[away].partition()) == content(cluster.leading().partition())


def test_a_replica_with_an_empty_disk_is_filled_by_a_leader_of_the_other_layout(cluster: ReplicaCluster) -> None:
    cluster.topic()
    for _ in range(10):
        cluster.write("t", 7)
    cluster[2].kill()
    cluster[2].lose_disk()
    cluster[2].start()
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    assert len(cluster.contents()) == 1
