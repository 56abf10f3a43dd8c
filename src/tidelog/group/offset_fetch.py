"""OffsetFetch 1-10, and the expiry of offsets.

A partition without a committed offset is answered with -1 and no error; so is every partition of a group that does not
exist, because to a consumer both mean "start where auto.offset.reset says". A coordinator that is loading therefore
never gets here: the door refuses before.

An offset expires `offsets.retention.minutes` after the group became empty; after the commit, where the group has no
members that manage it or is not subscribed to the topic any more; or at the time that an old client asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from tidelog.deciding.turn import Refusal, RequestContext, Turn
from tidelog.group.classic_group import ClassicGroup, ClassicState
from tidelog.group.consumer_group import ConsumerGroup
from tidelog.group.offset_store import CommittedOffset
from tidelog.group.records import offset_tombstone
from tidelog.group.shard import Group, Shard
from tidelog.group.topics_image import ZERO_UUID
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

_UNSTABLE = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)


T = TypeVar("T")


class Shape(NamedTuple, Generic[T]):
    """The structs of an answer: version 8 put them into groups under other names."""

    topic: Callable[..., T]
    partition: Callable[..., object]
    with_ids: bool


class AskedTopic(NamedTuple):
    name: str
    topic_id: bytes
    partition_indexes: list[int]


class Asked(NamedTuple):
    """One group of a request; before version 8 the request is about a single one."""

    group_id: str
    topics: list[AskedTopic] | None
    member_id: str | None = None
    member_epoch: int = -1


def answer(
    shard_of: Callable[[str], Shard], turn: Turn, request: messages.OffsetFetchRequest, context: RequestContext
) -> messages.OffsetFetchResponse:
    response, version = messages.OffsetFetchResponse, context.api_version
    if version < 8:
        shape = Shape(response.OffsetFetchResponseTopic, response.OffsetFetchResponsePartition, False)
        topics, code = _attempt(shard_of, turn, _single(request), request.require_stable, shape, version)
        return response(topics=topics, error_code=int(code) if version >= 2 else 0)
    in_group = Shape(response.OffsetFetchResponseTopics, response.OffsetFetchResponsePartitions, version >= 10)
    groups = []
    for group in request.groups:
        asked = _one_of_many(group, in_group.with_ids)
        found, code = _attempt(shard_of, turn, asked, request.require_stable, in_group, version)
        groups.append(response.OffsetFetchResponseGroup(group_id=group.group_id, topics=found, error_code=int(code)))
    return response(groups=groups)


def _single(request: messages.OffsetFetchRequest) -> Asked:
    topics = request.topics
    named = None if topics is None else [AskedTopic(t.name, ZERO_UUID, t.partition_indexes) for t in topics]
    return Asked(request.group_id, named)


def _one_of_many(group: messages.OffsetFetchRequest.OffsetFetchRequestGroup, with_ids: bool) -> Asked:
    topics = group.topics
    named = (
        None
        if topics is None
        else [AskedTopic(t.name, t.topic_id if with_ids else ZERO_UUID, t.partition_indexes) for t in topics]
    )
    return Asked(group.group_id, named, group.member_id, group.member_epoch)


def _attempt(
    shard_of: Callable[[str], Shard], turn: Turn, asked: Asked, require_stable: bool, shape: Shape[T], version: int
) -> tuple[list[T], ErrorCode]:
    try:
        shard = shard_of(asked.group_id)
        topics = fetch(shard, asked, require_stable, shape)
    except Refusal as refusal:
        return ([] if version >= 2 else _refused(asked, shape, refusal.code)), refusal.code
    if require_stable:
        # Stable means committed: the answer waits for the commits that were appended before it.
        turn.partition = shard.partition
    return topics, ErrorCode.NONE


def _refused(asked: Asked, shape: Shape[T], code: ErrorCode) -> list[T]:
    return [
        shape.topic(
            name=topic.name,
            partitions=[
                shape.partition(partition_index=i, committed_offset=-1, metadata="", error_code=int(code))
                for i in topic.partition_indexes
            ],
        )
        for topic in asked.topics or ()
    ]


def fetch(shard: Shard, asked: Asked, require_stable: bool, shape: Shape[T]) -> list[T]:
    """The topics of the answer for one group. Raises Refusal."""
    group = shard.groups.get(asked.group_id)
    if isinstance(group, ConsumerGroup):
        _validate(group, asked.member_id, asked.member_epoch)
    topics = asked.topics
    if topics is None:
        if group is None:
            return []
        image = shard.around.topics
        stored = shard.offsets.offsets.get(asked.group_id, {})
        topics = [AskedTopic(name, image.topic_id(name), list(partitions)) for name, partitions in stored.items()]
    return [_topic(shard, shape, asked.group_id, topic, require_stable) for topic in topics]


def _validate(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    if member_id is None and epoch < 0:
        return
    member = group.member(member_id or "")
    if member.member_epoch != epoch:
        code = ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
        raise Refusal(code)


def _topic(shard: Shard, shape: Shape[T], group_id: str, topic: AskedTopic, require_stable: bool) -> T:
    name, topic_id, indexes = topic
    of_partition = shape.partition
    stored = shard.offsets.offsets.get(group_id, {}).get(name, {})
    unstable = shard.offsets.open.get(group_id) if require_stable else None
    partitions = []
    for index in indexes:
        committed = stored.get(index)
        if unstable is not None and (name, index) in unstable:
            partitions.append(
                of_partition(partition_index=index, committed_offset=-1, metadata="", error_code=_UNSTABLE)
            )
        elif committed is None or _of_another_topic(committed, topic_id):
            partitions.append(of_partition(partition_index=index, committed_offset=-1, metadata=""))
        else:
            partitions.append(
                of_partition(
                    partition_index=index,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                )
            )
    if shape.with_ids:
        return shape.topic(name=name, topic_id=topic_id, partitions=partitions)
    return shape.topic(name=name, partitions=partitions)


def _of_another_topic(committed: CommittedOffset, topic_id: bytes) -> bool:
    """The topic was deleted and created again under its name since the commit."""
    return committed.topic_id != ZERO_UUID and topic_id not in (ZERO_UUID, committed.topic_id)


# -- expiry ------------------------------------------------------------------------------------------------------


def expire_offsets(shard: Shard, turn: Turn, group: Group) -> bool:
    """Adds a tombstone for each expired offset; True if the group has none left and no transaction open."""
    group_id = group.group_id
    stored = shard.offsets.offsets.get(group_id)
    if stored is None:
        return group_id not in shard.offsets.open
    base_ms = _expiry_base(group)
    if base_ms is None:
        return False
    retention_ms = shard.config.offsets_retention_ms
    all_gone = group_id not in shard.offsets.open
    for topic, partitions in stored.items():
        if group.is_subscribed_to(topic):
            all_gone = False
            continue
        for partition, committed in partitions.items():
            if committed.expire_timestamp_ms != -1:
                expired = turn.wall_ms >= committed.expire_timestamp_ms
            else:
                expired = turn.wall_ms - base_ms(committed) >= retention_ms
            if expired and not shard.offsets.is_open(group_id, topic, partition):
                turn.append(offset_tombstone(group_id, topic, partition))
            else:
                all_gone = False
    return all_gone


def _expiry_base(group: Group) -> Callable[[CommittedOffset], int] | None:
    """From when the retention counts; None where nothing may expire."""
    if isinstance(group, ClassicGroup) and group.protocol_type is not None:
        if group.is_empty:
            since_ms = group.state_since_ms
            return lambda committed: committed.commit_timestamp_ms if since_ms is None else since_ms
        if not (
            group.uses_consumer_protocol and group.subscribed_topics is not None and group.state is ClassicState.STABLE
        ):
            return None
    return lambda committed: committed.commit_timestamp_ms
