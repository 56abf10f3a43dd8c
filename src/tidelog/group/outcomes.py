"""What becomes of a request to the group coordinator; `api` puts it into the response of the API and its version.

A request that is turned down as a whole has a `Refusal` for its outcome. Where a decision was good but its records
could not be stored, `failed` makes the outcome that tells so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from tidelog.deciding.turn import Refusal
from tidelog.group.offset_store import CommittedOffset
from tidelog.wire.errors import ErrorCode
from tidelog.wire.quick_tuples import quick

_E = ErrorCode


# -- members of groups -------------------------------------------------------------------------------------------


class JoinRefusal(Refusal):
    """`member_id` is the id to join with, where that is what was missing; else the one that was given, or ""."""

    def __init__(self, code: ErrorCode, member_id: str) -> None:
        super().__init__(code)
        self.member_id = member_id


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    member_id: str
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    #: "" in a consumer group, where the coordinator assigns
    leader_id: str = ""
    #: everybody, for the one that leads
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class Synced(NamedTuple):
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


class MembersLeft(NamedTuple):
    """One code for each member that was named, in that order."""

    codes: list[ErrorCode]


class MemberStanding(NamedTuple):
    """Where a member of a consumer group stands after its heartbeat."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    #: topic id -> the partitions that it may use; None where it knows already
    assigned: Mapping[bytes, Mapping[int, int]] | None = None


# -- offsets -----------------------------------------------------------------------------------------------------


class OffsetsCommitted(NamedTuple):
    """One code for each partition that was named, in that order."""

    codes: list[ErrorCode]


offsets_committed: Final = quick(OffsetsCommitted)


class OffsetsDeleted(NamedTuple):
    """One code for each partition that was named, in that order."""

    codes: list[ErrorCode]


#: a partition, and what is committed to it: None if nothing is, and a code if that cannot be told
FetchedOffset: TypeAlias = tuple[int, CommittedOffset | ErrorCode | None]


class FetchedTopic(NamedTuple):
    name: str
    topic_id: bytes
    offsets: list[FetchedOffset]


class GroupOffsets(NamedTuple):
    group_id: str
    topics: list[FetchedTopic]
    code: ErrorCode = _E.NONE


class OffsetsFetched(NamedTuple):
    groups: list[GroupOffsets]


fetched_topic: Final = quick(FetchedTopic)
group_offsets: Final = quick(GroupOffsets)
offsets_fetched: Final = quick(OffsetsFetched)


# -- administration ----------------------------------------------------------------------------------------------


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    type: str


class ClassicMemberDescription(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class ClassicDescription(NamedTuple):
    state: str
    protocol_type: str
    protocol_name: str
    members: list[ClassicMemberDescription]


class DescribedPartitions(NamedTuple):
    topic_id: bytes
    topic_name: str
    partitions: list[int]


class ConsumerMemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    assignment: list[DescribedPartitions]
    target_assignment: list[DescribedPartitions]
    uses_classic_protocol: bool


class ConsumerDescription(NamedTuple):
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: list[ConsumerMemberDescription]


class GroupsDeleted(NamedTuple):
    """(group id, code) for each group of one coordinator partition."""

    results: list[tuple[str, ErrorCode]]


# -- failure -----------------------------------------------------------------------------------------------------

Outcome: TypeAlias = (
    Refusal
    | ErrorCode
    | Joined
    | Synced
    | MembersLeft
    | MemberStanding
    | OffsetsCommitted
    | OffsetsDeleted
    | OffsetsFetched
    | GroupsDeleted
)


def failed(outcome: Outcome, code: ErrorCode) -> Outcome:
    """What to tell instead where the records of a decision could not be stored; errors that it tells of stay."""
    if isinstance(outcome, Refusal):
        return outcome
    if isinstance(outcome, OffsetsCommitted):
        return OffsetsCommitted([own or code for own in outcome.codes])
    if isinstance(outcome, GroupsDeleted):
        return GroupsDeleted([(group_id, own or code) for group_id, own in outcome.results])
    if isinstance(outcome, OffsetsFetched):
        # Consumers before 3.9 do not retry on COORDINATOR_NOT_AVAILABLE here.
        told = _E.NOT_COORDINATOR if code is _E.COORDINATOR_NOT_AVAILABLE else code
        return OffsetsFetched([_not_fetched(group, told) for group in outcome.groups])
    if isinstance(outcome, Joined):
        return JoinRefusal(code, outcome.member_id)
    if isinstance(outcome, ErrorCode):
        return outcome or code
    return Refusal(code)


def _not_fetched(group: GroupOffsets, code: ErrorCode) -> GroupOffsets:
    if group.code:
        return group
    topics = [topic._replace(offsets=[(index, code) for index, _ in topic.offsets]) for topic in group.topics]
    return GroupOffsets(group.group_id, topics, code)
