"""The two sparse indexes of a segment, byte for byte as Apache Kafka writes them.

    .index      relative offset int32, position int32     the last offset of a batch, and where the batch starts
    .timeindex  timestamp int64, relative offset int32    the largest timestamp so far, and the last offset of its batch

Entries are appended in rising order, big-endian, into a file that is grown (as a hole) to `segment.index.bytes` and
mapped when the first entry is written; a roll or a close trims it to its entries. Searches run on the mapping. An index
that nobody asked costs no descriptor and no mapping: ten thousand idle partitions hold none.

In a crash the tail of an index may be lost or the file may still carry its hole of zeros. That is why a segment that is
recovered resets its indexes and writes them anew from the batches, and why only trimmed files are trusted.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from tidelog.log.disk import Disk

MAX_RELATIVE_OFFSET: Final = (1 << 31) - 1

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")

OFFSET_ENTRY_SIZE: Final = _OFFSET_ENTRY.size
TIME_ENTRY_SIZE: Final = _TIME_ENTRY.size


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class MappedEntries:
    """A file of fixed-size entries, mapped while it is used."""

    __slots__ = ("_disk", "_view", "_writable", "base_offset", "count", "entry_size", "max_entries", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int, entry_size: int, max_bytes: int, count: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self.entry_size = entry_size
        self.max_entries = max_bytes // entry_size
        #: entries that are valid; the file may be longer
        self.count = count
        self._view: memoryview | None = None
        #: the file has its full size and the view covers it
        self._writable = False

    def _mapped(self) -> memoryview:
        """For reading; there must be entries."""
        view = self._view
        if view is None:
            view = self._view = self._disk.open(self.path).map(self.count * self.entry_size)
            self._disk.maps.add(self)
        return view

    def _grown(self) -> memoryview:
        """For writing: the file at its full size."""
        self.park()
        file = self._disk.open(self.path, create=True)
        size_bytes = self.max_entries * self.entry_size
        if file.size() < size_bytes:
            file.truncate(size_bytes)
        view = self._view = file.map(size_bytes)
        self._writable = True
        self._disk.maps.add(self)
        return view

    def park(self) -> None:
        """Gives the mapping back; the next use takes it again."""
        if self._view is not None:
            self._view.release()
            self._view = None
            self._disk.maps.discard(self)
        self._writable = False

    def trim(self) -> None:
        """Cuts the file to its entries, making it if it does not exist."""
        self.park()
        self._disk.open(self.path, create=True).truncate(self.count * self.entry_size)

    def cut(self, count: int) -> None:
        """Forgets all entries but the first `count`."""
        self.count = count

    def sync(self) -> None:
        """What was written through the mapping reaches the device with the file's other pages."""
        self._disk.open(self.path).sync()


