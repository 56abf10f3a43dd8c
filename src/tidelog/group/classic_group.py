"""A group of the classic protocol: the leader assigns, the coordinator keeps the members in step.

One rebalance
    Empty --first join--> PreparingRebalance --everyone joined, or time is up--> CompletingRebalance
          --the leader's assignment is stored--> Stable --a member joins, leaves, expires--> PreparingRebalance ...
    A generation begins when the join phase ends; when nobody is left then, the group is Empty again, one generation on.

What is durable
    Only the last stored generation: its members with their assignment (Stable) or none (Empty). Who is joining, who
    waits for an answer and all deadlines are soft: after a failover the members of the stored generation are taken as
    present until their session runs out, and everybody else joins again.

`install` is the one place where the durable part enters: for a group that lives it turns CompletingRebalance into
Stable and hands out the assignments, for a coordinator that loads it re-creates the group.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from tidelog.deciding.decision import Ticket
from tidelog.deciding.turn import Refusal
from tidelog.group.consumer_protocol import CONSUMER_PROTOCOL_TYPE, Malformed, subscribed_topics
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

#: stands for the ticket of a JoinGroup or SyncGroup that waits for its group, but whose connection has gone
ABANDONED: Final[Ticket] = object()


class ClassicState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_S = ClassicState
#: looked up once: every commit asks for it
_EMPTY: Final = _S.EMPTY

# To each state the states that lead to it.
TRANSITIONS: dict[ClassicState, frozenset[ClassicState]] = {
    _S.EMPTY: frozenset({_S.PREPARING_REBALANCE}),
    _S.PREPARING_REBALANCE: frozenset({_S.EMPTY, _S.STABLE, _S.COMPLETING_REBALANCE}),
    _S.COMPLETING_REBALANCE: frozenset({_S.PREPARING_REBALANCE}),
    _S.STABLE: frozenset({_S.COMPLETING_REBALANCE}),
    _S.DEAD: frozenset(_S),
}


class ClassicMember:
    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: list[tuple[str, bytes]],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        # (name, metadata) in the order of the member's preference.
        self.protocols = protocols
        self.assignment = assignment
        # Tickets of what it waits for: None, or ABANDONED where nobody hears the answer.
        self.awaiting_join: Ticket | None = None
        self.awaiting_sync: Ticket | None = None
        # True until the first join is answered: such a member cannot heartbeat and may expire while it waits.
        self.is_new = False

    def metadata(self, protocol_name: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise KeyError(protocol_name)

    def vote(self, candidates: set[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def heartbeat_satisfied(self) -> bool:
        """A member that waits for the group is alive as far as the coordinator can know."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)


