"""A segment: one stretch of a log, and what everything above it may ask of it.

A log is a list of segments and does not know how they are stored: when to roll, what retention gives up, what a
truncation cuts, lookups by offset and time, producers and transactions are decided once, above them. `file_segment`
stores a segment as Apache Kafka does.

Batches of a segment have positions: the first one stands at 0, each of the others where the one before it ends, and
`size` is where the next one goes. A position says how many bytes of batches lie before it, no more: only the segment
knows where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol, TypeAlias

from tidelog.log.config import LogConfig
from tidelog.log.disk import File
from tidelog.log.index import TimestampOffset
from tidelog.log.txn_index import TxnIndex
from tidelog.wire.batch import BatchHeader

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"


class FileSlice:
    """Whole batches in a file, ready for `sendfile`. Holds the file: it stays readable whatever becomes of the log."""

    __slots__ = ("file", "next_offset", "position", "size_bytes")

    def __init__(self, file: File, position: int, size_bytes: int, next_offset: int) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes
        #: every offset of the slice is below it, and the log goes on there
        self.next_offset = next_offset

    def fileno(self) -> int:
        return self.file.fileno()

    def part(self) -> FileSlice:
        """What to send."""
        return self

    def read(self) -> bytes:
        """The bytes themselves, for those who cannot send a file."""
        return self.file.pread(self.size_bytes, self.position)


class GatheredSlice:
    """Whole batches that lay apart, as one piece."""

    __slots__ = ("_data", "next_offset", "size_bytes")

    def __init__(self, data: bytes, next_offset: int) -> None:
        self._data = data
        self.size_bytes = len(data)
        self.next_offset = next_offset

    def part(self) -> bytes:
        """What to send."""
        return self._data

    def read(self) -> bytes:
        return self._data


Slice: TypeAlias = FileSlice | GatheredSlice


class BatchSpan(NamedTuple):
    """Where a batch lies, and which offsets it holds."""

    base_offset: int
    last_offset: int
    position: int
    size_bytes: int


class Sizes(NamedTuple):
    """Of the files of a segment, in bytes; an index that does not exist counts as empty."""

    log: int
    offset_index: int
    time_index: int
    txn_index: int


class Segment(Protocol):
    """The active segment is appended to; all others are sealed (`seal`) and only read, renamed or removed."""

    base_offset: int
    #: bytes of whole batches
    size: int
    created_ms: int
    #: the segment changed since it was sealed
    dirty: bool
    roll_jitter_ms: int
    #: the aborted transactions whose markers lie in the segment
    txn_index: TxnIndex

    # --- appending

    def append(
        self, records: memoryview, last_offset: int, max_timestamp: int, spans: list[tuple[int, int, int]] | None = None
    ) -> int:
        """Writes whole batches in one write and returns their position. Offsets were assigned before.

        `spans` has (last offset, largest timestamp, size) of each batch where there is more than one. If anything
        raises, nothing was appended.
        """
        ...

    def should_roll(
        self, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int, config: LogConfig
    ) -> bool:
        """Whether a message set of this size, offset and timestamp belongs into the next segment."""
        ...

    def seal(self) -> None:
        """The segment will not grow any more: whatever of it is only in memory is written."""
        ...

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Cuts all batches that hold `offset` or later ones; returns the offset that the segment then ends at.

        That is `offset`, or the first offset of a batch that held it and went whole.
        """
        ...

    # --- finding

    def find(self, offset: int) -> BatchSpan | None:
        """The batch that holds `offset`, or the first one after it; None if all batches end before it."""
        ...

    def span_at(self, position: int) -> BatchSpan:
        """The batch that begins at `position`."""
        ...

    def boundary(self, position: int, limit: int) -> tuple[int, int]:
        """The last batch boundary in (`position`, `limit`], and the offset after it; (`position`, -1) if there is none.

        `position` must be a boundary itself.
        """
        ...

    def position_before_time(self, timestamp: int, least_offset: int) -> int:
        """A batch boundary before which no record at or after `least_offset` is at or after `timestamp`."""
        ...

    def next_offset(self) -> int:
        """The offset after the last batch."""
        ...

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp and the last offset of its batch; (-1, base offset) in an empty segment."""
        ...

    def largest_timestamp(self) -> int:
        """The newest record's time; that of the last write where records carry none."""
        ...

    def begins_ms(self) -> int:
        """The time of the first batch, -1 where it has none."""
        ...

    # --- reading

    def slice(self, position: int, size_bytes: int, next_offset: int) -> Slice:
        """Whole batches, to be sent; `next_offset` is where the log goes on after them."""
        ...

    def read(self, position: int, size_bytes: int) -> bytes:
        """The bytes of whole batches, to be looked at."""
        ...

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the batches from a boundary on; a torn one ends the walk."""
        ...

    def batches(self, position: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """(position, header, bytes) of the batches from a boundary on; a torn one ends the walk."""
        ...

    # --- files

    @property
    def log_path(self) -> str:
        """The file that people are told of."""
        ...

    @property
    def index_paths(self) -> tuple[str, ...]:
        """Of the files that can be made anew from the batches; not all need exist."""
        ...

    def file_sizes(self) -> Sizes: ...

    def sync_work(self) -> Callable[[], None]:
        """What puts the batches that are in the segment now on the device; to be called on any thread."""
        ...

    def park_all(self) -> None:
        """Gives descriptors and mappings back; the next use takes them again. Slices handed out stay good."""
        ...

    def moved(self, directory: str) -> None:
        """The directory of the log was renamed."""
        ...

    def rename_deleted(self) -> list[str]:
        """Takes the segment's files out of the log; returns their new paths, to be removed later."""
        ...


def offset_name(offset: int) -> str:
    return f"{offset:020d}"
