"""Groups whose coordinator moves to another broker: what members hear, and what the next coordinator knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from replica_cluster import ReplicaCluster
from transaction_client import commit_offset, coordinator, fetch_offset, persist

from tidelog.peers.requester import Answered, Failure
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

GROUP = "g"
SESSION_MS = 10_000
#: all that a member hears because its coordinator moves
MOVING = {
    ErrorCode.NONE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    cluster = ReplicaCluster(3, offsets_topic_num_partitions="3", group_consumer_session_timeout_ms="45000")
    cluster.topic("t", min_insync_replicas="2")
    coordinator(cluster, GROUP)
    cluster.run(100)
    yield cluster
    cluster.check()


def join_request(member_id: str = "", instance: str | None = None) -> messages.JoinGroupRequest:
    request = messages.JoinGroupRequest
    return request(
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[request.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


class Member:
    """One that speaks the classic protocol; `heard` are all codes that it was answered."""

    def __init__(self, cluster: ReplicaCluster, instance: str | None = None, name: str = "first") -> None:
        self._cluster = cluster
        self.name = name
        self.instance = instance
        self.id = ""
        self.generation = -1
        self.heard: set[int] = set()
        self.asked: list[Answered[Any] | Failure] = []

    def ask(self, request: Any, version: int) -> Any:
        find = lambda: coordinator(self._cluster, GROUP)  # noqa: E731
        return persist(self._cluster, find, request, lambda answer: answer.error_code, version, self.heard, self.name)

    def begin_join(self) -> None:
        """Sends it, and does not wait."""
        at = coordinator(self._cluster, GROUP)
        self.asked = self._cluster.send(at, join_request(self.id, self.instance), 9, client=self.name)

    def join(self) -> Any:
        answer = self.ask(join_request(self.id, self.instance), 9)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.heard.discard(ErrorCode.MEMBER_ID_REQUIRED)
            self.id = answer.member_id
            answer = self.ask(join_request(self.id, self.instance), 9)
        assert answer.error_code == 0, answer
        self.id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, assignments: dict[str, bytes] | None = None) -> Any:
        request = messages.SyncGroupRequest
        return self.ask(
            request(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    request.SyncGroupRequestAssignment(member_id=member, assignment=data)
                    for member, data in (assignments or {}).items()
                ],
            ),
            5,
        )

    def heartbeat(self) -> int:
        request = messages.HeartbeatRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.id, group_instance_id=self.instance
        )
        return int(self.ask(request, 4).error_code)


def alone(cluster: ReplicaCluster, instance: str | None = None) -> Member:
    """The one member of a stable group."""
    member = Member(cluster, instance)
    member.join()
    assert member.sync({member.id: b"all"}).assignment == b"all"
    return member


def move(cluster: ReplicaCluster, way: str) -> None:
    before = coordinator(cluster, GROUP)
    if way == "killed":
        cluster.kill(before)
    else:
        cluster.stop(before)
    cluster.run_until(lambda: coordinator(cluster, GROUP) not in (before, -1))


@pytest.mark.parametrize("way", ["killed", "stopped"])
@pytest.mark.parametrize("instance", [None, "static"])
def test_a_group_and_its_offsets_are_as_they_were_with_the_next_coordinator(
    cluster: ReplicaCluster, way: str, instance: str | None
) -> None:
    member = alone(cluster, instance)
    commit_offset(cluster, "other", 5)
    commit_offset(cluster, "another", 6)
    move(cluster, way)
    assert member.heartbeat() == 0
    assert member.sync().assignment == b"all"
    assert [fetch_offset(cluster, "other"), fetch_offset(cluster, "another")] == [5, 6]
    if instance is not None:
        # A static member that was restarted is given its assignment back, without a rebalance.
        generation = member.generation
        member.id = ""
        assert member.join().generation_id == generation
        assert member.sync().assignment == b"all"
    assert member.heard <= MOVING, member.heard
    # Who does not show up is missed by the next coordinator as well.
    cluster.run(SESSION_MS + 1_000)
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("way", ["killed", "stopped"])
def test_a_rebalance_that_the_coordinator_leaves_behind_comes_to_an_end_with_the_next(
    cluster: ReplicaCluster, way: str
) -> None:
    first, second = alone(cluster), Member(cluster, name="second")
    second.begin_join()
    cluster.run_until(lambda: bool(second.asked))
    assert isinstance(second.asked[0], Answered)
    second.id = second.asked[0].message.member_id
    second.begin_join()
    cluster.run(50)
    assert not second.asked, "the rebalance waits for the first member"
    move(cluster, way)
    cluster.run_until(lambda: bool(second.asked))
    (told,) = second.asked
    if way == "stopped":
        assert isinstance(told, Answered) and told.message.error_code == ErrorCode.NOT_COORDINATOR
    # The next coordinator has never heard of the one that was joining; the first goes on.
    assert first.heartbeat() == 0
    second.id = ""
    second.begin_join()
    cluster.run_until(lambda: bool(second.asked))
    assert isinstance(second.asked[0], Answered)
    second.id = second.asked[0].message.member_id
    second.begin_join()
    cluster.run(50)
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    first.join()
    cluster.run_until(lambda: bool(second.asked))
    assert isinstance(second.asked[0], Answered)
    assert second.asked[0].message.generation_id == first.generation
    assert first.heard <= {*MOVING, ErrorCode.REBALANCE_IN_PROGRESS}, first.heard


def test_a_coordinator_that_was_replaced_answers_nothing_from_what_it_knew(cluster: ReplicaCluster) -> None:
    member = alone(cluster)
    before = coordinator(cluster, GROUP)
    move_leader(cluster, before)
    request = messages.HeartbeatRequest(group_id=GROUP, generation_id=member.generation, member_id=member.id)
    assert cluster.ask(before, request, 4).error_code == ErrorCode.NOT_COORDINATOR
    fetch = messages.OffsetFetchRequest
    wanted = fetch(groups=[fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    assert cluster.ask(before, wanted, 9).groups[0].error_code == ErrorCode.NOT_COORDINATOR
    assert member.heartbeat() == 0
    assert not cluster.nodes[before].broker.groups._timers.keys() & {
        key for key in cluster.nodes[before].broker.groups._timers if key[2] == GROUP
    }


def move_leader(cluster: ReplicaCluster, before: int) -> None:
    """Another broker is to lead the offsets, while all of them live."""
    request = messages.AlterPartitionReassignmentsRequest
    others = [broker for broker in (1, 2, 3) if broker != before]
    places = [request.ReassignablePartition(partition_index=index, replicas=[*others, before]) for index in range(3)]
    wanted = [request.ReassignableTopic(name="__consumer_offsets", partitions=places)]
    cluster.ask(cluster.controller.id, request(topics=wanted, timeout_ms=30_000))
    elect = messages.ElectLeadersRequest
    partitions = [elect.TopicPartitions(topic="__consumer_offsets", partitions=[0, 1, 2])]
    cluster.ask(cluster.controller.id, elect(election_type=0, topic_partitions=partitions, timeout_ms=30_000))
    cluster.run_until(lambda: coordinator(cluster, GROUP) not in (before, -1))


def offset_commit_request(offset: int, group: str = GROUP) -> messages.OffsetCommitRequest:
    request = messages.OffsetCommitRequest
    place = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return request(group_id=group, topics=[request.OffsetCommitRequestTopic(name="t", partitions=[place])])


def offset_fetch_request(*groups: str) -> messages.OffsetFetchRequest:
    request = messages.OffsetFetchRequest
    topics = [request.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    return request(groups=[request.OffsetFetchRequestGroup(group_id=group, topics=topics) for group in groups])


def test_a_position_is_told_when_it_is_replicated_and_not_before(cluster: ReplicaCluster) -> None:
    at = coordinator(cluster, GROUP)
    commit_offset(cluster, GROUP, 5)
    cluster.isr_is_stuck = True
    others = [broker for broker in (1, 2, 3) if broker != at]
    cluster.separate(at, *others)
    committed = cluster.send(at, offset_commit_request(9), 8, client="another")
    cluster.run(50)
    fetched = cluster.send(at, offset_fetch_request(GROUP), 9)
    cluster.run(1_000)
    assert not committed and not fetched
    # offsets.commit.timeout.ms
    cluster.run(5_000)
    assert isinstance(committed[0], Answered) and isinstance(fetched[0], Answered)
    assert committed[0].message.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert fetched[0].message.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    cluster.isr_is_stuck = False
    cluster.join(at, *others)
    # Nobody was told that it failed for good, and it did not.
    assert fetch_offset(cluster, GROUP) == 9


def test_positions_of_several_groups_are_told_when_all_of_them_are_replicated(cluster: ReplicaCluster) -> None:
    at = coordinator(cluster, GROUP)
    move_leader(cluster, at)
    at = coordinator(cluster, GROUP)
    partition_for = cluster.nodes[at].broker.groups.room.partition_for
    others = {partition_for(name): name for name in map(str, range(20))}
    idle = next(name for index, name in others.items() if index != partition_for(GROUP))
    assert coordinator(cluster, idle) == at
    commit_offset(cluster, GROUP, 5)
    commit_offset(cluster, idle, 5)
    cluster.isr_is_stuck = True
    away = [broker for broker in (1, 2, 3) if broker != at]
    cluster.separate(at, *away)
    cluster.send(at, offset_commit_request(9), 8, client="another")
    cluster.run(50)
    orders = ((GROUP, idle), (idle, GROUP))
    fetched = [cluster.send(at, offset_fetch_request(*order), 9, client=order[0]) for order in orders]
    cluster.run(1_000)
    assert fetched == [[], []]
    cluster.isr_is_stuck = False
    cluster.join(at, *away)
    cluster.run_until(lambda: all(fetched))
    for order, outcome in zip(orders, fetched, strict=True):
        assert isinstance(outcome[0], Answered)
        told = {group.group_id: group.topics[0].partitions[0].committed_offset for group in outcome[0].message.groups}
        assert told == {GROUP: 9, idle: 5} and tuple(told) == order


def test_a_commit_that_its_coordinator_could_not_replicate_is_refused_and_gone(cluster: ReplicaCluster) -> None:
    at = coordinator(cluster, GROUP)
    commit_offset(cluster, GROUP, 5)
    others = [broker for broker in (1, 2, 3) if broker != at]
    cluster.isr_is_stuck = True
    cluster.separate(at, *others)
    committed = cluster.send(at, offset_commit_request(9), 8)
    cluster.run(100)
    node = cluster.nodes[at]
    cluster.ensemble.expire(node.store)
    cluster.run_until(lambda: cluster.leader("__consumer_offsets", 0) != at)
    cluster.isr_is_stuck = False
    cluster.run_until(lambda: bool(committed))
    assert isinstance(committed[0], Answered)
    code = committed[0].message.topics[0].partitions[0].error_code
    assert code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    cluster.kill(at, expire=False)
    assert fetch_offset(cluster, GROUP) == 5


def test_a_member_of_the_newer_protocol_goes_on_with_the_next_coordinator(cluster: ReplicaCluster) -> None:
    heard: set[int] = set()

    def heartbeat(epoch: int, **fields: Any) -> Any:
        request = messages.ConsumerGroupHeartbeatRequest(
            group_id="new", member_id="m" * 22, member_epoch=epoch, rebalance_timeout_ms=60_000, **fields
        )
        find = lambda: coordinator(cluster, "new")  # noqa: E731
        return persist(cluster, find, request, lambda answer: answer.error_code, 1, heard)

    joined = heartbeat(0, subscribed_topic_names=["t"], topic_partitions=[])
    assert joined.error_code == 0, joined
    held = joined.assignment.topic_partitions
    before = coordinator(cluster, "new")
    cluster.kill(before)
    cluster.run_until(lambda: coordinator(cluster, "new") not in (before, -1))
    again = heartbeat(joined.member_epoch)
    assert (again.error_code, again.member_epoch) == (0, joined.member_epoch)
    (described,) = cluster.ask(
        coordinator(cluster, "new"), messages.ConsumerGroupDescribeRequest(group_ids=["new"]), 1
    ).groups
    assert [member.assignment.topic_partitions for member in described.members] and held
    assert described.group_state == "Stable"
    assert heard <= MOVING, heard


def test_offsets_expire_with_the_next_coordinator() -> None:
    cluster = ReplicaCluster(3, offsets_retention_minutes="1", offsets_retention_check_interval_ms="1000")
    cluster.topic("t", min_insync_replicas="2")
    commit_offset(cluster, GROUP, 5)
    move(cluster, "killed")
    assert fetch_offset(cluster, GROUP) == 5
    cluster.run(62_000)
    assert fetch_offset(cluster, GROUP) == -1
    cluster.check()


def test_every_broker_lists_the_groups_that_it_coordinates(cluster: ReplicaCluster) -> None:
    names = [f"g{number}" for number in range(9)]
    for name in names:
        commit_offset(cluster, name, 1)
    at = {name: coordinator(cluster, name) for name in names}
    assert len(set(at.values())) == 3
    for broker in (1, 2, 3):
        listed = {group.group_id for group in cluster.ask(broker, messages.ListGroupsRequest()).groups}
        assert listed == {name for name in names if at[name] == broker}
        described = cluster.ask(broker, messages.DescribeGroupsRequest(groups=names), 5).groups
        codes = {group.group_id: group.error_code for group in described}
        assert codes == {name: 0 if at[name] == broker else ErrorCode.NOT_COORDINATOR for name in names}


def test_a_group_is_described_and_listed_when_its_members_are_replicated_and_not_before(
    cluster: ReplicaCluster,
) -> None:
    at = coordinator(cluster, "new")
    others = [broker for broker in (1, 2, 3) if broker != at]

    def ask() -> list[list[Answered[Any] | Failure]]:
        return [
            cluster.send(at, messages.ConsumerGroupDescribeRequest(group_ids=["new"]), 1, client="a"),
            cluster.send(at, messages.DescribeGroupsRequest(groups=["new"]), 5, client="b"),
            cluster.send(at, messages.ListGroupsRequest(), client="c"),
        ]

    def answers(outcomes: list[list[Answered[Any] | Failure]]) -> list[Any]:
        cluster.run_until(lambda: all(outcomes))
        assert all(isinstance(outcome[0], Answered) for outcome in outcomes)
        return [outcome[0].message for outcome in outcomes]  # type: ignore[union-attr]

    cluster.isr_is_stuck = True
    cluster.separate(at, *others)
    joining = messages.ConsumerGroupHeartbeatRequest(
        group_id="new",
        member_id="m" * 22,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    cluster.send(at, joining, 1, client="joining")
    cluster.run(50)
    asked = ask()
    cluster.run(1_000)
    assert asked == [[], [], []]
    described, described_classic, listed = answers(asked)
    assert described.groups[0].error_code == described_classic.groups[0].error_code == listed.error_code
    assert listed.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE and not listed.groups
    cluster.isr_is_stuck = False
    cluster.join(at, *others)
    cluster.run(5_000)
    at = coordinator(cluster, "new")
    described, _, listed = answers(ask())
    assert [member.member_id for member in described.groups[0].members] == ["m" * 22]
    assert [group.group_id for group in listed.groups] == ["new"]
