"""Rebuilding what a log knows of its producers: the newest usable snapshot, then the batches after it.

Needed when a log is opened, and when it is cut. Batches are replayed by their headers alone; only control batches are
read, for the marker in them. Where a segment was recovered, its transaction index is written anew on the way.
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.log.producer_snapshot import CorruptSnapshot
from tidelog.log.producers import Producers
from tidelog.log.segment import Segment
from tidelog.log.segments import Segments
from tidelog.log.snapshots import Snapshots
from tidelog.log.txn_index import AbortedTxn
from tidelog.wire.batch import CONTROL_FLAG
from tidelog.wire.records import read_end_txn_marker


def load_newest(producers: Producers, snapshots: Snapshots, at_most: int, now_ms: int) -> int | None:
    """Begins with the newest snapshot not past an offset; damaged ones are removed. None if there is no good one."""
    while (offset := snapshots.latest(at_most)) is not None:
        try:
            producers.load(snapshots.read(offset), offset, now_ms)
        except CorruptSnapshot:
            snapshots.remove(offset)
            continue
        return offset
    return None


def replay_segments(
    producers: Producers,
    segments: Segments,
    start_offset: int,
    end_offset: int,
    now_ms: int,
    reindexed: Collection[Segment] = (),
    reindexed_from: int = 0,
) -> None:
    """Takes the batches from `start_offset` to below `end_offset` into account.

    `reindexed` segments get their transaction index written anew, for markers from an offset on.
    """
    for segment in segments.since(start_offset):
        if segment.base_offset >= end_offset:
            break
        index_from = reindexed_from if segment in reindexed else end_offset
        _replay_segment(producers, segment, start_offset, end_offset, now_ms, index_from)
    producers.end_offset = end_offset


def _replay_segment(
    producers: Producers, segment: Segment, start_offset: int, end_offset: int, now_ms: int, index_from: int
) -> None:
    span = segment.find(start_offset)
    if span is None:
        return
    for position, header in segment.headers(span.position):
        if header.base_offset >= end_offset:
            return
        if header.producer_id < 0 or header.base_offset < start_offset:
            continue
        marker = None
        if header.attributes & CONTROL_FLAG:
            marker = read_end_txn_marker(segment.read(position, header.size_bytes))
        completed = producers.replay(header, marker, now_ms)
        if completed is not None and completed.is_aborted and completed.last_offset >= index_from:
            segment.txn_index.append(
                AbortedTxn(
                    completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
                )
            )


def rebuild_producers(
    producers: Producers, segments: Segments, snapshots: Snapshots, log_start_offset: int, end_offset: int, now_ms: int
) -> None:
    """Brings the producers to `end_offset`, whatever they knew before.

    Batches below the log's start that are still there are asked too: they may be the last of their producers.
    """
    snapshots.drop_above(end_offset)
    start_offset = load_newest(producers, snapshots, end_offset, now_ms)
    if start_offset is None:
        start_offset = segments.first_base_offset
        producers.reset(start_offset)
    replay_segments(producers, segments, start_offset, end_offset, now_ms)
    producers.on_log_start_offset(log_start_offset)


def recall_batches(producers: Producers, segments: Segments, start_offset: int) -> None:
    """Makes the producers know their last batches from `start_offset` on: a snapshot tells only the last one of each.

    Whoever sent a batch that was not committed yet has had no answer, and sends it again, with those after it.
    """
    for segment in segments.since(start_offset):
        span = segment.find(start_offset)
        if span is None:
            continue
        for _, header in segment.headers(span.position):
            if header.producer_id >= 0 and not header.attributes & CONTROL_FLAG:
                producers.recall(header)


def rebuild_txn_index(segments: Segments, snapshots: Snapshots, segment: Segment, now_ms: int) -> None:
    """Writes the transaction index of one segment anew, from a copy of the producers as they were at its start."""
    producers = Producers()
    start_offset = load_newest(producers, snapshots, segment.base_offset, now_ms)
    if start_offset is None:
        start_offset = segments.first_base_offset
    end_offset = segments.next_base_offset(segment)
    segment.txn_index.reset()
    if end_offset is None:
        end_offset = segment.next_offset()
    replay_segments(producers, segments, start_offset, end_offset, now_ms, [segment])
