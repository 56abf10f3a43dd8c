"""The commit log of a log directory: what all of its partitions append, in one sequence of files.

    tidelog-commit/<20 digits>.commit   entries (`commit_entry.py`); the name is the position of the first byte
    tidelog-commit/checkpoint           a position: all queues know what lies before it, and are on the device

Positions count the bytes ever appended, and only grow. An append is one write at the end of the last file. One sync
makes durable whatever any partition has appended before: those that wait together pay together.

After a crash the entries past the checkpoint are read. What is torn at the end is cut; damage in between costs the
entries that it hit: the next whole one is searched for. A file goes when no queue points into it any more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final, Protocol

from tidelog.log.checkpoints import MalformedCheckpoint, format_lines, parse_lines
from tidelog.log.disk import Disk, File, read_file, replace_file
from tidelog.log.errors import CorruptMessage
from tidelog.log.segment import DELETED, offset_name
from tidelog.log.shared.commit_entry import (
    HEAD_SIZE,
    Entry,
    EntryKind,
    Owner,
    Unreadable,
    next_magic,
    pack_head,
    read_entry,
)

DIRECTORY: Final = "tidelog-commit"
COMMIT: Final = ".commit"
CHECKPOINT: Final = "checkpoint"
_CHUNK_BYTES: Final = 1 << 20


class _CommitFile:
    """One file of a commit log. Only the last one grows."""

    __slots__ = ("_disk", "_file", "base", "path", "size")

    def __init__(self, disk: Disk, directory: str, base: int, size: int) -> None:
        self._disk = disk
        self.path = f"{directory}/{offset_name(base)}{COMMIT}"
        #: the position of its first byte
        self.base = base
        self.size = size
        self._file: File | None = None

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self.path)
            self._disk.files.add(self)
        return file

    def park(self) -> None:
        if self._file is not None:
            self._file = None
            self._disk.files.discard(self)


class Queueing(Protocol):
    """A segment whose queue points into the commit log."""

    def write(self) -> None:
        """Writes what is only in memory."""
        ...

    @property
    def index_paths(self) -> tuple[str, ...]: ...


class CommitLog:
    __slots__ = (
        "_bases",
        "_disk",
        "_files",
        "_names_given",
        "_names_synced",
        "_segment_bytes",
        "_unsynced",
        "checkpoint",
        "damages",
        "dirty",
        "has_let_go",
        "path",
        "reclaimed",
        "renewals",
        "renewals_synced",
        "synced",
    )

    def __init__(self, disk: Disk, directory: str, segment_bytes: int) -> None:
        """Opens what is there. May raise OSError."""
        self._disk = disk
        self.path = f"{directory}/{DIRECTORY}"
        self._segment_bytes = segment_bytes
        disk.mkdir(self.path)
        entries = disk.list(self.path)
        for entry in entries:
            if entry.name.endswith(DELETED):
                disk.remove(f"{self.path}/{entry.name}")
        found = [(int(e.name[:20]), e.size_bytes) for e in entries if e.name.endswith(COMMIT)]
        self._files = [_CommitFile(disk, self.path, base, size) for base, size in sorted(found)]
        self._bases = [file.base for file in self._files]
        #: up to where a start need not read
        self.checkpoint = max(self._read_checkpoint(), self.first)
        #: everything before it is on the device
        self.synced = 0
        #: files that were made since the directory was synced, as counts
        self._names_given = 1
        self._names_synced = 0
        #: files that hold what is not on the device, by their bases
        self._unsynced: dict[int, _CommitFile] = {file.base: file for file in self._files}
        #: segments whose queues are not on the device as they are
        self.dirty: set[Queueing] = set()
        #: the base of the last file that was reclaimed
        self.reclaimed = -1
        #: queues that were renamed, as counts: all, and those that are known to be on the device
        self.renewals = self.renewals_synced = 0
        #: some queue has let go of entries since files were last given up
        self.has_let_go = True
        #: what `tail` has found damaged, for people
        self.damages: list[str] = []

    def _read_checkpoint(self) -> int:
        """0 where there is none, or it is torn: everything is read then."""
        path = f"{self.path}/{CHECKPOINT}"
        try:
            ((position,),) = parse_lines(read_file(self._disk, path), path, 1)
            return int(position)
        except (FileNotFoundError, MalformedCheckpoint, ValueError):
            return 0

    @property
    def first(self) -> int:
        """The position of the first byte that is still there."""
        return self._bases[0] if self._bases else 0

    @property
    def end(self) -> int:
        """Where the next entry goes."""
        if not self._files:
            return 0
        last = self._files[-1]
        return last.base + last.size

    # --- appending

    def append(
        self,
        owner: Owner,
        kind: EntryKind,
        base_offset: int,
        last_offset: int,
        previous: int,
        records: bytes | memoryview,
    ) -> int:
        """Writes one entry; returns the position of what it carries. If it raises, nothing was appended."""
        size_bytes = HEAD_SIZE + len(records)
        last = self._files[-1] if self._files else None
        if last is None or (last.size and last.size + size_bytes > self._segment_bytes):
            last = self._roll()
        position = last.base + last.size
        head = pack_head(owner, kind, position, base_offset, last_offset, previous, records)
        file = last.file
        try:
            file.write(b"".join((head, records)), last.size)
        except OSError:
            file.truncate(last.size)
            raise
        last.size += size_bytes
        self._unsynced[last.base] = last
        return position + HEAD_SIZE

    def _roll(self) -> _CommitFile:
        file = _CommitFile(self._disk, self.path, self.end, 0)
        self._disk.open(file.path, create=True, empty=True)
        self._names_given += 1
        self._files.append(file)
        self._bases.append(file.base)
        return file

    # --- syncing

    def sync_work(self) -> Callable[[], None]:
        """What puts everything that was appended so far on the device; to be called on any thread.

        Of several that wait, the first one to run does the work of all.
        """
        end, names = self.end, self._names_given
        for base in [base for base, file in self._unsynced.items() if base + file.size <= self.synced]:
            del self._unsynced[base]
        # Of the files as they are open now: another thread must not open them.
        syncs = [file.file.sync for file in self._unsynced.values()]
        last = self._files[-1] if self._files else None

        def sync() -> None:
            if self.synced >= end or last is None:
                return
            # With what was appended since this was asked for: whoever waits for that has nothing left to do.
            covered = last.base + last.size
            for sync_file in syncs:
                sync_file()
            if self._names_synced < names:
                self._disk.sync_dir(self.path)
                self._names_synced = names
            self.synced = max(self.synced, covered)

        return sync

    def move_checkpoint(self, position: int) -> None:
        """All queues know what lies before `position` and, like it, are on the device."""
        if position > self.checkpoint:
            self._write_checkpoint(position)

    def _write_checkpoint(self, position: int) -> None:
        replace_file(self._disk, f"{self.path}/{CHECKPOINT}", format_lines([str(position)]))
        self.checkpoint = position

    # --- reading

    def locate(self, position: int, size_bytes: int) -> tuple[File, int]:
        """The file that holds what stands at `position`, and where in it."""
        at = bisect_right(self._bases, position) - 1
        if at < 0 or position + size_bytes > self._bases[at] + self._files[at].size:
            raise CorruptMessage(f"{self.path} holds no batch at position {position}")
        file = self._files[at]
        return file.file, position - file.base

    def path_of(self, position: int, size_bytes: int) -> tuple[str, int]:
        """As `locate`, for people: the path of the file."""
        _, at = self.locate(position, size_bytes)
        return self._files[bisect_right(self._bases, position) - 1].path, at

    def tail(self) -> dict[Owner, list[Entry]]:
        """After a start: the entries past the checkpoint, by the partitions that they belong to, in their order.

        What is torn at the end is cut off; what is damaged before it is passed over. May raise OSError.
        """
        found: dict[Owner, list[Entry]] = {}
        for file in self._files[max(bisect_right(self._bases, self.checkpoint) - 1, 0) :]:
            end = self._read_file(file, max(self.checkpoint - file.base, 0), found)
            if end < file.size and file is self._files[-1]:
                self.damages.append(f"{file.path} is damaged at byte {end}, and {file.size - end} bytes are truncated")
                file.file.truncate(end)
                file.size = end
        if self.end < self.checkpoint:
            # Somebody cut it. No queue may be trusted with what is appended there next.
            self.damages.append(f"{self.path} ends at {self.end}, and not at {self.checkpoint} or later")
            self._write_checkpoint(self.end)
        return found

    def _read_file(self, file: _CommitFile, at: int, found: dict[Owner, list[Entry]]) -> int:
        """Reads the entries of one file from a byte on; returns where the last whole one ends."""
        end = at
        chunk, chunk_at = memoryview(b""), at
        while at < file.size:
            try:
                entry, size_bytes = read_entry(chunk, at - chunk_at, file.base + at)
            except Unreadable as unreadable:
                wanted = max(unreadable.size_bytes or 0, _CHUNK_BYTES)
                if chunk_at != at or len(chunk) < min(wanted, file.size - at):
                    # It may only have been cut off by the end of what was read.
                    chunk, chunk_at = memoryview(file.file.pread(min(wanted, file.size - at), at)), at
                    continue
                at = self._next_entry(file, at + 1)
                continue
            if end < at:
                self.damages.append(f"{file.path} is damaged from byte {end} to {at}")
            found.setdefault(entry.owner, []).append(entry)
            at += size_bytes
            end = at
        return end

    def _next_entry(self, file: _CommitFile, at: int) -> int:
        """Where the next entry may begin; the end of the file where none does."""
        while at < file.size:
            data = file.file.pread(_CHUNK_BYTES, at)
            magic_at = next_magic(data, 0)
            if magic_at >= 0:
                return at + magic_at
            if at + len(data) >= file.size:
                break
            at += len(data) - HEAD_SIZE
        return file.size

    # --- reclaiming

    @property
    def can_reclaim(self) -> bool:
        """Whether the oldest file is one that a start would not read, and was not reclaimed already."""
        return len(self._files) > 1 and self._bases[1] <= self.checkpoint and self.first != self.reclaimed

    @property
    def end_of_first(self) -> int:
        return self._files[0].base + self._files[0].size

    def read_first_file(self, position: int, size_bytes: int) -> tuple[list[Entry], int]:
        """The entries of the oldest file from a position on, and where the next ones stand."""
        file = self._files[0]
        chunk = memoryview(file.file.pread(size_bytes, position - file.base))
        entries: list[Entry] = []
        at = 0
        while at < len(chunk):
            try:
                entry, entry_bytes = read_entry(chunk, at, position + at)
            except Unreadable as unreadable:
                if at:
                    # It may only have been cut off.
                    break
                if (unreadable.size_bytes or 0) > size_bytes:
                    return self.read_first_file(position, unreadable.size_bytes or 0)
                # Where a queue points at something that was passed over, the file is not given up.
                return entries, file.base + self._next_entry(file, position - file.base + 1)
            entries.append(entry)
            at += entry_bytes
        return entries, position + at

    # --- leaving

    def drop_below(self, position: int) -> list[str]:
        """Takes out the files that end at or before `position`, but never the last; returns their new paths."""
        keep = max(min(bisect_right(self._bases, position) - 1, len(self._files) - 1), 0)
        dropped, self._files = self._files[:keep], self._files[keep:]
        del self._bases[:keep]
        for file in dropped:
            file.park()
            self._unsynced.pop(file.base, None)
            self._disk.rename(file.path, file.path + DELETED)
        return [file.path + DELETED for file in dropped]

    def park(self) -> None:
        for file in self._files:
            file.park()
