"""A disk that the power leaves: everything not synced may be gone, in part or in whole."""

from __future__ import annotations

import os
from collections.abc import Callable


class PowerLoss(BaseException):
    """Not an Exception: nothing in the code under test may catch it."""


class FailingDisk:
    """Stands where a module has `os`. Counts the calls that change the disk and loses power at one of them.

    Afterwards `lose(choose)` makes the directory look as a crash may leave it: each file keeps its synced bytes and as
    many of the others as `choose(low, high)` says; a rename whose directory was not synced may be undone.
    """

    def __init__(self, directory: str, calls_until_loss: int) -> None:
        self._directory = directory
        self._calls_left = calls_until_loss
        self.power_is_gone = False
        self._names: dict[int, str] = {}
        self._synced: dict[str, int] = {}
        self._renames: list[tuple[str, str, bytes | None]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def _call(self) -> None:
        if self._calls_left == 0:
            self.power_is_gone = True
            raise PowerLoss
        self._calls_left -= 1

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        fd = os.open(path, flags, mode)
        self._names[fd] = path
        if path != self._directory:
            length = os.fstat(fd).st_size
            self._synced[path] = 0 if flags & os.O_TRUNC else self._synced.get(path, length)
        return fd

    def write(self, fd: int, data: bytes) -> int:
        self._call()
        return os.write(fd, data)

    def ftruncate(self, fd: int, length: int) -> None:
        self._call()
        os.ftruncate(fd, length)
        path = self._names[fd]
        self._synced[path] = min(self._synced[path], length)

    def fsync(self, fd: int) -> None:
        self._call()
        path = self._names[fd]
        if path == self._directory:
            self._renames.clear()
        else:
            self._synced[path] = os.fstat(fd).st_size

    fdatasync = fsync

    def rename(self, source: str, target: str) -> None:
        self._call()
        before = None
        if os.path.exists(target):
            with open(target, "rb") as file:
                before = file.read()
        os.rename(source, target)
        self._renames.append((source, target, before))
        self._synced[target] = self._synced.pop(source)
        for fd, name in self._names.items():
            if name == source:
                self._names[fd] = target

    def lose(self, choose: Callable[[int, int], int]) -> None:
        for source, target, before in reversed(self._renames):
            if not choose(0, 1):
                continue
            os.rename(target, source)
            self._synced[source] = self._synced.pop(target)
            if before is not None:
                with open(target, "wb") as file:
                    file.write(before)
                self._synced[target] = len(before)
        for path, synced in self._synced.items():
            length = os.path.getsize(path)
            os.truncate(path, choose(synced, max(synced, length)))
