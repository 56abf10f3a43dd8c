"""Moving a partition to another log directory while it is in use.

A future log is filled from the current one, batch by batch, as a follower fills itself from a leader. When it has
caught up, and is on the device, it takes the partition's name; only then is the current directory renamed for deletion.
A crash in between, or a disk that fails then, leaves two directories that claim to be the partition: each holds a count
of its moves, and the larger one is right (`opening.py`). A future log that has not got the name is never taken for the
partition, however complete it looks.

A step copies a bounded number of bytes and belongs between requests, on the broker's thread: no locks, no torn copies.
Only reading a chunk may happen elsewhere.
"""

from __future__ import annotations

from typing import Final

from tidelog.log.log import Log
from tidelog.log.segment import Slice
from tidelog.wire.batch import read_header

STEP_BYTES: Final = 1 << 20


class Move:
    """The filling of a future log."""

    __slots__ = ("_cuts", "cleaned_offset", "current", "future")

    def __init__(self, current: Log, future: Log) -> None:
        self.current = current
        self.future = future
        #: the current log's count of truncations when the copy began; after another one the copy is not a prefix
        self._cuts = -1
        #: how far the current log was compacted when the copy began; what was compacted since may be in it as it was
        self.cleaned_offset = current.cleaned_offset

    @property
    def lag_bytes(self) -> int:
        return max(self.current.size_bytes - self.future.size_bytes, 0)

    def step(self, now_ms: int, max_bytes: int = STEP_BYTES) -> bool:
        """Copies some batches; True if the future log now holds all that the current one does."""
        chunk = self.next_chunk(now_ms, max_bytes)
        if chunk is not None:
            self.add(chunk.read(), now_ms)
        return self.future.log_end_offset == self.current.log_end_offset

    def next_chunk(self, now_ms: int, max_bytes: int = STEP_BYTES) -> Slice | None:
        """What is to be copied next; None if the future log holds all that the current one does."""
        current, future = self.current, self.future
        if self._cuts != current.truncations or future.log_end_offset < current.log_start_offset:
            self._begin_anew(now_ms)
        offset = max(future.log_end_offset, current.log_start_offset)
        chunk = current.read(offset, max_bytes, current.log_end_offset)
        self._follow_start()
        return chunk

    def add(self, data: bytes, now_ms: int) -> None:
        """Adds a chunk that was read, possibly on a worker; dropped where the log was cut while that happened."""
        if self._cuts == self.current.truncations:
            self.future.append_as_follower(memoryview(data), now_ms)
            self._follow_start()

    def _follow_start(self) -> None:
        self.future.advance_log_start_offset(min(self.current.log_start_offset, self.future.log_end_offset))

    def _begin_anew(self, now_ms: int) -> None:
        """The future log begins with the batch that holds the current one's first offset."""
        current = self.current
        self._cuts = current.truncations
        self.cleaned_offset = current.cleaned_offset
        first = current.read(current.log_start_offset, 1, current.log_end_offset)
        start = current.log_start_offset
        if first is not None:
            start = min(start, read_header(first.read()).base_offset)
        self.future.truncate_fully_and_start_at(start, now_ms)
