"""A segment stored as Apache Kafka does: a `.log` file of record batches, and the indexes that find a batch in it.

Files of a segment share its base offset as a name, 20 digits wide. The `.log` file is batches back to back, nothing
between them; a batch never spans two segments. `size` is where the next batch goes: bytes past it (a torn write, a
preallocated hole) do not belong to the log.

To find an offset: the offset index gives a batch at most `index.interval.bytes` and one batch before it, and a scan of
batch headers, read a few KiB at a time, does the rest. To find a time: the time index gives an offset before which
nothing is late enough, and from there headers, then the records of one batch, decide.

In a crash the end of the `.log` file may be torn or garbage. `recover` keeps the longest run of whole batches with a
right CRC and writes the indexes anew.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from tidelog.log.config import LogConfig
from tidelog.log.disk import PASSING, AppendedFile, Disk, File
from tidelog.log.errors import CorruptMessage
from tidelog.log.index import (
    MAX_RELATIVE_OFFSET,
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    OffsetIndex,
    TimeIndex,
    TimestampOffset,
    timestamp_offset,
)
from tidelog.log.segment import (
    DELETED,
    INDEX,
    LOG,
    TIME_INDEX,
    TXN_INDEX,
    BatchSpan,
    FileSlice,
    Sizes,
    offset_name,
)
from tidelog.log.txn_index import TxnIndex
from tidelog.wire.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, crc_matches, read_header

#: base offset, batch length, last offset delta: the start of a header, as far as a scan for an offset needs it
_SPAN: Final = struct.Struct(">qi11xi")
_SPAN_BYTES: Final = _SPAN.size
_LEAST_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
#: what a scan reads at once; the default distance of index entries and a header
_SCAN_BYTES: Final = 4096 + HEADER_SIZE
_WALK_BYTES: Final = 1 << 20


class FileSegment:
    """`segment.Segment` says what the methods that are part of it promise."""

    __slots__ = (
        "_bytes_since_index",
        "_checked",
        "_disk",
        "_file",
        "_half_rebuilt",
        "_index_interval_bytes",
        "_max",
        "_stem",
        "_txn_file",
        "base_offset",
        "created_ms",
        "dirty",
        "first_timestamp",
        "offset_index",
        "preallocated",
        "roll_jitter_ms",
        "size",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        disk: Disk,
        stem: str,
        base_offset: int,
        config: LogConfig,
        size: int,
        index_bytes: int,
        time_bytes: int,
        txn_bytes: int = 0,
    ) -> None:
        self._disk = disk
        self._stem = stem
        self.base_offset = base_offset
        #: bytes of whole batches; the end of the log file unless that was preallocated
        self.size = size
        self._file: File | None = None
        self.offset_index = OffsetIndex(disk, stem + INDEX, base_offset, config.segment_index_bytes, index_bytes)
        self.time_index = TimeIndex(disk, stem + TIME_INDEX, base_offset, config.segment_index_bytes, time_bytes)
        self._txn_file = AppendedFile(disk, stem + TXN_INDEX)
        self.txn_index = TxnIndex(self._txn_file, base_offset, txn_bytes)
        self._index_interval_bytes = config.index_interval_bytes
        #: the file may be longer than what was written to it, and the rest is no loss
        self.preallocated = config.preallocate
        self._bytes_since_index = 0
        #: the index files were looked at: what comes from an earlier life is not trusted unseen
        self._checked = False
        #: writing the indexes anew was begun and not ended: neither the files nor what is in memory can be trusted
        self._half_rebuilt = False
        #: the largest timestamp so far and the last offset of its batch; None until asked for after an opening
        self._max: TimestampOffset | None = None
        #: the largest timestamp of the first batch, by which the segment ages; None until asked for
        self.first_timestamp: int | None = None
        self.created_ms = 0
        #: the segment changed since it was sealed
        self.dirty = False
        self.roll_jitter_ms = 0

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: int, config: LogConfig, now_ms: int, is_first: bool = False
    ) -> FileSegment:
        """A new, empty segment. The names must be free, or what stands under them is lost; nothing can stand there
        where the segment `is_first` in a directory that has just been made.

        Its index files are made with the first append, or by a seal: making a file is what a new partition costs.
        """
        stem = f"{directory}/{offset_name(base_offset)}"
        segment = cls(disk, stem, base_offset, config, 0, 0, 0)
        try:
            segment.use(disk.open(stem + LOG, create=True, empty=True))
            if config.preallocate:
                segment.file.truncate(config.segment_bytes)
            if not is_first:
                for path in segment.index_paths:
                    disk.remove(path)
        except OSError:
            # The log goes on without it: a start must not take what follows for the next segment's.
            segment.park()
            with suppress(OSError):
                disk.remove(stem + LOG)
            raise
        # So that a stop makes the index files: Apache Kafka would miss them.
        segment.dirty = True
        segment._max = TimestampOffset(-1, base_offset)
        segment._checked = True
        segment.created_ms = now_ms
        return segment

    # --- files

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self._stem + LOG)
            self._disk.files.add(self)
        return file

    def use(self, file: File) -> None:
        """Goes on with this file, whatever its name is at the moment."""
        self._file = file
        self._disk.files.add(self)

    @property
    def log_path(self) -> str:
        return self._stem + LOG

    @property
    def index_paths(self) -> tuple[str, ...]:
        """Of the files that can be made anew from the log file; not all need exist."""
        return self._stem + INDEX, self._stem + TIME_INDEX, self._stem + TXN_INDEX

    def park(self) -> None:
        """Gives the log file back; the next use takes it again. Slices handed out stay good."""
        if self._file is not None:
            self._file = None
            self._disk.files.discard(self)

    def park_all(self) -> None:
        self.park()
        self.offset_index.park()
        self.time_index.park()

    def moved(self, directory: str) -> None:
        """The directory of the log was renamed."""
        self._stem = f"{directory}/{offset_name(self.base_offset)}"
        self.offset_index.path = self._stem + INDEX
        self.time_index.path = self._stem + TIME_INDEX
        self._txn_file.path = self._stem + TXN_INDEX

    def rename_deleted(self) -> list[str]:
        """Takes the segment's files out of the log; returns their new paths, to be removed later."""
        self.park_all()
        renamed = []
        for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
            path = self._stem + suffix
            try:
                self._disk.rename(path, path + DELETED)
            except FileNotFoundError:
                continue
            renamed.append(path + DELETED)
        return renamed

    def sync_work(self) -> Callable[[], None]:
        # Of the file as it is open now: another thread must not open it.
        return self.file.sync

    def file_sizes(self) -> Sizes:
        return Sizes(
            self.size,
            self.offset_index.count * OFFSET_ENTRY_SIZE,
            self.time_index.count * TIME_ENTRY_SIZE,
            self.txn_index.size_bytes,
        )

    # --- appending

    def append(
        self, records: memoryview, last_offset: int, max_timestamp: int, spans: list[tuple[int, int, int]] | None = None
    ) -> int:
        """Writes whole batches in one write and returns their position. Offsets were assigned before.

        `spans` has (last offset, largest timestamp, size) of each batch where there is more than one. If anything
        raises, the file is cut back to where it was.
        """
        position = self.size
        file = self._file or self.file
        try:
            if position == 0:
                self._make_indexes()
            file.write(records, position)
            size_bytes = len(records)
            self.size = position + size_bytes
            if spans is None:
                self._note(position, size_bytes, last_offset, max_timestamp)
            else:
                at = position
                for batch_last, batch_timestamp, batch_size in spans:
                    self._note(at, batch_size, batch_last, batch_timestamp)
                    at += batch_size
        except OSError:
            self.size = position
            file.truncate(position)
            raise
        return position

    def _make_indexes(self) -> None:
        """Before the first batch is there: should the log file be lost one day, they tell that there was one."""
        try:
            self._disk.open(self.offset_index.path, create=True)
            self._disk.open(self.time_index.path, create=True)
        except OSError as error:
            # As their entries, they can wait.
            if error.errno not in PASSING:
                raise

    def _note(self, position: int, size_bytes: int, last_offset: int, max_timestamp: int) -> None:
        """Keeps indexes and the largest timestamp up with a batch that was just written."""
        self.dirty = True
        largest = self._max or self.largest
        if max_timestamp > largest[0]:
            largest = self._max = timestamp_offset((max_timestamp, last_offset))
        if self.first_timestamp is None and position == 0:
            self.first_timestamp = max_timestamp
        if self._bytes_since_index > self._index_interval_bytes:
            try:
                self.offset_index.append(last_offset, position)
                self.time_index.append(largest[0], largest[1])
            except OSError as error:
                # The batch is written; index entries can wait in memory until the disk takes them again.
                if error.errno not in PASSING:
                    raise
            self._bytes_since_index = size_bytes
        else:
            self._bytes_since_index += size_bytes

    def should_roll(
        self, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int, config: LogConfig
    ) -> bool:
        """Whether a message set of this size, offset and timestamp belongs into the next segment."""
        size = self.size
        if size == 0:
            return last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        first = self.first_timestamp
        if first is None:
            first = self.begins_ms()
        # The age by the records' own time; by the wall clock where they carry none.
        waited_ms = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        offsets, times = self.offset_index, self.time_index
        return (
            size + size_bytes > config.segment_bytes
            or waited_ms > config.max_segment_ms - self.roll_jitter_ms
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
            or offsets.count >= offsets.capacity
            or times.count >= times.capacity
        )

    def begins_ms(self) -> int:
        """The time of the first batch, -1 where it has none."""
        if self.first_timestamp is None:
            self.first_timestamp = self._first_timestamp()
        return self.first_timestamp

    def _first_timestamp(self) -> int:
        for _, header in self.headers(0):
            return header.max_timestamp
        return -1

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp and the last offset of its batch; (-1, base offset) in an empty segment."""
        largest = self._max
        if largest is None:
            # The segment comes from an earlier life, which sealed it: the last entry is the largest.
            self._trust_indexes()
            largest = self._max = self.time_index.last
        return largest

    def _scan_largest(self) -> TimestampOffset:
        """What the time index knows, or a later batch that it does not know."""
        largest = self.time_index.last
        for _, header in self.headers(self.offset_index.lookup(largest.offset)):
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        return largest

    def largest_timestamp(self) -> int:
        """The newest record's time; the file's own where records carry none."""
        timestamp = self.largest.timestamp
        return timestamp if timestamp >= 0 else self._disk.modified_ms(self.log_path)

    def seal(self) -> None:
        """The segment will not grow any more: the last time entry is written and everything is trimmed."""
        largest = self.largest
        self.time_index.append(largest.timestamp, largest.offset, final=True)
        self.offset_index.trim()
        self.time_index.trim()
        self.txn_index.spill()
        file = self.file
        if file.size() != self.size:
            file.truncate(self.size)
        self.dirty = False

    # --- finding

    def _trust_indexes(self) -> None:
        """Before the first search in an index of an earlier life: one that cannot be right is written anew."""
        if not self._checked and not self.check_indexes():
            self.rebuild_indexes()

    def find(self, offset: int) -> BatchSpan | None:
        """The batch that holds `offset`, or the first one after it; None if all batches end before it."""
        if not self._checked:
            self._trust_indexes()
        return self._scan(self.offset_index.lookup(offset), offset)

    def _scan(self, position: int, offset: int) -> BatchSpan | None:
        file = self._file or self.file
        end = self.size
        unpack = _SPAN.unpack_from
        chunk = b""
        chunk_at = position
        while position < end:
            at = position - chunk_at
            if at + _SPAN_BYTES > len(chunk):
                chunk = file.pread(_SCAN_BYTES, position)
                chunk_at = position
                at = 0
                if len(chunk) < _SPAN_BYTES:
                    raise self._corrupt(position, "the file ends inside a batch header")
            base_offset, length, delta = unpack(chunk, at)
            last_offset = base_offset + delta
            if length < _LEAST_LENGTH:
                raise self._corrupt(position, f"a batch claims {length} bytes")
            if last_offset >= offset:
                return BatchSpan(base_offset, last_offset, position, length + LOG_OVERHEAD)
            position += length + LOG_OVERHEAD
        return None

    def span_at(self, position: int) -> BatchSpan:
        """The batch that begins at `position`."""
        span = self._scan(position, -1)
        if span is None:
            raise self._corrupt(position, "no batch begins here")
        return span

    def boundary(self, position: int, limit: int) -> tuple[int, int]:
        """The last batch boundary in (`position`, `limit`], and the offset after it; (`position`, -1) if there is none.

        `position` must be a boundary itself.
        """
        if not self._checked:
            self._trust_indexes()
        at = max(position, self.offset_index.position_up_to(limit - 1))
        next_offset = -1
        file = self._file or self.file
        unpack = _SPAN.unpack_from
        chunk = b""
        chunk_at = at
        while at < limit:
            if at - chunk_at + _SPAN_BYTES > len(chunk):
                chunk = file.pread(_SCAN_BYTES, at)
                chunk_at = at
                if len(chunk) < _SPAN_BYTES:
                    raise self._corrupt(at, "the file ends inside a batch header")
            base_offset, length, delta = unpack(chunk, at - chunk_at)
            if length < _LEAST_LENGTH:
                raise self._corrupt(at, f"a batch claims {length} bytes")
            if at + length + LOG_OVERHEAD > limit:
                if next_offset < 0 and at > position:
                    next_offset = base_offset
                return at, next_offset
            at += length + LOG_OVERHEAD
            next_offset = base_offset + delta + 1
        return at, next_offset

    def slice(self, position: int, size_bytes: int, next_offset: int) -> FileSlice:
        return FileSlice(self._file or self.file, position, size_bytes, next_offset)

    def read(self, position: int, size_bytes: int) -> bytes:
        return self.file.pread(size_bytes, position)

    def headers(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the batches from a boundary on; a torn one ends the walk."""
        file = self.file
        if end is None:
            end = self.size
        chunk = b""
        chunk_at = position
        while position + HEADER_SIZE <= end:
            at = position - chunk_at
            if at + HEADER_SIZE > len(chunk):
                chunk = file.pread(_SCAN_BYTES, position)
                chunk_at = position
                at = 0
            header = _header_at(chunk, at)
            if header is None or position + LOG_OVERHEAD + header.length > end:
                return
            yield position, header
            position += LOG_OVERHEAD + header.length

    def batches(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """(position, header, bytes) of the batches from a boundary on; a torn one ends the walk."""
        file = self.file
        if end is None:
            end = self.size
        chunk = memoryview(b"")
        chunk_at = position
        while position + HEADER_SIZE <= end:
            at = position - chunk_at
            header = _header_at(chunk, at)
            if header is None or at + LOG_OVERHEAD + header.length > len(chunk):
                chunk_at, at = position, 0
                chunk = memoryview(file.pread(min(_WALK_BYTES, end - position), position))
                header = _header_at(chunk, 0)
                if header is None or position + LOG_OVERHEAD + header.length > end:
                    return
                if LOG_OVERHEAD + header.length > len(chunk):
                    chunk = memoryview(file.pread(LOG_OVERHEAD + header.length, position))
                    if LOG_OVERHEAD + header.length > len(chunk):
                        return
            size_bytes = LOG_OVERHEAD + header.length
            yield position, header, chunk[at : at + size_bytes]
            position += size_bytes

    def position_before_time(self, timestamp: int, least_offset: int) -> int:
        """A batch boundary before which no record at or after `least_offset` is at or after `timestamp`."""
        self._trust_indexes()
        # An entry names the first batch that reached its timestamp, so nothing before it is as late.
        entry = self.time_index.lookup(timestamp)
        return self.offset_index.lookup(max(entry.offset, least_offset))

    def next_offset(self) -> int:
        """The offset after the last batch, found from the last index entry on."""
        position = self.offset_index.last_position(self.size)
        if position is None:
            self.rebuild_indexes()
            position = self.offset_index.last_position(self.size) or 0
        offset = self.base_offset
        for _, header in self.headers(position):
            offset = header.next_offset
        return offset

    def whole_end(self) -> int | None:
        """As `next_offset`, or None where the last batches do not fill the file, or the very last one is damaged."""
        if self.size == 0:
            return self.base_offset
        position = self.offset_index.last_position(self.size)
        if position is None:
            self.rebuild_indexes()
            position = self.offset_index.last_position(self.size) or 0
        last = None
        for at, header in self.headers(position):
            last = header
            position = at + header.size_bytes
        if last is None or position != self.size:
            return None
        data = self.file.pread(last.size_bytes, position - last.size_bytes)
        return last.next_offset if crc_matches(data, 0, last) else None

    def _corrupt(self, position: int, what: str) -> CorruptMessage:
        return CorruptMessage(f"{self.log_path} at position {position}: {what}")

    # --- cutting

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Cuts all batches that hold `offset` or later ones; returns the offset that the segment then ends at.

        That is `offset`, or the first offset of a batch that held it and went whole.
        """
        span = self.find(offset)
        if span is not None:
            offset = min(offset, span.base_offset)
            self.file.truncate(span.position)
            self.size = span.position
        # Where there is no span it may have been cut before, and something have failed then.
        cut_from = offset if span is None else span.base_offset
        self.offset_index.truncate_to(cut_from)
        self.time_index.truncate_to(cut_from)
        self.txn_index.truncate_to(cut_from)
        if self.size == 0:
            self.created_ms = now_ms
            self.first_timestamp = None
        self._bytes_since_index = 0
        self._max = self._scan_largest()
        self.dirty = True
        return offset

    def reset_indexes(self) -> None:
        self.dirty = True
        self._checked = True
        self.offset_index.reset()
        self.time_index.reset()
        self._bytes_since_index = 0
        self._max = TimestampOffset(-1, self.base_offset)
        self.first_timestamp = None

    def check_indexes(self) -> bool:
        """Whether the index files of an earlier life can be those of this segment."""
        if self._half_rebuilt:
            return False
        fits = self.offset_index.load(self.size) is not None and self.time_index.load()
        # Only now: where reading them raised, nothing is known of them yet.
        self._checked = True
        return fits

    def rebuild_indexes(self) -> None:
        """Writes the indexes anew from the batch headers; where that raises, the next use tries it again."""
        self._half_rebuilt = True
        try:
            self.reset_indexes()
            for position, header in self.headers(0):
                self.readmit(position, header)
            self.seal()
        except OSError:
            self._checked, self._max = False, None
            raise
        self._half_rebuilt = False

    def cut_at(self, size: int, file_bytes: int) -> None:
        """Ends the segment at `size` and the file with it."""
        self.size = size
        if file_bytes != size:
            self.file.truncate(size)

    def readmit(self, position: int, header: BatchHeader) -> None:
        """Counts a batch that recovery found good, which lies at the end of what was counted before."""
        self._note(position, header.size_bytes, header.last_offset, header.max_timestamp)


def _header_at(chunk: bytes | memoryview, at: int) -> BatchHeader | None:
    """None where what stands there cannot be a batch of format v2."""
    if at + HEADER_SIZE > len(chunk):
        return None
    header = read_header(chunk, at)
    if header.length < HEADER_SIZE - LOG_OVERHEAD or header.magic != MAGIC:
        return None
    if header.last_offset_delta < 0 or header.base_offset < 0:
        return None
    return header
