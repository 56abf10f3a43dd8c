"""The one place where durable state changes: a record of `__consumer_offsets` applied to its shard.

Living and loading run the same code. Tombstones of what is not there are ignored, because compaction may have removed
what they delete. A group that goes while it still has committed offsets leaves a simple group behind to hold them, so
that the offsets of a group are never answered as missing.
"""

from __future__ import annotations

from tidelog.group.classic_group import ClassicGroup
from tidelog.group.consumer_group import LEAVE_EPOCH, NOTHING, ConsumerGroup, ConsumerMember, ResolvedRegex
from tidelog.group.consumer_records import target_of, with_current, with_metadata
from tidelog.group.offset_store import CommittedOffset, committed_offset
from tidelog.group.records import Meaning, RecordType, decode_key, decode_value, stated
from tidelog.group.shard import Shard
from tidelog.wire import messages
from tidelog.wire.classes import Message


def decoded(key: bytes, value: bytes | None) -> Meaning | None:
    """What a record says; None for a type that is not ours."""
    parts = decode_key(key)
    if parts is None:
        return None
    if value is None:
        return *parts, None
    message = decode_value(parts[0], value)
    if isinstance(message, messages.OffsetCommitValue):
        return *parts, stated(message)
    return *parts, message


def replay(shard: Shard, meaning: Meaning | None, producer_id: int, offset: int) -> None:
    if meaning is None:
        return
    kind, group_id, second, partition, value = meaning
    if isinstance(value, tuple):
        _offset(shard, group_id, second, partition, committed_offset((*value, offset)), producer_id)
    elif value is not None:
        _learn(shard, group_id, second, value)
    elif kind <= RecordType.OFFSET_COMMIT:
        shard.offsets.remove(group_id, second, partition)
    elif kind is RecordType.GROUP_METADATA:
        if shard.classic(group_id) is not None:
            _drop(shard, group_id)
    else:
        group = shard.consumer(group_id)
        if group is not None:
            _forget(shard, kind, group, second)


def _offset(
    shard: Shard, group_id: str, topic: str, partition: int, committed: CommittedOffset, producer_id: int
) -> None:
    if group_id not in shard.groups:
        shard.groups[group_id] = ClassicGroup(group_id, committed.commit_timestamp_ms)
    if producer_id < 0:
        shard.offsets.put(group_id, topic, partition, committed)
    else:
        shard.offsets.put_pending(producer_id, group_id, topic, partition, committed)


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


def _learn(shard: Shard, group_id: str, second: str, value: Message) -> None:
    if isinstance(value, messages.GroupMetadataValue):
        classic = shard.classic(group_id)
        if classic is None:
            classic = shard.groups[group_id] = ClassicGroup(group_id, None)
        classic.install(value)
        return
    group = _consumer_group(shard, group_id)
    if isinstance(value, messages.ConsumerGroupMetadataValue):
        group.group_epoch = value.epoch
        group.metadata_hash = value.metadata_hash
    elif isinstance(value, messages.ConsumerGroupPartitionMetadataValue):
        group.has_partition_metadata = True
    elif isinstance(value, messages.ConsumerGroupMemberMetadataValue):
        member = group.members.get(second) or ConsumerMember(second)
        group.put_member(with_metadata(member, value))
    elif isinstance(value, messages.ConsumerGroupTargetAssignmentMetadataValue):
        group.assignment_epoch = value.assignment_epoch
        group.assignment_timestamp_ms = value.assignment_timestamp
    elif isinstance(value, messages.ConsumerGroupTargetAssignmentMemberValue):
        group.target[second] = target_of(value)
    elif isinstance(value, messages.ConsumerGroupCurrentMemberAssignmentValue):
        member = group.members.get(second) or ConsumerMember(second)
        group.put_member(with_current(member, value))
    elif isinstance(value, messages.ConsumerGroupRegularExpressionValue):
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
                member._replace(
                    member_epoch=LEAVE_EPOCH,
                    previous_member_epoch=LEAVE_EPOCH,
                    assigned=NOTHING,
                    revoking=NOTHING,
                )
            )
    elif kind is RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION:
        group.resolved.pop(second, None)
