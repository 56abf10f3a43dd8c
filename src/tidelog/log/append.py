"""What an append gives back, and how a fetched message set is cut to fit segments."""

from __future__ import annotations

from tidelog.log.index import MAX_RELATIVE_OFFSET
from tidelog.wire.batch import BatchHeader

#: a batch of a message set and its position in it
Placed = tuple[int, BatchHeader]


class AppendInfo:
    __slots__ = (
        "duplicate",
        "first_offset",
        "flush_due",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "max_timestamp",
        "size_bytes",
    )

    def __init__(self, first_offset: int, last_offset: int, max_timestamp: int, size_bytes: int) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.size_bytes = size_bytes
        #: -1 unless the topic stamps append time
        self.log_append_time_ms = -1
        self.log_start_offset = 0
        #: the batch was already in the log; the offsets are those of then, and nothing was written
        self.duplicate = False
        #: `flush.messages` is reached: not to be acknowledged before a flush
        self.flush_due = False


def has_gaps(placed: list[Placed], offset: int) -> bool:
    """Whether batches that continue a log at `offset` leave offsets out, as those of a compacted log do."""
    return sum(header.last_offset_delta + 1 for _, header in placed) != placed[-1][1].last_offset + 1 - offset


def runs_of(placed: list[Placed], segment_bytes: int) -> list[list[Placed]]:
    """Splits batches where one segment cannot hold all: by size, or by the reach of a relative offset."""
    runs: list[list[Placed]] = []
    for position, header in placed:
        if runs:
            first_position, first = runs[-1][0]
            if (
                position + header.size_bytes - first_position <= segment_bytes
                and header.last_offset - first.base_offset <= MAX_RELATIVE_OFFSET
            ):
                runs[-1].append((position, header))
                continue
        runs.append([(position, header)])
    return runs
