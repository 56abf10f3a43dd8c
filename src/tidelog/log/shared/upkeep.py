"""What a log directory in the shared layout wants done from time to time: checkpoints of its queues, files given up.

A checkpoint is a generator, so that a broker can take it in slices: where it yields None others may be served, where it
yields a function that is to be called, on any thread, before it goes on.

    1. snapshots of the producers that changed     so that a start need not read far back to know them
    2. the end of the commit log is the position P a log without a snapshot has no producer below it
    3. queues that changed are written             those of entries past P may be among them
    4. everything is synced                        commit log, queues, transaction indexes, snapshots
    5. P is written down

Until the last step the checkpoint before is true. After it a queue is known to be right as far as it points before P.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from tidelog.log.errors import CorruptMessage
from tidelog.log.shared.commit_log import CommitLog
from tidelog.log.shared.queue_segment import QueueSegment

if TYPE_CHECKING:
    from tidelog.log.log import Log
    from tidelog.log.log_dir import LogDir

Slices: TypeAlias = Generator[Callable[[], None] | None, None, None]

#: how many logs or queues are looked at before others are served
_SLICE: Final = 100


def checkpoint(directory: LogDir) -> None:
    """The whole of it at once. May raise OSError."""
    for work in checkpoint_in_slices(directory):
        if work is not None:
            work()


def checkpoint_in_slices(directory: LogDir) -> Slices:
    """May raise OSError; what has failed is left to the next one."""
    commit = directory.commit
    if commit is None or (commit.end == commit.checkpoint and not commit.dirty):
        return
    for at, log in enumerate(list(directory.logs.values()), 1):
        _write_snapshot(log)
        if at % _SLICE == 0:
            yield None
    commit.write_out()
    position, segments = commit.end, list(commit.dirty)
    for log in directory.logs.values():
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
        # The volume, because there may be thousands of queues.
        yield partial(directory.disk.sync_all, directory.path)
        commit.renewals_synced = renewals
        yield partial(commit.move_checkpoint, position)
    except OSError:
        commit.dirty.update(segments)
        raise
    for log in directory.logs.values():
        if log.store is not None:
            log.snapshots.prune({segment.base_offset for segment in log.segments})


def _write_snapshot(log: Log) -> None:
    end_offset = log.log_end_offset
    known = len(log.producers) or log.snapshots.offsets
    if log.store is not None and known and end_offset not in log.snapshots.offsets:
        log.snapshots.write(end_offset, log.producers.snapshot())


def release_files(directory: LogDir, logs: Iterable[Log]) -> list[str]:
    """Gives up the files of the commit log into which no queue of `logs`, which are all that are there, points.

    Returns their new paths. Where a queue is damaged, nobody knows where it points: then all files stay. May raise
    OSError.
    """
    commit = directory.commit
    # Of partitions that could not be opened nobody knows what they need.
    if commit is None or not commit.has_let_go or directory.unopened or directory.is_pinned:
        return []
    if commit.renewals != commit.renewals_synced:
        # After a crash a queue may still have the places of before.
        return []
    commit.has_let_go = False
    try:
        needed = _least_place(commit, [*logs, *directory.look_after_strays()])
    except CorruptMessage as error:
        directory.pin(error)
        return []
    return commit.drop_below(needed)


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