class OffsetIndex(MappedEntries):
    __slots__ = ("last_offset",)

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int, file_bytes: int = 0) -> None:
        super().__init__(disk, path, base_offset, OFFSET_ENTRY_SIZE, max_bytes, file_bytes // OFFSET_ENTRY_SIZE)
        #: the offset of the last entry; the base offset where there is none. Filled in by `load`
        self.last_offset = base_offset

    def load(self) -> bool:
        """Reads the last entry of a trimmed file; False if the file cannot be one."""
        self.last_offset = self.base_offset
        if self.count:
            self.last_offset = self.entry(self.count - 1)[0]
            return self.last_offset >= self.base_offset and (self.count == 1 or self.last_offset > self.base_offset)
        return True

    @property
    def is_full(self) -> bool:
        return self.count >= self.max_entries

    def entry(self, n: int) -> tuple[int, int]:
        relative, position = _OFFSET_ENTRY.unpack_from(self._mapped(), n * OFFSET_ENTRY_SIZE)
        return self.base_offset + relative, position

    def append(self, offset: int, position: int) -> None:
        """A full index takes no more: what it lacks only makes a scan longer."""
        count = self.count
        if count >= self.max_entries:
            return
        view = self._view
        if view is None or not self._writable:
            view = self._grown()
        _OFFSET_ENTRY.pack_into(view, count * OFFSET_ENTRY_SIZE, offset - self.base_offset, position)
        self.count = count + 1
        self.last_offset = offset

    def lookup(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`: that of the last entry not past it, else 0."""
        slot = self._slots_up_to(offset - self.base_offset, 0)
        if slot == 0:
            return 0
        position: int = _INT32.unpack_from(self._mapped(), slot * OFFSET_ENTRY_SIZE - 4)[0]
        return position

    def position_up_to(self, position: int) -> int:
        """The largest indexed position that is not past `position`; 0 if there is none."""
        slot = self._slots_up_to(position, 4)
        if slot == 0:
            return 0
        found: int = _INT32.unpack_from(self._mapped(), slot * OFFSET_ENTRY_SIZE - 4)[0]
        return found

    def _slots_up_to(self, target: int, field_at: int) -> int:
        """How many entries have the field at or below `target`."""
        high = self.count
        if high == 0:
            return 0
        view = self._mapped()
        unpack = _INT32.unpack_from
        low = 0
        while low < high:
            middle = (low + high) >> 1
            if unpack(view, (middle << 3) + field_at)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return low

    def truncate_to(self, offset: int) -> None:
        """Keeps the entries of offsets below `offset`."""
        self.cut(self._slots_up_to(offset - self.base_offset - 1, 0))
        self.last_offset = self.entry(self.count - 1)[0] if self.count else self.base_offset

    def reset(self) -> None:
        self.cut(0)
        self.last_offset = self.base_offset


class TimeIndex(MappedEntries):
    __slots__ = ("last",)

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int, file_bytes: int = 0) -> None:
        super().__init__(disk, path, base_offset, TIME_ENTRY_SIZE, max_bytes, file_bytes // TIME_ENTRY_SIZE)
        #: the last entry, (-1, base offset) where there is none. Filled in by `load`
        self.last = TimestampOffset(-1, base_offset)

    def load(self) -> bool:
        """Reads the last entry of a trimmed file; False if the file cannot be one."""
        self.last = TimestampOffset(-1, self.base_offset)
        if self.count:
            self.last = self.entry(self.count - 1)
            return self.last.offset >= self.base_offset and self.last.timestamp >= self.entry(0).timestamp
        return True

    @property
    def is_full(self) -> bool:
        """The slot of the final entry does not count."""
        return self.count >= self.max_entries - 1

    def entry(self, n: int) -> TimestampOffset:
        timestamp, relative = _TIME_ENTRY.unpack_from(self._mapped(), n * TIME_ENTRY_SIZE)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def append(self, timestamp: int, offset: int, final: bool = False) -> None:
        """An entry that brings no larger timestamp says nothing new and is left out.

        The last slot is kept for the `final` entry, which a seal writes.
        """
        count = self.count
        if timestamp <= self.last.timestamp or count >= self.max_entries - (not final):
            return
        view = self._view
        if view is None or not self._writable:
            view = self._grown()
        _TIME_ENTRY.pack_into(view, count * TIME_ENTRY_SIZE, timestamp, offset - self.base_offset)
        self.count = count + 1
        self.last = TimestampOffset(timestamp, offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry whose timestamp is not past the asked one, else (-1, base offset)."""
        slot = self._slots_up_to(timestamp, _INT64, 0)
        return self.entry(slot - 1) if slot else TimestampOffset(-1, self.base_offset)

    def _slots_up_to(self, target: int, field: struct.Struct, field_at: int) -> int:
        high = self.count
        if high == 0:
            return 0
        view = self._mapped()
        unpack = field.unpack_from
        low = 0
        while low < high:
            middle = (low + high) >> 1
            if unpack(view, middle * TIME_ENTRY_SIZE + field_at)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return low

    def truncate_to(self, offset: int) -> None:
        """Keeps the entries of offsets below `offset`."""
        self.cut(self._slots_up_to(offset - self.base_offset - 1, _INT32, 8))
        self.last = self.entry(self.count - 1) if self.count else TimestampOffset(-1, self.base_offset)

    def reset(self) -> None:
        self.cut(0)
        self.last = TimestampOffset(-1, self.base_offset)
