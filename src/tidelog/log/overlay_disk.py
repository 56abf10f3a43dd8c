"""A disk that keeps every change to itself: what is on the real one is read, and never touched.

Recovery can be tried on it, to see what it would do. A file is held in memory from its first write on; cutting a file
holds nothing. Locks are given to whoever asks.
"""

from __future__ import annotations

import errno
import os
from typing import Any, Final

from tidelog.log.disk import Entry, Usage
from tidelog.log.residents import Residents

_GONE: Final = object()


class _Content:
    """A file as it would be: the first bytes of a real one, or bytes in memory."""

    __slots__ = ("data", "real_path", "size")

    def __init__(self, real_path: str | None, size: int) -> None:
        self.real_path = real_path
        self.size = size
        self.data: bytearray | None = None if real_path is not None else bytearray()

    def read(self, size_bytes: int, position: int) -> bytes:
        if self.data is not None:
            return bytes(self.data[position : position + size_bytes])
        assert self.real_path is not None
        with open(self.real_path, "rb", buffering=0) as file:
            file.seek(position)
            return file.read(max(min(size_bytes, self.size - position), 0))

    def own(self) -> bytearray:
        if self.data is None:
            self.data = bytearray(self.read(self.size, 0))
        return self.data


class OverlayFile:
    __slots__ = ("_content",)

    def __init__(self, content: _Content) -> None:
        self._content = content

    def fileno(self) -> int:
        raise OSError(errno.ENOTSUP, "a file of an overlay has no descriptor")

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        own = self._content.own()
        if position > len(own):
            own.extend(bytes(position - len(own)))
        own[position : position + len(data)] = data
        self._content.size = len(own)

    def pread(self, size_bytes: int, position: int) -> bytes:
        return self._content.read(size_bytes, position)

    def size(self) -> int:
        return self._content.size

    def truncate(self, size_bytes: int) -> None:
        content = self._content
        if content.data is None and size_bytes <= content.size:
            content.size = size_bytes
            return
        own = content.own()
        # Not cut in place: somebody may still hold a view of it.
        content.data = own[:size_bytes] + bytes(max(size_bytes - len(own), 0))
        content.size = size_bytes

    def reserve(self, size_bytes: int) -> bool:
        return True

    def sync(self) -> None:
        return

    def map(self, size_bytes: int) -> memoryview:
        return memoryview(bytearray(self.pread(size_bytes, 0)))


class _Unlocked:
    def release(self) -> None:
        return


class OverlayDisk:
    __slots__ = ("_names", "files", "maps")

    def __init__(self) -> None:
        self.files = Residents(64)
        self.maps = Residents(64)
        #: what is not as on the real disk, by path: a content, None for a directory, `_GONE`
        self._names: dict[str, Any] = {}

    def open(self, path: str, create: bool = False, empty: bool = False) -> OverlayFile:
        content = self._names.get(path)
        if content is None or content is _GONE:
            if content is None and os.path.isfile(path):
                content = _Content(path, os.stat(path).st_size)
            elif create and self.exists(os.path.dirname(path)):
                content = _Content(None, 0)
            else:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._names[path] = content
        file = OverlayFile(content)
        if empty:
            file.truncate(0)
        return file

    def list(self, path: str) -> list[Entry]:
        found: dict[str, Entry] = {}
        if self._names.get(path) is not _GONE and os.path.isdir(path):
            with os.scandir(path) as entries:
                for e in entries:
                    is_dir = e.is_dir(follow_symlinks=False)
                    found[e.name] = Entry(e.name, is_dir, 0 if is_dir else e.stat().st_size)
        elif path not in self._names or self._names[path] is _GONE:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        for name, content in self._names.items():
            parent, _, last = name.rpartition("/")
            if parent == path:
                found.pop(last, None)
                if content is not _GONE:
                    found[last] = Entry(last, content is None, 0 if content is None else content.size)
        return list(found.values())

    def exists(self, path: str) -> bool:
        return self._names[path] is not _GONE if path in self._names else os.path.exists(path)

    def size(self, path: str) -> int:
        return self.open(path).size()

    def modified_ms(self, path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return 0

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        return

    def mkdir(self, path: str) -> bool:
        if self.exists(path):
            return False
        self._names[path] = None
        return True

    def rename(self, path: str, new_path: str) -> None:
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self._is_dir(path):
            self._names[new_path] = None
            for entry in self.list(path):
                self.rename(f"{path}/{entry.name}", f"{new_path}/{entry.name}")
        else:
            self.open(path)
            self._names[new_path] = self._names[path]
        self._names[path] = _GONE

    def _is_dir(self, path: str) -> bool:
        return self._names[path] is None if path in self._names else os.path.isdir(path)

    def remove(self, path: str) -> None:
        self._names[path] = _GONE

    def remove_dir(self, path: str) -> None:
        self._names[path] = _GONE

    def sync_dir(self, path: str) -> None:
        return

    def sync_all(self, path: str) -> None:
        return

    def lock(self, path: str) -> _Unlocked:
        return _Unlocked()

    def usage(self, path: str) -> Usage:
        stat = os.statvfs(path)
        return Usage(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)
