"""A group of the consumer protocol (KIP-848): the coordinator assigns, members follow at their own pace.

Three numbers chase each other
    group epoch       grows when members, subscriptions or topics change: what the group is
    assignment epoch  grows when a target assignment was made for a group epoch: where everybody should be
    member epoch      grows when a member has come to the target: where it is

A member that must give up partitions keeps its epoch until it has said that it no longer owns them (UNREVOKED); then
it moves to the target's epoch, with the partitions that are free. Those still held by others come later (UNRELEASED).
So no partition is ever owned by two members at once, without a moment in which all of them stop.

Everything here but `refresh_deadline_ms` is durable and changes only by replaying records. Members are immutable:
deciding makes a changed copy, a record of it, and replaying the record puts the copy in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from tidelog.deciding.turn import Refusal
from tidelog.group.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from tidelog.wire.errors import ErrorCode

LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2

# topic id -> partition -> the member epoch in which the partition was assigned
Owned = Mapping[bytes, Mapping[int, int]]
# topic id -> partitions
Assignment = Mapping[bytes, frozenset[int]]

# topic names and a regular expression
Subscription = tuple[frozenset[str], str | None]

NOTHING: Any = MappingProxyType({})


class MemberState(IntEnum):
    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ClassicMetadata(NamedTuple):
    """What a member that still speaks the classic protocol brought with its JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    # The version of the topics it was resolved against, and the wall time.
    version: int
    timestamp_ms: int


class ConsumerMember(NamedTuple):
    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    # What the member may use, and what it must give up; it is responsible for both.
    assigned: Owned = NOTHING
    revoking: Owned = NOTHING
    classic: ClassicMetadata | None = None

    @property
    def subscription(self) -> Subscription:
        return self.subscribed_topic_names, self.subscribed_topic_regex

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch


class ConsumerGroup:
    __slots__ = (
        "_subscriptions",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "group_epoch",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "owners",
        "refresh_deadline_ms",
        "resolved",
        "static_members",
        "target",
    )

    type = "consumer"
    protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 1
        self.assignment_epoch = 1
        # Wall time at which the target was made; 0 where it is not known.
        self.assignment_timestamp_ms = 0
        self.metadata_hash = 0
        self.members: dict[str, ConsumerMember] = {}
        # How many members have each subscription: joining must not cost a look at everybody who is there.
        self._subscriptions: dict[Subscription, int] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Assignment] = {}
        # topic id -> partition -> the member that holds it, be it assigned or still to be revoked
        self.owners: dict[bytes, dict[int, str]] = {}
        self.resolved: dict[str, ResolvedRegex] = {}
        # True where the log still has a record of the kind that Kafka wrote before 4.1.
        self.has_partition_metadata = False
        # Monotonic time after which the topics are looked at again; 0 asks for it at the next heartbeat.
        self.refresh_deadline_ms = 0

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        if all(m.is_reconciled_to(self.assignment_epoch) for m in self.members.values()):
            return "Stable"
        return "Reconciling"

    def member(self, member_id: str) -> ConsumerMember:
        found = self.members.get(member_id)
        if found is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return found

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        if instance_id is None:
            return None
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def after(self, updated: ConsumerMember) -> Iterator[ConsumerMember]:
        """The members as they will be once `updated` is replayed, in an order that does not depend on who asks."""
        replaced = None if updated.instance_id is None else self.static_members.get(updated.instance_id)
        placed = False
        for member in self.members.values():
            if member.member_id not in (updated.member_id, replaced):
                yield member
            elif not placed:
                placed = True
                yield updated
        if not placed:
            yield updated

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """A regular expression that is not resolved yet matches nothing."""
        resolved = self.resolved.get(member.subscribed_topic_regex or "")
        if resolved is None:
            return member.subscribed_topic_names
        return member.subscribed_topic_names | resolved.topics

    def subscribed_topics(self, members: Iterable[ConsumerMember] | None = None) -> set[str]:
        if members is None:
            return self._topics_of_all(self._subscriptions)
        names: set[str] = set()
        for member in members:
            names |= self.topics_of(member)
        return names

    def subscribed_topics_after(self, updated: ConsumerMember) -> set[str]:
        """What the group reads once `updated` is replayed."""
        return self._topics_of_all(self._subscriptions_after(updated))

    def subscribed_regexes_after(self, updated: ConsumerMember) -> set[str]:
        return {regex for _, regex in self._subscriptions_after(updated) if regex}

    def _topics_of_all(self, subscriptions: Iterable[Subscription]) -> set[str]:
        found: set[str] = set()
        for names, regex in subscriptions:
            found |= names
            resolved = self.resolved.get(regex or "")
            if resolved is not None:
                found |= resolved.topics
        return found

    def _subscriptions_after(self, updated: ConsumerMember) -> Iterable[Subscription]:
        replaced = None if updated.instance_id is None else self.static_members.get(updated.instance_id)
        gone: dict[Subscription, int] = {}
        for member_id in {updated.member_id, replaced}:
            member = self.members.get(member_id or "")
            if member is not None:
                gone[member.subscription] = gone.get(member.subscription, 0) + 1
        yield from (one for one, count in self._subscriptions.items() if count > gone.get(one, 0))
        yield updated.subscription

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(member) for member in self.members.values())

    def count_subscribed_to_regex(self, regex: str) -> int:
        return sum(count for (_, theirs), count in self._subscriptions.items() if theirs == regex)

    def subscribed_regexes(self) -> set[str]:
        return {regex for _, regex in self._subscriptions if regex}

    def preferred_assignor(self, members: Iterable[ConsumerMember] | None = None) -> str | None:
        """The one that most members ask for."""
        votes: dict[str, int] = {}
        for member in self.members.values() if members is None else members:
            if member.server_assignor is not None:
                votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
        return max(votes, key=lambda name: votes[name]) if votes else None

    def held_by_other(self, member_id: str, topic_id: bytes, partition: int) -> bool:
        owner = self.owners.get(topic_id, NOTHING).get(partition)
        return owner is not None and owner != member_id

    def supports_classic(self, protocol_type: str, names: list[str]) -> bool:
        """Whether a classic member with these protocols can be among the classic members of the group."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        classic = [{name for name, _ in m.classic.protocols} for m in self.members.values() if m.classic is not None]
        return any(all(name in known for known in classic) for name in names)

    # -- replay --------------------------------------------------------------------------------------------------

    def put_member(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._release(old)
            if old.instance_id != member.instance_id:
                self._free_instance(old)
            self._unsubscribe(old)
        self.members[member.member_id] = member
        self._subscriptions[member.subscription] = self._subscriptions.get(member.subscription, 0) + 1
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                owners = self.owners.setdefault(topic_id, {})
                for partition in partitions:
                    owners[partition] = member.member_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._release(member)
        self._unsubscribe(member)
        self._free_instance(member)

    def _free_instance(self, member: ConsumerMember) -> None:
        """Its instance id is its own no longer, unless another member has taken it over."""
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _unsubscribe(self, member: ConsumerMember) -> None:
        left = self._subscriptions[member.subscription] - 1
        if left:
            self._subscriptions[member.subscription] = left
        else:
            del self._subscriptions[member.subscription]

    def _release(self, member: ConsumerMember) -> None:
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                owners = self.owners.get(topic_id)
                if owners is None:
                    continue
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    del self.owners[topic_id]
