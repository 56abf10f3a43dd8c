"""Transactions over several brokers: coordinators, the leaders they mark and the groups they commit for, all apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from replica_cluster import ReplicaCluster
from transaction_client import TransactionalClient, committed, coordinator, fetch_offset

from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

TOPICS = ("t1", "t2", "t3")
#: a client hears nothing else while a coordinator moves, beside errors that it tries again on with its leaders
MOVING = {
    ErrorCode.NONE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    cluster = ReplicaCluster(3)
    # One topic led by each broker: whichever of them coordinates, two are led elsewhere.
    for broker, topic in enumerate(TOPICS, 1):
        others = [other for other in (1, 2, 3) if other != broker]
        cluster.topic(topic, (broker, *others), min_insync_replicas="2")
    yield cluster
    cluster.check()


@pytest.fixture(params=[True, False], ids=["v2", "v1"])
def client(cluster: ReplicaCluster, request: pytest.FixtureRequest) -> TransactionalClient:
    return TransactionalClient(cluster, adds=request.param)


def write_everywhere(client: TransactionalClient, value: bytes) -> None:
    assert [client.write(value, topic) for topic in TOPICS] == [0, 0, 0]


def seen(cluster: ReplicaCluster) -> list[list[bytes]]:
    return [committed(cluster, topic) for topic in TOPICS]


def settle(cluster: ReplicaCluster, client: TransactionalClient) -> None:
    cluster.run_until(lambda: client.state in ("CompleteCommit", "CompleteAbort"))


def test_a_transaction_over_three_brokers_ends_on_all_of_them(
    cluster: ReplicaCluster, client: TransactionalClient
) -> None:
    write_everywhere(client, b"first")
    assert seen(cluster) == [[], [], []]
    assert client.end() == 0
    write_everywhere(client, b"second")
    assert client.end(commit=False) == 0
    write_everywhere(client, b"third")
    assert client.end() == 0
    settle(cluster, client)
    assert seen(cluster) == [[b"first", b"third"]] * 3


def test_a_transaction_is_complete_when_its_markers_are_replicated(cluster: ReplicaCluster) -> None:
    client = TransactionalClient(cluster)
    write_everywhere(client, b"value")
    away = next(broker for broker in (1, 2, 3) if broker != client.coordinator)
    leader = cluster[away].partition(f"t{away}")
    cluster.separate(away, *(other for other in (1, 2, 3) if other not in (away, client.coordinator)))
    cluster.isr_is_stuck = True
    cluster.send(client.coordinator, client.end_request(), 5)
    end_offset = leader.log.log_end_offset
    cluster.run_until(lambda: leader.log.log_end_offset > end_offset)
    assert client.state == "PrepareCommit"
    cluster.isr_is_stuck = False
    cluster.join(away, *(other for other in (1, 2, 3) if other != away))
    settle(cluster, client)
    assert seen(cluster) == [[b"value"]] * 3


def test_markers_follow_a_leader_that_moves(cluster: ReplicaCluster, client: TransactionalClient) -> None:
    write_everywhere(client, b"value")
    away = next(broker for broker in (1, 2, 3) if broker != client.coordinator)
    ended = cluster.send(client.coordinator, client.end_request(), 5)
    cluster.kill(away)
    cluster.run_until(lambda: bool(ended))
    settle(cluster, client)
    assert seen(cluster) == [[b"value"]] * 3


def test_a_partition_that_was_deleted_needs_no_marker(cluster: ReplicaCluster, client: TransactionalClient) -> None:
    write_everywhere(client, b"value")
    away = next(broker for broker in (1, 2, 3) if broker != client.coordinator)
    cluster.delete_topic(f"t{away}")
    cluster.agree()
    assert client.end() == 0
    settle(cluster, client)
    assert [committed(cluster, topic) for topic in TOPICS if topic != f"t{away}"] == [[b"value"]] * 2


@pytest.mark.parametrize("way", ["killed", "stopped", "deposed"])
def test_the_next_coordinator_finishes_what_is_prepared(
    cluster: ReplicaCluster, client: TransactionalClient, way: str
) -> None:
    write_everywhere(client, b"value")
    before = client.coordinator
    node = cluster.nodes[before]
    # Its markers go nowhere: it is the last thing that the coordinator does.
    node.broker.transactions._delivery.deliver = lambda markers, told: None  # type: ignore[method-assign]
    ended = cluster.send(before, client.end_request(), 5)
    cluster.run_until(lambda: bool(ended))
    assert client.state == "PrepareCommit"
    assert seen(cluster) == [[], [], []]
    if way == "killed":
        cluster.kill(before)
    elif way == "stopped":
        cluster.stop(before)
    else:
        reassign(cluster, before)
    cluster.run_until(lambda: client.coordinator not in (before, -1))
    settle(cluster, client)
    assert seen(cluster) == [[b"value"]] * 3
    assert client.heard <= MOVING, client.heard


def reassign(cluster: ReplicaCluster, before: int) -> None:
    """Has others lead what a broker leads of the transactions, and asks it at once."""
    request = messages.AlterPartitionReassignmentsRequest
    others = [broker for broker in (1, 2, 3) if broker != before]
    places = [request.ReassignablePartition(partition_index=index, replicas=[*others, before]) for index in range(2)]
    wanted = [request.ReassignableTopic(name="__transaction_state", partitions=places)]
    cluster.ask(cluster.controller.id, request(topics=wanted, timeout_ms=30_000))
    places = [messages.ElectLeadersRequest.TopicPartitions(topic="__transaction_state", partitions=[0, 1])]
    cluster.ask(
        cluster.controller.id,
        messages.ElectLeadersRequest(election_type=0, topic_partitions=places, timeout_ms=30_000),
    )


def test_an_open_transaction_goes_on_with_the_next_coordinator(
    cluster: ReplicaCluster, client: TransactionalClient
) -> None:
    client.write(b"value", "t1")
    before = client.coordinator
    cluster.kill(before)
    for topic in TOPICS[1:]:
        assert client.write(b"value", topic) == 0
    assert client.end() == 0
    settle(cluster, client)
    assert seen(cluster) == [[b"value"]] * 3
    assert client.heard <= MOVING, client.heard


def test_a_produce_to_another_broker_after_the_end_is_refused_there(cluster: ReplicaCluster) -> None:
    client = TransactionalClient(cluster, adds=False)
    away = next(broker for broker in (1, 2, 3) if broker != client.coordinator)
    assert client.write(b"value", f"t{away}") == 0
    assert client.end() == 0
    settle(cluster, client)
    client.add = lambda topic, partition: None  # type: ignore[method-assign]
    assert client.write(b"late", f"t{away}") in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
    leader = cluster[away].partition(f"t{away}")
    assert leader.last_stable_offset == leader.high_watermark


def test_a_transaction_that_cannot_be_verified_is_to_be_tried_again(cluster: ReplicaCluster) -> None:
    client = TransactionalClient(cluster)
    at = client.coordinator
    away = next(broker for broker in (1, 2, 3) if broker != at)
    topic = f"t{away}"
    cluster.separate(away, at)
    body, code_of = client.produce_request(b"value", topic), client.produced_code
    asked = cluster.send(away, body, 12)
    cluster.run_until(lambda: bool(asked))
    assert code_of(asked[0].message) == ErrorCode.NOT_ENOUGH_REPLICAS  # type: ignore[union-attr]
    cluster.join(away, at)
    assert client.write(b"value", topic) == 0
    assert client.end() == 0
    settle(cluster, client)
    assert committed(cluster, topic) == [b"value"]


def test_a_broker_that_does_not_lead_says_so_and_adds_nothing_to_the_transaction(cluster: ReplicaCluster) -> None:
    client = TransactionalClient(cluster)
    for broker in (1, 2, 3):
        topic = "t2" if broker == 1 else "t1"
        answer = cluster.ask(broker, client.produce_request(b"value", topic), 12)
        assert client.produced_code(answer) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.responses[0].partition_responses[0].current_leader.leader_id == int(topic[1])
    of_group = coordinator(cluster, "g")
    cluster.bring_in_sync()
    request = messages.TxnOffsetCommitRequest
    place = request.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    body = request(
        transactional_id=client.id,
        group_id="g",
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        topics=[request.TxnOffsetCommitRequestTopic(name="t1", partitions=[place])],
    )
    for broker in {1, 2, 3} - {of_group}:
        told = cluster.ask(broker, body, 5).topics[0].partitions[0]
        assert told.error_code == ErrorCode.NOT_COORDINATOR
    assert client.state == "Empty"


def test_offsets_of_a_transaction_reach_a_group_on_another_broker(
    cluster: ReplicaCluster, client: TransactionalClient
) -> None:
    # Groups on both partitions of the offsets topic: one at least has another coordinator.
    groups = [f"g{number}" for number in range(4)]
    for group in groups:
        coordinator(cluster, group)
    assert [client.commit_offset(group, 7, "t1") for group in groups] == [0] * 4
    assert client.end() == 0
    settle(cluster, client)
    assert [fetch_offset(cluster, group, "t1") for group in groups] == [7] * 4
    assert [client.commit_offset(group, 9, "t1") for group in groups] == [0] * 4
    assert client.end(commit=False) == 0
    settle(cluster, client)
    assert [fetch_offset(cluster, group, "t1", require_stable=True) for group in groups] == [7] * 4


def test_operators_are_shown_no_state_of_a_transaction_before_it_is_replicated(cluster: ReplicaCluster) -> None:
    client = TransactionalClient(cluster)
    cluster.bring_in_sync()
    others = [broker for broker in (1, 2, 3) if broker != client.coordinator]
    assert (client.state, listed(cluster, client)) == ("Empty", ["Empty"])
    cluster.separate(client.coordinator, *others)
    cluster.isr_is_stuck = True
    topic = f"t{client.coordinator}"
    cluster.send(client.coordinator, client.produce_request(b"value", topic), 12, client="writer")
    cluster.run(500)
    assert (client.state, listed(cluster, client)) == ("Empty", ["Empty"])
    cluster.isr_is_stuck = False
    cluster.join(client.coordinator, *others)
    cluster.run_until(lambda: client.state == "Ongoing")
    assert listed(cluster, client) == ["Ongoing"]


def listed(cluster: ReplicaCluster, client: TransactionalClient) -> list[str]:
    answer = cluster.ask(client.coordinator, messages.ListTransactionsRequest())
    return [each.transaction_state for each in answer.transaction_states]
