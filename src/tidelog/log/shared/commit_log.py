"""The commit log of a log directory: what all of its partitions append, in one sequence of files.

    tidelog-commit/<20 digits>.commit   entries (`commit_entry.py`); the name is the position of the first byte
    tidelog-commit/checkpoint           a position: all queues know what lies before it, and are on the device
    tidelog-commit/reserve              room that is kept back (`commit_reserve.py`)

Positions count the bytes ever appended, and only grow. Appends go to the end of the last file, each with a write; or,
where somebody sees to it (`on_put_off`), all of a while with one. Room for what is put off is reserved before: when it
is written, offsets were given away that nobody can take back. Until then nobody is told of it, and whoever reads it has
it written first. One sync makes durable whatever any partition has appended before: those that wait together pay
together.

After a crash the entries past the checkpoint are read. What is torn at the end is cut; damage in between, be it a file
that is short or missing, is told and passed over: the next whole entry is searched for. What that costs is for the
partitions to say (`directories.queue_recovery`). A file goes when no queue points into it any more.
"""

from __future__ import annotations

import errno
import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from typing import Final, Protocol

from tidelog.log.checkpoints import MalformedCheckpoint, format_lines, parse_lines
from tidelog.log.disk import NO_ROOM, TOO_MANY_FILES, Disk, File, read_file, replace_file
from tidelog.log.errors import CorruptMessage
from tidelog.log.segment import offset_name
from tidelog.log.shared import COMMIT_DIRECTORY
from tidelog.log.shared.commit_entry import (
    HEAD_SIZE,
    Entry,
    EntryKind,
    Owner,
    Unreadable,
    next_magic,
    pack_head,
    read_entry,
    read_head,
)
from tidelog.log.shared.commit_reserve import CommitReserve

COMMIT: Final = ".commit"
CHECKPOINT: Final = "checkpoint"
_CHUNK_BYTES: Final = 1 << 20
#: how much is put off at most
_MOST_PUT_OFF_BYTES: Final = 1 << 20
#: how much room is reserved at once
_RESERVED_BYTES: Final = 8 << 20


class CommitFile:
    """One file of a commit log. Only the last one grows."""

    __slots__ = ("_disk", "_file", "base", "path", "reserved", "size", "written")

    def __init__(self, disk: Disk, directory: str, base: int, size: int) -> None:
        self._disk = disk
        self.path = f"{directory}/{offset_name(base)}{COMMIT}"
        #: the position of its first byte
        self.base = base
        #: with what is put off
        self.size = size
        #: without
        self.written = size
        #: so far it can grow without running out of room
        self.reserved = 0
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

    def park_all(self) -> None:
        """It leaves: nothing of it is written any more."""
        ...


class Tail:
    """The entries past the checkpoint: where those of each partition stand, and not what is in them, for there may be
    more of them than there is memory."""

    __slots__ = ("_commit", "_found")

    def __init__(self, commit: CommitLog) -> None:
        self._commit = commit
        #: position and size, in turns
        self._found: dict[Owner, array[int]] = {}

    def add(self, entry: Entry, size_bytes: int) -> None:
        found = self._found.get(entry.owner)
        if found is None:
            found = self._found[entry.owner] = array("q")
        found.append(entry.position)
        found.append(size_bytes)

    @property
    def owners(self) -> Collection[Owner]:
        return self._found.keys()

    def of(self, owner: Owner) -> Iterator[Entry]:
        """In their order."""
        found = self._found.get(owner, ())
        for at in range(0, len(found), 2):
            yield self._commit.entry_at(found[at], found[at + 1])


