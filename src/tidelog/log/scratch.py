"""Scratch files in the directory of a log: gone with it, and when it is opened again (their names end in `.tmp`)."""

from __future__ import annotations

from tidelog.log.disk import Disk, File
from tidelog.log.log import Log

_SUFFIX = ".tmp"


class ScratchFiles:
    """Raises OSError where the disk does not take or give what it should."""

    def __init__(self, disk: Disk, log: Log) -> None:
        self._disk = disk
        self._log = log

    def _path(self, name: str) -> str:
        return f"{self._log.path}/{name}{_SUFFIX}"

    def write(self, name: str, data: bytes, position: int) -> None:
        self._disk.open(self._path(name), create=True).write(data, position)

    def open(self, name: str) -> File:
        return self._disk.open(self._path(name))

    def remove(self, name: str) -> None:
        self._disk.remove(self._path(name))

    def remove_all(self, prefix: str) -> None:
        """What an earlier use has left behind."""
        for entry in self._disk.list(self._log.path):
            if entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX):
                self._disk.remove(f"{self._log.path}/{entry.name}")
