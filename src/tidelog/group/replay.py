"""The one place where durable state changes: a record of `__consumer_offsets` applied to its shard.

Living and loading run the same code. Tombstones of what is not there are ignored, because compaction may have removed
what they delete. A group that goes while it still has committed offsets leaves a simple group behind to hold them, so
that the offsets of a group are never answered as missing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidelog.group.classic_group import ClassicGroup
from tidelog.group.consumer_group import LEAVE_EPOCH, NOTHING, ConsumerGroup, ConsumerMember, ResolvedRegex
from tidelog.group.consumer_records import target_of, with_current, with_metadata
from tidelog.group.offset_store import CommittedOffset
from tidelog.group.records import RecordType, decode_key, decode_value
from tidelog.group.shard import Shard

#: type, group, topic or member or expression or "", partition or -1, and the value, None for a tombstone; of an offset
#: the value is a tuple, the fields of `CommittedOffset` but the last
Meaning = tuple[RecordType, str, str, int, Any]


def decoded(key: bytes, value: bytes | None) -> Meaning | None:
    """What a record says; None for a type that is not ours."""
    parts = decode_key(key)
    if parts is None:
        return None
    message = None if value is None else decode_value(parts[0], value)
    if message is not None and parts[0] <= RecordType.OFFSET_COMMIT:
        message = (
            message.offset,
            message.leader_epoch,
            message.metadata,
            message.commit_timestamp,
            message.expire_timestamp,
            message.topic_id,
        )
    return *parts, message


def replay(shard: Shard, meaning: Meaning | None, producer_id: int, offset: int) -> None:
    if meaning is None:
        return
    kind, group_id, second, partition, message = meaning
    if kind <= RecordType.OFFSET_COMMIT:
        _offset(shard, group_id, second, partition, message, producer_id, offset)
    elif kind is RecordType.GROUP_METADATA:
        _classic_group(shard, group_id, message)
    elif message is None:
        group = shard.consumer(group_id)
        if group is not None:
            _forget(shard, kind, group, second)
    else:
        _learn(kind, _consumer_group(shard, group_id), second, message)


def _offset(shard: Shard, group_id: str, topic: str, partition: int, value: Any, producer_id: int, offset: int) -> None:
    if value is None:
        shard.offsets.remove(group_id, topic, partition)
        return
    committed = CommittedOffset._make((*value, offset))
    if group_id not in shard.groups:
        shard.groups[group_id] = ClassicGroup(group_id, committed.commit_timestamp_ms)
    if producer_id < 0:
        shard.offsets.put(group_id, topic, partition, committed)
    else:
        shard.offsets.put_pending(producer_id, group_id, topic, partition, committed)


def _classic_group(shard: Shard, group_id: str, value: Any) -> None:
    group = shard.classic(group_id)
    if value is None:
        if group is not None:
            _drop(shard, group_id)
        return
    if group is None:
        group = shard.groups[group_id] = ClassicGroup(group_id, None)
    group.install(value)


def _drop(shard: Shard, group_id: str) -> None:
    if shard.offsets.holds(group_id):
        shard.groups[group_id] = ClassicGroup(group_id, None)
    else:
        shard.groups.pop(group_id, None)


def _consumer_group(shard: Shard, group_id: str) -> ConsumerGroup:
    group = shard.consumer(group_id)
    if group is None:
        group = shard.groups[group_id] = ConsumerGroup(group_id)
    return group


def _learn(kind: RecordType, group: ConsumerGroup, second: str, value: Any) -> None:
    if kind is RecordType.CONSUMER_GROUP_METADATA:
        group.group_epoch = value.epoch
        group.metadata_hash = value.metadata_hash
    elif kind is RecordType.CONSUMER_GROUP_PARTITION_METADATA:
        group.has_partition_metadata = True
    elif kind is RecordType.CONSUMER_GROUP_MEMBER_METADATA:
        member = group.members.get(second) or ConsumerMember(second)
        group.put_member(with_metadata(member, value))
    elif kind is RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA:
        group.assignment_epoch = value.assignment_epoch
        group.assignment_timestamp_ms = value.assignment_timestamp
    elif kind is RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER:
        group.target[second] = target_of(value)
    elif kind is RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT:
        member = group.members.get(second) or ConsumerMember(second)
        group.put_member(with_current(member, value))
    elif kind is RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION:
        group.resolved[second] = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)


def _forget(shard: Shard, kind: RecordType, group: ConsumerGroup, second: str) -> None:
    if kind is RecordType.CONSUMER_GROUP_METADATA:
        _drop(shard, group.group_id)
    elif kind is RecordType.CONSUMER_GROUP_PARTITION_METADATA:
        group.has_partition_metadata = False
    elif kind is RecordType.CONSUMER_GROUP_MEMBER_METADATA:
        group.remove_member(second)
    elif kind is RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA:
        group.assignment_epoch, group.assignment_timestamp_ms = -1, 0
    elif kind is RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER:
        group.target.pop(second, None)
    elif kind is RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT:
        member = group.members.get(second)
        if member is not None:
            group.put_member(
                replace(
                    member,
                    member_epoch=LEAVE_EPOCH,
                    previous_member_epoch=LEAVE_EPOCH,
                    assigned=NOTHING,
                    revoking=NOTHING,
                )
            )
    elif kind is RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION:
        group.resolved.pop(second, None)
