"""The two sparse indexes of a segment, byte for byte as Apache Kafka writes them.

    .index      relative offset int32, position int32     the last offset of a batch, and where the batch starts
    .timeindex  timestamp int64, relative offset int32    the largest timestamp so far, and the last offset of its batch

Entries are in rising order, big-endian. The newest few are kept in memory and written together; the file is opened for
that and closed again, so that a log that is written to holds no descriptor for its indexes. Searches run first over
what is in memory, where the readers at the end of the log look, and then over the file, mapped when first needed and
given back when others need the mapping more (`residents.py`). An index that nobody asked costs nothing.

Unlike Apache Kafka's, the file of an active segment is not made `segment.index.bytes` long in advance and written
through the mapping: on kernels with large folios the first touch of such a hole costs milliseconds and megabytes of
page cache for each index. The bound on the number of entries is the same.

In a crash the newest entries are lost. That is why a segment that is recovered writes its indexes anew.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from tidelog.log.disk import Disk
from tidelog.wire.quick_tuples import quick

MAX_RELATIVE_OFFSET: Final = (1 << 31) - 1

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")

OFFSET_ENTRY_SIZE: Final = _OFFSET_ENTRY.size
TIME_ENTRY_SIZE: Final = _TIME_ENTRY.size
#: entries that are kept in memory before they are written
_SPILL: Final = 64


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


timestamp_offset: Final = quick(TimestampOffset)


class Entries:
    """A file of fixed-size entries, and the newest of them that are not written yet."""

    __slots__ = ("_disk", "_tail", "_view", "_written", "base_offset", "capacity", "count", "entry_size", "path")

    def __init__(
        self, disk: Disk, path: str, base_offset: int, entry_size: int, capacity: int, file_bytes: int
    ) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self.entry_size = entry_size
        #: the number of entries with which it is full
        self.capacity = capacity
        #: all entries: those in the file, then those in `_tail`
        self.count = max(file_bytes, 0) // entry_size
        self._written = self.count
        self._tail = bytearray()
        #: the first `_written` entries of the file, while it is mapped
        self._view: memoryview | None = None

    def _mapped(self) -> memoryview:
        """The written entries; there must be some."""
        view = self._view
        if view is None:
            view = self._view = self._disk.open(self.path).map(self._written * self.entry_size)
            self._disk.maps.add(self)
        return view

    def park(self) -> None:
        """Gives the mapping back; the next search takes it again."""
        if self._view is not None:
            self._view.release()
            self._view = None
            self._disk.maps.discard(self)

    def _add(self, entry: bytes) -> None:
        self._tail += entry
        self.count += 1
        if len(self._tail) >= _SPILL * self.entry_size:
            self.spill()

    def spill(self) -> None:
        """Writes what is only in memory."""
        if self._tail:
            self.park()
            self._disk.open(self.path, create=True).write(self._tail, self._written * self.entry_size)
            self._written = self.count
            self._tail = bytearray()

    def trim(self) -> None:
        """Writes what is only in memory and makes the file end with the last entry."""
        self.park()
        file = self._disk.open(self.path, create=True)
        file.write(self._tail, self._written * self.entry_size)
        self._written = self.count
        self._tail = bytearray()
        if file.size() != self.count * self.entry_size:
            file.truncate(self.count * self.entry_size)

    def _cut(self, count: int) -> None:
        """Forgets all entries but the first `count`; what stands behind them in the file goes with the next trim."""
        if count < self._written:
            self.park()
            self._written = count
            self._tail = bytearray()
        else:
            del self._tail[(count - self._written) * self.entry_size :]
        self.count = count

    def _place(self, n: int) -> tuple[memoryview | bytearray, int]:
        """The buffer that holds entry `n`, and where."""
        if n >= self._written:
            return self._tail, (n - self._written) * self.entry_size
        return self._mapped(), n * self.entry_size

    def _count_up_to(self, target: int, field: struct.Struct, field_at: int) -> int:
        """How many entries have the field at or below `target`."""
        unpack = field.unpack_from
        size = self.entry_size
        buffer: memoryview | bytearray = self._tail
        first, low, high = self._written, 0, len(self._tail) // size
        if high == 0 or unpack(buffer, field_at)[0] > target:
            first, high = 0, self._written
            if high == 0:
                return 0
            buffer = self._mapped()
        while low < high:
            middle = (low + high) >> 1
            if unpack(buffer, middle * size + field_at)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return first + low

    def _read_ends(self) -> tuple[bytes, bytes]:
        """The first and the last entry of the file, read without mapping it."""
        file = self._disk.open(self.path)
        size = self.entry_size
        return file.pread(size, 0), file.pread(size, (self._written - 1) * size)


class OffsetIndex(Entries):
    __slots__ = ()

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int, file_bytes: int = 0) -> None:
        super().__init__(disk, path, base_offset, OFFSET_ENTRY_SIZE, max_bytes // OFFSET_ENTRY_SIZE, file_bytes)

    def load(self, log_bytes: int) -> int | None:
        """The position of the last entry of a file from an earlier life, 0 if it has none.

        None if the file cannot be the index of a log file of that size.
        """
        if self.count == 0:
            return 0
        first, last = (_OFFSET_ENTRY.unpack(entry) for entry in self._read_ends())
        fits = 0 <= first[0] <= last[0] and 0 <= first[1] <= last[1] < log_bytes
        # A hole of zeros, as a crash leaves it, ends where it begins.
        if not fits or (self.count > 1 and first == last):
            return None
        position: int = last[1]
        return position

    def last_position(self, log_bytes: int) -> int | None:
        """As `load`, but with the entries that are only in memory."""
        if self._tail:
            return self._position_of(self.count)
        return self.load(log_bytes)

    def entry(self, n: int) -> tuple[int, int]:
        relative, position = _OFFSET_ENTRY.unpack_from(*self._place(n))
        return self.base_offset + relative, position

    def append(self, offset: int, position: int) -> None:
        """A full index takes no more: what it lacks only makes a scan longer."""
        if self.count < self.capacity:
            self._add(_OFFSET_ENTRY.pack(offset - self.base_offset, position))

    def lookup(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`: that of the last entry not past it, else 0."""
        return self._position_of(self._count_up_to(offset - self.base_offset, _INT32, 0))

    def position_up_to(self, position: int) -> int:
        """The largest indexed position that is not past `position`; 0 if there is none."""
        return self._position_of(self._count_up_to(position, _INT32, 4))

    def _position_of(self, count: int) -> int:
        """Of the last of the first `count` entries."""
        if count == 0:
            return 0
        buffer, at = self._place(count - 1)
        position: int = _INT32.unpack_from(buffer, at + 4)[0]
        return position

    def truncate_to(self, offset: int) -> None:
        """Keeps the entries of offsets below `offset`."""
        self._cut(self._count_up_to(offset - self.base_offset - 1, _INT32, 0))

    def reset(self) -> None:
        self._cut(0)


