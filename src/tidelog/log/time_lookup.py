"""Finding records by timestamp.

Timestamps come from the producers and need not increase. Each time the largest timestamp so far grows, the time index
of a segment records the batch that caused it: nothing before that batch is as late. From there, headers tell which
batch to read.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.log.segments import Segments
from tidelog.wire.records import locate_timestamp


class TimestampedOffset(NamedTuple):
    """The answer to a lookup by time. `leader_epoch` is -1 where it is not known."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(segments: Segments, timestamp: int, least_offset: int) -> TimestampedOffset | None:
    """The first record, in the order of the log and not below an offset, whose time is the asked one or later."""
    for segment in segments:
        if segment.largest.timestamp < timestamp:
            continue
        for position, header in segment.headers(segment.position_before_time(timestamp, least_offset)):
            if header.max_timestamp < timestamp or header.last_offset < least_offset:
                continue
            found = locate_timestamp(segment.read(position, header.size_bytes), timestamp, least_offset)
            if found is not None:
                return TimestampedOffset(found[1], found[0], header.leader_epoch)
    return None


def first_of_largest(segments: Segments) -> TimestampedOffset | None:
    """The first record that has the largest timestamp; None where no record has one."""
    holder = segments[0]
    for segment in segments:
        if segment.largest.timestamp > holder.largest.timestamp:
            holder = segment
    timestamp, last_offset = holder.largest
    span = holder.find(last_offset)
    if timestamp < 0 or span is None:
        return None
    for position, header in holder.headers(span.position):
        found = locate_timestamp(holder.read(position, header.size_bytes), timestamp)
        if found is not None:
            return TimestampedOffset(timestamp, found[0], header.leader_epoch)
    return None
