"""Giving back what dead entries occupy: what is alive in the oldest file of a commit log is moved to its end.

Files go by themselves when nothing in them is alive (`upkeep.release_files`). But one partition that keeps its records
for long holds every file in which it has an entry. So when less than half of the commit log is alive, its oldest file
is reclaimed. Like a checkpoint this is a generator, taken in slices:

    1. the file is read; batches to which a queue points are appended once more, as MOVED: recovery passes over these
    2. a checkpoint: the copies are on the device, and places before it are trusted by a start
    3. queues get the new places: written beside, synced, renamed over the old one
    4. the names are synced, and the file goes

In a crash before 3 the copies are dead weight. In 3 a queue has either the old places or the new ones, and both are
right until 4. Whether a file may go is for the queues to say: where damage hid something that is alive, it stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.log.shared.commit_entry import Entry, EntryKind, Owner
from tidelog.log.shared.commit_log import CommitLog
from tidelog.log.shared.queue_segment import QueueSegment
from tidelog.log.shared.upkeep import Slices, checkpoint_in_slices

if TYPE_CHECKING:
    from tidelog.log.log import Log
    from tidelog.log.log_dir import LogDir

#: how many bytes of a file are looked at before others are served
_SLICE_BYTES: Final = 1 << 20


def is_worth_it(directory: LogDir, logs: Iterable[Log]) -> bool:
    """Whether more than half of the commit log is dead, and its oldest file can be reclaimed."""
    commit = directory.commit
    if commit is None or directory.unopened or directory.is_pinned or not commit.can_reclaim:
        return False
    alive = sum(log.size_bytes for log in logs if log.store is not None)
    return commit.end - commit.first > 2 * alive


def reclaim_in_slices(directory: LogDir, logs: list[Log]) -> Slices:
    """Reclaims the oldest file.

    `logs` are all that are there. May raise OSError; then nothing has changed but that the commit log is longer.
    """
    commit = directory.commit
    assert commit is not None
    oldest = commit.first
    owners = {log.store.owner: log for log in logs if log.store is not None}
    moves: dict[QueueSegment, dict[int, int]] = defaultdict(dict)
    at = oldest
    while at < commit.end_of_first:
        entries, at = commit.read_first_file(at, _SLICE_BYTES)
        for entry in entries:
            _move_live(commit, owners, entry, moves)
        yield None
    yield from checkpoint_in_slices(directory)
    for segment, places in moves.items():
        renewal = segment.renewal(places)
        yield renewal.write
        commit.renewals += 1
        if not renewal.put_in_place():
            # It was cut meanwhile: the next round finds what is left.
            return
    renewals = commit.renewals
    yield partial(directory.disk.sync_all, directory.path)
    commit.renewals_synced = renewals
    commit.reclaimed = oldest
    commit.has_let_go = True


def _move_live(
    commit: CommitLog, owners: dict[Owner, Log], entry: Entry, moves: dict[QueueSegment, dict[int, int]]
) -> None:
    log = owners.get(entry.owner)
    if log is None:
        return
    for place, header in entry.batches:
        segment = log.segments.since(header.base_offset)[0]
        if not isinstance(segment, QueueSegment) or not segment.points_at(header.last_offset, place):
            continue
        file, at = commit.locate(place, header.size_bytes)
        records = file.pread(header.size_bytes, at)
        offsets = header.base_offset, header.last_offset
        moves[segment][place] = commit.append(entry.owner, EntryKind.MOVED, *offsets, -1, records)