class CommitLog:
    __slots__ = (
        "_bases",
        "_damaged",
        "_disk",
        "_files",
        "_is_damage_unknown",
        "_leftover",
        "_names_given",
        "_names_synced",
        "_put_off",
        "_put_off_bytes",
        "_saving",
        "_segment_bytes",
        "_sync_asked",
        "_sync_failure",
        "_unsynced",
        "checkpoint",
        "damages",
        "dirty",
        "has_let_go",
        "lacked_room",
        "on_put_off",
        "path",
        "reclaimed",
        "renewals",
        "renewals_synced",
        "reserve",
        "synced",
    )

    def __init__(self, disk: Disk, directory: str, segment_bytes: int) -> None:
        """Opens what is there. May raise OSError."""
        self._disk = disk
        self.path = f"{directory}/{COMMIT_DIRECTORY}"
        self._segment_bytes = segment_bytes
        disk.mkdir(self.path)
        entries = disk.list(self.path)
        found = [(int(e.name[:20]), e.size_bytes) for e in entries if e.name.endswith(COMMIT)]
        self._files = [CommitFile(disk, self.path, base, size) for base, size in sorted(found)]
        self._bases = [file.base for file in self._files]
        #: up to where a start need not read
        self.checkpoint = self._read_checkpoint() or self.first
        #: everything before it is on the device
        self.synced = 0
        #: files that were made since the directory was synced, as counts
        self._names_given = 1
        self._names_synced = 0
        #: what a sync should have written may be dropped, and the next one succeed all the same
        self._sync_failure: OSError | None = None
        #: the last work that was asked for: up to which end and which name, and the work
        self._sync_asked: tuple[tuple[int, int], Callable[[], None]] | None = None
        #: files that hold what is not on the device, by their bases
        self._unsynced: dict[int, CommitFile] = {file.base: file for file in self._files}
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
        #: whose entries these are, as far as that can be read, and where the first one stands
        self._damaged: dict[Owner, int] = {}
        self._is_damage_unknown = False
        #: the last file has more than it should: cut off before anything is written, when all logs know what it was
        self._leftover = False
        #: kept back for checkpoints and for reclaiming
        self.reserve = CommitReserve(disk, self.path)
        #: somebody is at work with what was given up for it
        self._saving = False
        #: the last of them has found no room nevertheless
        self.lacked_room = False
        #: where it is set, appends are put off: it is told of each, and calls `write_out` soon
        self.on_put_off: Callable[[], None] | None = None
        self._put_off: list[bytes] = []
        self._put_off_bytes = 0

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
        *,
        at_once: bool = False,
    ) -> int:
        """Adds one entry; returns the position of what it carries. If it raises, nothing was appended.

        What is appended `at_once` is not put off.
        """
        size_bytes = HEAD_SIZE + len(records)
        last = self._files[-1] if self._files else None
        if last is None or (last.size and last.size + size_bytes > self._segment_bytes):
            if self._saving:
                self._refuse(kind)
            last = self._roll()
        elif self._saving and last.size + size_bytes > last.reserved:
            self._refuse(kind)
        position = last.base + last.size
        head = pack_head(owner, kind, position, base_offset, last_offset, previous, records)
        entry = b"".join((head, records))
        if at_once or self.on_put_off is None or not self._has_room(last, last.size + size_bytes):
            self._write_now(last, entry)
        else:
            if self._put_off_bytes + size_bytes > _MOST_PUT_OFF_BYTES:
                self.write_out()
            self._put_off.append(entry)
            self._put_off_bytes += size_bytes
            last.size += size_bytes
            self._unsynced[last.base] = last
            self.on_put_off()
        return position + HEAD_SIZE

    def _write_now(self, last: CommitFile, entry: bytes) -> None:
        self.write_out()
        self.cut_leftover()
        file = last.file
        try:
            file.write(entry, last.size)
        except OSError:
            last.reserved = 0
            file.truncate(last.size)
            raise
        last.size += len(entry)
        last.written = last.size
        self._unsynced[last.base] = last

    def _has_room(self, last: CommitFile, size_bytes: int) -> bool:
        """Whether a put-off write cannot fail for want of room. Raises OSError where there is none."""
        if size_bytes <= last.reserved:
            return True
        ahead = min(size_bytes + _RESERVED_BYTES, max(self._segment_bytes, size_bytes))
        if self._saving:
            ahead = size_bytes
        try:
            reserved = last.file.reserve(ahead)
        except OSError as error:
            if error.errno not in NO_ROOM or ahead == size_bytes:
                raise
            ahead = size_bytes
            reserved = last.file.reserve(ahead)
        if reserved:
            last.reserved = ahead
        return reserved

    @property
    def has_put_off(self) -> bool:
        """Something was appended that is not written."""
        return bool(self._put_off)

    def write_out(self) -> None:
        """Writes what was put off. If it raises, it still is."""
        if self._put_off:
            self.cut_leftover()
            last = self._files[-1]
            last.file.write(b"".join(self._put_off), last.written)
            last.written = last.size
            self._put_off.clear()
            self._put_off_bytes = 0

    def _roll(self) -> CommitFile:
        # Should there be no room for another file, this one may go on.
        self.give_back_ahead()
        file = CommitFile(self._disk, self.path, self.end, 0)
        self._disk.open(file.path, create=True, empty=True)
        self._names_given += 1
        self._files.append(file)
        self._bases.append(file.base)
        return file

    # --- saving room

    @property
    def is_saving(self) -> bool:
        return self._saving

    def begin_saving(self, is_everything_needed: bool) -> None:
        """Room is scarce, and somebody is about to make some: gives up what is kept back for that and, where that is
        not enough, what is reserved ahead. Until `end_saving` batches that need more than is reserved are refused, so
        that they cannot take it. May raise OSError."""
        if is_everything_needed or not self.reserve.size_bytes:
            self.give_back_ahead()
        self.reserve.give()
        self._saving = True

    def end_saving(self, wanted: int) -> None:
        """Before anybody else can take it, what is left is kept back again, up to so many bytes."""
        self._saving = False
        self.reserve.fill(wanted)

    @staticmethod
    def _refuse(kind: EntryKind) -> None:
        if kind is EntryKind.BATCHES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def give_back_ahead(self) -> None:
        """Gives back what was reserved and is not used. May raise OSError."""
        self.write_out()
        if self._files and self._files[-1].reserved:
            self._files[-1].reserved = 0
            self._files[-1].file.truncate(self._files[-1].size)

    # --- syncing

    def sync_work(self) -> Callable[[], None]:
        """What puts everything that was appended so far on the device; to be called on any thread.

        Of several that wait, the first one to run does the work of all. May raise OSError; then all later ones do.
        """
        self.write_out()
        end, names = self.end, self._names_given
        asked = self._sync_asked
        if asked is not None and asked[0] == (end, names):
            # One for all logs that are flushed in this turn.
            return asked[1]
        for base in [base for base, file in self._unsynced.items() if base + file.size <= self.synced]:
            del self._unsynced[base]
        # Of the files as they are open now: another thread must not open them.
        syncs = [file.file.sync for file in self._unsynced.values()]
        last = self._files[-1] if self._files else None

        def sync_files() -> None:
            for sync_file in syncs:
                sync_file()
            if self._names_synced < names:
                self._disk.sync_dir(self.path)

        def sync() -> None:
            if self.synced >= end or last is None:
                return
            # With what was appended since this was asked for: whoever waits for that has nothing left to do.
            self._sync_to(last.base + last.written, sync_files)
            self._names_synced = max(self._names_synced, names)
            # The work may be kept for long, and open files with it.
            syncs.clear()

        self._sync_asked = (end, names), sync
        return sync

    def sync_by(self, sync: Callable[[], None]) -> None:
        """Has a sync of the whole volume count as one of this; on any thread. May raise OSError; then all later ones
        do."""
        last = self._files[-1] if self._files else None
        self._sync_to(0 if last is None else last.base + last.written, sync)

    def _sync_to(self, covered: int, sync: Callable[[], None]) -> None:
        """What lies before `covered` is on the device when `sync` has succeeded. May raise OSError."""
        try:
            sync()
        except OSError as error:
            if error.errno not in TOO_MANY_FILES:
                self._sync_failure = error
            raise
        self.note_synced(covered)

    def note_synced(self, position: int) -> None:
        """A sync of what lies before `position` has succeeded. Raises OSError where one has failed before."""
        failure = self._sync_failure
        if failure is not None:
            raise OSError(errno.EIO, f"a sync has failed ({failure.strerror})", self.path) from failure
        self.synced = max(self.synced, position)

    def move_checkpoint(self, position: int) -> None:
        """All queues know what lies before `position` and, like it, are on the device."""
        if position > self.checkpoint:
            self._write_checkpoint(position)

    def forget_queues(self, path: str) -> None:
        """Those in a directory, of a log that could not be opened: nothing of them is written any more."""
        for segment in [each for each in self.dirty if each.index_paths[0].startswith(f"{path}/")]:
            segment.park_all()

    def _write_checkpoint(self, position: int) -> None:
        replace_file(self._disk, f"{self.path}/{CHECKPOINT}", format_lines([str(position)]))
        self.checkpoint = position

    # --- reading

    def locate(self, position: int, size_bytes: int) -> tuple[File, int]:
        """The file that holds what stands at `position`, and where in it."""
        at = bisect_right(self._bases, position) - 1
        if at < 0 or size_bytes < 0 or position + size_bytes > self._bases[at] + self._files[at].size:
            raise CorruptMessage(f"{self.path} holds no batch at position {position}")
        file = self._files[at]
        if position + size_bytes > file.base + file.written:
            self.write_out()
        return file.file, position - file.base

    def file_at(self, position: int) -> tuple[str, int]:
        """For people: the path of the file that holds, or should hold, what stands at `position`, and where in it."""
        file = self._files[max(bisect_right(self._bases, position) - 1, 0)]
        return file.path, position - file.base

    def entry_at(self, position: int, size_bytes: int) -> Entry:
        """One that is known to stand there. May raise Unreadable, should it be damaged by now."""
        file, at = self.locate(position, size_bytes)
        return read_entry(memoryview(file.pread(size_bytes, at)), 0, position)[0]

    def is_of_another(self, place: int, owner: Owner) -> bool:
        """Whether a batch is the first of an entry that belongs to another partition."""
        position = place - HEAD_SIZE
        if position < self.base_of(place):
            return False
        file, at = self.locate(position, HEAD_SIZE)
        head = read_head(file.pread(HEAD_SIZE, at), position)
        return head is not None and head.owner != owner

    def tail(self) -> Tail:
        """After a start: the entries past the checkpoint.

        What is torn at the end is cut off; what is damaged before it is passed over. May raise OSError.
        """
        found = Tail(self)
        for first, end in self.gaps():
            self.damages.append(f"{self.path} has nothing from {first} to {end}: a file is short or missing")
            self._is_damage_unknown = True
        for at_file, file in enumerate(self._files):
            follows = self._bases[at_file + 1] if at_file + 1 < len(self._files) else None
            if follows is not None and follows <= self.checkpoint:
                continue
            end = max(self.checkpoint - file.base, 0)
            for entry, size_bytes in self._entries(file, end):
                at = entry.position - file.base
                if end < at:
                    self._note_damage(file, end, at)
                found.add(entry, size_bytes)
                damaged_at = self._damaged.get(entry.owner)
                is_later = entry.kind is not EntryKind.MOVED and entry.previous < (damaged_at or 0)
                if damaged_at is not None and (is_later or entry.kind is EntryKind.START):
                    # It was written by one that knew: by what this tells, the log ended before.
                    del self._damaged[entry.owner]
                end = at + size_bytes
            if follows is not None:
                # Past the next file's first byte there may be what was reserved.
                if end < (stands := min(file.size, follows - file.base)):
                    self._note_damage(file, end, stands)
            elif end < file.size:
                self._note_owners(file, end, file.size)
                self.damages.append(f"{file.path} is damaged at byte {end}, and {file.size - end} bytes are truncated")
                file.size = file.written = end
                self._leftover = True
        if self.end < self.checkpoint:
            # Somebody cut it. No queue may be trusted with what is appended there next.
            self.damages.append(f"{self.path} ends at {self.end}, and not at {self.checkpoint} or later")
            self._write_checkpoint(self.end)
        return found

    def _note_damage(self, file: CommitFile, at: int, end: int) -> None:
        self.damages.append(f"{file.path} is damaged from byte {at} to {end}")
        self._note_owners(file, at, end)

    def _note_owners(self, file: CommitFile, at: int, end: int) -> None:
        """Whose entries stand in what cannot be read; the beginning of one that was being written does not count."""
        while at + HEAD_SIZE <= end:
            position = file.base + at
            head = read_head(file.file.pread(HEAD_SIZE, at), position)
            if head is None:
                self._is_damage_unknown = True
                return
            at += head.size_bytes
            if at <= end and head.kind is not EntryKind.MOVED:
                self._damaged.setdefault(head.owner, position)

    def may_be_damaged(self, owner: Owner) -> bool:
        """Whether what `tail` could not read was, or may have been, the end of this log."""
        return self._is_damage_unknown or owner in self._damaged

    def cut_leftover(self) -> None:
        """What is behind the last entry goes for good. May raise OSError."""
        if self._leftover:
            self._files[-1].file.truncate(self._files[-1].size)
            self._leftover = False

    def gaps(self) -> list[tuple[int, int]]:
        """Where files are short, or missing, past the checkpoint: from a position to another one."""
        ends = [0, *(file.base + file.size for file in self._files)]
        gaps = [(max(end, self.checkpoint), base) for end, base in zip(ends, self._bases, strict=False)]
        return [(end, base) for end, base in gaps if end < base]

    def holes(self) -> list[tuple[int, int]]:
        """Where there is no file between two others, or one of them is short, before the checkpoint."""
        ends = (file.base + file.size for file in self._files)
        return [
            (end, base)
            for end, base in zip(ends, self._bases[1:], strict=False)
            if end < base and end < self.checkpoint
        ]

    def ends_whole(self, position: int) -> bool:
        """Whether the file that ends at a position ends with a whole entry. May raise OSError."""
        end = -1
        for file in self._files:
            if file.base + file.size == position:
                for entry, size_bytes in self._entries(file, 0):
                    end = entry.position + size_bytes
        return end == position

    def past(self) -> Tail:
        """The entries before the checkpoint, as far as they are still there and whole. May raise OSError."""
        found = Tail(self)
        for file in self._files:
            for entry, size_bytes in self._entries(file, 0):
                if entry.position >= self.checkpoint:
                    return found
                found.add(entry, size_bytes)
        return found

    def _entries(self, file: CommitFile, at: int) -> Iterator[tuple[Entry, int]]:
        """The whole entries of a file from a byte on, and their sizes; between them there may be damage."""
        chunk, chunk_at = b"", at
        # Held meanwhile: it may leave the commit log before the last entry was asked for.
        held = file.file
        while at < file.size:
            try:
                entry, size_bytes = read_entry(memoryview(chunk), at - chunk_at, file.base + at)
            except Unreadable as unreadable:
                wanted = min(unreadable.wanted_bytes, file.size - at)
                if at - chunk_at + wanted > len(chunk):
                    # It is only cut off by the end of what was read.
                    chunk, chunk_at = held.pread(max(wanted, _CHUNK_BYTES), at), at
                else:
                    at = chunk_at + next_magic(chunk, at + 1 - chunk_at)
                continue
            yield entry, size_bytes
            at += size_bytes

    # --- reclaiming

    @property
    def can_reclaim(self) -> bool:
        """Whether the oldest file is one that a start would not read, and was not reclaimed already."""
        return len(self._files) > 1 and self._bases[1] <= self.checkpoint and self.first != self.reclaimed

    @property
    def end_of_first(self) -> int:
        return self._files[0].base + self._files[0].size

    def entries_of_first(self) -> Iterator[tuple[Entry, int]]:
        """The whole entries of the oldest file, and their sizes."""
        return self._entries(self._files[0], 0)

    def entries_of(self, base: int) -> Iterator[tuple[Entry, int]]:
        """The whole entries of the file that begins there, if it is still there, and their sizes."""
        for file in self._files:
            if file.base == base:
                yield from self._entries(file, 0)

    def bases_up_to(self, position: int) -> list[int]:
        """Of the files that end at or before a position, but for the last."""
        return [file.base for file in self._files[:-1] if file.base + file.size <= position]

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(file.size for file in self._files)

    def base_of(self, position: int) -> int:
        """Of the file that holds, or should hold, what stands there."""
        return self._bases[max(bisect_right(self._bases, position) - 1, 0)]

    # --- leaving

    def dead(self, alive: Collection[int], checkpoint: int) -> list[CommitFile]:
        """The files that end at or before the checkpoint, but for those with these bases, and never the last."""
        return [file for file in self._files[:-1] if file.base not in alive and file.base + file.size <= checkpoint]

    def below(self, position: int) -> list[CommitFile]:
        """The files that end at or before `position`, but never the last."""
        return self._files[: max(min(bisect_right(self._bases, position) - 1, len(self._files) - 1), 0)]

    def drop(self, dropped: list[CommitFile]) -> list[str]:
        """Takes files out; returns their paths."""
        self._files = [file for file in self._files if file not in dropped]
        self._bases = [file.base for file in self._files]
        for file in dropped:
            file.park()
            self._unsynced.pop(file.base, None)
        self._sync_asked = None
        return [file.path for file in dropped]

    def close(self) -> None:
        """Gives descriptors back, and room that was reserved and not used."""
        if self._files and self._files[-1].reserved:
            self._files[-1].file.truncate(self._files[-1].written)
        self._sync_asked = None
        for file in self._files:
            file.park()
