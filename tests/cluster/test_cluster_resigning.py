"""Leaders that stop leading before what they have appended could be acknowledged: another leader does not have it, and
nobody may be told that it is there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from replica_cluster import Asked, ReplicaCluster, batch, values

from tidelog.control.model import ResourceType
from tidelog.coordinator.markers import Markers
from tidelog.wire import messages
from tidelog.wire.compression import GZIP
from tidelog.wire.errors import ErrorCode

TOPIC = int(ResourceType.TOPIC)
FLUSH_MS = 3_000


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    cluster = ReplicaCluster(3)
    assert cluster.controller.id == 1
    yield cluster
    cluster.check()


class Ending:
    """A transaction that a coordinator ends."""

    producer_id, producer_epoch, coordinator_epoch, commit, transaction_version = 9, 0, 0, True, 0


def be_led_by_2(cluster: ReplicaCluster, topic: str) -> None:
    """Broker 2 leads, and 3 is preferred: it is elected at any moment. Every append is flushed, which takes 2 long."""
    cluster.topic(topic, (3, 2), flush_messages="1")
    cluster[3].kill()
    cluster[3].start()
    cluster.bring_in_sync()
    assert cluster.leader(topic, 0) == 2
    cluster[2].node.life.work_ms = FLUSH_MS
    cluster.separate(2, 3)


def be_cut_by_3(cluster: ReplicaCluster, topic: str, end_offset: int) -> None:
    """Broker 3, which has not seen what was appended last, leads; and 2 is cut to what 3 has."""
    partition = cluster[2].partition(topic)
    assert partition.is_leader and partition.log.log_end_offset > end_offset
    cluster.elect_preferred(topic)
    cluster.join(2, 3)
    cluster.run_until(lambda: partition.log.log_end_offset == end_offset)


@pytest.mark.parametrize("returns", [False, True], ids=["follows", "leads again"])
def test_a_marker_that_was_cut_off_while_it_was_flushed_is_not_acknowledged(
    cluster: ReplicaCluster, returns: bool
) -> None:
    be_led_by_2(cluster, "t")
    markers: Markers = cluster[2].node.broker.markers
    done: list[ErrorCode] = []
    markers.write("t", 0, Ending(), done.append)
    be_cut_by_3(cluster, "t", 0)
    if returns:
        cluster[3].kill()
        cluster.run_until(lambda: cluster[2].partition().is_leader)
    assert not done, "it is still being flushed"
    cluster.run_until(lambda: bool(done))
    assert done == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert values(cluster[2].partition()) == []


def test_records_that_were_cut_off_while_the_rest_of_their_request_took_long_are_not_acknowledged(
    cluster: ReplicaCluster,
) -> None:
    cluster.topic("alone", (2,))
    be_led_by_2(cluster, "t")
    cluster.alter(TOPIC, "t", **{"flush.messages": str(2**63 - 1)})
    request = messages.ProduceRequest
    wanted = [
        request.TopicProduceData(name=name, partition_data=[request.PartitionProduceData(records=records)])
        for name, records in {"t": batch(1), "alone": batch(1, bytes(1 << 20), codec=GZIP)}.items()
    ]
    asked = Asked(cluster, cluster.send(2, request(acks=-1, timeout_ms=30_000, topic_data=wanted), 12))
    cluster.run_until(lambda: cluster[2].partition().log.log_end_offset == 1)
    be_cut_by_3(cluster, "t", 0)
    cluster[3].produce(1)
    cluster.run(10)
    cluster[3].kill()
    cluster.run_until(lambda: cluster[2].partition().is_leader and cluster[2].partition().high_watermark == 1)
    assert not asked.is_answered, "the rest is still being checked"
    codes = [topic.partition_responses[0].error_code for topic in asked.answer.responses]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, 0]


def test_a_position_that_was_cut_off_while_it_was_flushed_is_not_acknowledged(cluster: ReplicaCluster) -> None:
    cluster.topic("t")
    be_led_by_2(cluster, "__consumer_offsets")
    request = messages.OffsetCommitRequest
    place = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topics = [request.OffsetCommitRequestTopic(name="t", partitions=[place])]
    asked = cluster.send(2, request(group_id="g", topics=topics), 8)
    offsets = cluster[2].partition("__consumer_offsets")
    cluster.run_until(lambda: offsets.log.log_end_offset > 0)
    be_cut_by_3(cluster, "__consumer_offsets", 0)
    assert not asked, "it is still being flushed"
    cluster.run_until(lambda: bool(asked))
    (told,) = asked[0].message.topics[0].partitions  # type: ignore[union-attr]
    assert told.error_code == ErrorCode.NOT_COORDINATOR


def test_an_election_of_all_is_answered_though_a_topic_was_deleted_before_everybody_knew(
    cluster: ReplicaCluster,
) -> None:
    cluster.topic("t", (2, 1))
    cluster[2].kill()
    cluster[2].start()
    cluster.bring_in_sync()
    cluster.deaf = {3}
    everything = messages.ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1_000)
    asked = Asked(cluster, cluster.send(1, everything))
    cluster.run(5)
    request = messages.DeleteTopicsRequest
    topics = [request.DeleteTopicState(name="t")]
    cluster.send(1, request(topics=topics, timeout_ms=30_000), client="another")
    (told,) = asked.answer.replica_election_results
    assert (told.topic, [each.error_code for each in told.partition_result]) == ("t", [0])
    assert "t" not in cluster.stored.topics


def test_a_leader_that_stops_hands_over_to_a_replica_that_catches_up_meanwhile(cluster: ReplicaCluster) -> None:
    cluster.topic("t", (2, 3))
    cluster.separate(2, 3)
    written = cluster[2].produce()
    cluster.run_until(lambda: cluster.isr() == (2,))
    assert written.result == (0, 0)
    left: list[bool] = []
    cluster[2].node.broker.leave(lambda: left.append(True))
    cluster.run(1_000)
    assert not left and cluster.leader("t", 0) == 2
    cluster.join(2, 3)
    cluster.run_until(lambda: bool(left))
    assert (cluster.leader("t", 0), cluster.isr()) == (3, (3,))
    assert not any("without having handed over" in notice for notice in cluster[2].node.notices)


def test_a_record_that_all_have_is_acknowledged_after_its_flush_whoever_leads_by_then(cluster: ReplicaCluster) -> None:
    """A producer that is not idempotent would write it once more."""
    be_led_by_2(cluster, "t")
    cluster.join(2, 3)
    request = messages.ProduceRequest
    data = request.TopicProduceData(name="t", partition_data=[request.PartitionProduceData(records=batch(1))])
    asked = Asked(cluster, cluster.send(2, request(acks=-1, timeout_ms=30_000, topic_data=[data]), 12))
    cluster.run_until(lambda: cluster[2].partition().high_watermark == 1)
    cluster.elect_preferred("t")
    cluster.run_until(lambda: not cluster[2].partition().is_leader)
    assert asked.answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
