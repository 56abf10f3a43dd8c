"""The transaction index of a segment (`.txnindex`): the aborted transactions whose markers lie in it.

    version             int16   0
    producer id         int64
    first offset        int64   of the transaction's first record, perhaps in an earlier segment
    last offset         int64   of its abort marker, in this segment
    last stable offset  int64   when the marker was written: nothing aborted by a later entry lies below it

A consumer under read_committed gets with each fetch the aborted transactions that overlap what it fetched, and drops
their records. Entries are in the order of their markers, so `last offset` only grows, and the first of interest is
found by binary search; a last stable offset at or past the end of the fetch says that no later entry can matter.

The file appears with the first aborted transaction, is written by appending, and is made anew by recovery. An entry
that a crash tore off at the end is cut away when the file is next read. One for which there is no room waits in memory
until the next one is written or the segment is sealed: until then recovery would bring it back.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from typing import Final, NamedTuple, Protocol

from tidelog.log.disk import PASSING

ENTRY: Final = struct.Struct(">hqqqq")
VERSION: Final = 0


class IndexFile(Protocol):
    """What the index needs of its file; one that does not exist reads as empty, and appears when it is appended to."""

    def append(self, data: bytes) -> None: ...

    def read_all(self) -> bytes: ...

    def truncate(self, size_bytes: int) -> None: ...


class CorruptIndex(Exception):
    """The file cannot be the index of its segment and must be rebuilt from the log."""


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """The index of one segment; the file is read on first use, and its entries are kept as four columns."""

    __slots__ = ("_columns", "_file", "_file_bytes", "_is_longer", "_start_offset", "_waiting")

    def __init__(self, file: IndexFile, start_offset: int, file_bytes: int = 0) -> None:
        self._file = file
        self._start_offset = start_offset
        #: what the directory says of a file that was not read yet
        self._file_bytes = file_bytes
        #: how many of the last entries are not in the file yet
        self._waiting = 0
        #: the file has entries that were cut
        self._is_longer = False
        self._columns: tuple[array[int], array[int], array[int], array[int]] | None = None

    def append(self, txn: AbortedTxn) -> None:
        columns = self._entries()
        if columns[2] and txn.last_offset <= columns[2][-1]:
            raise ValueError(f"the marker at {txn.last_offset} does not follow the one at {columns[2][-1]}")
        for column, value in zip(columns, txn, strict=True):
            column.append(value)
        self._waiting += 1
        try:
            self.spill()
        except OSError as error:
            if error.errno not in PASSING:
                raise

    def spill(self) -> None:
        """Writes what waits in memory."""
        self._shorten()
        if not self._waiting:
            return
        entries = self.entries()
        written = len(entries) - self._waiting
        try:
            self._file.append(b"".join(ENTRY.pack(VERSION, *txn) for txn in entries[written:]))
        except OSError:
            self._file.truncate(written * ENTRY.size)
            raise
        self._waiting = 0

    @property
    def size_bytes(self) -> int:
        return self._file_bytes if self._columns is None else len(self._columns[2]) * ENTRY.size

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTxn], bool]:
        """The transactions that overlap offsets from `fetch_offset` to below `upper_bound_offset`.

        The flag says that the answer is complete; otherwise the next segment's index must be asked as well.
        """
        producer_ids, first_offsets, last_offsets, stable_offsets = self._entries()
        found: list[AbortedTxn] = []
        for i in range(bisect_left(last_offsets, fetch_offset), len(last_offsets)):
            if first_offsets[i] < upper_bound_offset:
                found.append(AbortedTxn(producer_ids[i], first_offsets[i], last_offsets[i], stable_offsets[i]))
            if stable_offsets[i] >= upper_bound_offset:
                return found, True
        return found, False

    def entries(self) -> list[AbortedTxn]:
        return [AbortedTxn(*entry) for entry in zip(*self._entries(), strict=True)]

    def read(self) -> None:
        """Reads the file, if that was not done yet. May raise OSError, CorruptIndex."""
        self._entries()

    def truncate_to(self, offset: int) -> None:
        """Forgets the transactions whose markers lie at or past `offset`."""
        columns = self._entries()
        keep = bisect_left(columns[2], offset)
        if keep < len(columns[2]):
            self._waiting = max(self._waiting - (len(columns[2]) - keep), 0)
            for column in columns:
                del column[keep:]
            self._is_longer = True
            try:
                self._shorten()
            except OSError as error:
                if error.errno not in PASSING:
                    raise

    def _shorten(self) -> None:
        """Cuts off what the file has beyond what is to be in it."""
        if self._is_longer:
            self._file.truncate((len(self._entries()[2]) - self._waiting) * ENTRY.size)
            self._is_longer = False

    def reset(self) -> None:
        """Empties the index, whatever the file holds, so that recovery can fill it anew."""
        self._file.truncate(0)
        self._waiting, self._is_longer = 0, False
        self._columns = (array("q"), array("q"), array("q"), array("q"))

    def check(self) -> None:
        """Raises CorruptIndex where the file cannot belong to the segment."""
        self.spill()
        self._columns = None
        self._entries()

    def _entries(self) -> tuple[array[int], array[int], array[int], array[int]]:
        if self._columns is None:
            self._columns = self._read()
        return self._columns

    def _read(self) -> tuple[array[int], array[int], array[int], array[int]]:
        data = self._file.read_all()
        whole = len(data) - len(data) % ENTRY.size
        columns = (array("q"), array("q"), array("q"), array("q"))
        last = self._start_offset - 1
        for version, *entry in ENTRY.iter_unpack(data[:whole]):
            if version != VERSION:
                raise CorruptIndex(f"entry version {version} is unknown")
            if entry[1] >= entry[2]:
                # A marker follows what it ends. A loss of power may leave an entry of zeros, which says otherwise.
                raise CorruptIndex(f"a transaction from {entry[1]} to {entry[2]} has no records")
            if entry[2] <= last:
                raise CorruptIndex(f"the marker at {entry[2]} does not follow {last}")
            last = entry[2]
            for column, value in zip(columns, entry, strict=True):
                column.append(value)
        if whole != len(data):
            self._file.truncate(whole)
        return columns
