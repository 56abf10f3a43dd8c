"""The segment that a compaction writes, and how it takes the place of those that it was made of.

The worker writes `<base>.log.cleaned` and the three indexes beside it, and syncs them. The broker's thread then only
renames, in Apache Kafka's order, so that whichever of the two opens the directory after a crash finishes or undoes it:

    1. the files become `.swap`, the log file first      a crash before the last: a `.cleaned` is there, all is undone
    2. the old segments become `.deleted`                a crash in here: the swap is completed at the next opening
    3. the `.swap` files lose their suffix               a crash in here: likewise; what is left is renamed
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from typing import Final

from tidelog.log.config import LogConfig
from tidelog.log.disk import Disk, File
from tidelog.log.file_segment import FileSegment
from tidelog.log.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from tidelog.log.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, offset_name
from tidelog.log.txn_index import ENTRY, VERSION, AbortedTxn
from tidelog.wire import kernel
from tidelog.wire.batch import HEADER_SIZE

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


class CleanedSegment:
    """A finished segment that waits under the name `.cleaned`."""

    __slots__ = ("_disk", "_sizes", "_stem", "_suffixes", "base_offset")

    def __init__(
        self, disk: Disk, stem: str, base_offset: int, sizes: tuple[int, int, int, int], suffixes: list[str]
    ) -> None:
        self._disk = disk
        self._stem = stem
        self._suffixes = suffixes
        #: of the log file and of the three indexes
        self._sizes = sizes
        self.base_offset = base_offset

    def rename_to_swap(self) -> None:
        self._rename(CLEANED, SWAP)

    def rename_to_log(self) -> None:
        self._rename(SWAP, "")

    def _rename(self, old: str, new: str) -> None:
        for suffix in self._suffixes:
            path = self._stem + suffix
            self._disk.rename(path + old, path + new)

    def segment(self, config: LogConfig) -> FileSegment:
        """As a part of the log, under its final name."""
        return FileSegment(self._disk, self._stem, self.base_offset, config, *self._sizes)

    def remove(self) -> None:
        """It is not wanted after all. For a worker."""
        for suffix in self._suffixes:
            self._disk.remove(self._stem + suffix + CLEANED)


class Output:
    """The segment while it is written. Indexes are small and kept in memory until the end."""

    __slots__ = (
        "_base_offset",
        "_config",
        "_disk",
        "_file",
        "_offset_entries",
        "_points",
        "_state",
        "_stem",
        "_time_entries",
        "size",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, config: LogConfig) -> None:
        self._disk = disk
        self._stem = f"{directory}/{offset_name(base_offset)}"
        self._base_offset = base_offset
        self._config = config
        self._file: File = disk.open(self._stem + LOG + CLEANED, create=True, empty=True)
        self.size = 0
        self._offset_entries = bytearray()
        self._time_entries = bytearray()
        self._points = array("q")
        #: bytes since the last index entry, the largest timestamp and the last offset of its batch
        self._state = array("q", [0, -1, base_offset])

    def write(self, batches: memoryview) -> None:
        """Appends whole batches."""
        room = 4 * (len(batches) // HEADER_SIZE)
        if len(self._points) < room:
            self._points = array("q", bytes(8 * room))
        interval = self._config.index_interval_bytes
        count, _ = kernel.index_points(batches, len(batches), self.size, interval, self._state, self._points)
        self._file.write(batches, self.size)
        self.size += len(batches)
        for at in range(0, 4 * count, 4):
            offset, position, timestamp, timestamp_offset = self._points[at : at + 4]
            if len(self._offset_entries) // OFFSET_ENTRY_SIZE < self._config.segment_index_bytes // OFFSET_ENTRY_SIZE:
                self._offset_entries += _OFFSET_ENTRY.pack(offset - self._base_offset, position)
            # The last slot is kept for the entry that the seal writes.
            if len(self._time_entries) // TIME_ENTRY_SIZE < self._config.segment_index_bytes // TIME_ENTRY_SIZE - 1:
                self._add_time(timestamp, timestamp_offset)

    def _add_time(self, timestamp: int, offset: int) -> None:
        """An entry that brings no larger timestamp says nothing new."""
        entries = self._time_entries
        last = _TIME_ENTRY.unpack_from(entries, len(entries) - TIME_ENTRY_SIZE)[0] if entries else -1
        if timestamp > last:
            entries += _TIME_ENTRY.pack(timestamp, offset - self._base_offset)

    def finish(self, aborted: Iterable[AbortedTxn], modified_ms: int) -> CleanedSegment:
        """Writes the indexes and syncs everything. The file counts as old as what it was made of."""
        self._add_time(self._state[1], self._state[2])
        files = {INDEX: bytes(self._offset_entries), TIME_INDEX: bytes(self._time_entries)}
        transactions = b"".join(ENTRY.pack(VERSION, *txn) for txn in aborted)
        if transactions:
            files[TXN_INDEX] = transactions
        self._file.sync()
        self._disk.set_modified_ms(self._stem + LOG + CLEANED, modified_ms)
        for suffix, content in files.items():
            file = self._disk.open(self._stem + suffix + CLEANED, create=True, empty=True)
            file.write(content, 0)
            file.sync()
        sizes = self.size, len(self._offset_entries), len(self._time_entries), len(transactions)
        return CleanedSegment(self._disk, self._stem, self._base_offset, sizes, [LOG, *files])

    def remove(self) -> None:
        for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
            self._disk.remove(self._stem + suffix + CLEANED)
