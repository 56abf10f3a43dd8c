"""The producer snapshots of one log: files `<offset>.snapshot`, each what was known of producers up to that offset.

A snapshot is written at every roll, named by the base offset of the new segment, and at a clean shutdown. After a
crash, the newest one at or below the scanned part is loaded, and the batches from there on are replayed. A snapshot is
synced by the flush that follows the roll. One that was torn by a crash is detected by its CRC and skipped in favour of
an older one.

A log of the shared layout that has no snapshot is taken for one without producers: a checkpoint writes the first one.
So there the last one never goes without a trace: when it is of no use any more, because the log was cut, it is renamed,
which needs no room and happens as a whole. What is in the file then says nothing; that it is there says that producers
are to be found in the batches.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Final

from tidelog.log.disk import Disk, read_file, replace_file
from tidelog.log.segment import SNAPSHOT, offset_name

#: what the last snapshot of a log becomes
HAD_PRODUCERS: Final = "tidelog-producers"


class Snapshots:
    __slots__ = ("_disk", "had_any", "leaves_word", "offsets", "path")

    def __init__(self, disk: Disk, path: str, offsets: list[int] | None = None, had_any: bool = False) -> None:
        """`had_any`: where there are none, there were."""
        self._disk = disk
        #: the last one does not go without a trace
        self.leaves_word = False
        self.path = path
        #: of the files that exist, rising
        self.offsets = sorted(offsets or [])
        #: of this log there is a snapshot, or there was one
        self.had_any = had_any or bool(self.offsets)

    def file_path(self, offset: int) -> str:
        return f"{self.path}/{offset_name(offset)}{SNAPSHOT}"

    def write(self, offset: int, data: bytes, sync: bool = False) -> None:
        replace_file(self._disk, self.file_path(offset), data, sync=sync)
        if offset not in self.offsets:
            insort(self.offsets, offset)
        self.had_any = True

    def read(self, offset: int) -> bytes:
        return read_file(self._disk, self.file_path(offset))

    def latest(self, at_most: int) -> int | None:
        at = bisect_right(self.offsets, at_most)
        return self.offsets[at - 1] if at else None

    def remove(self, offset: int) -> None:
        path = self.file_path(offset)
        if self.leaves_word and len(self.offsets) == 1 and self._disk.exists(path):
            self._disk.rename(path, f"{self.path}/{HAD_PRODUCERS}")
        else:
            self._disk.remove(path)
        self.offsets.remove(offset)

    def drop_above(self, offset: int) -> None:
        """Forgets what speaks of batches that are gone."""
        for stale in self.offsets[bisect_right(self.offsets, offset) :]:
            self.remove(stale)

    def drop_below(self, offset: int) -> None:
        """Forgets what nobody will begin with any more: all below `offset`, but never the newest."""
        for stale in self.offsets[: min(bisect_right(self.offsets, offset - 1), len(self.offsets) - 1)]:
            self.remove(stale)

    def prune(self, keep: set[int]) -> None:
        """Leaves those that stand at a segment's start, and the newest."""
        for stale in self.offsets[:-1]:
            if stale not in keep:
                self.remove(stale)
