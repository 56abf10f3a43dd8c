"""The producer snapshots of one log: files `<offset>.snapshot`, each what was known of producers up to that offset.

A snapshot is written at every roll, named by the base offset of the new segment, and at a clean shutdown. After a
crash, the newest one at or below the scanned part is loaded, and the batches from there on are replayed. A snapshot is
synced by the flush that follows the roll. One that was torn by a crash is detected by its CRC and skipped in favour of
an older one.
"""

from __future__ import annotations

from bisect import bisect_right, insort

from tidelog.log.disk import Disk, read_file, replace_file
from tidelog.log.segment import SNAPSHOT, offset_name


class Snapshots:
    __slots__ = ("_disk", "offsets", "path")

    def __init__(self, disk: Disk, path: str, offsets: list[int] | None = None) -> None:
        self._disk = disk
        self.path = path
        #: of the files that exist, rising
        self.offsets = sorted(offsets or [])

    def file_path(self, offset: int) -> str:
        return f"{self.path}/{offset_name(offset)}{SNAPSHOT}"

    def write(self, offset: int, data: bytes, sync: bool = False) -> None:
        replace_file(self._disk, self.file_path(offset), data, sync=sync)
        if offset not in self.offsets:
            insort(self.offsets, offset)

    def read(self, offset: int) -> bytes:
        return read_file(self._disk, self.file_path(offset))

    def latest(self, at_most: int) -> int | None:
        at = bisect_right(self.offsets, at_most)
        return self.offsets[at - 1] if at else None

    def remove(self, offset: int) -> None:
        self._disk.remove(self.file_path(offset))
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
