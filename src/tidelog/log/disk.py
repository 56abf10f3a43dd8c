"""The disk, as far as the log room needs one; everything else here reaches files through this interface only.

A `File` stays readable as long as somebody holds it: its descriptor is closed when the last reference goes. A slice
of a file that waits in a socket's queue therefore survives that the segment is rolled, renamed or removed meanwhile.

Writes carry their position. A write that fails half-way raises; the caller cuts the file back to where it was.
Durable is only what `sync` was called for: the file for its bytes, the directory for names made, renamed or removed.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
from typing import ClassVar, Final, NamedTuple, Protocol

from tidelog.log.residents import Residents

#: well below the usual vm.max_map_count
_MAX_MAPS: Final = 30_000
BESIDE: Final = ".tmp"
#: of fallocate(2)
_KEEP_SIZE: Final = 1

#: a disk that is full, not broken: the next write may find room again
NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
#: whatever passes by itself: it refuses what was asked, and takes nothing offline
PASSING: Final = NO_ROOM | {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
#: nothing could be opened, and nothing was done
TOO_MANY_FILES: Final = frozenset((errno.EMFILE, errno.ENFILE))
#: something is wrong with one file, not with the disk that it lies on
OF_ONE_FILE: Final = frozenset((errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST))


class Entry(NamedTuple):
    """One name in a directory. `size_bytes` is 0 for a directory."""

    name: str
    is_dir: bool
    size_bytes: int


class Usage(NamedTuple):
    """Room on the volume that holds a directory."""

    total_bytes: int
    usable_bytes: int


class File(Protocol):
    def fileno(self) -> int:
        """The descriptor, for `sendfile`. Belongs to the file: never close it."""
        ...

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Writes all of `data`, or raises OSError and leaves an unknown part of it behind."""
        ...

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Fewer bytes than asked only at the end of the file."""
        ...

    def size(self) -> int: ...

    def truncate(self, size_bytes: int) -> None:
        """Cuts, or grows with a hole that reads as zeros."""
        ...

    def reserve(self, size_bytes: int) -> bool:
        """Takes the room that the file needs to grow to so many bytes, and leaves its size as it is. Raises OSError
        where there is not enough; False where the file system cannot do it. A `truncate` gives back what is not used.
        """
        ...

    def sync(self) -> None:
        """The bytes are on the device when this returns. Blocks: for worker threads."""
        ...

    def map(self, size_bytes: int) -> memoryview:
        """The first bytes of the file as writable memory; `release()` the view to unmap it."""
        ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    #: who holds open log files, and who holds mapped indexes
    files: Residents
    maps: Residents

    def open(self, path: str, create: bool = False, empty: bool = False) -> File:
        """A file to read and write; made where `create` allows it, cut to nothing where it shall be `empty`."""
        ...

    def list(self, path: str) -> list[Entry]: ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def mkdir(self, path: str) -> bool:
        """Makes the directory and its parents; False where it exists already, which is fine."""
        ...

    def rename(self, path: str, new_path: str) -> None: ...

    def remove(self, path: str) -> None:
        """A file that is already gone is fine."""
        ...

    def remove_dir(self, path: str) -> None:
        """An empty directory; one that is already gone is fine."""
        ...

    def sync_dir(self, path: str) -> None: ...

    def sync_all(self, path: str) -> None:
        """Everything on the volume that holds `path` is on the device: cheaper than many files one by one."""
        ...

    def lock(self, path: str) -> Lock | None:
        """An exclusive lock that dies with the process; None where somebody else holds it."""
        ...

    def usage(self, path: str) -> Usage: ...


class SystemFile:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __del__(self) -> None:
        os.close(self._fd)

    def fileno(self) -> int:
        return self._fd

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        written = os.pwrite(self._fd, data, position)
        if written == len(data):
            return
        # A full disk or a signal may take a part; the next attempt either goes on or names the error.
        with memoryview(data) as view:
            while written < len(view):
                written += os.pwrite(self._fd, view[written:], position + written)

    def pread(self, size_bytes: int, position: int) -> bytes:
        data = os.pread(self._fd, size_bytes, position)
        if len(data) == size_bytes or not data:
            return data
        while len(data) < size_bytes:
            more = os.pread(self._fd, size_bytes - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._fd, size_bytes)

    def reserve(self, size_bytes: int) -> bool:
        # Imported here, as in `sync_all`.
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        length = ctypes.c_int64(size_bytes)
        if libc.fallocate(self._fd, _KEEP_SIZE, ctypes.c_int64(0), length) == 0:
            return True
        error = ctypes.get_errno()
        if error in (errno.EOPNOTSUPP, errno.ENOSYS):
            return False
        raise OSError(error, os.strerror(error))

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def map(self, size_bytes: int) -> memoryview:
        return memoryview(mmap.mmap(self._fd, size_bytes))


class SystemLock:
    """A POSIX record lock, the kind that Java's FileChannel takes: the two brokers see each other's."""

    __slots__ = ("_fd", "_path")

    #: a process's second record lock on the same file would succeed, so its own locks are remembered
    held: ClassVar[set[str]] = set()

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd
        SystemLock.held.add(path)

    def release(self) -> None:
        if self._path in SystemLock.held:
            SystemLock.held.discard(self._path)
            os.close(self._fd)


class SystemDisk:
    """The file system. `max_files` bounds the descriptors of log files, and half of it those of index mappings."""

    __slots__ = ("files", "maps")

    def __init__(self, max_files: int | None = None) -> None:
        if max_files is None:
            # Half for log files, a quarter for indexes (a mapping holds a descriptor too), a quarter for sockets.
            max_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        self.files = Residents(max_files)
        self.maps = Residents(min(max_files // 2, _MAX_MAPS))

    def open(self, path: str, create: bool = False, empty: bool = False) -> SystemFile:
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT
        if empty:
            flags |= os.O_TRUNC
        return SystemFile(os.open(path, flags, 0o644))

    def list(self, path: str) -> list[Entry]:
        with os.scandir(path) as entries:
            return [
                Entry(e.name, True, 0) if e.is_dir(follow_symlinks=False) else Entry(e.name, False, e.stat().st_size)
                for e in entries
            ]

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def mkdir(self, path: str) -> bool:
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
            return False
        except FileNotFoundError:
            os.makedirs(path, exist_ok=True)
        return True

    def rename(self, path: str, new_path: str) -> None:
        os.rename(path, new_path)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove_dir(self, path: str) -> None:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, path: str) -> None:
        # Imported here: it takes longer than a broker's start may, and only a stop needs it.
        import ctypes

        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.syncfs(fd) != 0:
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error), path)
        finally:
            os.close(fd)

    def lock(self, path: str) -> SystemLock | None:
        path = os.path.realpath(path)
        if path in SystemLock.held:
            return None
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return SystemLock(path, fd)

    def usage(self, path: str) -> Usage:
        stat = os.statvfs(path)
        return Usage(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)


class AppendedFile:
    """A small file that is opened only while it is used; it appears when something is appended to it."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path

    def append(self, data: bytes) -> None:
        file = self._disk.open(self.path, create=True)
        file.write(data, file.size())

    def read_all(self) -> bytes:
        try:
            return read_file(self._disk, self.path)
        except FileNotFoundError:
            return b""

    def truncate(self, size_bytes: int) -> None:
        try:
            self._disk.open(self.path).truncate(size_bytes)
        except FileNotFoundError:
            pass


def read_file(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    return file.pread(file.size(), 0)


def replace_file(disk: Disk, path: str, data: bytes, sync: bool = True) -> None:
    """Old content or new content, never a mixture: written beside, then renamed over."""
    file = write_beside(disk, path, data)
    if sync:
        file.sync()
    put_in_place(disk, path)
    if sync:
        disk.sync_dir(os.path.dirname(path))


def write_beside(disk: Disk, path: str, data: bytes) -> File:
    """The first half of a replacement."""
    file = disk.open(path + BESIDE, create=True, empty=True)
    file.write(data, 0)
    return file


def put_in_place(disk: Disk, path: str) -> None:
    """The second half of a replacement."""
    disk.rename(path + BESIDE, path)
