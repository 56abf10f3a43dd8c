"""Scripts for the group coordinator: an event per line, the outcome beside it.

    run('''
        join a            => a: MEMBER_ID_REQUIRED
        join a            => nothing
        pass 3000         => a: joined gen 1, leads a
        sync a a=x        => log: Stable gen 1 a=x; a: synced x
    ''')

`Stage` plays the broker: it puts requests to the room as the handlers of `api` do, appends the records of a decision to
a log, replays them, keeps the timers and delivers the replies, in the version of the request. Member ids are the
client's name and a counter (`a-1`); in outcomes a member is written by its client's name. An outcome lists the records
that were appended (`log:`) and the replies, in order, or says `nothing`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from tidelog.api import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from tidelog.deciding.decision import CancelTimer, CoordinatorRecord, Decision, SetTimer
from tidelog.deciding.turn import Refusal
from tidelog.group.config import GroupConfig
from tidelog.group.groups import Groups, _clean
from tidelog.group.records import RecordType, decode_key, decode_value
from tidelog.group.replay import decoded
from tidelog.group.topics_image import Topic
from tidelog.wire import messages
from tidelog.wire.codec import response_codec, stored_codec
from tidelog.wire.errors import ErrorCode

WALL = 1_700_000_000_000
HOST = "/127.0.0.1"
API_KEYS = {
    "OffsetCommitResponse": 8,
    "OffsetFetchResponse": 9,
    "JoinGroupResponse": 11,
    "HeartbeatResponse": 12,
    "LeaveGroupResponse": 13,
    "SyncGroupResponse": 14,
    "DescribeGroupsResponse": 15,
    "ListGroupsResponse": 16,
    "TxnOffsetCommitResponse": 28,
    "DeleteGroupsResponse": 42,
    "OffsetDeleteResponse": 47,
    "ConsumerGroupHeartbeatResponse": 68,
    "ConsumerGroupDescribeResponse": 69,
}


# Two members, a stable group: where most scripts start.
PAIR = """
    join a                 => a: MEMBER_ID_REQUIRED
    join a                 => nothing
    join b                 => b: MEMBER_ID_REQUIRED
    join b                 => nothing
    pass 3000              => nothing
    pass 3000              => a: joined gen 1, leads a b; b: joined gen 1 under a
    sync b                 => nothing
    sync a a=x b=y         => log: Stable gen 1 a=x b=y; a: synced x; b: synced y
