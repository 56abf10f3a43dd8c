"""Committed offsets go with their topic: a topic of the same name that is created later begins without any.

A deletion is told when it happens. It finds the offsets in a shard that answers; a shard that loads keeps it until it
has all its records. Where the broker died between the deletion and the tombstones, or they could not be appended, the
topic ids tell: an offset names the topic that it was committed for.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.deciding.turn import Turn
from tidelog.group.config import RETRY_BACKOFF_MS
from tidelog.group.records import offset_tombstone
from tidelog.group.shard import Shard
from tidelog.wire.errors import ErrorCode


def topic_deleted(shard: Shard, turn: Turn, name: str, topic_id: bytes) -> None:
    if shard.loading:
        shard.deleted_topics.append((name, topic_id))
    else:
        _bury(shard, turn, name, shard.offsets.of_topic(name, topic_id))


def drop_ownerless(shard: Shard, turn: Turn) -> None:
    """Where there is a topic of the name again, what is left was committed for another one."""
    by_name = shard.around.topics.by_name
    for name in sorted(shard.ownerless_topics & by_name.keys()):
        shard.ownerless_topics.discard(name)
        _bury(shard, turn, name, shard.offsets.of_former_topics(name, by_name[name].topic_id))


def loaded(shard: Shard, turn: Turn) -> None:
    deleted, shard.deleted_topics = shard.deleted_topics, []
    for name, topic_id in deleted:
        _bury(shard, turn, name, shard.offsets.of_topic(name, topic_id))
    # Of a topic that does not exist nothing is dropped before there is another one of its name: it may be a
    # directory that is missing, not the topic.
    shard.ownerless_topics = shard.offsets.topics_unlike(shard.around.topics.by_name)
    drop_ownerless(shard, turn)


def _bury(shard: Shard, turn: Turn, name: str, offsets: Iterable[tuple[str, int]]) -> None:
    before = len(turn.records)
    turn.records.extend(offset_tombstone(group_id, name, partition) for group_id, partition in offsets)
    if len(turn.records) > before:

        def undo(turn: Turn, code: ErrorCode) -> None:
            shard.ownerless_topics.add(name)
            shard.deadlines.set(turn, shard.key("ownerless", ""), turn.now_ms + RETRY_BACKOFF_MS)

        turn.undo.append(undo)
