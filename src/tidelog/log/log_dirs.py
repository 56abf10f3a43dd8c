"""All logs of a broker, spread over its log directories.

Opening takes the lock of every directory, reads its checkpoints and opens its logs; the clean-shutdown marker, if
there is one, is removed then, before anything is appended, so that a crash from here on is seen as one. A directory
that fails, now or later, goes offline with its logs and leaves the others alone. Closing flushes, writes checkpoints,
and last of all the marker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from tidelog.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LOCK,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    NO_ID,
    RECOVERY_POINTS,
    MalformedCheckpoint,
    MetaProperties,
    TopicPartition,
    format_clean_shutdown,
    parse_clean_shutdown,
    read_offsets,
    write_offsets,
)
from tidelog.log.clean_stop import CLEAN_STOP, read_clean_stop, write_clean_stop
from tidelog.log.config import LogConfig
from tidelog.log.disk import PASSING, Disk, Lock, Usage, read_file, replace_file
from tidelog.log.errors import DuplicateLog, LogDirInUse, LogDirNotFound, StorageError
from tidelog.log.flush import run_together
from tidelog.log.log import Log
from tidelog.log.log_dir import MENDING, LogDir, PendingDeletion
from tidelog.log.moves import Move
from tidelog.log.names import DELETE, FUTURE, STRAY, name_of, parse_name
from tidelog.log.recovery import Claim, create_log, open_if_possible
from tidelog.log.retention import delete_old_segments

PROBE: Final = ".tidelog-probe"
_PROBE_BYTES: Final = 1 << 16
#: from how many logs on it is cheaper to sync a volume than its files
_MANY: Final = 4


class DirDescription(NamedTuple):
    """One directory as DescribeLogDirs shows it. `usage` is None where the directory is offline."""

    path: str
    failure: OSError | None
    usage: Usage | None
    sizes_bytes: dict[TopicPartition, int]
    future_sizes_bytes: dict[TopicPartition, int]


class LogDirs:
    __slots__ = (
        "_config_for",
        "_locks",
        "_moves",
        "_new_id",
        "clean_broker_epoch",
        "dirs",
        "disk",
        "futures",
        "high_watermarks",
        "logs",
    )

    def __init__(
        self,
        paths: Iterable[str],
        disk: Disk,
        config_for: Callable[[str], LogConfig],
        new_id: Callable[[], bytes] = lambda: os.urandom(16),
    ) -> None:
        self.disk = disk
        self.dirs = [LogDir(disk, path) for path in paths]
        self.logs: dict[TopicPartition, Log] = {}
        #: copies that are being made in another directory
        self.futures: dict[TopicPartition, Log] = {}
        self._moves: dict[TopicPartition, Move] = {}
        #: as checkpointed by the life before
        self.high_watermarks: dict[TopicPartition, int] = {}
        #: the epoch of the broker that stopped cleanly, -1 if not every directory was stopped cleanly by the same
        self.clean_broker_epoch = -1
        self._config_for = config_for
        self._new_id = new_id
        self._locks: list[Lock] = []

    # --- opening

    def open(self, node_id: int, cluster_id: str, now_ms: int) -> None:
        """Locks and opens everything. Raises LogDirInUse; StorageError if no directory works."""
        epochs = set()
        for directory in self.dirs:
            try:
                self._enter(directory, node_id, cluster_id)
                epochs.add(self._load(directory, now_ms))
            except OSError as error:
                self._lose(directory, error)
        if all(directory.failure for directory in self.dirs):
            self._release()
            raise self.dirs[0].offline()
        self._complete_exchanges()
        self.clean_broker_epoch = epochs.pop() if len(epochs) == 1 else -1

    def _enter(self, directory: LogDir, node_id: int, cluster_id: str) -> None:
        self.disk.mkdir(directory.path)
        lock = self.disk.lock(f"{directory.path}/{LOCK}")
        if lock is None:
            self._release()
            raise LogDirInUse(f"log directory {directory.path} is in use by another broker")
        self._locks.append(lock)
        path = f"{directory.path}/{META_PROPERTIES}"
        if self.disk.exists(path):
            try:
                meta = MetaProperties.parse(read_file(self.disk, path), path)
            except MalformedCheckpoint as error:
                self._release()
                raise StorageError(str(error)) from None
            if (meta.cluster_id, meta.node_id) != (cluster_id, node_id):
                self._release()
                raise StorageError(
                    f"log directory {directory.path} belongs to node {meta.node_id} of cluster {meta.cluster_id}, "
                    f"not to node {node_id} of cluster {cluster_id}"
                )
        else:
            meta = MetaProperties(cluster_id, node_id, NO_ID)
        if meta.directory_id == NO_ID:
            meta = MetaProperties(cluster_id, node_id, self._new_id())
            replace_file(self.disk, path, meta.format())
        directory.directory_id = meta.directory_id

    def _load(self, directory: LogDir, now_ms: int) -> int:
        """Opens the logs of a directory; returns the broker epoch of its clean stop, -1 if there was none."""
        disk, path = self.disk, directory.path
        marker = f"{path}/{CLEAN_SHUTDOWN}"
        clean = disk.exists(marker)
        clean_epoch = parse_clean_shutdown(read_file(disk, marker)) if clean else -1
        stopped = read_clean_stop(disk, path) if clean else {}
        interrupted = disk.exists(f"{path}/{MENDING}")
        recovery_points = self._offsets(f"{path}/{RECOVERY_POINTS}")
        start_offsets = self._offsets(f"{path}/{LOG_START_OFFSETS}")
        cleaned_offsets = self._offsets(f"{path}/{CLEANED_OFFSETS}")
        marks = self._offsets(f"{path}/{HIGH_WATERMARKS}")
        self.high_watermarks.update(marks)
        for entry in sorted(disk.list(path)):
            named = parse_name(entry.name) if entry.is_dir else None
            if named is None:
                continue
            key, kind = named
            if kind == DELETE:
                delay_ms = self._config_for(key[0]).file_delete_delay_ms
                directory.deletions.append(PendingDeletion(disk, [], delay_ms, f"{path}/{entry.name}"))
                directory.deleted.add(key)
            elif kind != STRAY:
                offsets = recovery_points.get(key, 0), start_offsets.get(key, 0), cleaned_offsets.get(key)
                as_left = {} if interrupted else stopped.get(entry.name)
                claim = Claim(clean, *offsets, as_left, marks.get(key, 0) if not kind else 0)
                config = self._config_for(key[0])
                log = open_if_possible(directory, f"{path}/{entry.name}", key, config, claim, now_ms)
                if log is not None:
                    self._add(log, kind)
        if clean:
            self._leave_clean_stop(directory)
        return clean_epoch

    def _leave_clean_stop(self, directory: LogDir) -> None:
        """From here on a crash is seen as one. What was mended is on the device first: after a crash nobody looks."""
        mended = [log for log in directory.logs.values() if log.recovery_point < log.log_end_offset]
        for log in mended:
            log.flush()
        if mended:
            directory.checkpoint_recovery_points()
        for name in (CLEAN_STOP, CLEAN_SHUTDOWN, MENDING):
            self.disk.remove(f"{directory.path}/{name}")
        self.disk.sync_dir(directory.path)

    def _complete_exchanges(self) -> None:
        """A future log whose current one is already renamed for deletion had caught up: it takes its place."""
        deleted = {key for directory in self.dirs for key in directory.deleted}
        for key, future in list(self.futures.items()):
            if key in deleted and key not in self.logs:
                self._promote(key, future)

    def _promote(self, key: TopicPartition, future: Log) -> None:
        directory = future.directory
        try:
            future.move(f"{directory.path}/{name_of(key)}")
        except OSError as error:
            raise directory.refuse(error, future.path) from error
        del self.futures[key]
        self._add(future, "")

    def reopen(self, path: str, now_ms: int) -> list[TopicPartition]:
        """Tries a directory that failed once more; returns the partitions that are back. Raises if it still fails."""
        directory = next((directory for directory in self.dirs if directory.path == path), None)
        if directory is None or directory.failure is None:
            raise LogDirNotFound(f"{path} is no log directory of this broker that failed")
        self._lose(directory, directory.failure)
        directory.failure = None
        directory.unopened.clear()
        try:
            # A disk that was full must take a write again, not only be read.
            replace_file(self.disk, f"{path}/{PROBE}", bytes(4096))
            self.disk.remove(f"{path}/{PROBE}")
            self._load(directory, now_ms)
        except OSError as error:
            self._lose(directory, error)
            raise directory.offline() from error
        return list(directory.logs)

    def _offsets(self, path: str) -> dict[TopicPartition, int]:
        """A torn checkpoint counts as none: recovery then starts at 0 and loses nothing but time."""
        try:
            return read_offsets(self.disk, path)
        except MalformedCheckpoint:
            return {}

    def _add(self, log: Log, kind: str) -> None:
        key = (log.topic, log.partition)
        known = self.futures if kind == FUTURE else self.logs
        other = known.get(key)
        if other is not None:
            self._release()
            raise DuplicateLog(f"{log.name} was found in both {other.path} and {log.path}: remove one of them")
        known[key] = log
        if kind != FUTURE:
            log.directory.logs[key] = log

    def _lose(self, directory: LogDir, error: OSError) -> None:
        """Takes a directory and its logs out of service."""
        directory.fail(error)
        for logs in (self.logs, self.futures):
            for key in [key for key, log in logs.items() if log.directory is directory]:
                logs.pop(key).abandon()
        directory.logs.clear()

    def _release(self) -> None:
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    # --- logs

    def get(self, topic: str, partition: int) -> Log | None:
        return self.logs.get((topic, partition))

    def create(
        self,
        key: TopicPartition,
        now_ms: int,
        topic_id: bytes | None = None,
        path: str | None = None,
        is_new: bool = True,
    ) -> Log:
        """The log of a partition, made in the directory `path`, or in the one with the fewest logs.

        A partition that is not new may lie in a directory that is offline, and must not be begun anew elsewhere.
        """
        log = self.logs.get(key)
        if log is not None:
            if topic_id is not None and topic_id != log.topic_id:
                log.assign_topic_id(topic_id)
            return log
        for directory in self.dirs:
            if key in directory.unopened:
                raise StorageError(f"{name_of(key)} cannot be opened: {directory.unopened[key]}")
        if not is_new:
            for directory in self.dirs:
                if directory.failure is not None:
                    raise directory.offline()
        log = create_log(self._dir_for(path), key, self._config_for(key[0]), now_ms, topic_id)
        self._add(log, "")
        return log

    def directory(self, path: str) -> LogDir:
        """A directory of this broker by its path; raises where there is none, and where it has failed."""
        for directory in self.dirs:
            if directory.path == path:
                if directory.failure is not None:
                    raise directory.offline()
                return directory
        raise LogDirNotFound(f"{path} is no log directory of this broker")

    def _dir_for(self, path: str | None) -> LogDir:
        online = [directory for directory in self.dirs if directory.failure is None]
        if path is not None:
            online = [directory for directory in online if directory.path == path]
            if not online:
                raise LogDirNotFound(f"{path} is no log directory of this broker that works")
        if not online:
            raise self.dirs[0].offline()
        return min(online, key=lambda directory: len(directory.logs))

    def delete(self, key: TopicPartition) -> None:
        """Takes the partition out of service at once; its files go after `file.delete.delay.ms`."""
        self.cancel_move(key)
        self._retire(key, DELETE)

    def mark_stray(self, key: TopicPartition) -> None:
        """Takes the partition out of service and keeps its files."""
        self._retire(key, STRAY)

    def _retire(self, key: TopicPartition, kind: str) -> None:
        log = self.logs.pop(key)
        del log.directory.logs[key]
        self._rename_deleted(log, kind)

    def _rename_deleted(self, log: Log, kind: str) -> None:
        directory = log.directory
        path = f"{directory.path}/{name_of((log.topic, log.partition), kind, self._new_id().hex())}"
        try:
            log.move(path)
        except OSError as error:
            raise directory.refuse(error, log.path) from error
        log.abandon()
        if kind == DELETE:
            directory.deletions.append(PendingDeletion(self.disk, [], log.config.file_delete_delay_ms, path))

    # --- moving between directories

    def begin_move(self, key: TopicPartition, path: str, now_ms: int) -> Move | None:
        """Begins to copy a partition into the directory `path`; None if it is there already."""
        current = self.logs[key]
        target = self._dir_for(path)
        self.cancel_move(key)
        if current.directory is target:
            return None
        suffix = name_of(key, FUTURE, self._new_id().hex())[len(name_of(key)) :]
        future = create_log(target, key, current.config, now_ms, current.topic_id, suffix)
        self.futures[key] = future
        move = self._moves[key] = Move(current, future)
        return move

    def resume_moves(self) -> list[Move]:
        """Moves that a restart interrupted; their copies begin anew."""
        for key, future in self.futures.items():
            current = self.logs.get(key)
            if current is not None and key not in self._moves:
                self._moves[key] = Move(current, future)
        return list(self._moves.values())

    def finish_move(self, key: TopicPartition) -> Log:
        """The copy, which has caught up, becomes the partition; what was the partition is deleted."""
        move = self._moves.pop(key)
        move.future.flush()
        self._retire(key, DELETE)
        self._promote(key, move.future)
        return move.future

    def cancel_move(self, key: TopicPartition) -> None:
        """Gives a copy up."""
        self._moves.pop(key, None)
        future = self.futures.pop(key, None)
        if future is not None:
            self._rename_deleted(future, DELETE)

    # --- what must be done from time to time

    def take_deletions(self) -> list[PendingDeletion]:
        """Deletions to be run, on a worker, each after its delay."""
        taken = [deletion for directory in self.dirs for deletion in directory.deletions]
        for directory in self.dirs:
            directory.deletions.clear()
        return taken

    def delete_old_segments(self, now_ms: int, high_watermark_of: Callable[[Log], int]) -> int:
        """Retention, over all logs; returns how many segments went. A log whose disk fails is passed over."""
        deleted = 0
        for log in self.logs.values():
            try:
                deleted += delete_old_segments(log, now_ms, high_watermark_of(log))
            except StorageError:
                continue
        return deleted

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        for log in self.logs.values():
            log.producers.expire(now_ms, expiration_ms)

    def want_due_flushes(self, now_ms: int) -> None:
        """Asks for the flush of every log that has waited for `flush.ms`."""
        for log in self.logs.values():
            if log.flush_is_due(now_ms):
                log.directory.flushes.add(log)

    def take_flushes(self) -> list[Log]:
        """The logs that want to be synced; each is told once."""
        wanting = [log for directory in self.dirs for log in sorted(directory.flushes, key=lambda log: log.name)]
        for directory in self.dirs:
            directory.flushes.clear()
        return wanting

    def take_notices(self) -> list[str]:
        """What somebody should hear of; each is told once."""
        taken = [notice for directory in self.dirs for notice in directory.notices]
        for directory in self.dirs:
            directory.notices.clear()
        return taken

    def has_room(self, directory: LogDir) -> bool:
        """Whether a directory that was full takes a write again."""
        path = f"{directory.path}/{PROBE}"
        try:
            self.disk.open(path, create=True, empty=True).write(bytes(_PROBE_BYTES), 0)
        except OSError:
            return False
        finally:
            self._drop_probe(path)
        return True

    def _drop_probe(self, path: str) -> None:
        try:
            self.disk.remove(path)
        except OSError:
            return

    def lose_failed(self) -> list[str]:
        """Takes the logs of directories that failed meanwhile out of service; returns the paths of these."""
        failed = [directory for directory in self.dirs if directory.failure is not None and directory.logs]
        for directory in failed:
            self._lose(directory, directory.failure or OSError())
        return [directory.path for directory in failed]

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Writes recovery points, log start offsets and, where given, high watermarks of every directory."""
        for directory in self.dirs:
            if directory.failure is None:
                try:
                    self._checkpoint(directory, high_watermarks)
                except OSError as error:
                    # The checkpoints of before are still true, only older. Who is to hear of it asks `lose_failed`.
                    if error.errno in PASSING:
                        directory.refuse(error, directory.path)
                    else:
                        directory.fail(error)

    def _checkpoint(
        self, directory: LogDir, high_watermarks: Mapping[TopicPartition, int] | None, closed: bool = False
    ) -> None:
        directory.checkpoint_recovery_points(closed)
        starts = {
            key: log.log_start_offset
            for key, log in directory.logs.items()
            if log.log_start_offset > log.segments.first_base_offset
        }
        write_offsets(self.disk, f"{directory.path}/{LOG_START_OFFSETS}", starts)
        if high_watermarks is not None:
            marks = {key: high_watermarks[key] for key in directory.logs if key in high_watermarks}
            write_offsets(self.disk, f"{directory.path}/{HIGH_WATERMARKS}", marks)

    def describe(self) -> list[DirDescription]:
        return [self._describe(directory) for directory in self.dirs]

    def _describe(self, directory: LogDir) -> DirDescription:
        usage = None
        if directory.failure is None:
            try:
                usage = self.disk.usage(directory.path)
            except OSError as error:
                self._lose(directory, error)
        sizes = {key: log.size_bytes for key, log in directory.logs.items()}
        futures = {key: log.size_bytes for key, log in self.futures.items() if log.directory is directory}
        return DirDescription(directory.path, directory.failure, usage, sizes, futures)

    # --- closing

    def close(self, broker_epoch: int = -1, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """A clean stop: the next opening will not scan."""
        for directory in self.dirs:
            if directory.failure is None:
                try:
                    self._close(directory, broker_epoch, high_watermarks)
                except (OSError, StorageError):
                    continue
        self._release()

    def _close(
        self, directory: LogDir, broker_epoch: int, high_watermarks: Mapping[TopicPartition, int] | None
    ) -> None:
        futures = [log for log in self.futures.values() if log.directory is directory]
        works = [(log, log.close_work()) for log in [*directory.logs.values(), *futures]]
        pending = [work for _, work in works if work]
        if len(pending) > _MANY:
            run_together(pending, self.disk, directory.path)
        else:
            for work in pending:
                work()
        for log, work in works:
            log.flush_done(work)
            log.abandon()
        self._checkpoint(directory, high_watermarks, closed=True)
        write_clean_stop(self.disk, directory.path, (log for log, _ in works))
        replace_file(self.disk, f"{directory.path}/{CLEAN_SHUTDOWN}", format_clean_shutdown(broker_epoch))
        self.disk.sync_dir(directory.path)
