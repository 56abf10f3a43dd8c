"""Scripts of raw requests to the coordinators: group members by hand, offsets, transactions out of order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from scripts_records import RECORDS, create, new_producer
from stock import eventually
from wiretap import Wire, batch

Steps = Iterator[tuple[str, Any]]


#: The coordinator is loading, not there yet, or elsewhere: what a client tries again.
NOT_YET = (14, 15, 16)


def ready(wire: Wire, key: str, kind: int = 0) -> None:
    """Waits for the coordinator: the first question in a broker's life makes its topic."""
    eventually(lambda: wire.raw(FindCoordinatorRequest, 1, key=key, key_type=kind).error_code == 0, 30)
    beat = {"group_id": key, "generation_id": 1, "member_id": "x"}
    if kind == 0:
        eventually(lambda: wire.raw(HeartbeatRequest, 3, **beat).error_code not in NOT_YET, 30)


class Member:
    """A group member whose every request is in the test's hands."""

    def __init__(self, wire: Wire, group: str, member_id: str = "", instance: str | None = None) -> None:
        self.wire, self.group, self.member_id, self.instance = wire, group, member_id, instance
        self.generation = -1

    def _instance(self, version: int, since: int) -> dict[str, Any]:
        return {"group_instance_id": self.instance} if version >= since else {}

    def join(
        self, version: int = 7, protocols: tuple[str, ...] = ("range",), kind: str = "consumer", **more: Any
    ) -> Any:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol
        fields: dict[str, Any] = {"session_timeout_ms": 10_000, **({"rebalance_timeout_ms": 10_000} if version else {})}
        answer = self.wire.raw(
            JoinGroupRequest,
            version,
            group_id=self.group,
            member_id=self.member_id,
            protocol_type=kind,
            protocols=[protocol(name=name, metadata=name.encode()) for name in protocols],
            **{**fields, **self._instance(version, 5), **more},
        )
        if answer.error_code in (0, 79):
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return self.wire.seen(answer)

    def join_whole(self, version: int = 7, **more: Any) -> Any:
        """Joins, and again with the id it was given where the broker asks for that."""
        answer = self.join(version, **more)
        return self.join(version, **more) if answer["error_code"] == 79 else answer

    def sync(self, version: int = 5, assignment: dict[str, bytes] | None = None, **more: Any) -> Any:
        given = SyncGroupRequest.SyncGroupRequestAssignment
        fields: dict[str, Any] = {"generation_id": self.generation, "member_id": self.member_id}
        if version >= 5:
            fields |= {"protocol_type": "consumer", "protocol_name": "range"}
        return self.wire.ask(
            SyncGroupRequest,
            version,
            group_id=self.group,
            assignments=[given(member_id=who, assignment=what) for who, what in (assignment or {}).items()],
            **{**fields, **self._instance(version, 3), **more},
        )

    def beat(self, version: int = 4, **more: Any) -> Any:
        fields = {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id}
        return self.wire.ask(HeartbeatRequest, version, **{**fields, **self._instance(version, 3), **more})

    def leave(self, version: int = 5) -> Any:
        identity = LeaveGroupRequest.MemberIdentity
        if version < 3:
            return self.wire.ask(LeaveGroupRequest, version, group_id=self.group, member_id=self.member_id)
        members = [identity(member_id=self.member_id, group_instance_id=self.instance)]
        return self.wire.ask(LeaveGroupRequest, version, group_id=self.group, members=members)

    def commit(self, topic: str, offset: int, version: int = 8, partition: int = 0, **more: Any) -> Any:
        kind = OffsetCommitRequest.OffsetCommitRequestTopic
        one = kind.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=more.pop("metadata", "")
        )
        fields = {"generation_id_or_member_epoch": self.generation, "member_id": self.member_id}
        return self.wire.ask(
            OffsetCommitRequest,
            version,
            group_id=self.group,
            topics=[kind(name=topic, partitions=[one])],
            **{**fields, **self._instance(version, 7), **more},
        )


