"""The second half of a conversion: the new files, complete and compared, take the place of the old ones.

Every step can be done again, so that a crash in between costs nothing but a repetition:

    1. the new files of all partitions, and a new commit log, get their final names; synced
    2. the old files of all partitions are removed, and an old commit log
    3. the sizes that the next start compares are written down
    4. `tidelog-converting` is removed; synced
    5. `tidelog-conversion` is removed: from here on the directory is in the new layout
"""

from __future__ import annotations

from typing import Final

from tidelog.log.checkpoints import RECOVERY_POINTS
from tidelog.log.conversion.building import BUILDING, remove_all
from tidelog.log.conversion.planning import ANY_SIZE
from tidelog.log.directories.clean_stop import read_clean_stop, write_sizes
from tidelog.log.directories.layout import CONVERSION, PARTITIONED, SHARED, Conversion
from tidelog.log.disk import Disk
from tidelog.log.segment import INDEX, LOG, TIME_INDEX, Segment, Sizes
from tidelog.log.shared import COMMIT_DIRECTORY, QUEUE
from tidelog.log.shared.commit_log import CommitLog
from tidelog.log.stored_segments import file_segments, queue_segments

#: what a segment consists of in a layout and not in the other one
_FILES: Final = {PARTITIONED: (LOG, INDEX, TIME_INDEX), SHARED: (QUEUE,)}


def switch(disk: Disk, path: str, conversion: Conversion) -> None:
    """May raise OSError, and can then be called again."""
    building = f"{path}/{BUILDING}"
    for name in conversion.partitions:
        if disk.exists(f"{building}/{name}"):
            for entry in disk.list(f"{building}/{name}"):
                disk.rename(f"{building}/{name}/{entry.name}", f"{path}/{name}/{entry.name}")
    commit, new_commit = f"{path}/{COMMIT_DIRECTORY}", f"{building}/{COMMIT_DIRECTORY}"
    if conversion.to == SHARED and disk.exists(new_commit):
        disk.rename(new_commit, commit)
    disk.sync_all(path)
    old = _FILES[PARTITIONED if conversion.to == SHARED else SHARED]
    for name in conversion.partitions:
        for entry in disk.list(f"{path}/{name}"):
            if entry.name[20:] in old and entry.name[:20].isdigit():
                disk.remove(f"{path}/{name}/{entry.name}")
    if conversion.to == PARTITIONED:
        remove_all(disk, commit)
    _write_sizes(disk, path, conversion)
    remove_all(disk, building)
    disk.sync_all(path)
    disk.remove(f"{path}/{CONVERSION}")
    disk.sync_dir(path)


def _write_sizes(disk: Disk, path: str, conversion: Conversion) -> None:
    """What the clean stop wrote down of the files that were there, of those that are there now."""
    if not disk.exists(f"{path}/{RECOVERY_POINTS}"):
        return
    commit = CommitLog(disk, path, ANY_SIZE) if conversion.to == SHARED else None
    found: dict[str, dict[int, Sizes]] = read_clean_stop(disk, path)
    for name in conversion.partitions:
        segments: list[Segment]
        if commit is None:
            segments = [*file_segments(disk, f"{path}/{name}")]
        else:
            segments = [*queue_segments(disk, f"{path}/{name}", commit)]
        if name in found:
            found[name] = {segment.base_offset: segment.file_sizes() for segment in segments}
        for segment in segments:
            segment.park_all()
    if found:
        write_sizes(disk, path, found)
