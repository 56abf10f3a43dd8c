"""Which log to compact next, and what of it. Nothing is changed or read here but sizes, times and offsets.

A log under `cleanup.policy=compact`:

    log start ── clean ── first dirty offset ── cleanable ── first uncleanable offset ── log end

Clean is what an earlier round has been over: a key may occur in it once. A round puts the keys of the cleanable part
into a map and then goes over both parts. It stays below the active segment, below the last stable offset (and so the
high watermark), and below the first segment that has a record younger than `min.compaction.lag.ms`. The first
uncleanable offset is always the start of a segment.

A log is due when its cleanable share is larger than `min.cleanable.dirty.ratio`, or when a cleanable segment begins
with a record older than `max.compaction.lag.ms`. Of those that are due the dirtiest is next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tidelog.log.config import FOREVER, LogConfig
from tidelog.log.index import MAX_RELATIVE_OFFSET
from tidelog.log.log import Log
from tidelog.log.segment import Segment

_NOTHING: Final = 0.0


class LogToClean(NamedTuple):
    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    #: something in the cleanable part is older than `max.compaction.lag.ms`
    overdue: bool

    @property
    def cleanable_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else _NOTHING

    @property
    def due(self) -> bool:
        if self.overdue and self.cleanable_bytes > 0:
            return True
        return self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio


def measure(log: Log, last_stable_offset: int, now_ms: int) -> LogToClean:
    """How dirty a log is, and how far a round may go."""
    first_dirty_offset = _first_dirty_offset(log)
    first_uncleanable_offset = max(first_dirty_offset, _first_uncleanable_offset(log, first_dirty_offset, now_ms))
    first_uncleanable_offset = min(first_uncleanable_offset, max(first_dirty_offset, last_stable_offset))
    # A round takes whole segments.
    end = log.segments.since(first_uncleanable_offset)[0].base_offset
    dirty = _between(log, min(first_dirty_offset, end), end)
    return LogToClean(
        log,
        first_dirty_offset,
        end,
        sum(segment.size for segment in log.segments if segment.base_offset < first_dirty_offset),
        sum(segment.size for segment in dirty),
        _overdue(log, first_dirty_offset, now_ms),
    )


def dirtiest(candidates: Iterable[LogToClean]) -> LogToClean | None:
    """The one to compact next, None where nothing is due."""
    return max((each for each in candidates if each.due), key=lambda each: each.cleanable_ratio, default=None)


def _first_dirty_offset(log: Log) -> int:
    """What the last round has left, unless the log was cut since, at either end."""
    cleaned = log.cleaned_offset
    if cleaned is None or not log.log_start_offset <= cleaned <= log.log_end_offset:
        return log.log_start_offset
    return cleaned


def _between(log: Log, first_offset: int, end_offset: int) -> list[Segment]:
    """The segment that holds the first offset, and those after it that begin before the end."""
    return [segment for segment in log.segments.since(first_offset) if segment.base_offset < end_offset]


def _first_uncleanable_offset(log: Log, first_dirty_offset: int, now_ms: int) -> int:
    """The active segment's start, or that of the first segment before it with a record that is too young."""
    active_base = log.segments.active.base_offset
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in _between(log, first_dirty_offset, active_base):
            if segment.largest_timestamp() > now_ms - lag_ms:
                return segment.base_offset
    return active_base


def _overdue(log: Log, first_dirty_offset: int, now_ms: int) -> bool:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= FOREVER:
        return False
    active_base = log.segments.active.base_offset
    return any(
        0 < segment.begins_ms() < now_ms - lag_ms
        for segment in _between(log, first_dirty_offset, active_base)
        if segment.size > 0
    )


class CompactionSource(NamedTuple):
    """A segment that is read by a compaction, as it was when the compaction was planned."""

    segment: Segment
    base_offset: int
    #: where the next segment begins
    end_offset: int
    log_path: str
    txn_index_path: str
    size: int
    index_bytes: int
    time_index_bytes: int


def sources(log: Log, end_offset: int) -> list[CompactionSource]:
    """All segments that begin before an offset, which must be the start of one."""
    segments = [segment for segment in log.segments if segment.base_offset < end_offset]
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    return [
        CompactionSource(
            segment,
            segment.base_offset,
            end,
            segment.log_path,
            segment.index_paths[2],
            *segment.file_sizes()[:3],
        )
        for segment, end in zip(segments, ends, strict=True)
    ]


def group(sources: Sequence[CompactionSource], config: LogConfig) -> list[list[CompactionSource]]:
    """The segments in groups, each of which becomes one segment.

    A group is as large as `segment.bytes`, `segment.index.bytes` and the reach of an index entry allow, judged by what
    the segments are before the compaction: so they do not become ever smaller.
    """
    groups: list[list[CompactionSource]] = []
    for source in sources:
        if groups and _fits(groups[-1], source, config):
            groups[-1].append(source)
        else:
            groups.append([source])
    return groups


def _fits(members: list[CompactionSource], source: CompactionSource, config: LogConfig) -> bool:
    together = [*members, source]
    return (
        sum(member.size for member in together) <= config.segment_bytes
        and sum(member.index_bytes for member in together) <= config.segment_index_bytes
        and sum(member.time_index_bytes for member in together) <= config.segment_index_bytes
        # An empty segment adds no entry, however far it reaches.
        and (source.size == 0 or source.end_offset - 1 - members[0].base_offset <= MAX_RELATIVE_OFFSET)
    )