"""


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\1")


class Ticket:
    """One request of a client; it must be answered exactly once. `shape` makes the response from an outcome."""

    def __init__(self, client: str, version: int, shape: Callable[[Any], Any] | None = None) -> None:
        self.client = client
        self.version = version
        self.shape = shape
        self.answers = 0
        self.answer: Any = None


def in_terms_of_the_room(request: Any, version: int, client: str) -> tuple[Any, Callable[[Any], Any]]:
    """What is asked, and what makes the response from the outcome: the handlers of `api`, without their broker."""
    if isinstance(request, messages.JoinGroupRequest):
        return join_group.asked(request, version, client, HOST), lambda o: join_group.answer(o, version)
    if isinstance(request, messages.SyncGroupRequest):
        return sync_group.asked(request, version), lambda o: sync_group.answer(o, version)
    if isinstance(request, messages.HeartbeatRequest):
        return heartbeat.asked(request), lambda o: heartbeat.answer(o, version)
    if isinstance(request, messages.LeaveGroupRequest):
        leaving = leave_group.asked(request, version)
        return leaving, lambda o: leave_group.answer(o, leaving, version)
    if isinstance(request, messages.ConsumerGroupHeartbeatRequest):
        asked = consumer_group_heartbeat.asked(request, version, client, HOST)
        return asked, lambda o: consumer_group_heartbeat.answer(o, version)
    if isinstance(request, messages.OffsetCommitRequest):
        return offset_commit.asked(request, version), lambda o: offset_commit.answer(o, request)
    if isinstance(request, messages.TxnOffsetCommitRequest):
        return txn_offset_commit.asked(request), lambda o: txn_offset_commit.answer(o, request, version)
    if isinstance(request, messages.OffsetFetchRequest):
        wanted = offset_fetch.asked(request, version)
        return wanted, lambda o: offset_fetch.answer(o, wanted, version)
    assert isinstance(request, messages.OffsetDeleteRequest)
    deletion = offset_delete.asked(request)
    return deletion, lambda o: offset_delete.answer(o, deletion)


class Client:
    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.instance: str | None = None
        self.epoch = 0


class Stage:
    """A broker with one group `g` and every coordinator partition, in simulated time."""

    def __init__(self, **settings: Any) -> None:
        self.config = GroupConfig(**settings)
        self.now = 0
        self.log: list[tuple[int, bytes, bytes | None, int]] = []
        self.markers: list[tuple[int, int, bool]] = []
        self.timers: dict[Any, int] = {}
        self.clients: dict[str, Client] = {}
        self.topics: dict[str, int] = {}
        self.count = 0
        self.fail_next: ErrorCode | None = None
        # True while the last record of a classic group could not be stored.
        self.behind = False
        self.group = "g"
        self.seen: list[str] = []
        self.tickets: list[Ticket] = []
        self.last: Any = None
        self.groups = self._fresh()
        self._load()

    @property
    def wall(self) -> int:
        return WALL + self.now

    def _fresh(self) -> Groups:
        return Groups(self.config, self._uuid)

    def _uuid(self) -> str:
        self.count += 1
        return str(self.count)

    def _load(self) -> None:
        for partition in range(self.config.offsets_topic_num_partitions):
            self.groups.load_begin(partition, 0)
        events: list[tuple[int, Any]] = [(at, entry) for at, entry in enumerate(self.log)]
        for at, producer_id, commit in self.markers:
            events.append((at, (producer_id, commit)))
        for at, event in sorted(events, key=lambda e: (e[0], len(e[1]) == 4)):
            if len(event) == 2:
                for partition in range(self.config.offsets_topic_num_partitions):
                    self.groups.replay_end(partition, *event)
            else:
                partition, key, value, producer_id = event
                self.groups.replay(partition, CoordinatorRecord(key, value), producer_id, at)
        if self.topics:
            self._tell_topics()
        for partition in range(self.config.offsets_topic_num_partitions):
            self.carry_out(self.groups.load_end(partition, self.now, self.wall))

    # -- the broker's part ---------------------------------------------------------------------------------------

    def carry_out(self, decision: Decision) -> None:
        if any(record.key.startswith(b"\0\2") for record in decision.records):
            self.behind = self.fail_next is not None
        if decision.records and self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            decision = self.groups.append_failed(decision, error, self.now, self.wall)
        producer_id = decision.producer_id
        for record in decision.records:
            assert decision.partition >= 0
            at = len(self.log)
            self.log.append((decision.partition, record.key, record.value, producer_id))
            self.seen.append("log: " + self.describe_record(record.key, record.value))
            assert record.meaning in (None, decoded(record.key, record.value)), "living and loading would differ"
            self.groups.replay(decision.partition, record, producer_id, at)
        for timer in decision.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = timer.deadline_ms
            elif isinstance(timer, CancelTimer):
                self.timers.pop(timer.key, None)
        for reply in decision.replies:
            self.deliver(reply.ticket, reply.ticket.shape(reply.message))

    def deliver(self, ticket: Ticket, message: Any) -> None:
        ticket.answers += 1
        ticket.answer = message
        assert ticket.answers == 1, f"{ticket.client} was answered twice"
        self.last = message
        # Every answer must be one that its version can carry.
        response_codec(API_KEYS[type(message).__name__], ticket.version).encode(message)
        self.seen.append(f"{ticket.client}: {self.describe_reply(self.client(ticket.client), message)}")

    def advance(self, ms: int) -> None:
        until = self.now + ms
        while True:
            due = sorted((at, key) for key, at in self.timers.items() if at <= until)
            if not due:
                break
            at, key = due[0]
            self.now = max(self.now, at)
            del self.timers[key]
            self.carry_out(self.groups.on_timer(key, self.now, self.wall))
        self.now = until

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    def name_of(self, member_id: str | None) -> str:
        for client in self.clients.values():
            if client.member_id and client.member_id == member_id:
                return client.name
        return member_id or "nobody"

    def ask(self, method: str, client: str, request: Any, version: int) -> None:
        ticket = Ticket(client, version)
        self.tickets.append(ticket)
        try:
            asked, ticket.shape = in_terms_of_the_room(request, version, client)
        except Refusal as refusal:
            self.deliver(ticket, sync_group.answer(refusal, version))
            return
        self.carry_out(getattr(self.groups, method)(ticket, asked, self.now, self.wall))

    def tell(self, message: Any, version: int) -> None:
        """The answer to a question that needs no decision."""
        ticket = Ticket("-", version)
        self.tickets.append(ticket)
        self.deliver(ticket, message)

    def _tell_topics(self) -> None:
        changes: dict[str, Topic | None] = dict.fromkeys(self.groups._around.topics.by_name)
        changes |= {name: Topic(name, topic_id(name), count) for name, count in self.topics.items()}
        self.groups.on_topics_changed(changes, self.now, self.wall)

    # -- telling -------------------------------------------------------------------------------------------------

    def describe_record(self, key: bytes, value: bytes | None) -> str:
        decoded = decode_key(key)
        assert decoded is not None
        kind, group, second, partition = decoded
        message = None if value is None else decode_value(kind, value)
        if kind is RecordType.OFFSET_COMMIT:
            text = f"{second}-{partition}"
            return f"no {text}" if message is None else f"{text}={message.offset}"
        if kind is RecordType.GROUP_METADATA:
            if message is None:
                return "no group" if group == "g" else f"no group {group}"
            state = "Stable" if message.members else "Empty"
            members = "".join(
                f" {self.name_of(m.member_id)}={bytes(m.assignment).decode(errors='replace')}" for m in message.members
            )
            return f"{state} gen {message.generation}{members}"
        return self._describe_consumer_record(kind, second, message)

    def _describe_consumer_record(self, kind: RecordType, second: str, message: Any) -> str:
        who = self.name_of(second)
        if kind is RecordType.CONSUMER_GROUP_METADATA:
            return "no group" if message is None else f"group epoch {message.epoch}"
        if kind is RecordType.CONSUMER_GROUP_MEMBER_METADATA:
            return f"no member {who}" if message is None else f"member {who}"
        if kind is RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA:
            return "no target" if message is None else f"target epoch {message.assignment_epoch}"
        if kind is RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER:
            if message is None:
                return f"no target of {who}"
            return f"target of {who} {self.partitions(message.topic_partitions)}"
        if kind is RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT:
            if message is None:
                return f"no assignment of {who}"
            text = f"{who} at {message.member_epoch} has {self.partitions(message.assigned_partitions)}"
            revoking = message.partitions_pending_revocation
            return text + (f" revokes {self.partitions(revoking)}" if revoking else "")
        if kind is RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION:
            return f"no regex {second}" if message is None else f"regex {second} is {','.join(message.topics)}"
        return "no partition metadata" if message is None else "partition metadata"

    def partitions(self, entries: list[Any]) -> str:
        names = {topic_id(name): name for name in [*self.topics, "t", "u"]}
        parts = sorted((names[e.topic_id], sorted(e.partitions)) for e in entries)
        return " ".join(f"{name}:{','.join(map(str, ps))}" for name, ps in parts) or "none"

    def describe_reply(self, client: Client, message: Any) -> str:
        return getattr(self, "_told_" + type(message).__name__)(client, message)

    def _told_JoinGroupResponse(self, client: Client, m: Any) -> str:
        if m.error_code:
            code = ErrorCode(m.error_code)
            if code is ErrorCode.MEMBER_ID_REQUIRED or code is ErrorCode.UNKNOWN_MEMBER_ID:
                client.member_id = m.member_id if code is ErrorCode.MEMBER_ID_REQUIRED else ""
            return code.name
        client.member_id, client.generation = m.member_id, m.generation_id
        text = f"joined gen {m.generation_id}"
        if m.leader:
            text += f" under {self.name_of(m.leader)}"
        if m.leader == m.member_id or m.members:
            # Names are known only once all answers of a generation are out; ids carry the name anyway.
            text = f"joined gen {m.generation_id}, leads {' '.join(x.member_id.rpartition('-')[0] for x in m.members)}"
        return text + (" skip" if m.skip_assignment else "")

    def _told_SyncGroupResponse(self, client: Client, m: Any) -> str:
        if m.error_code:
            return ErrorCode(m.error_code).name
        blob = bytes(m.assignment)
        if blob[:1] == b"\0":
            entries = stored_codec("ConsumerProtocolAssignment", 0).decode(blob, 2)[0].assigned_partitions
            return "synced " + (" ".join(f"{e.topic}:{','.join(map(str, e.partitions))}" for e in entries) or "none")
        return f"synced {blob.decode() or 'none'}"

    def _told_HeartbeatResponse(self, client: Client, m: Any) -> str:
        return ErrorCode(m.error_code).name if m.error_code else "ok"

    def _told_LeaveGroupResponse(self, client: Client, m: Any) -> str:
        if m.error_code:
            return ErrorCode(m.error_code).name
        codes = [ErrorCode(x.error_code).name if x.error_code else "left" for x in m.members]
        return " ".join(codes) or "left"

    def _told_OffsetCommitResponse(self, client: Client, m: Any) -> str:
        parts = [(t.name, p) for t in m.topics for p in t.partitions]
        codes = [ErrorCode(p.error_code).name if p.error_code else "ok" for _, p in parts]
        if len(set(codes)) == 1:
            return codes[0]
        return " ".join(f"{n}-{p.partition_index} {c}" for (n, p), c in zip(parts, codes, strict=True))

    _told_TxnOffsetCommitResponse = _told_OffsetCommitResponse

    def _told_OffsetFetchResponse(self, client: Client, m: Any) -> str:
        if m.error_code:
            return ErrorCode(m.error_code).name
        if m.groups and m.groups[0].error_code:
            return ErrorCode(m.groups[0].error_code).name
        topics = m.groups[0].topics if m.groups else m.topics
        parts = []
        for topic in topics:
            for p in topic.partitions:
                told = ErrorCode(p.error_code).name if p.error_code else str(p.committed_offset)
                parts.append(f"{topic.name}-{p.partition_index}={told}" + (f":{p.metadata}" if p.metadata else ""))
        return " ".join(parts) or "none"

    def _told_OffsetDeleteResponse(self, client: Client, m: Any) -> str:
        if m.error_code:
            return ErrorCode(m.error_code).name
        return self._told_OffsetCommitResponse(client, m)

    def _told_DescribeGroupsResponse(self, client: Client, m: Any) -> str:
        told = []
        for g in m.groups:
            if g.error_code:
                told.append(f"{g.group_state or '?'} {ErrorCode(g.error_code).name}")
                continue
            members = " ".join(
                self.name_of(x.member_id) + (f"={bytes(x.member_assignment).decode()}" if x.member_assignment else "")
                for x in g.members
            )
            told.append(" ".join(filter(None, [g.group_state, g.protocol_type, g.protocol_data, members])))
        return ", ".join(told)

    def _told_ListGroupsResponse(self, client: Client, m: Any) -> str:
        if m.error_code:
            return ErrorCode(m.error_code).name
        listed = [" ".join(filter(None, [g.group_id, g.protocol_type, g.group_state, g.group_type])) for g in m.groups]
        return ", ".join(sorted(listed)) or "none"

    def _told_DeleteGroupsResponse(self, client: Client, m: Any) -> str:
        return " ".join(ErrorCode(r.error_code).name if r.error_code else "deleted" for r in m.results)

    def _told_ConsumerGroupHeartbeatResponse(self, client: Client, m: Any) -> str:
        if m.error_code:
            return ErrorCode(m.error_code).name
        client.member_id, client.epoch = m.member_id, m.member_epoch
        text = f"epoch {m.member_epoch}"
        return text if m.assignment is None else f"{text} {self.partitions(m.assignment.topic_partitions)}"

    def _told_ConsumerGroupDescribeResponse(self, client: Client, m: Any) -> str:
        told = []
        for g in m.groups:
            if g.error_code:
                told.append(ErrorCode(g.error_code).name)
                continue
            members = "".join(
                f" {self.name_of(x.member_id)}@{x.member_epoch}[{self.partitions(x.assignment.topic_partitions)}]"
                for x in g.members
            )
            told.append(f"{g.group_state} {g.group_epoch}/{g.assignment_epoch} {g.assignor_name}{members}")
        return ", ".join(told)


def _options(words: list[str]) -> tuple[list[str], dict[str, str]]:
    plain, named = [], {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name.isidentifier() and name.islower():
            named[name] = value
        else:
            plain.append(word)
    return plain, named


def subscription(topics: str, version: int = 0, owned: str = "") -> bytes:
    of = messages.ConsumerProtocolSubscription
    value = of(topics=[t for t in topics.split(",") if t])
    if version >= 1:
        for entry in owned.split():
            name, _, ps = entry.partition(":")
            value.owned_partitions.append(of.TopicPartition(topic=name, partitions=list(map(int, ps.split(",")))))
    return version.to_bytes(2, "big") + stored_codec("ConsumerProtocolSubscription", version).encode(value)


def assignment(spec: str) -> bytes:
    """`t:0,1` as the blob of a consumer's assignment; any other word as itself."""
    if ":" not in spec:
        return spec.encode()
    of = messages.ConsumerProtocolAssignment
    value = of()
    for entry in spec.split("+"):
        name, _, ps = entry.partition(":")
        value.assigned_partitions.append(of.TopicPartition(topic=name, partitions=list(map(int, ps.split(",")))))
    return b"\0\0" + stored_codec("ConsumerProtocolAssignment", 0).encode(value)


