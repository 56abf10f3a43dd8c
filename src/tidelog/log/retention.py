"""Which whole segments a log no longer needs: before its start offset, beyond its size, or beyond its age.

Segments are checked oldest first. Each rule stops at the first segment that it keeps, and no rule removes anything at
or above `held_from`: the high watermark, or a lower offset from which on records are still needed. The active segment
is never removed as such: if all of its records have expired too, the log rolls and the former active segment is removed
(Kafka does the same; otherwise an idle partition would keep its last records for ever).

With a `cleanup.policy` without `delete`, only the first rule applies. The age of a segment is based on the largest
timestamp of its records; a segment with a timestamp in the future keeps itself and all later ones alive.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.log.log import Log
from tidelog.log.segment import Segment

#: (segment, base offset of the next one or None) -> whether it may go
Rule = Callable[[Segment, int | None], bool]


def delete_old_segments(log: Log, now_ms: int, held_from: int) -> int:
    """Takes every segment that a rule gives up out of the log; returns how many. Raises LogError."""
    try:
        deleted = _delete(log, now_ms, held_from, _below_start(log))
        if log.config.delete:
            deleted += _delete(log, now_ms, held_from, _over_size(log))
            deleted += _delete(log, now_ms, held_from, _over_time(log, now_ms))
    except OSError as error:
        raise log.directory.refuse(error, log.name) from error
    return deleted


def _delete(log: Log, now_ms: int, held_from: int, rule: Rule) -> int:
    count = 0
    for segment in log.segments:
        next_base_offset = log.segments.next_base_offset(segment)
        if next_base_offset is None and segment.size == 0:
            break
        end_offset = log.log_end_offset if next_base_offset is None else next_base_offset
        if held_from < end_offset or not rule(segment, next_base_offset):
            break
        count += 1
    if count:
        log.remove_oldest(count, now_ms)
    return count


def _below_start(log: Log) -> Rule:
    return lambda segment, next_base: next_base is not None and next_base <= log.log_start_offset


def _over_size(log: Log) -> Rule:
    retention_bytes = log.config.retention_bytes
    excess = log.size_bytes - retention_bytes

    def rule(segment: Segment, next_base_offset: int | None) -> bool:
        nonlocal excess
        if retention_bytes < 0 or excess < segment.size:
            return False
        excess -= segment.size
        return True

    return rule


def _over_time(log: Log, now_ms: int) -> Rule:
    retention_ms = log.config.retention_ms
    return lambda segment, next_base: 0 <= retention_ms < now_ms - segment.largest_timestamp()
