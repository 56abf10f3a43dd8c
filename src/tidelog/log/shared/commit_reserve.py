"""Room that a commit log keeps back for giving room back: `tidelog-commit/reserve`, a file without contents.

On a full disk nothing of a commit log can go before a checkpoint was taken, or a few batches were moved, and both need
room. So some is reserved while there is any (`fallocate`), given up when it is scarce, and reserved again afterwards,
before anybody else can take what was freed. Meanwhile batches are refused (`CommitLog.is_saving`).

`metadata.reserve` does the same for a broker's registration, which is written at a start.
"""

from __future__ import annotations

from typing import Final

from tidelog.log.disk import NO_ROOM, Disk, File

RESERVE: Final = "reserve"
LEAST_BYTES: Final = 1 << 18
#: for each partition: a block of its queue, and one of its snapshot
_PARTITION_BYTES: Final = 8192
#: the part of the volume that it may be, where partitions are many
_PART: Final = 100
_STEP_BYTES: Final = 8192


def wanted_bytes(partitions: int, total_bytes: int) -> int:
    """How large it should be."""
    return max(LEAST_BYTES, min(partitions * _PARTITION_BYTES, total_bytes // _PART))


class CommitReserve:
    """It is a help, and never a reason to fail: it raises nothing."""

    __slots__ = ("_disk", "_path", "size_bytes")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{RESERVE}"
        #: as far as it is known: an earlier life may have left one
        self.size_bytes = 0

    def give(self) -> None:
        """Gives the disk all of it back."""
        self.size_bytes = 0
        try:
            self._disk.open(self._path).truncate(0)
        except OSError:
            return

    def fill(self, wanted: int) -> None:
        """Makes it so large, or as large as there is room for, where it is smaller."""
        if self.size_bytes >= wanted:
            return
        try:
            self._grow(self._disk.open(self._path, create=True), wanted)
        except OSError:
            return

    def _grow(self, file: File, wanted: int) -> None:
        step = wanted - self.size_bytes
        while step >= _STEP_BYTES and self.size_bytes < wanted:
            more = min(step, wanted - self.size_bytes)
            try:
                if not file.reserve(self.size_bytes + more):
                    return
                self.size_bytes += more
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                step //= 2
