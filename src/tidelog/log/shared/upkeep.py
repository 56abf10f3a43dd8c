"""What a log directory in the shared layout wants done from time to time: checkpoints of its queues, files given up.

A checkpoint is a generator, so that a broker can take it in slices: where it yields None others may be served, where it
yields a function that is to be called, on any thread, before it goes on.

    1. snapshots of the producers that changed     so that a start need not read far back to know them
    2. the end of the commit log is the position P a log without a snapshot has no producer below it; what is told up to
                                                   there is all that is known of the logs, should a queue get lost
    3. queues that changed are written             those of entries past P may be among them
    4. everything is synced                        commit log, queues, transaction indexes, snapshots
    5. P is written down

Until the last step the checkpoint before is true. After it a queue is known to be right as far as it points before P.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from tidelog.log.disk import NO_ROOM, PASSING
from tidelog.log.errors import CorruptMessage
from tidelog.log.shared.commit_entry import EntryKind
from tidelog.log.shared.commit_log import CommitLog
from tidelog.log.shared.commit_reserve import wanted_bytes
from tidelog.log.shared.queue_segment import QueueSegment
from tidelog.log.shared.store import QueueStore

if TYPE_CHECKING:
    from tidelog.log.log import Log
    from tidelog.log.log_dir import LogDir

Slices: TypeAlias = Generator[Callable[[], None] | None, None, None]

Logs: TypeAlias = "Callable[[], list[Log]]"

#: how many logs or queues are looked at before others are served
_SLICE: Final = 100


def checkpoint(directory: LogDir, logs: Logs) -> None:
    """The whole of it at once. May raise OSError."""
    for work in checkpoint_in_slices(directory, logs):
        if work is not None:
            work()


def checkpoint_in_slices(directory: LogDir, logs: Logs) -> Slices:
    """`logs` are all that are there, copies that are being made included. May raise OSError; what has failed is left to
    the next one."""
    commit = directory.commit
    if commit is None:
        return
    if commit.end == commit.checkpoint and not commit.dirty and not _untold(logs()):
        directory.keep_room_back()
        return
    if directory.unopened:
        # What they have past the checkpoint is in no queue yet: the start that can open them must be told of it.
        return
    with saving(directory):
        yield from _checkpoint_in_slices(directory, commit, logs)


def _checkpoint_in_slices(directory: LogDir, commit: CommitLog, logs: Logs) -> Slices:
    for at, log in enumerate(list(logs()), 1):
        _write_snapshot(log)
        if at % _SLICE == 0:
            yield None
    _tell_ends(logs())
    commit.write_out()
    position, segments = commit.end, list(commit.dirty)
    for log in logs():
        if not log.snapshots.offsets:
            # It may have got its first producer meanwhile: a log without a snapshot must not have one below P.
            _write_snapshot(log)
    try:
        for at, segment in enumerate(segments, 1):
            commit.dirty.discard(segment)
            segment.write()
            if at % _SLICE == 0:
                yield None
        renewals = commit.renewals
        # By these a start misses a first segment.
        directory.checkpoint_start_offsets()
        # The volume, because there may be thousands of queues.
        yield directory.sync_volume
        commit.note_synced(position)
        commit.renewals_synced = renewals
        yield partial(commit.move_checkpoint, position)
    except OSError:
        commit.dirty.update(segments)
        raise
    for log in logs():
        if log.store is not None:
            log.snapshots.prune({segment.base_offset for segment in log.segments})


@contextmanager
def saving(directory: LogDir) -> Iterator[None]:
    """For what makes room and needs some itself: where there is hardly any left, it gets what is kept back for it, and
    nobody else does meanwhile. May raise OSError."""
    commit = directory.commit
    if commit is None or commit.is_saving:
        yield
        return
    usage = directory.disk.usage(directory.path)
    wanted = wanted_bytes(len(directory.logs), usage.total_bytes)
    lacked, commit.lacked_room = commit.lacked_room, False
    is_scarce = lacked or usage.usable_bytes < wanted
    if is_scarce:
        commit.begin_saving(is_everything_needed=lacked)
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            commit.lacked_room = True
            if lacked:
                tell_lack_of_room(directory)
        raise
    finally:
        if is_scarce:
            commit.end_saving(wanted)
        else:
            commit.reserve.fill(wanted)


def is_room_scarce(directory: LogDir) -> bool:
    usage = directory.disk.usage(directory.path)
    return usage.usable_bytes < wanted_bytes(len(directory.logs), usage.total_bytes)


def tell_lack_of_room(directory: LogDir) -> None:
    directory.tell(f"there is no room in {directory.path} to make the commit log smaller: it is tried again")


def remove_dropped(directory: LogDir) -> Slices:
    """Files of the commit log that were given up go at once, and not at the end of all this."""
    dropped, directory.dropped = directory.dropped, []
    yield from dropped


def tell_ends(directory: LogDir, logs: Iterable[Log]) -> None:
    """After a crash, and before anybody is served: has the commit log tell where these logs end, as entries of it were
    passed over, and a cut may have got lost of which a queue knows. Where a queue gets lost later, it is made anew from
    all that is told, and nothing may come back with it. May raise OSError.

    It is not synced: the next flush or checkpoint does that, and until then the start that finds it gone again finds
    all else as this one did. Where there is no room, the next checkpoint sees to it, and is not taken before.
    """
    commit = directory.commit
    if commit is None or not _untold(logs):
        return
    # They may be thousands.
    commit.on_put_off = lambda: None
    try:
        _tell_ends(logs)
        commit.write_out()
    except OSError as error:
        if error.errno not in PASSING:
            raise
    finally:
        commit.on_put_off = None


def _untold(logs: Iterable[Log]) -> list[QueueStore]:
    return [log.store for log in logs if log.store is not None and not log.store.is_told]


def _tell_ends(logs: Iterable[Log]) -> None:
    for log in logs:
        if log.store is not None and not log.store.is_told:
            # Of an empty log nothing may come back, not even what would lie before it.
            kind = EntryKind.CUT if log.size_bytes else EntryKind.START
            log.store.append(kind, log.log_end_offset, log.log_end_offset)


def _write_snapshot(log: Log) -> None:
    active, end_offset = log.segments.active, log.log_end_offset
    if not isinstance(active, QueueSegment) or active.has_left:
        # It may have been deleted since the others were looked at.
        return
    known = len(log.producers) or log.snapshots.had_any
    if known and end_offset not in log.snapshots.offsets:
        try:
            log.write_snapshot(end_offset)
        except FileNotFoundError:
            active.leave_if_removed()


def release_files(directory: LogDir, logs: Logs) -> None:
    """Gives up the files of the commit log into which no queue of `logs`, which are all that are there, points.

    They are asked for only if some queue has let go of something: there may be thousands, and this is called often.

    Where a queue is damaged, nobody knows where it points: then all files stay. May raise OSError.
    """
    commit = directory.commit
    # Of partitions that could not be opened nobody knows what they need.
    if commit is None or not commit.has_let_go or directory.unopened or directory.is_pinned:
        return
    if commit.renewals != commit.renewals_synced:
        # After a crash a queue may still have the places of before.
        return
    try:
        needed = _least_place(commit, [*logs(), *directory.look_after_strays()])
    except CorruptMessage as error:
        directory.pin(error)
    else:
        directory.delete_at_once(commit.below(needed), commit)
    commit.has_let_go = False


def _least_place(commit: CommitLog, logs: Iterable[Log]) -> int:
    """Where the first byte stands that a queue, or the next start, needs. Raises CorruptMessage."""
    needed = commit.checkpoint
    for log in logs:
        for segment in log.segments:
            if isinstance(segment, QueueSegment):
                place, rising = segment.least_place()
                needed = needed if place is None else min(needed, place)
                if rising:
                    break
    return needed
