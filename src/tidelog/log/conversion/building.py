"""The first half of a conversion: the new files, written beside the old ones, counted, and compared with them.

Nothing of the old layout changes here. After a crash it goes on behind the partitions that were counted: these are on
the device, and whatever else was written is removed first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.log.conversion.copying import compare, write_files, write_queues
from tidelog.log.conversion.planning import CannotConvert
from tidelog.log.directories.directory_names import parse_name
from tidelog.log.directories.layout import SHARED, Conversion, write_conversion
from tidelog.log.directories.recovery import read_topic_id
from tidelog.log.disk import Disk
from tidelog.log.segment import Segment
from tidelog.log.shared import COMMIT_DIRECTORY
from tidelog.log.shared.commit_entry import Owner
from tidelog.log.shared.commit_log import COMMIT, CommitLog
from tidelog.log.shared.queue_segment import QueueSegment
from tidelog.log.stored_segments import file_segments, queue_segments

#: where the new files are as long as the old ones are in use
BUILDING: Final = "tidelog-converting"
#: so much is written, of so many partitions, before it is synced and counted
_GROUP_BYTES: Final = 256 << 20
_GROUP: Final = 1000

#: is told what is being done, how many bytes of it are, and of how many
Tell = Callable[[str, int, int], None]


class Builder:
    def __init__(self, disk: Disk, path: str, conversion: Conversion, commit_bytes: int, tell: Tell) -> None:
        """Goes on with a conversion behind what was counted. May raise OSError."""
        self._disk = disk
        self._path = path
        self._building = f"{path}/{BUILDING}"
        self._tell = tell
        self.conversion = conversion
        disk.mkdir(self._building)
        self._forget_uncounted()
        is_to_shared = conversion.to == SHARED
        self._commit = CommitLog(disk, self._building if is_to_shared else path, commit_bytes)
        sources = {name: self._source(name) for name in conversion.partitions}
        self._sizes = {name: sum(segment.size for segment in source) for name, source in sources.items()}
        self.size_bytes = sum(self._sizes.values())

    def _forget_uncounted(self) -> None:
        counted = {COMMIT_DIRECTORY, *self.conversion.partitions[: self.conversion.built]}
        for entry in self._disk.list(self._building):
            if entry.name not in counted:
                remove_all(self._disk, f"{self._building}/{entry.name}")
        path, end = f"{self._building}/{COMMIT_DIRECTORY}", self.conversion.commit_end
        for entry in self._disk.list(path) if self._disk.exists(path) else []:
            base = int(entry.name[:20]) if entry.name.endswith(COMMIT) else end
            if base >= end:
                self._disk.remove(f"{path}/{entry.name}")
            elif base + entry.size_bytes > end:
                self._disk.open(f"{path}/{entry.name}").truncate(end - base)

    def _source(self, name: str) -> list[Segment]:
        path = f"{self._path}/{name}"
        if self.conversion.to == SHARED:
            return [*file_segments(self._disk, path)]
        segments = self._queues(path)
        named, topic_id = parse_name(name), read_topic_id(self._disk, path)
        for segment in segments:
            # A queue that was put in the place of another one says so with its first entry.
            if named is not None and topic_id is not None and segment.is_of_another(Owner(topic_id, named[0][1])):
                raise CannotConvert(f"{segment.log_path} is the queue of another partition: nothing was changed")
        return [*segments]

    def _target(self, name: str) -> list[Segment]:
        path = f"{self._building}/{name}"
        return [*self._queues(path)] if self.conversion.to == SHARED else [*file_segments(self._disk, path)]

    def _queues(self, path: str) -> list[QueueSegment]:
        segments = queue_segments(self._disk, path, self._commit)
        for segment in segments:
            if segment.queue.trusted(self._commit.checkpoint)[0] != segment.queue.count:
                raise CannotConvert(
                    f"{segment.log_path} is damaged: nothing was changed. Start a broker on {self._path}, and stop it: "
                    "it makes the queue anew, or says what is lost"
                )
        return segments

    # --- writing

    def build(self) -> None:
        """Writes what is not counted yet. May raise OSError."""
        done = sum(self._sizes[name] for name in self.conversion.partitions[: self.conversion.built])
        counted = done
        for at, name in enumerate(self.conversion.partitions, 1):
            if at <= self.conversion.built:
                continue
            self._write(name)
            done += self._sizes[name]
            self._tell("writing", done, self.size_bytes)
            if at - self.conversion.built >= _GROUP or done - counted >= _GROUP_BYTES:
                self._count(at)
                counted = done
        self._count(len(self.conversion.partitions))
        if self.conversion.to == SHARED:
            # All queues know what is in the commit log, and are on the device.
            self._commit.move_checkpoint(self._commit.end)

    def _write(self, name: str) -> None:
        path = f"{self._building}/{name}"
        self._disk.mkdir(path)
        if self.conversion.to != SHARED:
            write_files(self._disk, self._queues(f"{self._path}/{name}"), path)
            return
        named, topic_id = parse_name(name), read_topic_id(self._disk, f"{self._path}/{name}")
        if named is None or topic_id is None:
            raise CannotConvert(f"{self._path}/{name} has lost its topic ID")
        source = file_segments(self._disk, f"{self._path}/{name}")
        write_queues(self._disk, source, path, Owner(topic_id, named[0].partition), self._commit)

    def _count(self, built: int) -> None:
        """So many partitions are written."""
        self._disk.sync_all(self._path)
        end = self._commit.end if self.conversion.to == SHARED else 0
        self.conversion = self.conversion._replace(built=built, commit_end=end)
        write_conversion(self._disk, self._path, self.conversion)

    # --- comparing

    def compare(self) -> None:
        """Reads all that was written and all that it was written from. Raises CannotConvert."""
        done = 0

        def tell(size_bytes: int) -> None:
            nonlocal done
            done += size_bytes
            self._tell("comparing", done, self.size_bytes)

        for name in self.conversion.partitions:
            compare(self._source(name), self._target(name), tell)
        self._commit.close()


def remove_all(disk: Disk, path: str) -> None:
    """A file, or a directory with all that is in it."""
    if not disk.exists(path):
        return
    try:
        entries = disk.list(path)
    except (NotADirectoryError, FileNotFoundError):
        disk.remove(path)
        return
    for entry in entries:
        if entry.is_dir:
            remove_all(disk, f"{path}/{entry.name}")
        else:
            disk.remove(f"{path}/{entry.name}")
    disk.remove_dir(path)
