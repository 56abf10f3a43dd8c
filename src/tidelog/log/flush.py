"""Making a log durable, in three steps, so that the broker's thread never waits for a device.

`log.flush_work()` collects what is not known to be on the device; calling the work syncs it, on any thread; and
`log.flush_done(work)`, back on the broker's thread, moves the recovery point. `log.flush()` does all three at once.
Works of one log must run in the order in which they were collected.

The order matters after a crash: epochs below the recovery point must be in their file, and sealed segments below it
are trusted with their indexes, so all of these are synced before the recovery point says so. The active segment's
indexes are not: it is always recovered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidelog.log.disk import PASSING, Disk, put_in_place, replace_file, write_beside


class FlushWork:
    __slots__ = (
        "_disk",
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

    def __init__(
        self,
        disk: Disk,
        end_offset: int,
        active_base_offset: int,
        truncations: int,
        epoch_changes: int,
        names_given: int,
    ) -> None:
        self._disk = disk
        #: what the recovery point becomes
        self.end_offset = end_offset
        #: of the segment that still grew when the work was collected: its indexes are not covered
        self.active_base_offset = active_base_offset
        #: the log's count of truncations when the work was collected; bytes written after one are not covered
        self.truncations = truncations
        #: up to which change the leader epochs are written with it
        self.epoch_changes = epoch_changes
        #: up to which name that was given the directories are synced with it
        self.names_given = names_given
        self.error: OSError | None = None
        #: there was no room for a file to be replaced: nothing is lost, and nothing was flushed
        self.refused: OSError | None = None
        self._syncs: list[Callable[[], None]] = []
        #: files to be replaced, by their paths
        self._replacements: dict[str, bytes] = {}

    def add(self, sync: Callable[[], None]) -> None:
        self._syncs.append(sync)

    def add_files(self, *paths: str) -> None:
        """Syncs files by their names."""
        for path in paths:
            self._syncs.append(partial(_sync_file, self._disk, path))

    def add_directory(self, path: str) -> None:
        self._syncs.append(partial(self._disk.sync_dir, path))

    def add_replacement(self, path: str, data: bytes) -> None:
        self._replacements[path] = data

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._syncs or self._replacements)

    def __call__(self) -> None:
        try:
            for path, data in self._replacements.items():
                _if_there(partial(replace_file, self._disk, path, data))
        except OSError as error:
            if error.errno in PASSING:
                self.refused = error
            else:
                self.error = error
            return
        try:
            for sync in self._syncs:
                _if_there(sync)
        except OSError as error:
            # A sync that fails, even for want of room, may have dropped what it should have written.
            self.error = error


def run_together(works: list[FlushWork], disk: Disk, path: str) -> None:
    """Runs the works of many logs in one directory with two syncs of the volume instead of several for each log."""
    replacements = [item for work in works for item in work._replacements.items()]
    for target, data in replacements:
        write_beside(disk, target, data)
    disk.sync_all(path)
    if replacements:
        for target, _ in replacements:
            put_in_place(disk, target)
        disk.sync_all(path)


def _if_there(step: Callable[[], None]) -> None:
    try:
        step()
    except FileNotFoundError:
        # It was removed or renamed meanwhile, and with it the need to flush it.
        pass


def _sync_file(disk: Disk, path: str) -> None:
    disk.open(path).sync()
