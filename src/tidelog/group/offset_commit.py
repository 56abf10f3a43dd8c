"""Committing offsets, plainly and in a transaction, and deleting them.

Who may commit: a member of the current generation or epoch; anybody without a generation while the group has no
members (that is how consumers with assigned partitions and administrators commit). A commit to a group that does not
exist creates it when its first record is replayed. A member of a consumer group may be one epoch behind for partitions
that it held in that epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.deciding.turn import Refusal, Turn
from tidelog.group.classic_group import ClassicGroup, ClassicState
from tidelog.group.consumer_group import ConsumerGroup, ConsumerMember
from tidelog.group.outcomes import OffsetsCommitted, OffsetsDeleted, offsets_committed
from tidelog.group.records import offset_commit_record, offset_tombstone
from tidelog.group.requests import OffsetCommit, OffsetDelete, TopicToCommit, TxnOffsetCommit
from tidelog.group.shard import Shard
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import ZERO_UUID

# Constants, because every commit needs them: Python 3.11 is slow to look up a member of an enum.
_STORED: Final = ErrorCode.NONE
_TOO_LARGE: Final = ErrorCode.OFFSET_METADATA_TOO_LARGE
_KEEPS_SESSIONS: Final = (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE)
_COMPLETING: Final = ClassicState.COMPLETING_REBALANCE

# Raises where one partition may not be committed; None where all may.
PartitionCheck = Callable[[bytes, int], None] | None


def commit(shard: Shard, turn: Turn, request: OffsetCommit) -> OffsetsCommitted:
    check = _validate_commit(shard, turn, request)
    retention_ms = request.retention_ms
    expire_ms = -1 if retention_ms == -1 else turn.wall_ms + retention_ms
    return _store(shard, turn, request.member.group_id, request.topics, expire_ms, check)


def _store(
    shard: Shard, turn: Turn, group_id: str, topics: list[TopicToCommit], expire_ms: int, check: PartitionCheck
) -> OffsetsCommitted:
    wall_ms, limit = turn.wall_ms, shard.config.offset_metadata_max_bytes
    records, image = turn.records, shard.around.topics
    codes: list[ErrorCode] = []
    for name, topic_id, partitions in topics:
        if topic_id == ZERO_UUID:
            topic_id = image.topic_id(name)
        for p in partitions:
            index, metadata = p.partition_index, p.committed_metadata or ""
            if len(metadata) > limit:
                codes.append(_TOO_LARGE)
                continue
            if check is not None:
                check(topic_id, index)
            offset, epoch = p.committed_offset, p.committed_leader_epoch
            records.append(
                offset_commit_record(group_id, name, index, offset, epoch, metadata, wall_ms, expire_ms, topic_id)
            )
            codes.append(_STORED)
    return offsets_committed((codes,))


def _validate_commit(shard: Shard, turn: Turn, request: OffsetCommit) -> PartitionCheck:
    group_id, member_id, instance_id, generation = request.member
    group = shard.groups.get(group_id)
    if group is None:
        if generation < 0:
            return None
        if request.knows_member_epochs:
            # Understood in both protocols.
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        raise Refusal(ErrorCode.ILLEGAL_GENERATION)
    if isinstance(group, ConsumerGroup):
        return _validate_consumer(group, member_id, generation, request.knows_member_epochs)
    _validate_classic(group, member_id, instance_id, generation, transactional=False)
    if group.state in _KEEPS_SESSIONS:
        member = group.members[member_id]
        shard.touch_session(turn, group_id, member_id, member.session_timeout_ms)
    return None


def _validate_classic(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, *, transactional: bool
) -> None:
    if generation < 0 and group.is_empty:
        return
    if generation >= 0 or member_id or instance_id is not None:
        group.validate_member(member_id, instance_id)
        if generation != group.generation_id:
            raise Refusal(ErrorCode.ILLEGAL_GENERATION)
    elif not transactional and not group.is_empty:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID)
    if not transactional and group.state is _COMPLETING:
        # The generation is right, but its assignment is not known yet: the member should sync first.
        raise Refusal(ErrorCode.REBALANCE_IN_PROGRESS)


def _validate_consumer(group: ConsumerGroup, member_id: str, epoch: int, knows_member_epochs: bool) -> PartitionCheck:
    if epoch < 0 and not group.members:
        return None
    member = group.member(member_id)
    if not knows_member_epochs and not member.uses_classic_protocol:
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION, "OffsetCommit version 9 or above must be used.")
    if epoch == member.member_epoch:
        return None
    if epoch > member.member_epoch:
        raise _stale(member, f"Epoch {epoch} is newer than the member's, {member.member_epoch}.")

    def check(topic_id: bytes, partition: int) -> None:
        assigned_at = member.assigned.get(topic_id, {}).get(partition)
        if assigned_at is None:
            assigned_at = member.revoking.get(topic_id, {}).get(partition)
        if assigned_at is None or epoch < assigned_at:
            raise _stale(member, f"Epoch {epoch} does not cover partition {partition}.")

    return check


def _stale(member: ConsumerMember, message: str) -> Refusal:
    code = ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
    return Refusal(code, message)


def commit_in_transaction(shard: Shard, turn: Turn, request: TxnOffsetCommit) -> OffsetsCommitted:
    check = _validate_txn_commit(shard, request)
    turn.producer_id, turn.producer_epoch = request.producer_id, request.producer_epoch
    return _store(shard, turn, request.member.group_id, request.topics, -1, check)


def _validate_txn_commit(shard: Shard, request: TxnOffsetCommit) -> PartitionCheck:
    group_id, member_id, instance_id, generation = request.member
    group = shard.groups.get(group_id)
    if group is None:
        if generation < 0:
            return None
        raise Refusal(ErrorCode.ILLEGAL_GENERATION)
    if isinstance(group, ClassicGroup):
        _validate_classic(group, member_id, instance_id, generation, transactional=True)
        return None
    if generation == -1 and not member_id and instance_id is None:
        # Older producers do not say who they are.
        return None
    try:
        check = _validate_consumer(group, member_id, generation, knows_member_epochs=True)
    except Refusal as refusal:
        raise _for_producers(refusal) from None
    return None if check is None else _as_generation(check)


def _as_generation(check: Callable[[bytes, int], None]) -> Callable[[bytes, int], None]:
    def check_for_producers(topic_id: bytes, partition: int) -> None:
        try:
            check(topic_id, partition)
        except Refusal as refusal:
            raise _for_producers(refusal) from None

    return check_for_producers


def _for_producers(refusal: Refusal) -> Refusal:
    """Producers know generations, not epochs."""
    if refusal.code is ErrorCode.STALE_MEMBER_EPOCH:
        return Refusal(ErrorCode.ILLEGAL_GENERATION)
    return refusal


def delete_offsets(shard: Shard, turn: Turn, request: OffsetDelete) -> OffsetsDeleted:
    group = shard.groups.get(request.group_id)
    if group is None:
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND)
    if isinstance(group, ClassicGroup) and not group.is_empty and not group.uses_consumer_protocol:
        # What such members are subscribed to cannot be known.
        raise Refusal(ErrorCode.NON_EMPTY_GROUP)
    codes: list[ErrorCode] = []
    for name, partitions in request.topics:
        subscribed = group.is_subscribed_to(name)
        for partition in partitions:
            codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE)
            known = shard.offsets.get(group.group_id, name, partition) is not None
            if not subscribed and (known or shard.offsets.is_open(group.group_id, name, partition)):
                turn.append(offset_tombstone(group.group_id, name, partition))
    return OffsetsDeleted(codes)
