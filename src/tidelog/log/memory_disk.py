"""A disk in memory that fails on demand and forgets what was not synced: for tests and for the simulator.

What survives `crash` follows what a journaling file system gives:

    metadata    names made, renamed and removed, and files cut, take effect in order; a sync, of a file or a directory,
                makes all before it durable; of those after it any first few may have reached the device
    file bytes  what was synced is there; appended bytes that were not may be there in part, be zeros or be garbage;
                bytes overwritten since (an index mapping) are the old or the new ones, page by page

`unsynced_dirs` is stricter than that: directories in which names changed since they themselves were synced.

Failures: `fail_writes_after(n)` lets n more bytes through and then raises ENOSPC in the middle of a write, as a full
disk does; `fail(operation, …)` raises what it is told at the next operation of that name; `flip` turns a bit over.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

from tidelog.log.disk import Entry, Usage
from tidelog.log.residents import Residents

_PAGE: Final = 4096
_GONE: Final = object()
_TOTAL_BYTES: Final = 1 << 40


class _Inode:
    __slots__ = ("data", "modified_ms", "reserved", "synced")

    def __init__(self) -> None:
        self.data = bytearray()
        #: so far it can grow on a disk that is full
        self.reserved = 0
        #: the content that the device is known to hold
        self.synced = b""
        self.modified_ms = 0


class MemoryFile:
    __slots__ = ("_disk", "_inode", "_path")

    def __init__(self, disk: MemoryDisk, inode: _Inode, path: str) -> None:
        self._disk = disk
        self._inode = inode
        self._path = path

    def fileno(self) -> int:
        raise OSError(errno.ENOTSUP, "a file in memory has no descriptor", self._path)

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        disk, content = self._disk, self._inode.data
        disk.count("write", self._path)
        reserved = min(max(self._inode.reserved - position, 0), len(data))
        room = len(data) if disk.room_bytes is None else min(len(data), disk.room_bytes + reserved)
        if position > len(content):
            content.extend(bytes(position - len(content)))
        content[position : position + room] = data[:room]
        self._inode.modified_ms = disk.now_ms
        if disk.room_bytes is not None:
            disk.room_bytes -= max(room - reserved, 0)
            if room < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)

    def pread(self, size_bytes: int, position: int) -> bytes:
        self._disk.count("pread", self._path)
        return bytes(self._inode.data[position : position + size_bytes])

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, size_bytes: int) -> None:
        self._disk.count("truncate", self._path)
        self._give_back()
        content = self._inode.data
        if size_bytes < len(content):
            self._disk.cutting(self._inode)
            del content[size_bytes:]
            self._inode.synced = self._inode.synced[:size_bytes]
        else:
            content.extend(bytes(size_bytes - len(content)))
        self._inode.modified_ms = self._disk.now_ms

    def reserve(self, size_bytes: int) -> bool:
        self._disk.count("reserve", self._path)
        disk, inode = self._disk, self._inode
        more = size_bytes - max(inode.reserved, len(inode.data))
        if more > 0 and disk.room_bytes is not None:
            if more > disk.room_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
            disk.room_bytes -= more
        inode.reserved = max(inode.reserved, size_bytes)
        return True

    def _give_back(self) -> None:
        disk, inode = self._disk, self._inode
        if disk.room_bytes is not None:
            disk.room_bytes += max(inode.reserved - len(inode.data), 0)
        inode.reserved = 0

    def sync(self) -> None:
        self._disk.count("sync", self._path)
        self._inode.synced = bytes(self._inode.data)
        self._disk.commit()

    def map(self, size_bytes: int) -> memoryview:
        self._disk.count("map", self._path)
        return memoryview(self._inode.data)[:size_bytes]


class MemoryLock:
    __slots__ = ("_disk", "_path")

    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class MemoryDisk:
    __slots__ = (
        "_durable",
        "_failures",
        "_journal",
        "_names",
        "counts",
        "files",
        "locked",
        "maps",
        "now_ms",
        "room_bytes",
        "unsynced_dirs",
    )

    def __init__(self, max_files: int = 8) -> None:
        # Few, so that parking and taking anew is part of every test.
        self.files = Residents(max_files)
        self.maps = Residents(max_files // 2)
        #: files by path; a directory is None
        self._names: dict[str, _Inode | None] = {}
        #: the names that every crash finds
        self._durable: dict[str, _Inode | None] = {}
        #: changes since, in order: new values of names (_GONE for none), or a file that was cut, as it was before
        self._journal: list[dict[str, Any] | tuple[_Inode, bytes, bytes]] = []
        #: the count at which an operation fails, and its error
        self._failures: dict[str, tuple[int, int]] = {}
        self.locked: set[str] = set()
        #: how often each operation ran, by its name
        self.counts: dict[str, int] = {}
        #: what modification times are taken from
        self.now_ms = 0
        #: bytes that may still be written, None for no limit
        self.room_bytes: int | None = None
        self.unsynced_dirs: set[str] = set()

    # --- failing

    def fail(self, operation: str, error: int | None = errno.EIO, after: int = 1) -> None:
        """The next `operation` (a method's name), or the `after`th, raises this error, once; None takes it back."""
        self._failures.pop(operation, None)
        if error is not None:
            self._failures[operation] = (self.counts.get(operation, 0) + after, error)

    def fail_writes_after(self, room_bytes: int) -> None:
        """The disk has room for so many bytes more."""
        self.room_bytes = room_bytes

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Somebody looks from outside: nothing fails, and nothing is counted."""
        failures, counts = self._failures, self.counts
        self._failures, self.counts = {}, {}
        try:
            yield
        finally:
            self._failures, self.counts = failures, counts

    def count(self, operation: str, path: str) -> None:
        self.counts[operation] = self.counts.get(operation, 0) + 1
        if operation in self._failures and self.counts[operation] >= self._failures[operation][0]:
            error = self._failures.pop(operation)[1]
            raise OSError(error, os.strerror(error), path)

    # --- crashing

    def content(self, path: str) -> bytearray:
        """The bytes of a file, for surgery."""
        inode = self._names[path]
        if inode is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return inode.data

    def flip(self, path: str, position: int, bit: int) -> None:
        """One bit of a file is not what was written, in memory and on the device."""
        inode = self._names[path]
        assert inode is not None, f"{path} is a directory"
        inode.data[position] ^= 1 << bit
        if position < len(inode.synced):
            inode.synced = b"%b%c%b" % (inode.synced[:position], inode.data[position], inode.synced[position + 1 :])

    def paths(self, ending: str) -> list[str]:
        """The files whose names end so."""
        return sorted(name for name, inode in self._names.items() if inode is not None and name.endswith(ending))

    def commit(self) -> None:
        """All metadata so far is durable."""
        for change in self._journal:
            if isinstance(change, dict):
                _apply(self._durable, change)
        self._journal.clear()

    def cutting(self, inode: _Inode) -> None:
        """A file is about to be cut: a crash may find it as it is now."""
        self._journal.append((inode, bytes(inode.data), inode.synced))

    def outlive(self) -> None:
        """The process that used it is dead, its machine is not: whatever it wrote is there for the next one."""
        self.locked.clear()
        self.files = Residents(self.files.limit)
        self.maps = Residents(self.maps.limit)
        for inode in self._names.values():
            if inode is not None:
                # A new content object: views into the old one belong to the life that ended.
                inode.data = bytearray(inode.data)

    def crash(self, random: Random) -> None:
        """The power goes: only what was synced, and a random part of the rest, is found afterwards."""
        reached = random.randint(0, len(self._journal))
        for change in self._journal[:reached]:
            if isinstance(change, dict):
                _apply(self._durable, change)
        for change in reversed(self._journal[reached:]):
            if isinstance(change, tuple):
                cut, data, synced = change
                cut.data, cut.synced = bytearray(data), synced
        self._journal.clear()
        self._names = dict(self._durable)
        self.unsynced_dirs.clear()
        self._failures.clear()
        for inode in self._names.values():
            if inode is not None:
                inode.synced = _survivor(inode, random)
                inode.data = bytearray(inode.synced)
        self.outlive()

    def _change(self, change: dict[str, Any]) -> None:
        _apply(self._names, change)
        self._journal.append(change)
        self.unsynced_dirs.update(map(os.path.dirname, change))

    # --- Disk

    def open(self, path: str, create: bool = False, empty: bool = False) -> MemoryFile:
        self.count("open", path)
        inode = self._names.get(path)
        if inode is None:
            if path in self._names:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if not create or os.path.dirname(path) not in self._names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            inode = _Inode()
            inode.modified_ms = self.now_ms
            self._change({path: inode})
        file = MemoryFile(self, inode, path)
        if empty and inode.data:
            file.truncate(0)
        return file

    def list(self, path: str) -> list[Entry]:
        self.count("list", path)
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        inside = path + "/"
        return [
            Entry(name[len(inside) :], inode is None, 0 if inode is None else len(inode.data))
            for name, inode in self._names.items()
            if name.startswith(inside) and "/" not in name[len(inside) :]
        ]

    def exists(self, path: str) -> bool:
        return path in self._names

    def size(self, path: str) -> int:
        return self.open(path).size()

    def modified_ms(self, path: str) -> int:
        inode = self._names[path]
        return 0 if inode is None else inode.modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        inode = self._names[path]
        if inode is not None:
            inode.modified_ms = modified_ms

    def mkdir(self, path: str) -> bool:
        self.count("mkdir", path)
        parts = path.split("/")
        parents = ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
        made = {parent: None for parent in parents if parent not in self._names}
        self._change(made)
        return bool(made)

    def rename(self, path: str, new_path: str) -> None:
        self.count("rename", path)
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        change: dict[str, Any] = {path: _GONE, new_path: self._names[path]}
        inside = path + "/"
        for name, inode in self._names.items():
            if name.startswith(inside):
                change[name] = _GONE
                change[new_path + "/" + name[len(inside) :]] = inode
        self._change(change)

    def remove(self, path: str) -> None:
        self.count("remove", path)
        if path in self._names:
            self._change({path: _GONE})

    def remove_dir(self, path: str) -> None:
        self.count("remove_dir", path)
        if any(name.startswith(path + "/") for name in self._names):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        if path in self._names:
            self._change({path: _GONE})

    def sync_dir(self, path: str) -> None:
        self.count("sync_dir", path)
        self.unsynced_dirs.discard(path)
        self.commit()

    def sync_all(self, path: str) -> None:
        self.count("sync_all", path)
        for inode in self._names.values():
            if inode is not None:
                inode.synced = bytes(inode.data)
        self.unsynced_dirs.clear()
        self.commit()

    def lock(self, path: str) -> MemoryLock | None:
        if path in self.locked:
            return None
        self.open(path, create=True)
        self.locked.add(path)
        return MemoryLock(self, path)

    def usage(self, path: str) -> Usage:
        used = sum(len(inode.data) for inode in self._names.values() if inode is not None)
        usable = _TOTAL_BYTES - used if self.room_bytes is None else self.room_bytes
        return Usage(_TOTAL_BYTES, usable)


def _apply(names: dict[str, _Inode | None], change: dict[str, Any]) -> None:
    for path, inode in change.items():
        if inode is _GONE:
            names.pop(path, None)
        else:
            names[path] = inode


def _survivor(inode: _Inode, random: Random) -> bytes:
    """What the device may hold of a file that was not synced since `synced`."""
    old, new = inode.synced, bytes(inode.data)
    if old == new:
        return old
    common = min(len(old), len(new))
    kept = bytearray()
    for page in range(0, common, _PAGE):
        kept += random.choice((old, new))[page : min(page + _PAGE, common)]
    # Cuts are metadata: here the file can only have grown since it was synced.
    return bytes(kept) + _torn(new[common:], random)


def _torn(tail: bytes, random: Random) -> bytes:
    """Appended bytes of which only a part reached the device."""
    written = random.choice((len(tail), random.randint(0, len(tail))))
    rest = len(tail) - written
    fate = random.randrange(3)
    if fate == 0:
        return tail[:written]
    return tail[:written] + (bytes(rest) if fate == 1 else random.randbytes(rest))
