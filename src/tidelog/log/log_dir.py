"""One log directory: the logs in it, whether it still works, and what its logs want done later.

Logs do not reach for a timer or a thread. They leave word here, and the broker, when it next looks, gives `flushes` to
a worker, `deletions` to the timer, and says what stands in `notices`. An error of the disk in any log takes the whole
directory offline, as the disk is one; a full disk, too few descriptors or a file that is missing do not (`refuse`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.log.checkpoints import (
    CHECKPOINTS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    MalformedCheckpoint,
    read_offsets,
    write_offsets,
)
from tidelog.log.disk import NO_ROOM, OF_ONE_FILE, PASSING, Disk, replace_file
from tidelog.log.errors import StorageError, WriteRefused
from tidelog.log.shared.commit_reserve import wanted_bytes
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.log.config import LogConfig
    from tidelog.log.log import Log
    from tidelog.log.shared.commit_entry import Entry, Owner
    from tidelog.log.shared.commit_log import CommitFile, CommitLog, Tail
    from tidelog.log.shared.store import QueueStore


#: stands in a directory while a start mends what was damaged after a clean stop
MENDING: Final = "tidelog-mending"
PROBE: Final = ".tidelog-probe"
_PROBE_BYTES: Final = 1 << 16


class PendingDeletion:
    """Files that left their log, or the directory of a whole log; to be removed `delay_ms` from now."""

    __slots__ = ("_before", "_directory", "_disk", "_paths", "delay_ms")

    def __init__(
        self,
        disk: Disk,
        paths: list[str],
        delay_ms: int,
        directory: str | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """`before` is called first; where it raises OSError nothing is removed."""
        self._disk = disk
        self._before = before
        self._paths = paths
        self._directory = directory
        self.delay_ms = delay_ms

    def __call__(self) -> None:
        """Removes them, as far as the disk lets it: what stays is found again at the next start. For a worker."""
        try:
            self._before()
            paths = self._paths
            if self._directory is not None:
                paths = [f"{self._directory}/{entry.name}" for entry in self._disk.list(self._directory)]
            else:
                # What has taken the place of the files is on the device before they are gone.
                for parent in sorted({os.path.dirname(path) for path in paths}):
                    self._disk.sync_dir(parent)
        except OSError:
            return
        for path in paths:
            # Where one stays the others are tried nevertheless: each gives room back.
            _remove_if_possible(self._disk, path)
        if self._directory is not None:
            try:
                self._disk.remove_dir(self._directory)
            except OSError:
                return


class LogDir:
    __slots__ = (
        "_mending",
        "_said",
        "commit",
        "deletions",
        "departed",
        "directory_id",
        "disk",
        "dropped",
        "failure",
        "flushes",
        "high_watermarks",
        "is_pinned",
        "logs",
        "marks_found",
        "no_room",
        "notices",
        "past",
        "path",
        "recovery_points",
        "recovery_points_stale",
        "start_offsets",
        "strays",
        "tail",
        "told_of",
        "unopened",
    )

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        #: the error that took the directory offline
        self.failure: OSError | None = None
        #: logs that rolled, or whose flush interval is over
        self.flushes: set[Log] = set()
        self.deletions: list[PendingDeletion] = []
        #: the same for files of the commit log, which go without delay
        self.dropped: list[PendingDeletion] = []
        #: partitions that are not here any more: checkpoints, or names that were not synced, may still tell of them
        self.departed: set[TopicPartition] = set()
        #: a log was cut below the recovery point that the checkpoint on disk still claims
        self.recovery_points_stale = False
        #: as last written, or found
        self.recovery_points: Mapping[TopicPartition, int] = {}
        #: as last written, None before that
        self.high_watermarks: Mapping[TopicPartition, int] | None = None
        #: as the start has found them
        self.marks_found: Mapping[TopicPartition, int] = {}
        #: as last written, or found
        self.start_offsets: Mapping[TopicPartition, int] = {}
        self.directory_id = bytes(16)
        #: what somebody should hear of: losses, files that are missing
        self.notices: list[str] = []
        self._said: set[str] = set()
        self._mending = False
        #: the last error of a full disk since somebody took note of it
        self.no_room: OSError | None = None
        #: in the shared layout: what the partitions here append to
        self.commit: CommitLog | None = None
        #: partitions that were set aside, and point into the commit log
        self.strays: list[Log] = []
        #: one of them, or a queue, cannot be read, and may point anywhere
        self.is_pinned = False
        #: what a start has found there past the checkpoint, until the logs are opened
        self.tail: Tail | None = None
        #: partitions that were not here any more at the start, and of which that tells nevertheless
        self.told_of: set[Owner] = set()
        #: what stands before it, where a log has missed something, as long
        self.past: Tail | None = None
        #: partitions whose files cannot be opened, and why; they must not be begun anew
        self.unopened: dict[TopicPartition, str] = {}

    def open_commit_log(self, segment_bytes: int) -> None:
        """The shared layout: before any log here is opened. May raise OSError."""
        # Late, as all that belongs to this layout: a broker in the other one starts sooner without.
        from tidelog.log.shared.commit_log import CommitLog

        self.commit = CommitLog(self.disk, self.path, segment_bytes)
        self.tail = self.commit.tail()
        for damage in self.commit.damages:
            self.tell(damage)

    def told(self, owner: Owner) -> Iterable[Entry]:
        """While the logs are opened: what follows the checkpoint of the commit log, of one partition."""
        return self.tail.of(owner) if self.tail is not None else ()

    def told_before(self, owner: Owner) -> Iterable[Entry]:
        """While the logs are opened: what precedes the checkpoint. All of the commit log is read for it, once."""
        if self.past is None and self.commit is not None:
            self.past = self.commit.past()
        return self.past.of(owner) if self.past is not None else ()

    def forget_told(self, logs: Iterable[Log]) -> None:
        """After these were opened, which are all that are here. May raise OSError."""
        if self.commit is not None:
            self.commit.cut_leftover()
        if self.tail is not None:
            here = {log.store.owner for log in logs if log.store is not None}
            self.told_of = {owner for owner in self.tail.owners if owner not in here}
        self.tail = self.past = None

    def set_aside(self, log: Log) -> None:
        """The log is not in service any more, but may be wanted: what it points at stays. May raise OSError."""
        self.flushes.discard(log)
        self.add_stray(log)
        for segment in log.segments:
            segment.seal()

    def add_stray(self, log: Log) -> None:
        """A log that was set aside, perhaps in an earlier life."""
        # Late: only what was in the shared layout is of this kind.
        from tidelog.log.shared.queue_segment import QueueSegment

        self.strays.append(log)
        for segment in log.segments:
            if isinstance(segment, QueueSegment):
                segment.may_be_removed = True

    def look_after_strays(self) -> list[Log]:
        """Those that nobody has removed meanwhile."""
        removed = [log for log in self.strays if not self.disk.exists(log.path)]
        for log in removed:
            log.abandon()
            self.strays.remove(log)
        return self.strays

    def pin(self, damage: Exception) -> None:
        """A queue is damaged, and may point anywhere: no file of the commit log goes on its word."""
        self.is_pinned = True
        self.tell(
            f"{damage}: until it is mended, the commit log is not made smaller. "
            "Stop the broker and remove the file: the next start makes it anew from the commit log"
        )

    def store_for(self, key: TopicPartition, config: LogConfig, topic_id: bytes | None) -> QueueStore | None:
        """Where a new log keeps its segments; None where they are files of their own, as those of compacted and
        internal topics always are."""
        if self.commit is None or topic_id is None or config.compact or key[0].startswith("__"):
            return None
        return self.queue_store(topic_id, key[1])

    def queue_store(self, topic_id: bytes, partition: int) -> QueueStore:
        """In the shared layout: what the log of a partition appends to."""
        from tidelog.log.shared.commit_entry import Owner
        from tidelog.log.shared.store import QueueStore

        assert self.commit is not None
        return QueueStore(self.commit, Owner(topic_id, partition))

    def delete_at_once(self, files: list[CommitFile], commit: CommitLog) -> None:
        """Files that a commit log is to give up. No delay: a slice that is still being sent holds its file.

        They may be dead because a log was cut or begun anew. Should the power take that, they are wanted again: so what
        tells of it is on the device before they go. If it raises OSError, nothing was given up.
        """
        if files:
            before = commit.sync_work()
            self.dropped.append(PendingDeletion(self.disk, commit.drop(files), 0, before=before))

    def sync_volume(self) -> None:
        """Everything on the volume is on the device, and with it the commit log; on any thread. May raise OSError; what
        is in the commit log then counts as lost, for the kernel may have dropped it."""
        if self.commit is None:
            self.disk.sync_all(self.path)
        else:
            self.commit.sync_by(partial(self.disk.sync_all, self.path))

    def begin_mending(self) -> None:
        """A log is not as its clean stop left it. Should the power go meanwhile, the next start reads everything:
        what is half mended can have the right sizes. May raise OSError."""
        if not self._mending:
            self._mending = True
            replace_file(self.disk, f"{self.path}/{MENDING}", b"")

    def tell(self, notice: str) -> None:
        """Leaves word, once, however often it is met with."""
        if notice not in self._said:
            self._said.add(notice)
            self.notices.append(notice)

    def refuse(self, error: OSError, where: str) -> StorageError:
        """What to raise for an error of the disk that was met with at `where`: a log's name, or a path.

        What passes by itself, or is wrong with one file only, refuses what was asked for. Anything else takes the
        directory offline.
        """
        if error.filename is None:
            error.filename = where
        if error.errno in NO_ROOM:
            self.no_room = error
            return WriteRefused(f"there is no space for {where}: {error.strerror}")
        if error.errno in PASSING:
            return WriteRefused(f"not possible for {where} now: {error.strerror}")
        if error.errno in OF_ONE_FILE:
            self.tell(f"{error.filename} cannot be opened ({error.strerror}): {where} is served without it")
            return StorageError(f"{error.filename}: {error.strerror}")
        return self.fail(error)

    def fail(self, error: OSError) -> StorageError:
        """Takes the directory offline; returns what to raise."""
        if self.failure is None:
            self.failure = error
        return self.offline()

    def offline(self) -> StorageError:
        return StorageError(f"log directory {self.path} is offline: {self.failure}")

    def has_room(self) -> bool:
        """Whether a directory that was full takes a write again."""
        path = f"{self.path}/{PROBE}"
        try:
            self.disk.open(path, create=True, empty=True).write(bytes(_PROBE_BYTES), 0)
        except OSError:
            return False
        finally:
            _remove_if_possible(self.disk, path)
        return True

    def keep_room_back(self) -> None:
        """In the shared layout: as much as there should be, where there is room for it (`shared.commit_reserve`)."""
        if self.commit is not None and not self.commit.is_saving:
            try:
                total_bytes = self.disk.usage(self.path).total_bytes
            except OSError:
                return
            self.commit.reserve.fill(wanted_bytes(len(self.logs), total_bytes))

    def give_kept_room(self) -> None:
        """Where nobody appends any more, and room is scarce: what is written next may have it. May raise OSError."""
        if self.commit is not None:
            usage = self.disk.usage(self.path)
            if self.commit.lacked_room or usage.usable_bytes < wanted_bytes(len(self.logs), usage.total_bytes):
                self.commit.reserve.give()

    # --- checkpoints

    def try_to_checkpoint(self, high_watermarks: Mapping[TopicPartition, int] | None) -> None:
        try:
            self.checkpoint(high_watermarks)
        except OSError as error:
            self.keep_old_checkpoints(error)

    def try_to_checkpoint_start_offsets(self) -> None:
        """Before a segment goes: one that is missing, and from which the log should begin, was not removed by us."""
        try:
            self.checkpoint_start_offsets()
        except OSError as error:
            self.keep_old_checkpoints(error)

    def keep_old_checkpoints(self, error: OSError) -> None:
        """Those of before are still true, only older. Who is to hear of a failure asks `LogDirs.lose_failed`."""
        if error.errno in PASSING:
            self.refuse(error, self.path)
        else:
            self.fail(error)

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int] | None, closed: bool = False) -> None:
        """Writes recovery points, log start offsets and, where given, high watermarks."""
        self.checkpoint_recovery_points(closed)
        self.checkpoint_start_offsets()
        if high_watermarks is not None:
            self.checkpoint_high_watermarks(high_watermarks)

    def checkpoint_recovery_points(self, closed: bool = False, *, committed_only: bool = False) -> None:
        """Segments below a recovery point are trusted with their indexes; none may claim a part of one that grows."""
        offsets = {
            key: log.recovery_point if closed else min(log.recovery_point, log.segments.active.base_offset)
            for key, log in self.logs.items()
        }
        if committed_only:
            marks = self.marks_found if self.high_watermarks is None else self.high_watermarks
            offsets = {key: min(offset, marks.get(key, offset)) for key, offset in offsets.items()}
        write_offsets(self.disk, f"{self.path}/{RECOVERY_POINTS}", offsets)
        self.recovery_points = offsets
        self.recovery_points_stale = False

    def vouch_no_further_than(self, log: Log, offset: int) -> None:
        """Before a log is cut there, or begun anew: what then is gone must not be missed by the next start, and what
        comes in its place must not be taken for what lies before the log's beginning.

        Only where those on disk claim more. Others may be about to be cut, too, and what is committed stays: so none
        claims more than that for a while, and a follower that cuts thousands of logs writes them once.
        """
        if self.logs.get(log.key) is not log:
            return
        try:
            if self.recovery_points.get(log.key, 0) > offset:
                self.checkpoint_recovery_points(committed_only=True)
            if self.start_offsets.get(log.key, 0) > offset:
                starts = {**self.start_offsets, log.key: offset}
                if offset < log.segments.first_base_offset:
                    # Should it not come to that, nobody must miss what would lie in between.
                    del starts[log.key]
                write_offsets(self.disk, f"{self.path}/{LOG_START_OFFSETS}", starts)
                self.start_offsets = starts
        except OSError as error:
            self.keep_old_checkpoints(error)

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int], sync: bool = True) -> None:
        """Writes those of the logs here, where one has moved since the last time."""
        marks = {key: high_watermarks[key] for key in self.logs if key in high_watermarks}
        if marks != self.high_watermarks:
            if self.commit is not None:
                # By them a start misses what lies before: they must not be there earlier than that.
                self.commit.write_out()
            write_offsets(self.disk, f"{self.path}/{HIGH_WATERMARKS}", marks, sync)
            self.high_watermarks = marks

    def checkpoint_start_offsets(self) -> None:
        """Writes where each log begins, where that has changed: whoever misses a first segment compares."""
        starts = {key: log.log_start_offset for key, log in self.logs.items()}
        if starts != self.start_offsets:
            write_offsets(self.disk, f"{self.path}/{LOG_START_OFFSETS}", starts)
            self.start_offsets = starts

    def read_offsets(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint. One that is torn counts as none: recovery then starts at 0 and loses nothing but time."""
        try:
            return read_offsets(self.disk, f"{self.path}/{name}")
        except MalformedCheckpoint:
            return {}

    def forget(self, key: TopicPartition) -> None:
        """Makes sure that nothing speaks any more of a partition that is not here, not even after a loss of power."""
        if key not in self.departed:
            return
        self.disk.sync_dir(self.path)
        for name in CHECKPOINTS:
            offsets = self.read_offsets(name)
            left = {key: offset for key, offset in offsets.items() if key in self.logs}
            if len(left) < len(offsets):
                write_offsets(self.disk, f"{self.path}/{name}", left)
            if name == LOG_START_OFFSETS:
                self.start_offsets = left
            elif name == RECOVERY_POINTS:
                self.recovery_points = left
        self.departed.clear()


def _remove_if_possible(disk: Disk, path: str) -> None:
    try:
        disk.remove(path)
    except OSError:
        return
