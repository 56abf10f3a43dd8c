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

from tidelog.log.disk import Disk, replace_file


class FlushWork:
    __slots__ = ("_disk", "_steps", "end_offset", "epoch_changes", "error", "truncations")

    def __init__(self, disk: Disk, end_offset: int, truncations: int, epoch_changes: int) -> None:
        self._disk = disk
        #: what the recovery point becomes
        self.end_offset = end_offset
        #: the log's count of truncations when the work was collected; bytes written after one are not covered
        self.truncations = truncations
        #: up to which change the leader epochs are written with it
        self.epoch_changes = epoch_changes
        self.error: OSError | None = None
        self._steps: list[Callable[[], None]] = []

    def add(self, step: Callable[[], None]) -> None:
        self._steps.append(step)

    def add_files(self, *paths: str) -> None:
        """Syncs files by their names."""
        for path in paths:
            self._steps.append(partial(_sync_file, self._disk, path))

    def add_directory(self, path: str) -> None:
        self._steps.append(partial(self._disk.sync_dir, path))

    def add_replacement(self, path: str, data: bytes) -> None:
        self._steps.append(partial(replace_file, self._disk, path, data))

    def __call__(self) -> None:
        for step in self._steps:
            try:
                step()
            except FileNotFoundError:
                # It was removed or renamed meanwhile, and with it the need to flush it.
                continue
            except OSError as error:
                self.error = error
                return


def _sync_file(disk: Disk, path: str) -> None:
    disk.open(path).sync()