def joining(wire: Wire) -> Steps:
    ready(wire, "joining")
    ready(wire, "no-such-group")
    for version in range(10):
        ready(wire, f"joining-{version}")
        member = Member(wire, f"joining-{version}")
        yield f"join v{version}", member.join(version)
        if version >= 4:
            yield f"join v{version} with its id", member.join(version)
        assignment = {member.member_id: b"mine"}
        yield f"sync v{min(version, 5)} of v{version}", member.sync(min(version, 5), assignment)
        yield f"heartbeat v{min(version, 4)} of v{version}", member.beat(min(version, 4))
        yield f"leave v{min(version, 5)} of v{version}", member.leave(min(version, 5))
    cases: dict[str, tuple[Member, dict[str, Any]]] = {
        "empty group id": (Member(wire, ""), {}),
        "unknown member": (Member(wire, "joining", "nobody"), {}),
        "session too short": (Member(wire, "joining"), {"session_timeout_ms": 10}),
        "session too long": (Member(wire, "joining"), {"session_timeout_ms": 10_000_000}),
        "no protocols": (Member(wire, "joining"), {"protocols": ()}),
        "no protocol type": (Member(wire, "joining"), {"kind": ""}),
    }
    for label, (member, how) in cases.items():
        yield label, member.join(7, **how)
    member = Member(wire, "joining")
    member.join_whole()
    yield "sync", member.sync(assignment={member.member_id: b"mine"})
    yield "other protocol type", Member(wire, "joining").join(7, kind="connect")
    yield "no common protocol", Member(wire, "joining").join(7, protocols=("other",))
    yield "sync, wrong generation", member.sync(generation_id=9)
    yield "sync, unknown member", member.sync(member_id="nobody")
    yield "sync, wrong protocol", member.sync(protocol_name="other")
    yield "heartbeat, wrong generation", member.beat(generation_id=9)
    yield "heartbeat, unknown member", member.beat(member_id="nobody")
    yield "heartbeat, unknown group", Member(wire, "no-such-group", "x").beat()
    yield "leave, unknown member", Member(wire, "joining", "nobody").leave()
    yield "leave, unknown group", Member(wire, "no-such-group", "x").leave()
    yield "joins again unchanged", member.join(7)
    yield "leave", member.leave()
    yield "leave again", member.leave()


def static_members(wire: Wire) -> Steps:
    ready(wire, "static")
    member = Member(wire, "static", instance="one")
    yield "a static member is in at once", member.join(7)
    yield "sync", member.sync(assignment={member.member_id: b"kept"})
    again = Member(wire, "static", instance="one")
    yield "back under a new id", again.join(7)
    yield "its assignment is kept", again.sync()
    yield "the old id is fenced: heartbeat", member.beat()
    yield "the old id is fenced: commit", member.commit("static-topic", 1)
    yield "the old id is fenced: sync", member.sync()
    yield "leave by instance", Member(wire, "static", instance="one").leave()
    yield "leave by unknown instance", Member(wire, "static", instance="two").leave()


def offsets(wire: Wire) -> Steps:
    create(wire, "committed", 2)
    ready(wire, "offsets")
    outsider = Member(wire, "offsets")
    for version in range(2, 9):
        yield f"commit v{version}", outsider.commit("committed", version, version)
    yield "unknown topic", outsider.commit("unknown", 1)
    yield "unknown partition", outsider.commit("committed", 1, partition=7)
    yield "long metadata", outsider.commit("committed", 1, metadata="m" * 4097)
    yield "negative offset", outsider.commit("committed", -5)
    yield "generation of an empty group", outsider.commit("committed", 1, generation_id_or_member_epoch=3)
    yield "member of an empty group", outsider.commit("committed", 1, member_id="x")
    yield "empty group id", Member(wire, "").commit("committed", 1)

    def fetch(version: int, group: str, topics: list[tuple[str, list[int]]] | None, stable: bool = False) -> Any:
        extra = {"require_stable": stable} if version >= 7 else {}
        if version >= 8:
            kind = OffsetFetchRequest.OffsetFetchRequestGroup
            wanted = kind.OffsetFetchRequestTopics
            listed = topics and [wanted(name=name, partition_indexes=which) for name, which in topics]
            return wire.ask(OffsetFetchRequest, version, groups=[kind(group_id=group, topics=listed)], **extra)
        old = OffsetFetchRequest.OffsetFetchRequestTopic
        listed = topics and [old(name=name, partition_indexes=which) for name, which in topics]
        return wire.ask(OffsetFetchRequest, version, group_id=group, topics=listed, **extra)

    for version in range(1, 10):
        yield f"fetch v{version}", fetch(version, "offsets", [("committed", [0, 1]), ("unknown", [0])])
        if version >= 2:
            yield f"fetch v{version} all", fetch(version, "offsets", None)
    yield "fetch of an unknown group", fetch(8, "no-such-group", [("committed", [0])])
    yield "fetch stable", fetch(8, "offsets", [("committed", [0])], stable=True)
    member = Member(wire, "offsets")
    member.join_whole()
    yield "with a member: an outsider's commit", outsider.commit("committed", 1)
    yield "with a member: before its sync", member.commit("committed", 11)
    member.sync(assignment={member.member_id: b""})
    yield "with a member: its own", member.commit("committed", 12)
    yield "with a member: wrong generation", member.commit("committed", 13, generation_id_or_member_epoch=99)
    kind = OffsetDeleteRequest.OffsetDeleteRequestTopic
    which = [kind(name="committed", partitions=[kind.OffsetDeleteRequestPartition(partition_index=0)])]
    yield "delete offsets of a living group", wire.ask(OffsetDeleteRequest, 0, group_id="offsets", topics=which)
    yield "delete a living group", wire.ask(DeleteGroupsRequest, 2, groups_names=["offsets", "no-such-group"])
    member.leave()
    yield "delete offsets", wire.ask(OffsetDeleteRequest, 0, group_id="offsets", topics=which)
    yield "delete offsets of no group", wire.ask(OffsetDeleteRequest, 0, group_id="no-such-group", topics=which)
    for version in range(3):
        wanted = ["offsets"] if version == 0 else ["no-such-group"]
        yield f"delete v{version}", wire.ask(DeleteGroupsRequest, version, groups_names=wanted)


