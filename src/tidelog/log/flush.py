"""Making a log durable, in three steps, so that the broker's thread never waits for a device.

`log.flush_work()` collects what is not known to be on the device; calling the work syncs it, on any thread; and
`log.flush_done(work)`, back on the broker's thread, moves the recovery point. `log.flush()` does all three at once.
Works of one log must run in the order in which they were collected.

The order matters after a crash: epochs below the recovery point must be in their file, and sealed segments below it
are trusted with their indexes, so all of these are synced before the recovery point says so. The active segment's
indexes are not: it is always recovered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.log.checkpoints import PARTITION_METADATA
from tidelog.log.disk import PASSING, TOO_MANY_FILES, Disk, put_in_place, replace_file, write_beside
from tidelog.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE

if TYPE_CHECKING:
    from tidelog.log.log import Log
    from tidelog.log.shared.commit_log import CommitLog

#: from how many logs on it is cheaper to sync a volume than its files
MANY: Final = 4


class FlushWork:
    __slots__ = (
        "_disk",
        "_log",
        "_replacements",
        "_syncs",
        "active_base_offset",
        "end_offset",
        "epoch_changes",
        "error",
        "names_given",
        "refused",
        "truncations",
    )

    def __init__(self, log: Log) -> None:
        self._log = log
        self._disk = log.directory.disk
        #: what the recovery point becomes
        self.end_offset = log.log_end_offset
        #: of the segment that still grew when the work was collected: its indexes are not covered
        self.active_base_offset = log.segments.active.base_offset
        #: the log's count of truncations when the work was collected; bytes written after one are not covered
        self.truncations = log.truncations
        #: up to which change the leader epochs are written with it
        self.epoch_changes = log.leader_epochs.changes
        #: up to which name that was given the directories are synced with it
        self.names_given = log.names_given
        self.error: OSError | None = None
        #: there was no room for a file to be replaced: nothing is lost, and nothing was flushed
        self.refused: OSError | None = None
        self._syncs: list[Callable[[], None]] = []
        #: files of the log to be replaced, by their names
        self._replacements: dict[str, bytes] = {}

    def add(self, sync: Callable[[], None]) -> None:
        self._syncs.append(sync)

    def add_files(self, *paths: str) -> None:
        """Syncs files by their names."""
        for path in paths:
            self._syncs.append(partial(_sync_file, self._disk, path))

    def add_directory(self, path: str) -> None:
        self._syncs.append(partial(self._disk.sync_dir, path))

    def add_replacement(self, name: str, data: bytes) -> None:
        self._replacements[name] = data

    @property
    def has_own_files(self) -> bool:
        """There is more to do than to sync the batches."""
        return len(self._syncs) > 1 or bool(self._replacements)

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._syncs or self._replacements)

    def __call__(self) -> None:
        self._replace(partial(replace_file, self._disk))
        if self.refused is None and self.error is None:
            self._sync()

    def write_beside(self) -> None:
        """The first half of the replacements; see `run_together`."""
        self._replace(partial(write_beside, self._disk))

    def put_in_place(self) -> bool:
        """The second half; whether there was any."""
        if self.refused is not None or self.error is not None:
            return False
        self._replace(lambda path, data: put_in_place(self._disk, path))
        return bool(self._replacements)

    def _replace(self, step: Callable[[str, bytes], object]) -> None:
        try:
            for name, data in self._replacements.items():
                # Where the log is by now: another one may have taken its place, which was renamed.
                _if_there(partial(step, f"{self._log.path}/{name}", data))
        except OSError as error:
            if error.errno in PASSING:
                self.refused = error
            else:
                self.error = error

    def _sync(self) -> None:
        try:
            for sync in self._syncs:
                _if_there(sync)
        except OSError as error:
            if error.errno in TOO_MANY_FILES:
                self.refused = error
            else:
                # A sync that fails, even for want of room, may have dropped what it should have written.
                self.error = error


def flushed_with(log: Log) -> Hashable:
    """Logs for which this is the same are made durable by the same sync."""
    return log if log.store is None else log.store.commit


def collect(log: Log) -> FlushWork | None:
    """What must be synced for the whole log to be on the device; None if it is already."""
    point = log.recovery_point
    epochs, named = log.leader_epochs, log.names_synced != log.names_given
    if point >= log.log_end_offset and not epochs.dirty and not named:
        return None
    work = FlushWork(log)
    active = log.segments.active
    if log.store is not None:
        # A start makes queues, indexes and snapshots anew from what follows the checkpoint of the commit log.
        work.add(active.sync_work())
    else:
        for segment in log.segments.since(point):
            work.add(segment.sync_work())
            if segment is not active:
                work.add_files(*segment.index_paths)
            if segment.base_offset >= point:
                work.add_files(log.snapshots.file_path(segment.base_offset))
    if epochs.dirty:
        work.add_replacement(LEADER_EPOCH_FILE, epochs.format())
    if active.base_offset >= point or named:
        work.add_files(f"{log.path}/{PARTITION_METADATA}")
        work.add_directory(log.path)
    if named:
        work.add_directory(log.directory.path)
    return work


def collect_for_stop(log: Log) -> FlushWork:
    """Seals the active segment and writes a snapshot of the producers; what must be synced for a clean stop."""
    active = log.segments.active
    sealed = active.dirty
    if sealed:
        active.seal()
    end_offset, snapshots = log.log_end_offset, log.snapshots
    snapshot = (len(log.producers) or snapshots.offsets) and end_offset not in snapshots.offsets
    if snapshot:
        log.write_snapshot(end_offset)
    work = log.flush_work() or FlushWork(log)
    if sealed:
        work.add(active.sync_work())
        work.add_files(*active.index_paths)
        work.add_directory(log.path)
    if snapshot:
        work.add_files(snapshots.file_path(end_offset))
    return work


def settle(log: Log, work: FlushWork) -> None:
    """What is known of the log now that the work is done."""
    log.leader_epochs.written = work.epoch_changes
    log.names_synced = work.names_given
    if work.truncations != log.truncations:
        return
    end_offset = work.end_offset
    if work.active_base_offset != log.segments.active.base_offset:
        # The segment was sealed meanwhile: its batches are on the device, its indexes as they are now are not.
        end_offset = work.active_base_offset
    log.recovery_point = max(log.recovery_point, end_offset)
    log.forget_older_producers()


def run_all(works: list[FlushWork], disk: Disk, path: str, commit: CommitLog | None) -> None:
    """Runs the works of logs that share a commit log: one sync for all of them, unless there is more to do for many."""
    if sum(work.has_own_files for work in works) > MANY:
        run_together(works, disk, path, commit)
        return
    for work in works:
        work()


def run_together(works: list[FlushWork], disk: Disk, path: str, commit: CommitLog | None) -> None:
    """Runs the works of many logs in one directory with two syncs of the volume instead of several for each log.

    What is wrong with the files of one log is its own trouble: it may have been deleted or moved meanwhile.
    """
    sync = partial(disk.sync_all, path)
    if commit is not None:
        sync = partial(commit.sync_by, sync)
    for work in works:
        work.write_beside()
    _sync_volume(works, sync)
    replaced = [work.put_in_place() for work in works]
    if any(replaced):
        _sync_volume(works, sync)


def _sync_volume(works: list[FlushWork], sync: Callable[[], None]) -> None:
    try:
        sync()
    except OSError as error:
        if error.errno in TOO_MANY_FILES:
            # Nothing was tried, and nothing is lost.
            raise
        for work in works:
            work.error = work.error or error


def _if_there(step: Callable[[], object]) -> None:
    try:
        step()
    except FileNotFoundError:
        # It was removed or renamed meanwhile, and with it the need to flush it.
        pass


def _sync_file(disk: Disk, path: str) -> None:
    disk.open(path).sync()
