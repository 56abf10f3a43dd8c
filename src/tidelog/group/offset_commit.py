"""OffsetCommit 2-10, TxnOffsetCommit 0-5 and OffsetDelete 0.

Who may commit: a member of the current generation or epoch; anybody without a generation while the group has no
members (that is how consumers with assigned partitions and administrators commit). A commit to a group that does not
exist creates it when its first record is replayed. A member of a consumer group may be one epoch behind for partitions
that it held in that epoch.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.deciding.turn import Refusal, RequestContext, Turn
from tidelog.group.classic_group import ClassicGroup, ClassicState
from tidelog.group.consumer_group import ConsumerGroup, ConsumerMember
from tidelog.group.records import offset_commit_record, offset_tombstone
from tidelog.group.shard import Shard
from tidelog.group.topics_image import ZERO_UUID
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

# Raises where one partition may not be committed; None where all may.
PartitionCheck = Callable[[bytes, int], None] | None


def commit(
    shard: Shard, turn: Turn, request: messages.OffsetCommitRequest, context: RequestContext
) -> messages.OffsetCommitResponse:
    check = _validate_commit(shard, turn, request, context)
    response = messages.OffsetCommitResponse
    topic_of, partition_of = response.OffsetCommitResponseTopic, response.OffsetCommitResponsePartition
    group_id, wall_ms, limit = request.group_id, turn.wall_ms, shard.config.offset_metadata_max_bytes
    retention_ms = request.retention_time_ms
    expire_ms = -1 if retention_ms == -1 else wall_ms + retention_ms
    records, image = turn.records, shard.around.topics
    topics = []
    for topic in request.topics:
        name, topic_id = topic.name, topic.topic_id
        if topic_id == ZERO_UUID:
            topic_id = image.topic_id(name)
        partitions = []
        for p in topic.partitions:
            index, metadata = p.partition_index, p.committed_metadata or ""
            if len(metadata) > limit:
                partitions.append(partition_of(partition_index=index, error_code=_TOO_LARGE))
                continue
            if check is not None:
                check(topic_id, index)
            epoch = p.committed_leader_epoch
            records.append(
                offset_commit_record(
                    group_id, name, index, p.committed_offset, epoch, metadata, wall_ms, expire_ms, topic_id
                )
            )
            partitions.append(partition_of(partition_index=index))
        topics.append(topic_of(name=name, topic_id=topic.topic_id, partitions=partitions))
    return response(topics=topics)


_TOO_LARGE = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)


def _validate_commit(
    shard: Shard, turn: Turn, request: messages.OffsetCommitRequest, context: RequestContext
) -> PartitionCheck:
    group = shard.groups.get(request.group_id)
    generation = request.generation_id_or_member_epoch
    if group is None:
        if generation < 0:
            return None
        # Version 9 is the first that both protocols speak, with an error that both understand.
        if context.api_version >= 9:
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        raise Refusal(ErrorCode.ILLEGAL_GENERATION)
    if isinstance(group, ConsumerGroup):
        return _validate_consumer(group, request.member_id, generation, context.api_version)
    _validate_classic(group, request.member_id, request.group_instance_id, generation, transactional=False)
    if group.state in (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE):
        member = group.members[request.member_id]
        shard.touch_session(turn, group.group_id, member.member_id, member.session_timeout_ms)
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
    if not transactional and group.state is ClassicState.COMPLETING_REBALANCE:
        # The generation is right, but its assignment is not known yet: the member should sync first.
        raise Refusal(ErrorCode.REBALANCE_IN_PROGRESS)


def _validate_consumer(group: ConsumerGroup, member_id: str, epoch: int, api_version: int | None) -> PartitionCheck:
    """`api_version` None: a transactional commit."""
    if epoch < 0 and not group.members:
        return None
    member = group.member(member_id)
    if api_version is not None and not member.uses_classic_protocol and api_version < 9:
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


def commit_in_transaction(
    shard: Shard, turn: Turn, request: messages.TxnOffsetCommitRequest
) -> messages.TxnOffsetCommitResponse:
    check = _validate_txn_commit(shard, request)
    turn.producer_id, turn.producer_epoch = request.producer_id, request.producer_epoch
    response = messages.TxnOffsetCommitResponse
    limit = shard.config.offset_metadata_max_bytes
    answer = response()
    for topic in request.topics:
        topic_id = shard.around.topics.topic_id(topic.name)
        if check is not None and topic_id == ZERO_UUID:
            raise Refusal(ErrorCode.ILLEGAL_GENERATION)
        reply = response.TxnOffsetCommitResponseTopic(name=topic.name)
        answer.topics.append(reply)
        for p in topic.partitions:
            metadata, code = p.committed_metadata or "", 0
            if len(metadata) > limit:
                code = _TOO_LARGE
            else:
                if check is not None:
                    _as_generation(check, topic_id, p.partition_index)
                turn.append(
                    offset_commit_record(
                        request.group_id,
                        topic.name,
                        p.partition_index,
                        p.committed_offset,
                        p.committed_leader_epoch,
                        metadata,
                        turn.wall_ms,
                        -1,
                        topic_id,
                    )
                )
            reply.partitions.append(
                response.TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            )
    return answer


def _validate_txn_commit(shard: Shard, request: messages.TxnOffsetCommitRequest) -> PartitionCheck:
    group = shard.groups.get(request.group_id)
    generation, member_id = request.generation_id, request.member_id
    if group is None:
        if generation < 0:
            return None
        raise Refusal(ErrorCode.ILLEGAL_GENERATION)
    if isinstance(group, ClassicGroup):
        _validate_classic(group, member_id, request.group_instance_id, generation, transactional=True)
        return None
    if generation == -1 and not member_id and request.group_instance_id is None:
        # Producers before version 3 do not say who they are.
        return None
    try:
        return _validate_consumer(group, member_id, generation, None)
    except Refusal as refusal:
        raise _for_producers(refusal) from None


def _as_generation(check: Callable[[bytes, int], None], topic_id: bytes, partition: int) -> None:
    try:
        check(topic_id, partition)
    except Refusal as refusal:
        raise _for_producers(refusal) from None


def _for_producers(refusal: Refusal) -> Refusal:
    """Producers know generations, not epochs."""
    if refusal.code is ErrorCode.STALE_MEMBER_EPOCH:
        return Refusal(ErrorCode.ILLEGAL_GENERATION)
    return refusal


def delete_offsets(shard: Shard, turn: Turn, request: messages.OffsetDeleteRequest) -> messages.OffsetDeleteResponse:
    group = shard.groups.get(request.group_id)
    if group is None:
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND)
    if isinstance(group, ClassicGroup) and not group.is_empty and not group.uses_consumer_protocol:
        # What such members are subscribed to cannot be known.
        raise Refusal(ErrorCode.NON_EMPTY_GROUP)
    response = messages.OffsetDeleteResponse
    answer = response()
    for topic in request.topics:
        subscribed = group.is_subscribed_to(topic.name)
        reply = response.OffsetDeleteResponseTopic(name=topic.name)
        answer.topics.append(reply)
        for p in topic.partitions:
            index = p.partition_index
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            reply.partitions.append(response.OffsetDeleteResponsePartition(partition_index=index, error_code=int(code)))
            known = shard.offsets.get(group.group_id, topic.name, index) is not None
            if not subscribed and (known or shard.offsets.is_open(group.group_id, topic.name, index)):
                turn.append(offset_tombstone(group.group_id, topic.name, index))
    return answer


def refused_commit(request: messages.OffsetCommitRequest, code: ErrorCode) -> messages.OffsetCommitResponse:
    response = messages.OffsetCommitResponse
    return response(
        topics=[
            response.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    response.OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=int(code))
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refused_txn_commit(
    request: messages.TxnOffsetCommitRequest, code: ErrorCode, context: RequestContext
) -> messages.TxnOffsetCommitResponse:
    if context.api_version < 2 and code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # Producers before 2.0 do not know that error.
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    response = messages.TxnOffsetCommitResponse
    return response(
        topics=[
            response.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    response.TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=int(code))
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