def _topic_partition(word: str) -> tuple[str, int]:
    name, _, index = word.rpartition("-")
    return name, int(index)


class Script(Stage):
    """The events that a line can name."""

    def do(self, line: str) -> str:
        self.seen = []
        verb, *words = shlex.split(line)
        plain, named = _options(words)
        getattr(self, "do_" + verb)(plain, named)
        return "; ".join(self.seen) or "nothing"

    def do_pass(self, plain: list[str], named: dict[str, str]) -> None:
        self.advance(int(plain[0]))

    def do_fail(self, plain: list[str], named: dict[str, str]) -> None:
        self.fail_next = ErrorCode[plain[0]]

    def do_drop(self, plain: list[str], named: dict[str, str]) -> None:
        for ticket in self.tickets:
            if ticket.client == plain[0] and not ticket.answers:
                self.groups.cancel(ticket)

    def do_restart(self, plain: list[str], named: dict[str, str]) -> None:
        """Another coordinator takes over with what the log has."""
        for partition in range(self.config.offsets_topic_num_partitions):
            self.carry_out(self.groups.unload(partition))
        self.timers.clear()
        self.groups = self._fresh()
        self._load()

    def do_load(self, plain: list[str], named: dict[str, str]) -> None:
        """begin or unload the partition of group g."""
        partition = self.groups.partition_for("g")
        if plain[0] == "begin":
            self.carry_out(self.groups.load_begin(partition, 0))
        elif plain[0] == "end":
            self.carry_out(self.groups.load_end(partition, self.now, self.wall))
        else:
            self.carry_out(self.groups.unload(partition))

    def do_topics(self, plain: list[str], named: dict[str, str]) -> None:
        for word in plain:
            name, count = word.split(":")
            self.topics[name] = int(count)
        self._tell_topics()

    def do_untopic(self, plain: list[str], named: dict[str, str]) -> None:
        name = plain[0]
        del self.topics[name]
        self._tell_topics()
        for decision in self.groups.on_topic_deleted(name, topic_id(name), self.now, self.wall):
            self.carry_out(decision)

    def do_config(self, plain: list[str], named: dict[str, str]) -> None:
        self.groups.configure_group("g", dict(word.split("=") for word in plain))

    def do_join(self, plain: list[str], named: dict[str, str]) -> None:
        client = self.client(plain[0])
        version = int(named.get("v", "9"))
        if "instance" in named:
            client.instance = named["instance"]
        of = messages.JoinGroupRequest
        if "topics" in named:
            blob = subscription(named["topics"], int(named.get("blob", "1")), named.get("owned", ""))
            protocols = [of.JoinGroupRequestProtocol(name="range", metadata=blob)]
        else:
            protocols = [
                of.JoinGroupRequestProtocol(name=name, metadata=(meta or "m").encode())
                for name, _, meta in (p.partition(":") for p in named.get("proto", "range").split(",") if p)
            ]
        request = of(
            group_id=named.get("group", self.group),
            session_timeout_ms=int(named.get("session", "10000")),
            rebalance_timeout_ms=int(named.get("rebalance", "60000")),
            member_id=named.get("id", client.member_id),
            group_instance_id=client.instance,
            protocol_type=named.get("type", "consumer"),
            protocols=protocols,
        )
        self.ask("join", client.name, request, version)

    def do_forget(self, plain: list[str], named: dict[str, str]) -> None:
        """The client restarts and no longer knows its member id."""
        client = self.client(plain[0])
        client.member_id, client.generation, client.epoch = "", -1, 0

    def do_sync(self, plain: list[str], named: dict[str, str]) -> None:
        client = self.client(plain[0])
        version = int(named.pop("v", "5"))
        generation = int(named.pop("gen", str(client.generation)))
        kind, name = named.pop("type", "consumer"), named.pop("proto", "range")
        of = messages.SyncGroupRequest
        request = of(
            group_id=self.group,
            generation_id=generation,
            member_id=named.pop("id", client.member_id),
            group_instance_id=client.instance,
            protocol_type=None if kind == "null" else kind,
            protocol_name=None if name == "null" else name,
            assignments=[
                of.SyncGroupRequestAssignment(member_id=self.client(n).member_id, assignment=assignment(blob))
                for n, blob in named.items()
            ],
        )
        self.ask("sync", client.name, request, version)

    def do_beat(self, plain: list[str], named: dict[str, str]) -> None:
        client = self.client(plain[0])
        request = messages.HeartbeatRequest(
            group_id=named.get("group", self.group),
            generation_id=int(named.get("gen", str(client.generation))),
            member_id=named.get("id", client.member_id),
            group_instance_id=client.instance,
        )
        self.ask("heartbeat", client.name, request, 4)

    def do_leave(self, plain: list[str], named: dict[str, str]) -> None:
        version = int(named.get("v", "5"))
        of = messages.LeaveGroupRequest
        if version <= 2:
            request = of(group_id=self.group, member_id=self.client(plain[0]).member_id)
        elif "instance" in named:
            identities = [of.MemberIdentity(member_id="", group_instance_id=named["instance"])]
            request = of(group_id=self.group, members=identities)
        else:
            request = of(
                group_id=named.get("group", self.group),
                members=[
                    of.MemberIdentity(
                        member_id=named.get("id", self.client(n).member_id),
                        group_instance_id=self.client(n).instance,
                        reason="done",
                    )
                    for n in plain
                ],
            )
        self.ask("leave", plain[0] if plain else "admin", request, version)

    def do_commit(self, plain: list[str], named: dict[str, str]) -> None:
        """commit <client or -> t-0=5:metadata ..."""
        version = int(named.get("v", "9"))
        who, offsets = plain[0], plain[1:]
        client = self.client(who)
        of = messages.OffsetCommitRequest
        topics: dict[str, Any] = {}
        for word in offsets:
            at, _, value = word.partition("=")
            name, index = _topic_partition(at)
            offset, _, meta = value.partition(":")
            topic = topics.setdefault(name, of.OffsetCommitRequestTopic(name=name))
            meta = "x" * int(meta[1:]) if meta.startswith("x") and meta[1:].isdigit() else meta
            topic.partitions.append(
                of.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=int(offset), committed_metadata=meta or None
                )
            )
        default = client.generation if who != "-" else -1
        request = of(
            group_id=named.get("group", self.group),
            generation_id_or_member_epoch=int(named.get("gen", str(client.epoch or default))),
            member_id=named.get("id", client.member_id),
            group_instance_id=client.instance,
            retention_time_ms=int(named.get("retention", "-1")),
            topics=list(topics.values()),
        )
        self.ask("offset_commit", who, request, version)

    def do_txncommit(self, plain: list[str], named: dict[str, str]) -> None:
        who, offsets = plain[0], plain[1:]
        client = self.client(who)
        of = messages.TxnOffsetCommitRequest
        request = of(
            transactional_id="tx",
            group_id=self.group,
            producer_id=int(named["pid"]),
            producer_epoch=0,
            generation_id=int(named.get("gen", "-1")),
            member_id=client.member_id if "gen" in named else "",
        )
        for word in offsets:
            at, _, value = word.partition("=")
            name, index = _topic_partition(at)
            topic = of.TxnOffsetCommitRequestTopic(name=name)
            topic.partitions.append(
                of.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=int(value))
            )
            request.topics.append(topic)
        self.ask("txn_offset_commit", who, request, 3)

    def do_marker(self, plain: list[str], named: dict[str, str]) -> None:
        commit = plain[0] == "commit"
        self.markers.append((len(self.log), int(named["pid"]), commit))
        for partition in range(self.config.offsets_topic_num_partitions):
            self.groups.transaction_ended(partition, int(named["pid"]), commit)

    def do_fetch(self, plain: list[str], named: dict[str, str]) -> None:
        """fetch t-0 t-1 / fetch all; stable=1 for stable offsets only."""
        version = int(named.get("v", "9"))
        wanted: list[tuple[str, int]] = [] if plain == ["all"] else [_topic_partition(w) for w in plain]
        of = messages.OffsetFetchRequest
        request = of(require_stable="stable" in named)
        if version >= 8:
            struct = of.OffsetFetchRequestTopics
            topics = [struct(name=n, topic_id=topic_id(n), partition_indexes=[i]) for n, i in wanted]
            who = named.get("member")
            request.groups = [
                of.OffsetFetchRequestGroup(
                    group_id=named.get("group", self.group),
                    topics=None if plain == ["all"] else topics,
                    member_id=None if who is None else self.client(who).member_id,
                    member_epoch=int(named.get("epoch", "-1")),
                )
            ]
        else:
            request.group_id = self.group
            request.topics = [of.OffsetFetchRequestTopic(name=n, partition_indexes=[i]) for n, i in wanted]
            if plain == ["all"]:
                request.topics = None
        self.ask("offset_fetch", "-", request, version)

    def do_undo(self, plain: list[str], named: dict[str, str]) -> None:
        """OffsetDelete."""
        of = messages.OffsetDeleteRequest
        request = of(group_id=named.get("group", self.group))
        for word in plain:
            name, index = _topic_partition(word)
            request.topics.append(
                of.OffsetDeleteRequestTopic(
                    name=name, partitions=[of.OffsetDeleteRequestPartition(partition_index=index)]
                )
            )
        self.ask("offset_delete", "-", request, 0)

    def do_expire(self, plain: list[str], named: dict[str, str]) -> None:
        shards = self.groups._shards.active()
        for decision in self.groups._on_each(shards, _clean, self.now, self.wall):
            self.carry_out(decision)

    def do_describe(self, plain: list[str], named: dict[str, str]) -> None:
        request = messages.DescribeGroupsRequest(groups=plain or [self.group])
        version = int(named.get("v", "6"))
        self.tell(describe_groups.described(request, version, self.groups), version)

    def do_list(self, plain: list[str], named: dict[str, str]) -> None:
        request = messages.ListGroupsRequest(
            states_filter=[s for s in named.get("states", "").split(",") if s],
            types_filter=[s for s in named.get("types", "").split(",") if s],
        )
        self.tell(list_groups.listed(request, self.groups), 5)

    def do_delete(self, plain: list[str], named: dict[str, str]) -> None:
        ticket = Ticket("-", 2, lambda outcome: delete_groups.answer([outcome]))
        for decision in self.groups.delete_groups(ticket, plain or [self.group], self.now, self.wall):
            for reply in decision.replies:
                reply.ticket.answers = 0
            self.carry_out(decision)

    # -- the consumer protocol -----------------------------------------------------------------------------------

    def do_hb(self, plain: list[str], named: dict[str, str]) -> None:
        """hb a [epoch=0] [topics=t,u] [regex=..] [owned='t:0,1 u:2'] [instance=i]; owned= says that it owns nothing."""
        client = self.client(plain[0])
        version = int(named.get("v", "1"))
        epoch = int(named.get("epoch", str(client.epoch)))
        client.instance = named.get("instance", client.instance)
        if epoch == 0 and not client.member_id and version >= 1:
            client.member_id = f"{client.name}-{self._uuid()}"
        of = messages.ConsumerGroupHeartbeatRequest
        owned = None
        if "owned" in named or epoch == 0:
            owned = []
            for entry in named.get("owned", "").replace("null", "").split():
                name, _, ps = entry.partition(":")
                owned.append(of.TopicPartitions(topic_id=topic_id(name), partitions=list(map(int, ps.split(",")))))
        topics = named.get("topics")
        request = of(
            group_id=named.get("group", self.group),
            member_id=named.get("id", client.member_id),
            member_epoch=epoch,
            instance_id=client.instance,
            rack_id=named.get("rack"),
            rebalance_timeout_ms=int(named.get("rebalance", "60000" if epoch == 0 else "-1")),
            subscribed_topic_names=None if topics is None else [t for t in topics.split(",") if t],
            subscribed_topic_regex=named.get("regex"),
            server_assignor=named.get("assignor"),
            topic_partitions=None if named.get("owned") == "null" else owned,
        )
        self.ask("consumer_group_heartbeat", client.name, request, version)

    def do_show(self, plain: list[str], named: dict[str, str]) -> None:
        request = messages.ConsumerGroupDescribeRequest(group_ids=plain or [self.group])
        self.tell(consumer_group_describe.described(request, self.groups), 1)


def run(text: str, **settings: Any) -> Script:
    """Play a script; every line must have the outcome that stands beside it."""
    script = Script(**settings)
    for number, line in enumerate(text.strip().splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        event, arrow, expected = line.partition("=>")
        outcome = script.do(event.strip())
        if arrow:
            wanted = " ".join(expected.split())
            assert outcome == wanted, f"line {number}: {event.strip()}\n  expected {wanted}\n  but was  {outcome}"
    return script
