"""Giving back what dead entries occupy: what is alive in the oldest file of a commit log is moved to its end.

Files go by themselves when nothing in them is alive (`upkeep.release_files`). But one partition that keeps its records
for long holds every file in which it has an entry. So when less than half of the commit log is alive, its oldest file
is reclaimed, and so on until it is not less any more. Like a checkpoint this is a generator, taken in slices:

    1. the file is read; batches to which a queue points are appended once more, as MOVED: recovery passes over these
    2. a checkpoint: the copies are on the device, and places before it are trusted by a start
    3. queues get the new places: written beside, synced, renamed over the old one
    4. the names are synced, and the file goes

In a crash before 3 the copies are dead weight. In 3 a queue has either the old places or the new ones, and both are
right until 4. Whether a file may go is for the queues to say: where damage hid something that is alive, it stays.

On a disk that has less room than the oldest file occupies, all queues are gone through first: files in which nothing is
alive go, wherever they stand, and the oldest one is reclaimed if there is room for what is alive in it. Where there is
none at all, what is kept back for this is used (`commit_reserve.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.log.shared.commit_entry import HEAD_SIZE, OF_A_STRAY, Entry, EntryKind, Owner
from tidelog.log.shared.commit_log import CommitLog
from tidelog.log.shared.queue import ENTRY_SIZE
from tidelog.log.shared.queue_segment import QueueSegment
from tidelog.log.shared.upkeep import Logs, Slices, checkpoint_in_slices, remove_dropped, tell_lack_of_room

if TYPE_CHECKING:
    from tidelog.log.log import Log
    from tidelog.log.log_dir import LogDir


def _nothing() -> Slices:
    yield from ()


class Pace(NamedTuple):
    """How fast it may go, and what must not wait for its end."""

    #: called on a worker with how many bytes were gone through; waits where they are too many for the time
    throttle: Callable[[int], None] = lambda size_bytes: None
    #: what is to be done between slices
    between: Callable[[], Slices] = _nothing


#: how many bytes of a file are looked at before others are served
_SLICE_BYTES: Final = 1 << 20
#: what of the last block of a file stays empty counts where there is hardly any room
_BLOCK_BYTES: Final = 4096


def is_worth_it(directory: LogDir, logs: Iterable[Log]) -> bool:
    """Whether so much of the commit log is dead, half or on a full disk a fifth, that its oldest file is reclaimed."""
    commit = directory.commit
    if commit is None or directory.unopened or directory.is_pinned or not commit.can_reclaim:
        return False
    alive = sum(map(_copied_bytes, [*logs, *directory.strays]))
    # Where room is scarce, what is dead is worth more than the copying that it costs.
    scarce = _room(directory) < commit.end_of_first - commit.first
    return commit.size_bytes > (alive * 5 // 4 if scarce else alive * 2)


def _copied_bytes(log: Log) -> int:
    """What a log would occupy if all of it were moved. The heads count: a small batch is smaller than its head, and
    would seem worth moving for ever otherwise."""
    queues = [segment for segment in log.segments if isinstance(segment, QueueSegment)]
    return sum(segment.size + segment.queue.count * HEAD_SIZE for segment in queues)


def make_room_in_slices(directory: LogDir, logs: list[Log]) -> Generator[Callable[[], None] | None, None, bool]:
    """Whether there is room for what is alive in the oldest file: copies that find none half-way would only be more of
    what is dead. Where it is scarce, files in which nothing is alive go first. May raise OSError, CorruptMessage."""
    commit = directory.commit
    assert commit is not None
    if not commit.is_saving and _room(directory) >= commit.end_of_first - commit.first:
        return True
    checkpoint, alive, needed = commit.checkpoint, Counter[int](), 0
    for log in [*logs, *directory.look_after_strays()]:
        for segment in list(log.segments):
            if isinstance(segment, QueueSegment):
                in_first = _count_alive(commit, segment, alive)
                needed += in_first + (segment.queue.count * ENTRY_SIZE if in_first else 0)
                needed += 2 * _BLOCK_BYTES if in_first and commit.is_saving else 0
        yield None
    if commit.renewals == commit.renewals_synced:
        owners = {log.store.owner for log in [*logs, *directory.strays] if log.store is not None}
        kept = set(alive)
        for base in commit.bases_up_to(checkpoint):
            if base not in alive and (yield from _tells_of(commit, base, owners)):
                kept.add(base)
        # What queues have let go of must not come back with the power.
        yield directory.sync_volume
        directory.delete_at_once(commit.dead(kept, checkpoint), commit)
        if commit.is_saving:
            # At once: what is moved next needs the room.
            yield from remove_dropped(directory)
    if _room(directory) >= needed:
        return True
    tell_lack_of_room(directory)
    if commit.is_saving:
        commit.lacked_room = True
    return False


def _tells_of(commit: CommitLog, base: int, owners: set[Owner]) -> Generator[Callable[[], None] | None, None, bool]:
    """Whether a file tells of a cut or a start of one of these, in which nothing of them need be alive: what they had
    before may stand in an older file, and must not come back when a queue is made anew."""
    read = 0
    for entry, size_bytes in commit.entries_of(base):
        if entry.kind in (EntryKind.CUT, EntryKind.START) and entry.owner in owners:
            return True
        read += size_bytes
        if read >= _SLICE_BYTES:
            yield None
            read = 0
    return False


def _room(directory: LogDir) -> int:
    return directory.disk.usage(directory.path).usable_bytes


def _count_alive(commit: CommitLog, segment: QueueSegment, alive: Counter[int]) -> int:
    """Adds what a segment has in each file, by their bases; returns what the copies of that in the oldest one take."""
    end, in_first = commit.end_of_first, 0
    for queued in segment.held():
        alive[commit.base_of(queued.place)] += queued.size_bytes
        if queued.place < end:
            in_first += queued.size_bytes + HEAD_SIZE
    return in_first


def reclaim_in_slices(directory: LogDir, logs: Logs, pace: Pace) -> Slices:
    """Reclaims the oldest file.

    `logs` are all that are there. May raise OSError; then nothing has changed but that the commit log is longer.
    """
    commit = directory.commit
    assert commit is not None
    moves = _Moves(commit, logs(), directory.look_after_strays())
    oldest, end = commit.first, commit.end_of_first
    at = slice_begin = oldest
    is_damaged = False
    for entry, size_bytes in commit.entries_of_first():
        is_damaged |= entry.position > at
        moves.add_live(entry)
        at = entry.position + size_bytes
        if at - slice_begin >= _SLICE_BYTES:
            yield partial(pace.throttle, at - slice_begin)
            yield from pace.between()
            slice_begin = at
    if is_damaged or at < end:
        yield from moves.add_damaged(oldest, end)
    yield from checkpoint_in_slices(directory, logs)
    for segment, places in moves.made.items():
        renewal = segment.renewal(places)
        if renewal is None:
            continue
        yield renewal.write
        commit.renewals += 1
        if not renewal.put_in_place():
            # It was cut meanwhile: the next round finds what is left.
            return
    renewals = commit.renewals
    yield directory.sync_volume
    commit.renewals_synced = renewals
    commit.reclaimed = oldest
    commit.has_let_go = True


class _Moves:
    """What was alive in a file, and where its copies are."""

    __slots__ = ("_commit", "_logs", "_owners", "_strays", "made")

    def __init__(self, commit: CommitLog, logs: list[Log], strays: list[Log]) -> None:
        self._commit = commit
        self._strays = list(strays)
        self._logs = [*logs, *strays]
        #: more than one where a partition was set aside and came back
        self._owners: dict[Owner, list[Log]] = defaultdict(list)
        for log in self._logs:
            if log.store is not None:
                self._owners[log.store.owner].append(log)
        #: new places for old ones
        self.made: dict[QueueSegment, dict[int, int]] = defaultdict(dict)

    def add_live(self, entry: Entry) -> None:
        for log in self._owners.get(entry.owner, ()):
            for place, header in entry.batches:
                segment = log.segments.since(header.base_offset)[0]
                if isinstance(segment, QueueSegment) and segment.points_at(header.last_offset, place):
                    self._move(log, segment, place, header.size_bytes, header.base_offset, header.last_offset)

    def add_damaged(self, first: int, end: int) -> Slices:
        """What lies in damaged entries is moved as it is, and no better for it: it must not hold the file for ever."""
        for log in self._logs:
            for segment in log.segments:
                if isinstance(segment, QueueSegment):
                    made = self.made[segment]
                    for queued in segment.held():
                        if first <= queued.place < end and queued.place not in made:
                            offsets = queued.base_offset, queued.last_offset
                            self._move(log, segment, queued.place, queued.size_bytes, *offsets)
            yield None

    def _move(
        self, log: Log, segment: QueueSegment, place: int, size_bytes: int, base_offset: int, last_offset: int
    ) -> None:
        assert log.store is not None
        file, at = self._commit.locate(place, size_bytes)
        records = file.pread(size_bytes, at)
        previous = OF_A_STRAY if log in self._strays else -1
        self.made[segment][place] = self._commit.append(
            log.store.owner, EntryKind.MOVED, base_offset, last_offset, previous, records
        )
