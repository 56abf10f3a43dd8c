"""Records of `__consumer_offsets`, as Apache Kafka writes them.

A key is an int16 that names the type of the record, then strings, each behind an int16 length; the key of an offset
ends with the partition. A value is an int16 version, then the message of the type in that version. Versions written:

    type                                  key                      value
    0, 1  offset                          group, topic, partition  4; 1 where the client asked for a retention
    2     classic group                   group                    3
    3     consumer group                  group                    0
    4     its topics (before Kafka 4.1)   group                    never written, only deleted
    5     member                          group, member            0
    6     target assignment, its epoch    group                    0
    7     target assignment of a member   group, member            0
    8     current assignment of a member  group, member            0
    16    resolved regular expression     group, expression        0

Other types (share and Streams groups) are read past.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from struct import Struct
from typing import Final

from tidelog.deciding.decision import CoordinatorRecord, coordinator_record
from tidelog.group.classic_group import ClassicGroup
from tidelog.wire import messages
from tidelog.wire.classes import Message
from tidelog.wire.codec import stored_codec
from tidelog.wire.ids import ZERO_UUID
from tidelog.wire.malformed import WireError

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_TWO_INT16, _length, _index = Struct(">hh").pack, _INT16.pack, _INT32.pack
#: version, offset, leader epoch, length of no metadata, timestamp, one tagged field: number, size, topic id
_PLAIN_OFFSET = Struct(">hqiBqBBB16s").pack


class RecordType(IntEnum):
    LEGACY_OFFSET_COMMIT = 0
    OFFSET_COMMIT = 1
    GROUP_METADATA = 2
    CONSUMER_GROUP_METADATA = 3
    CONSUMER_GROUP_PARTITION_METADATA = 4
    CONSUMER_GROUP_MEMBER_METADATA = 5
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = 6
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = 8
    CONSUMER_GROUP_REGULAR_EXPRESSION = 16


# A constant, because every commit needs it: Python 3.11 is slow to look up a member of an enum.
_OFFSET_COMMIT: Final = RecordType.OFFSET_COMMIT

VALUE_OF = {
    RecordType.LEGACY_OFFSET_COMMIT: "OffsetCommitValue",
    RecordType.OFFSET_COMMIT: "OffsetCommitValue",
    RecordType.GROUP_METADATA: "GroupMetadataValue",
    RecordType.CONSUMER_GROUP_METADATA: "ConsumerGroupMetadataValue",
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: "ConsumerGroupPartitionMetadataValue",
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: "ConsumerGroupMemberMetadataValue",
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: "ConsumerGroupTargetAssignmentMetadataValue",
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: "ConsumerGroupTargetAssignmentMemberValue",
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: "ConsumerGroupCurrentMemberAssignmentValue",
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: "ConsumerGroupRegularExpressionValue",
}

#: what a record says of an offset: the fields of `CommittedOffset` but the last
Stated = tuple[int, int, str, int, int, bytes]
#: type, group, topic or member or expression or "", partition or -1, and the value, None for a tombstone
Meaning = tuple[RecordType, str, str, int, Stated | Message | None]

_WITH_TWO_STRINGS = frozenset(
    {
        RecordType.CONSUMER_GROUP_MEMBER_METADATA,
        RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
        RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
    }
)


def encode_key(kind: RecordType, *names: str) -> bytes:
    parts = [_INT16.pack(kind)]
    for name in names:
        raw = name.encode()
        parts.append(_INT16.pack(len(raw)))
        parts.append(raw)
    return b"".join(parts)


def encode_value(name: str, version: int, message: Message) -> bytes:
    return _INT16.pack(version) + stored_codec(name, version).encode(message)


def decode_key(key: bytes) -> tuple[RecordType, str, str, int] | None:
    """(type, group, the second string or "", the partition or -1); None for a type that is not ours."""
    try:
        (kind,) = _INT16.unpack_from(key, 0)
        if kind not in VALUE_OF:
            return None
        group, at = _string(key, 2)
        if kind <= RecordType.OFFSET_COMMIT:
            topic, at = _string(key, at)
            return RecordType(kind), group, topic, _INT32.unpack_from(key, at)[0]
        second = _string(key, at)[0] if kind in _WITH_TWO_STRINGS else ""
        return RecordType(kind), group, second, -1
    except Exception as error:
        raise WireError(f"not the key of a group record: {key.hex()}") from error


def _string(key: bytes, at: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(key, at)
    end = at + 2 + size
    if size < 0 or end > len(key):
        raise WireError("a string runs past its key")
    return key[at + 2 : end].decode(), end


def decode_value(kind: RecordType, value: bytes) -> Message:
    if len(value) < 2:
        raise WireError("a value without a version")
    (version,) = _INT16.unpack_from(value, 0)
    message: Message = stored_codec(VALUE_OF[kind], version).decode(value, 2)[0]
    return message


def stated(value: messages.OffsetCommitValue) -> Stated:
    return (
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


# -- offsets -----------------------------------------------------------------------------------------------------


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    group, name = group_id.encode(), topic.encode()
    return _TWO_INT16(_OFFSET_COMMIT, len(group)) + group + _length(len(name)) + name + _index(partition)


def offset_commit_record(
    group_id: str,
    topic: str,
    partition: int,
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp_ms: int,
    expire_timestamp_ms: int,
    topic_id: bytes,
) -> CoordinatorRecord:
    key = offset_key(group_id, topic, partition)
    said = (offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id)
    meaning: Meaning = (_OFFSET_COMMIT, group_id, topic, partition, said)
    if expire_timestamp_ms == -1 and not metadata and topic_id != ZERO_UUID:
        # What nearly every commit is, without the way through the codec, which would write the same.
        encoded = _PLAIN_OFFSET(4, offset, leader_epoch, 1, commit_timestamp_ms, 1, 0, 16, topic_id)
        return coordinator_record((key, encoded, meaning))
    value = messages.OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp_ms,
        expire_timestamp=expire_timestamp_ms,
        topic_id=topic_id,
    )
    if expire_timestamp_ms == -1:
        return CoordinatorRecord(key, encode_value("OffsetCommitValue", 4, value), meaning)
    # Version 1 does not keep all of it: what it keeps is only known from its bytes.
    return CoordinatorRecord(key, encode_value("OffsetCommitValue", 1, value))


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(offset_key(group_id, topic, partition), None)


# -- classic groups ----------------------------------------------------------------------------------------------


def group_metadata_record(
    group: ClassicGroup, assignment: Mapping[str, bytes], since_ms: int | None = None
) -> CoordinatorRecord:
    """`since_ms`: when the state that this record makes began, where it is not the state the group is in."""
    of_value = messages.GroupMetadataValue
    since = group.state_since_ms if since_ms is None else since_ms
    value = of_value.of(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=-1 if since is None else since,
        members=[
            of_value.MemberMetadata.of(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                rebalance_timeout=m.rebalance_timeout_ms,
                session_timeout=m.session_timeout_ms,
                subscription=m.metadata(group.protocol_name),
                assignment=assignment[m.member_id],
            )
            for m in group.members.values()
        ],
    )
    kind = RecordType.GROUP_METADATA
    meaning: Meaning = (kind, group.group_id, "", -1, value)
    return CoordinatorRecord(encode_key(kind, group.group_id), encode_value("GroupMetadataValue", 3, value), meaning)


def group_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(encode_key(RecordType.GROUP_METADATA, group_id), None)
