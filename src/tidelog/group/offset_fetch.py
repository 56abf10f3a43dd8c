"""Fetching committed offsets, and their expiry.

A partition without a committed offset is answered with -1 and no error; so is every partition of a group that does not
exist, because to a consumer both mean "start where auto.offset.reset says". A coordinator that is loading therefore
never gets here: the door refuses before.

An offset expires `offsets.retention.minutes` after the group became empty; after the commit, where the group has no
members that manage it or is not subscribed to the topic any more; or at the time that an old client asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final

from tidelog.deciding.turn import Refusal, Turn
from tidelog.group.classic_group import ClassicGroup, ClassicState
from tidelog.group.consumer_group import ConsumerGroup
from tidelog.group.offset_store import CommittedOffset
from tidelog.group.outcomes import FetchedOffset, FetchedTopic, GroupOffsets, fetched_topic, group_offsets
from tidelog.group.records import offset_tombstone
from tidelog.group.requests import WantedOffsets
from tidelog.group.shard import Group, Shard
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import ZERO_UUID

# A constant, because every fetch needs it: Python 3.11 is slow to look up a member of an enum.
_NONE: Final = ErrorCode.NONE


def attempt(shard_of: Callable[[str], Shard], turn: Turn, wanted: WantedOffsets, require_stable: bool) -> GroupOffsets:
    """Every group is answered or refused by itself."""
    group_id = wanted.group_id
    try:
        shard = shard_of(group_id)
        topics = _fetch(shard, group_id, wanted, require_stable)
    except Refusal as refusal:
        return GroupOffsets(group_id, [], refusal.code)
    # What only this broker has is lost with it, and no position may be told that goes back later: the answer waits
    # until the commits that were appended before it are replicated.
    turn.partition = shard.partition
    return group_offsets((group_id, topics, _NONE))


def _fetch(shard: Shard, group_id: str, wanted: WantedOffsets, require_stable: bool) -> list[FetchedTopic]:
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        _validate(group, wanted.member_id, wanted.member_epoch)
    stored = shard.offsets.offsets.get(group_id, {})
    unstable = shard.offsets.open.get(group_id) if require_stable else None
    fetched = []
    if wanted.topics is not None:
        for topic in wanted.topics:
            name = topic.name
            fetched.append(_topic(name, topic.topic_id, topic.partition_indexes, stored.get(name, {}), unstable))
    elif group is not None:
        image = shard.around.topics
        for name, offsets in stored.items():
            fetched.append(_topic(name, image.topic_id(name), offsets, offsets, unstable))
    return fetched


def _validate(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    if member_id is None and epoch < 0:
        return
    member = group.member(member_id or "")
    if member.member_epoch != epoch:
        code = ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
        raise Refusal(code)


def _topic(
    name: str,
    topic_id: bytes,
    partitions: Iterable[int],
    stored: Mapping[int, CommittedOffset],
    unstable: Container[tuple[str, int]] | None,
) -> FetchedTopic:
    offsets: list[FetchedOffset] = []
    for partition in partitions:
        committed = stored.get(partition)
        if unstable is not None and (name, partition) in unstable:
            offsets.append((partition, ErrorCode.UNSTABLE_OFFSET_COMMIT))
        elif committed is not None and topic_id != ZERO_UUID and committed.topic_id not in (ZERO_UUID, topic_id):
            # The topic was deleted and created again under its name since the commit.
            offsets.append((partition, None))
        else:
            offsets.append((partition, committed))
    return fetched_topic((name, topic_id, offsets))


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
