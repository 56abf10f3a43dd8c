"""What members and administrators ask of the group coordinator, whatever version of an API they speak.

`api` makes these values from requests. What an older client cannot be told is a flag that starts with `knows_`; fields
that its version leaves out are filled in. Groups, members and topics go by their names and ids as in Kafka's protocol.
Offsets that are committed or asked for are the exception: there are too many of them to copy each, so the structs of
the requests come here as they are, and a `Protocol` says what is read from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from tidelog.wire.quick_tuples import quick

#: what a member says it owns: partitions by topic id; None where a heartbeat does not say
Reported = Mapping[bytes, set[int]] | None


class Membership(NamedTuple):
    """Who a request says it comes from. The generation is the member epoch in a consumer group; -1 is nobody's."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int


membership: Final = quick(Membership)


class MemberIdentity(NamedTuple):
    member_id: str
    group_instance_id: str | None = None


# -- members of classic groups -----------------------------------------------------------------------------------


class Joining(NamedTuple):
    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    #: (name, metadata) in the order of the member's preference
    protocols: list[tuple[str, bytes]]
    knows_member_id_required: bool = True
    knows_skip_assignment: bool = True

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.protocols]


class Syncing(NamedTuple):
    member: Membership
    #: None where the member does not say
    protocol_type: str | None
    protocol_name: str | None
    #: member id -> assignment, from the leader
    assignments: Mapping[str, bytes]


class Leaving(NamedTuple):
    group_id: str
    members: list[MemberIdentity]


# -- members of consumer groups ----------------------------------------------------------------------------------


class ConsumerHeartbeat(NamedTuple):
    """None, and a timeout of -1, where nothing has changed since the last heartbeat."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: list[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    owned: Reported
    client_id: str
    client_host: str
    #: False where the coordinator names a member that joins
    brings_member_id: bool = True


# -- offsets -----------------------------------------------------------------------------------------------------


class OffsetToCommit(Protocol):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


#: name, id (zeros: that of the topic that has the name now), offsets
TopicToCommit: TypeAlias = tuple[str, bytes, Sequence[OffsetToCommit]]


class OffsetCommit(NamedTuple):
    member: Membership
    topics: list[TopicToCommit]
    #: -1: the broker's retention applies
    retention_ms: int = -1
    knows_member_epochs: bool = True


offset_commit: Final = quick(OffsetCommit)


class TxnOffsetCommit(NamedTuple):
    member: Membership
    producer_id: int
    producer_epoch: int
    topics: list[TopicToCommit]


class WantedTopic(Protocol):
    name: str
    #: zeros: whatever topic has or had the name
    topic_id: bytes
    partition_indexes: list[int]


class WantedOffsets(Protocol):
    """Of one group; `topics` None: all that it has committed."""

    @property
    def group_id(self) -> str: ...

    @property
    def topics(self) -> Sequence[WantedTopic] | None: ...

    @property
    def member_id(self) -> str | None: ...

    @property
    def member_epoch(self) -> int: ...


class OffsetFetch(NamedTuple):
    groups: Sequence[WantedOffsets]
    require_stable: bool = False


offset_fetch: Final = quick(OffsetFetch)


class OffsetDelete(NamedTuple):
    group_id: str
    #: (topic, partitions)
    topics: list[tuple[str, list[int]]]
