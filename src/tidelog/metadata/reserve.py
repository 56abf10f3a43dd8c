"""Disk space reserved for startup: a broker cannot start without writing its registration.

It is a plain file without contents. If the disk is full, startup shrinks it by as much as must be written, so that the
broker starts, serves its data, and can free space. At other times requests that need space are refused and retried. The
file is filled up again as soon as there is space.
"""

from __future__ import annotations

import os
from typing import Final

#: enough for a few dozen starts of a small broker on a disk that stays full
LEAST_BYTES: Final = 1 << 18
#: what is given at once: more than a block, of which the last one written is rarely full
_STEP_BYTES: Final = 8192


class Reserve:
    __slots__ = ("_path", "_size_bytes")

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._size_bytes = os.path.getsize(path)
        except OSError:
            self._size_bytes = 0

    def give(self, size_bytes: int) -> bool:
        """Gives the disk at least so much of it back, as far as there is; False where there is nothing left."""
        if not self._size_bytes:
            return False
        left = max(self._size_bytes - max(size_bytes, _STEP_BYTES), 0)
        try:
            os.truncate(self._path, left)
        except OSError:
            return False
        self._size_bytes = left
        return True

    def fill(self, size_bytes: int) -> None:
        """Makes it at least so large, or as large as there is room for: it is a help, and never a reason to fail."""
        wanted = -(-max(size_bytes, LEAST_BYTES) // _STEP_BYTES) * _STEP_BYTES
        if self._size_bytes >= wanted:
            return
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            return
        try:
            self._size_bytes = _grow(fd, self._size_bytes, wanted)
        finally:
            os.close(fd)


def _grow(fd: int, size_bytes: int, wanted: int) -> int:
    """Doubles or halves its way to as much as fits; returns the size that the file then has."""
    step = wanted - size_bytes
    while step >= _STEP_BYTES and size_bytes < wanted:
        try:
            os.posix_fallocate(fd, size_bytes, min(step, wanted - size_bytes))
            size_bytes += min(step, wanted - size_bytes)
        except OSError:
            # Some file systems keep a part of what they refused.
            os.ftruncate(fd, size_bytes)
            step //= 2
    return size_bytes