class TimeIndex(Entries):
    __slots__ = ("last",)

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int, file_bytes: int = 0) -> None:
        # The slot of the final entry does not count.
        super().__init__(disk, path, base_offset, TIME_ENTRY_SIZE, max_bytes // TIME_ENTRY_SIZE - 1, file_bytes)
        #: the last entry, (-1, base offset) where there is none; of a file from an earlier life only after `load`
        self.last = TimestampOffset(-1, base_offset)

    def load(self) -> bool:
        """Reads the last entry of a file from an earlier life; False if the file cannot be a time index."""
        if self.count == 0:
            return True
        first, last = (_TIME_ENTRY.unpack(entry) for entry in self._read_ends())
        self.last = TimestampOffset(last[0], self.base_offset + last[1])
        return bool(0 <= first[1] <= last[1] and first[0] <= last[0] and (self.count == 1 or first != last))

    def entry(self, n: int) -> TimestampOffset:
        timestamp, relative = _TIME_ENTRY.unpack_from(*self._place(n))
        return TimestampOffset(timestamp, self.base_offset + relative)

    def append(self, timestamp: int, offset: int, final: bool = False) -> None:
        """An entry that brings no larger timestamp says nothing new and is left out.

        The last slot is kept for the `final` entry, which a seal writes.
        """
        if timestamp > self.last[0] and self.count < self.capacity + final:
            self._add(_TIME_ENTRY.pack(timestamp, offset - self.base_offset))
            self.last = TimestampOffset(timestamp, offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry whose timestamp is not past the asked one, else (-1, base offset)."""
        return self._entry_before(self._count_up_to(timestamp, _INT64, 0))

    def _entry_before(self, count: int) -> TimestampOffset:
        return self.entry(count - 1) if count else TimestampOffset(-1, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Keeps the entries of offsets below `offset`."""
        self._cut(self._count_up_to(offset - self.base_offset - 1, _INT32, 8))
        self.last = self._entry_before(self.count)

    def reset(self) -> None:
        self._cut(0)
        self.last = TimestampOffset(-1, self.base_offset)
