"""The queue of a segment (`.queue`): an entry of fixed length for each of its batches, so that a search needs no scan.

    last offset         int64   of the batch
    place               int64   where the batch stands in the commit log
    newest              int64   the largest timestamp so far, in this segment
    position            int64   bytes of batches before this one, in this segment
    size                int32   of the batch
    last offset delta   int32   of the batch: its base offset is so far before its last one; bit by bit inverted, and
                                so negative, where the batch was moved in the commit log
    leader epoch        int32
    crc                 uint32  CRC-32C of the rest

All but the places rise, so that each can be searched for. The places of batches that were not moved rise too, and those
that were moved stand before them. A search trusts what it compares; whoever uses what was found asks for it with
`entry`, which checks its CRC, and sees that it follows the one before it (`follower`): no batch is passed over because
an entry is damaged, and none is given up. The newest entries are kept in memory (`index.Entries`).

In a crash any entries may be lost or torn that point past the checkpoint of the commit log: they are cut, and made anew
from the commit log.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Final, NamedTuple

from tidelog.log.disk import Disk
from tidelog.log.errors import CorruptMessage
from tidelog.log.index import Entries
from tidelog.wire.batch import crc32c

ENTRY: Final = struct.Struct(">qqqqiiiI")
ENTRY_SIZE: Final = ENTRY.size
_FIELDS: Final = struct.Struct(">qqqqiii")
_CRC: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")
_LAST_OFFSET_AT: Final = 0
_NEWEST_AT: Final = 16
_POSITION_AT: Final = 24
_DELTA_AT: Final = 36
#: how many entries are read at once from the end of a file
_BLOCK: Final = 64


class Queued(NamedTuple):
    """One entry."""

    last_offset: int
    place: int
    newest: int
    position: int
    size_bytes: int
    delta: int
    leader_epoch: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.delta

    @property
    def end(self) -> int:
        """The position of the batch after it."""
        return self.position + self.size_bytes


class Queue(Entries):
    __slots__ = ()

    def __init__(self, disk: Disk, path: str, base_offset: int, max_entries: int, file_bytes: int = 0) -> None:
        super().__init__(disk, path, base_offset, ENTRY_SIZE, max_entries, file_bytes)

    @property
    def is_full(self) -> bool:
        return self.count >= self.capacity

    def append(
        self, last_offset: int, place: int, newest: int, position: int, size_bytes: int, delta: int, leader_epoch: int
    ) -> None:
        """May raise OSError; the entry is there nevertheless, and written later."""
        fields = _FIELDS.pack(last_offset, place, newest, position, size_bytes, delta, leader_epoch)
        self._add(fields + _CRC.pack(crc32c(fields)))

    def entry(self, n: int) -> Queued:
        """Raises CorruptMessage where it is damaged."""
        if not 0 <= n < self.count:
            raise self.damaged(n)
        buffer, at = self._place(n)
        *fields, crc = ENTRY.unpack_from(buffer, at)
        # Those that are only in memory were never anywhere else.
        if n < self._written and crc != crc32c(buffer[at : at + _FIELDS.size]):
            raise self.damaged(n)
        queued = Queued._make(fields)
        return queued if queued.delta >= 0 else queued._replace(delta=~queued.delta)

    def glance(self, n: int) -> Queued:
        """An entry as it stands there, be it damaged or not."""
        queued = Queued._make(ENTRY.unpack_from(*self._place(n))[:7])
        return queued if queued.delta >= 0 else queued._replace(delta=~queued.delta)

    def follower(self, n: int) -> Queued:
        """The entry; raises CorruptMessage where it is damaged, or not the one that follows the one before it."""
        queued = self.entry(n)
        if queued.position != (self.entry(n - 1).end if n else 0):
            raise self.damaged(n)
        return queued

    def whole(self) -> list[Queued]:
        """The entries whose CRC is right, in the order in which they stand there; deltas as they stand there too."""
        return [Queued._make(ENTRY.unpack_from(*self._place(n))[:7]) for n in range(self.count) if self._is_whole(n)]

    def damaged(self, n: int) -> CorruptMessage:
        """What to raise for an entry that cannot be used."""
        return CorruptMessage(f"entry {n + 1} of {self.path} is damaged")

    def is_moved(self, n: int) -> bool:
        buffer, at = self._place(n)
        return bool(buffer[at + _DELTA_AT] & 0x80)

    def _is_whole(self, n: int) -> bool:
        """Whether the CRC of an entry is right. Those that are only in memory were never anywhere else."""
        if n >= self._written:
            return True
        buffer, at = self._place(n)
        return bool(_CRC.unpack_from(buffer, at + _FIELDS.size)[0] == crc32c(buffer[at : at + _FIELDS.size]))

    def is_sound(self, n: int) -> bool:
        """Whether the CRC of an entry is right, and it follows the one before it, where that is whole."""
        if not self._is_whole(n):
            return False
        begins = self.glance(n - 1).end if n and self._is_whole(n - 1) else None
        position = self.glance(n).position
        return position == (0 if n == 0 else position if begins is None else begins)

    def content(self) -> bytearray:
        """All entries as they stand, or will stand, in the file."""
        written = bytes(self._mapped()) if self._written else b""
        return bytearray(written) + self._tail

    def renewed(self, content: bytearray) -> None:
        """The file now holds this, and more entries may follow in memory."""
        self.park()
        del self._tail[: max(len(content) // ENTRY_SIZE - self._written, 0) * ENTRY_SIZE]
        self._written = len(content) // ENTRY_SIZE

    @property
    def last(self) -> Queued | None:
        return self.entry(self.count - 1) if self.count else None

    def trusted(self, checkpoint: int) -> tuple[int, Queued | None]:
        """How many entries of a file from an earlier life are right, and the last of them.

        Those that point before the checkpoint of the commit log are: they were on the device before it was moved. The
        file is read from its end, without mapping it.
        """
        count = self._written
        file = self._disk.open(self.path) if count else None
        while file is not None and count:
            first = max(count - _BLOCK, 0)
            data = file.pread((count - first) * ENTRY_SIZE, first * ENTRY_SIZE)
            for n in reversed(range(len(data) // ENTRY_SIZE)):
                entry = data[n * ENTRY_SIZE : (n + 1) * ENTRY_SIZE]
                *fields, crc = ENTRY.unpack(entry)
                if crc == crc32c(entry[: _FIELDS.size]) and fields[1] + fields[4] <= checkpoint:
                    return first + n + 1, Queued._make(fields)
            count = first
        return 0, None

    def first_with(self, offset: int) -> int:
        """Of the batch that holds `offset`, or of the first one after it; `count` where all end before it."""
        return self._count_up_to(offset - 1, _INT64, _LAST_OFFSET_AT)

    def first_as_late_as(self, timestamp: int) -> int:
        """Of the first batch that has a record at or after a time; `count` where none has."""
        return self._count_up_to(timestamp - 1, _INT64, _NEWEST_AT)

    def at_position(self, position: int) -> int:
        """Of the batch that begins at `position`; `count` where all begin before it."""
        return self._count_up_to(position - 1, _INT64, _POSITION_AT)

    def first_past_epoch(self, leader_epoch: int, after: int) -> int:
        """Of the first batch behind entry `after` that is of a later leader epoch; `count` where none is."""
        if self.glance(self.count - 1).leader_epoch <= leader_epoch:
            # Nearly always.
            return self.count
        return bisect_right(range(self.count), leader_epoch, after + 1, key=lambda n: self.glance(n).leader_epoch)

    @staticmethod
    def move_in(content: bytearray, n: int, place: int) -> None:
        """Gives an entry of what `content` gave another place."""
        fields = list(_FIELDS.unpack_from(content, n * ENTRY_SIZE))
        fields[1] = place
        fields[5] = fields[5] if fields[5] < 0 else ~fields[5]
        packed = _FIELDS.pack(*fields)
        content[n * ENTRY_SIZE : (n + 1) * ENTRY_SIZE] = packed + _CRC.pack(crc32c(packed))

    def cut(self, count: int) -> None:
        """Forgets all entries but the first `count`, in the file too: none may come back behind new ones.

        If it raises OSError, all of them are still there.
        """
        if count < self._written:
            self.park()
            self._disk.open(self.path).truncate(count * ENTRY_SIZE)
        self._cut(count)