class ClassicGroup:
    __slots__ = (
        "awaiting_join_count",
        "generation_id",
        "group_id",
        "initial_delay_ms",
        "initial_remaining_ms",
        "leader_id",
        "members",
        "new_member_added",
        "pending_members",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_since_ms",
        "static_members",
        "stored",
        "subscribed_topics",
        "supported",
    )

    type = "classic"

    def __init__(self, group_id: str, wall_ms: int | None) -> None:
        self.group_id = group_id
        self.state = _S.EMPTY
        self.previous_state = _S.DEAD
        # Wall time of the last transition; None where an old record did not keep it.
        self.state_since_ms = wall_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        # A member's id whenever there are members.
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        # Ids handed out with MEMBER_ID_REQUIRED that have not come back yet.
        self.pending_members: set[str] = set()
        # Members of this generation that have not sent SyncGroup.
        self.pending_sync: set[str] = set()
        self.awaiting_join_count = 0
        # Protocol name -> how many members support it.
        self.supported: dict[str, int] = {}
        # None where the coordinator cannot know (not the consumer protocol, or not decodable).
        self.subscribed_topics: frozenset[str] | None = None
        self.new_member_added = False
        # Set during the first rebalance of an empty group: the running delay, and what extensions are left.
        self.initial_delay_ms: int | None = None
        self.initial_remaining_ms = 0
        # True once a record of this group is in the log: only then does its end need a tombstone.
        self.stored = False

    # -- state ---------------------------------------------------------------------------------------------------

    def transition(self, state: ClassicState, wall_ms: int) -> None:
        if self.state not in TRANSITIONS[state]:
            raise RuntimeError(f"group {self.group_id}: no way from {self.state.value} to {state.value}")
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = wall_ms

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def can_rebalance(self) -> bool:
        return self.state in TRANSITIONS[_S.PREPARING_REBALANCE]

    @property
    def is_empty(self) -> bool:
        return self.state is _EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # -- members -------------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, names: list[str]) -> bool:
        """Whether a member with these protocols can be in the group."""
        if self.state is _S.EMPTY:
            return bool(protocol_type) and bool(names)
        if self.protocol_type != protocol_type:
            return False
        size = len(self.members)
        return any(self.supported.get(name, 0) == size for name in names)

    def add(self, member: ClassicMember) -> None:
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, +1)
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> ClassicMember | None:
        """The caller answers what the removed member was waiting for."""
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count_protocols(member, -1)
        if member.awaiting_join is not None:
            self.awaiting_join_count -= 1
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace_static(self, old_id: str, new_id: str) -> ClassicMember:
        """The same member under a new id; it keeps its place, and its role if it leads."""
        old = self.members[old_id]
        if old.awaiting_join is not None:
            self.awaiting_join_count -= 1
        new = ClassicMember(
            new_id,
            old.group_instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocol_type,
            old.protocols,
            old.assignment,
        )
        self.members = {(new_id if k == old_id else k): (new if k == old_id else v) for k, v in self.members.items()}
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_sync:
            self.pending_sync.discard(old_id)
            self.pending_sync.add(new_id)
        assert old.group_instance_id is not None
        self.static_members[old.group_instance_id] = new_id
        return new

    def update(
        self, member: ClassicMember, protocols: list[tuple[str, bytes]], rebalance_ms: int, session_ms: int
    ) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, +1)
        member.rebalance_timeout_ms = rebalance_ms
        member.session_timeout_ms = session_ms

    def _count_protocols(self, member: ClassicMember, step: int) -> None:
        for name, _ in member.protocols:
            count = self.supported.get(name, 0) + step
            if count:
                self.supported[name] = count
            else:
                self.supported.pop(name, None)

    def park_join(self, member: ClassicMember, ticket: Ticket) -> Ticket | None:
        """Returns the ticket of what waited before, which the new request replaces."""
        before, member.awaiting_join = member.awaiting_join, ticket
        if before is None:
            self.awaiting_join_count += 1
        return before

    def take_join(self, member: ClassicMember) -> Ticket | None:
        ticket, member.awaiting_join = member.awaiting_join, None
        if ticket is not None:
            self.awaiting_join_count -= 1
        return ticket

    def validate_member(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise Refusal(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # -- generations ---------------------------------------------------------------------------------------------

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else take one that has; False if nobody has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def select_protocol(self) -> str:
        """The protocol most members prefer among those that all of them support."""
        size = len(self.members)
        candidates = {name for name, count in self.supported.items() if count == size}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def next_generation(self, wall_ms: int) -> None:
        self.generation_id += 1
        self.initial_delay_ms = None
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition(_S.COMPLETING_REBALANCE, wall_ms)
        else:
            self.protocol_name = None
            self.transition(_S.EMPTY, wall_ms)
        self.subscribed_topics = self.find_subscribed_topics()

    def find_subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            return frozenset(
                topic for m in self.members.values() for topic in subscribed_topics(m.metadata(self.protocol_name))
            )
        except Malformed:
            return None

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    # -- the durable part ----------------------------------------------------------------------------------------

    def install(self, value: messages.GroupMetadataValue) -> None:
        """Make the group what a GroupMetadataValue says; members that live on keep what they wait for."""
        listed = {m.member_id for m in value.members}
        for gone in [member_id for member_id in self.members if member_id not in listed]:
            self.remove(gone)
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        for stored in value.members:
            member = self.members.get(stored.member_id)
            if member is None:
                member = self._revive(value, stored)
                self.add(member)
            member.assignment = bytes(stored.assignment)
        self.protocol_type = value.protocol_type or None
        self.generation_id = value.generation
        self.leader_id = value.leader if value.leader in self.members else next(iter(self.members), None)
        state = _S.STABLE if self.members else _S.EMPTY
        if state is not self.state:
            self.previous_state, self.state = self.state, state
        self.state_since_ms = None if value.current_state_timestamp == -1 else value.current_state_timestamp
        self.subscribed_topics = self.find_subscribed_topics()
        self.stored = True

    @staticmethod
    def _revive(
        value: messages.GroupMetadataValue, stored: messages.GroupMetadataValue.MemberMetadata
    ) -> ClassicMember:
        """Records keep only the chosen protocol; the member names the others again when it rejoins."""
        return ClassicMember(
            stored.member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout,
            stored.session_timeout,
            value.protocol_type,
            [(value.protocol or "", bytes(stored.subscription))],
        )
