"""Records of consumer groups: made from members and groups when deciding, turned back into them by replay."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.deciding.decision import CoordinatorRecord
from tidelog.group.consumer_group import (
    Assignment,
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Owned,
    ResolvedRegex,
)
from tidelog.group.records import VALUE_OF, RecordType, encode_key, encode_value
from tidelog.wire import messages
from tidelog.wire.classes import Message

_T = RecordType


def _record(kind: RecordType, names: tuple[str, ...], value: Message) -> CoordinatorRecord:
    return CoordinatorRecord(encode_key(kind, *names), encode_value(VALUE_OF[kind], 0, value))


def _tombstone(kind: RecordType, *names: str) -> CoordinatorRecord:
    return CoordinatorRecord(encode_key(kind, *names), None)


# -- making ------------------------------------------------------------------------------------------------------


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    of_value = messages.ConsumerGroupMemberMetadataValue
    classic = None
    if member.classic is not None:
        classic = of_value.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[of_value.ClassicProtocol(name=n, metadata=m) for n, m in member.classic.protocols],
        )
    value = of_value(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    return _record(_T.CONSUMER_GROUP_MEMBER_METADATA, (group_id, member.member_id), value)


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    value = messages.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return _record(_T.CONSUMER_GROUP_METADATA, (group_id,), value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    value = messages.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )
    return _record(_T.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, (group_id,), value)


def target_record(group_id: str, member_id: str, assignment: Assignment) -> CoordinatorRecord:
    of_value = messages.ConsumerGroupTargetAssignmentMemberValue
    value = of_value(
        topic_partitions=[
            of_value.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assignment.items()
        ]
    )
    return _record(_T.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, (group_id, member_id), value)


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    value = messages.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=int(member.state),
        assigned_partitions=_topic_partitions(member.assigned),
        partitions_pending_revocation=_topic_partitions(member.revoking),
    )
    return _record(_T.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, (group_id, member.member_id), value)


def _topic_partitions(owned: Owned) -> list[messages.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    of_topic = messages.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
    return [
        of_topic(topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic_id, epochs in owned.items()
    ]


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    value = messages.ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return _record(_T.CONSUMER_GROUP_REGULAR_EXPRESSION, (group_id, regex), value)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return _tombstone(_T.CONSUMER_GROUP_REGULAR_EXPRESSION, group_id, regex)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return _tombstone(_T.CONSUMER_GROUP_PARTITION_METADATA, group_id)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """In this order, so that a member is gone only after what it held."""
    return [
        _tombstone(_T.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, group_id, member_id),
        _tombstone(_T.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, group_id, member_id),
        _tombstone(_T.CONSUMER_GROUP_MEMBER_METADATA, group_id, member_id),
    ]


def group_tombstones(group: ConsumerGroup, member_ids: Iterable[str] | None = None) -> list[CoordinatorRecord]:
    """Everything a group has in the log; `member_ids` where they differ from the members it has now."""
    group_id, ids = group.group_id, list(group.members if member_ids is None else member_ids)
    return [
        *(_tombstone(_T.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, group_id, m) for m in ids),
        *(_tombstone(_T.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, group_id, m) for m in ids),
        _tombstone(_T.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, group_id),
        *(_tombstone(_T.CONSUMER_GROUP_MEMBER_METADATA, group_id, m) for m in ids),
        *(regex_tombstone(group_id, regex) for regex in group.resolved),
        partition_metadata_tombstone(group_id),
        _tombstone(_T.CONSUMER_GROUP_METADATA, group_id),
    ]


# -- replaying ---------------------------------------------------------------------------------------------------


def with_metadata(member: ConsumerMember, value: messages.ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    classic = None
    stored = value.classic_member_metadata
    if stored is not None:
        protocols = tuple((p.name, bytes(p.metadata)) for p in stored.supported_protocols)
        classic = ClassicMetadata(stored.session_timeout_ms, protocols)
    return member._replace(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=frozenset(value.subscribed_topic_names),
        subscribed_topic_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=classic,
    )


def with_current(member: ConsumerMember, value: messages.ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
    known = MemberState._value2member_map_
    return member._replace(
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if value.state in known else MemberState.UNKNOWN,
        assigned=_owned(value.assigned_partitions, value.member_epoch),
        revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
    )


def _owned(
    topic_partitions: list[messages.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], member_epoch: int
) -> Owned:
    """Records written before the epochs were kept count as assigned in the member's epoch."""
    owned: dict[bytes, dict[int, int]] = {}
    for entry in topic_partitions:
        epochs = entry.assignment_epochs
        if epochs is None or len(epochs) != len(entry.partitions):
            epochs = [max(member_epoch, 0)] * len(entry.partitions)
        owned[entry.topic_id] = dict(zip(entry.partitions, epochs, strict=True))
    return owned


def target_of(value: messages.ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    return {entry.topic_id: frozenset(entry.partitions) for entry in value.topic_partitions}