def describing(wire: Wire) -> Steps:
    ready(wire, "described")
    member = Member(wire, "described")
    member.join_whole()
    for version in range(7):
        answer = wire.ask(DescribeGroupsRequest, version, groups=["described", "no-such-group"])
        yield f"syncing v{version}", answer
    member.sync(assignment={member.member_id: b"mine"})
    yield "stable", wire.ask(DescribeGroupsRequest, 5, groups=["described"])
    for version in range(6):
        listed = wire.ask(ListGroupsRequest, version)["groups"]
        yield f"listed v{version}", [one for one in listed if one["group_id"] == "described"]
    names = [one["group_id"] for one in wire.ask(ListGroupsRequest, 4, states_filter=["Empty"])["groups"]]
    yield "listed by another state", "described" in names
    member.leave()
    yield "empty", wire.ask(DescribeGroupsRequest, 5, groups=["described"])


def transactions(wire: Wire) -> Steps:
    create(wire, "transacted", 2)
    ready(wire, "transacting", 1)
    ready(wire, "transacting-group")
    for version in range(6):
        yield f"init v{version}", wire.seen(new_producer(wire, f"id-{version}", version))
    yield "empty id", wire.seen(wire.raw(InitProducerIdRequest, 4, transactional_id="", transaction_timeout_ms=1_000))
    for timeout_ms in (0, -1, 900_001):
        answer = new_producer(wire, "timeout", timeout_ms=timeout_ms)
        yield f"timeout {timeout_ms}", wire.seen(answer)
    producer = new_producer(wire, "transacting")
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

    def add(topic: str = "transacted", partition: int = 0, version: int = 3, **other: Any) -> Any:
        topics = [kind(name=topic, partitions=[partition])]
        fields = {"transactional_id": "transacting", "topics": topics, **identity, **other}
        return wire.ask(
            AddPartitionsToTxnRequest, version, **{f"v3_and_below_{key}": value for key, value in fields.items()}
        )

    def end(committed: bool, version: int = 3, who: str = "transacting", **other: Any) -> Any:
        return wire.ask(EndTxnRequest, version, transactional_id=who, committed=committed, **{**identity, **other})

    def send(sequence: int, partition: int = 0, who: str = "transacting", **other: Any) -> Any:
        known = {**identity, **other}
        records = batch(
            RECORDS, attributes=0x10, producer_id=known["producer_id"], epoch=known["producer_epoch"], sequence=sequence
        )
        data = ProduceRequest.TopicProduceData
        one = data(name="transacted", partition_data=[data.PartitionProduceData(index=partition, records=records)])
        answer = wire.ask(ProduceRequest, 9, transactional_id=who, acks=-1, timeout_ms=5_000, topic_data=[one])
        return answer["responses"][0]["partition_responses"][0]

    yield "end of nothing: commit", end(True)
    yield "end of nothing: abort", end(False)
    yield "produce before adding", send(0)
    for version in range(4):
        yield f"add v{version}", add(version=version)
    yield "add unknown topic", add("unknown")
    yield "add unknown partition", add(partition=9)
    yield "add with an unknown id", add(transactional_id="stranger")
    yield "add with a wrong producer", add(producer_id=999_999)
    yield "add with a wrong epoch", add(producer_epoch=7)
    yield "produce", send(0)
    yield "produce again", send(0)
    yield "produce to what was not added", send(0, partition=1)
    yield "end with a wrong epoch", end(True, producer_epoch=7)
    yield "end with a wrong producer", end(True, producer_id=999_999)
    yield "commit", end(True)
    # The markers are written after the answer; until then the transaction is busy.
    eventually(lambda: end(True)["error_code"] != 51, 10)
    yield "commit again", end(True)
    yield "abort what is committed", end(False)
    fields = {"transactional_id": "transacting", **identity, "group_id": "transacting-group"}
    for version in range(4):
        yield f"add offsets v{version}", wire.ask(AddOffsetsToTxnRequest, version, **fields)
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    one = topic.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="m")
    for version in range(4):
        committing = wire.ask(
            TxnOffsetCommitRequest, version, **fields, topics=[topic(name="transacted", partitions=[one])]
        )
        yield f"commit offsets v{version}", committing
    wrong = {**fields, "producer_epoch": 7, "topics": [topic(name="transacted", partitions=[one])]}
    yield "commit offsets with a wrong epoch", wire.ask(TxnOffsetCommitRequest, 3, **wrong)
    wrong = {**wrong, "producer_epoch": identity["producer_epoch"], "member_id": "nobody", "generation_id": 4}
    yield "commit offsets of a wrong member", wire.ask(TxnOffsetCommitRequest, 3, **wrong)
    yield "abort", end(False)
    successor = new_producer(wire, "transacting")
    yield "a successor", wire.seen(successor)
    yield "the fenced one adds", add()
    yield "the fenced one ends", end(True)
    yield "the fenced one produces", send(3)


SCRIPTS = (joining, static_members, offsets, describing, transactions)
