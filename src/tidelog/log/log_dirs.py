"""All logs of a broker, spread over its log directories.

Opening takes the lock of every directory, reads its checkpoints and opens its logs; the clean-shutdown marker, if
there is one, is removed then, before anything is appended, so that a crash from here on is seen as one. A directory
that fails, now or later, goes offline with its logs and leaves the others alone. Closing flushes, writes checkpoints,
and last of all the marker.

What is found is compared with what the cluster's metadata places here. A log of a topic that was deleted, and perhaps
created again under the same name, is known by its topic id and goes. A partition that is not found while a directory is
missing lies there: it is `offline`, and not made anew (`directory_set.py`).

Checkpoints speak of partitions by name only. Where one has left a directory, its entries go from the checkpoints there
before another one of that name begins.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from tidelog.log.checkpoints import (
    CHECKPOINTS,
    CLEAN_SHUTDOWN,
    LOCK,
    META_PROPERTIES,
    NO_ID,
    MalformedCheckpoint,
    MetaProperties,
    format_clean_shutdown,
    parse_clean_shutdown,
)
from tidelog.log.clean_stop import CLEAN_STOP, read_clean_stop, write_clean_stop
from tidelog.log.config import LogConfig
from tidelog.log.directory_names import DELETE, FUTURE, STRAY, is_cut_short, name_of, parse_name
from tidelog.log.directory_set import (
    DIRECTORY_SET,
    DirectorySet,
    Placement,
    found_twice,
    listed,
    read_directory_set,
    write_directory_set,
)
from tidelog.log.disk import PASSING, Disk, Lock, Usage, read_file, replace_file
from tidelog.log.errors import DuplicateLog, LogDirCordoned, LogDirInUse, LogDirNotFound, StorageError
from tidelog.log.flush import run_together
from tidelog.log.log import Log
from tidelog.log.log_dir import MENDING, LogDir, PendingDeletion
from tidelog.log.moves import Move
from tidelog.log.recovery import Claim, create_log, open_if_possible, read_topic_id
from tidelog.log.retention import delete_old_segments
from tidelog.wire.partitions import TopicPartition

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
        "_known",
        "_locks",
        "_moves",
        "_new_id",
        "_notices",
        "_twice",
        "clean_broker_epoch",
        "cordoned",
        "dirs",
        "disk",
        "futures",
        "high_watermarks",
        "logs",
        "missing",
        "offline",
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
        #: partitions of this broker that lie in a directory which is missing, or has failed
        self.offline: set[TopicPartition] = set()
        #: paths of directories that belong here and are not there, as long as it is not known what they hold
        self.missing: set[str] = set()
        #: as checkpointed by the life before
        self.high_watermarks: dict[TopicPartition, int] = {}
        #: the epoch of the broker that stopped cleanly, -1 if not every directory was stopped cleanly by the same
        self.clean_broker_epoch = -1
        #: paths of directories that get no new partitions; what they hold stays in use
        self.cordoned: frozenset[str] = frozenset()
        self._config_for = config_for
        self._new_id = new_id
        self._notices: list[str] = []
        #: partitions that were found in two directories: nobody knows which is the right one
        self._twice: dict[TopicPartition, tuple[str, str]] = {}
        self._locks: list[Lock] = []
        #: the directories that belong together, with those that are missing
        self._known = DirectorySet({}, 0)

    # --- opening

    def open(
        self,
        node_id: int,
        cluster_id: str,
        now_ms: int,
        placement: Placement | None = None,
        is_judged_later: bool = False,
    ) -> None:
        """Locks and opens everything. Raises LogDirInUse; StorageError if no directory works.

        `placement` is None where the cluster's metadata is yet to be made, from what is found here, or is not known
        yet: what does not belong here is found later, by `tidelog.log.judging`.
        """
        self._known = read_directory_set(self.disk, [directory.path for directory in self.dirs])
        epochs = set()
        blank = []
        for directory in self.dirs:
            try:
                if self._enter(directory, node_id, cluster_id):
                    epochs.add(self._load(directory, now_ms, placement))
                else:
                    blank.append(directory)
            except OSError as error:
                self._lose(directory, error)
        if is_judged_later:
            here = {each.path for each in self.dirs if each.failure is None and each not in blank}
            self.missing = {path for path in self._known.paths.values() if path not in here}
        else:
            self._find_missing(blank, placement)
        for directory in blank:
            if directory.failure is None:
                try:
                    self._format(directory, node_id, cluster_id)
                    epochs.add(self._load(directory, now_ms, placement))
                except OSError as error:
                    self._lose(directory, error)
        self._refuse_duplicates()
        # Only now: a start that is refused has changed nothing.
        for directory in self.dirs:
            if directory.failure is None:
                try:
                    self._leave_clean_stop(directory)
                except OSError as error:
                    self._lose(directory, error)
            if directory.failure is None:
                self._try_to_checkpoint_starts(directory)
        if all(directory.failure for directory in self.dirs):
            self._release()
            raise self.dirs[0].offline()
        self.remember(self._known.metadata_version)
        self.clean_broker_epoch = epochs.pop() if len(epochs) == 1 else -1

    def _enter(self, directory: LogDir, node_id: int, cluster_id: str) -> bool:
        """Locks a directory and sees whose it is; False where there is nothing in it yet."""
        self.disk.mkdir(directory.path)
        lock = self.disk.lock(f"{directory.path}/{LOCK}")
        if lock is None:
            self._release()
            raise LogDirInUse(f"log directory {directory.path} is in use by another broker")
        self._locks.append(lock)
        path = f"{directory.path}/{META_PROPERTIES}"
        # An empty one has got lost with the power.
        if not self.disk.exists(path) or not read_file(self.disk, path).strip():
            if not any(entry.is_dir and parse_name(entry.name) for entry in self.disk.list(directory.path)):
                return False
            self._format(directory, node_id, cluster_id)
            return True
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
        directory.directory_id = meta.directory_id
        if meta.directory_id == NO_ID:
            self._format(directory, node_id, cluster_id)
        return True

    def _format(self, directory: LogDir, node_id: int, cluster_id: str) -> None:
        """Writes down whose directory this is."""
        meta = MetaProperties(cluster_id, node_id, self._new_id())
        replace_file(self.disk, f"{directory.path}/{META_PROPERTIES}", meta.format())
        directory.directory_id = meta.directory_id

    def _load(self, directory: LogDir, now_ms: int, placement: Placement | None) -> int:
        """Opens the logs of a directory; returns the broker epoch of its clean stop, -1 if there was none."""
        disk, path = self.disk, directory.path
        marker = f"{path}/{CLEAN_SHUTDOWN}"
        clean = disk.exists(marker)
        clean_epoch = parse_clean_shutdown(read_file(disk, marker)) if clean else -1
        stopped = read_clean_stop(disk, path) if clean else {}
        interrupted = disk.exists(f"{path}/{MENDING}")
        recovery_points, start_offsets, marks, cleaned_offsets = (directory.read_offsets(name) for name in CHECKPOINTS)
        directory.start_offsets = start_offsets
        # Whoever else wrote this directory has left no word of which logs were compacted.
        foreign = not disk.exists(f"{path}/{DIRECTORY_SET}")
        for entry in sorted(disk.list(path)):
            named = parse_name(entry.name) if entry.is_dir else None
            if named is None:
                continue
            key, kind = named
            config = self._config_for(key[0])
            as_left = {} if interrupted else stopped.get(entry.name)
            if kind == DELETE:
                deletion = PendingDeletion(disk, [], config.file_delete_delay_ms, f"{path}/{entry.name}")
                directory.deletions.append(deletion)
            elif kind == FUTURE:
                if placement is not None and is_cut_short(entry.name):
                    key = placement.whole_name(key, read_topic_id(disk, f"{path}/{entry.name}"))
                claim = Claim(clean, stopped=as_left)
                copy = open_if_possible(directory, f"{path}/{entry.name}", key, config, claim, now_ms)
                if copy is not None:
                    self._add_future(copy, placement)
            elif kind != STRAY:
                offsets = recovery_points.get(key, 0), start_offsets.get(key, 0), cleaned_offsets.get(key)
                gaps = foreign or key in cleaned_offsets
                begins = None if foreign else start_offsets.get(key)
                claim = Claim(clean, *offsets, gaps, as_left, marks.get(key, 0), begins)
                found = open_if_possible(directory, f"{path}/{entry.name}", key, config, claim, now_ms)
                if found is not None:
                    self._add_found(found, placement)
        if foreign and directory.logs:
            disk.sync_all(path)
        if directory.failure is not None:
            raise directory.failure
        self.high_watermarks.update({key: mark for key, mark in marks.items() if key in directory.logs})
        directory.departed.update(recovery_points, start_offsets, marks, cleaned_offsets)
        directory.departed -= directory.logs.keys()
        return clean_epoch

    def _leave_clean_stop(self, directory: LogDir) -> None:
        """From here on a crash is seen as one. What was mended is on the device first: after a crash nobody looks."""
        if not self.disk.exists(f"{directory.path}/{CLEAN_SHUTDOWN}"):
            return
        mended = [log for log in directory.logs.values() if log.recovery_point < log.log_end_offset]
        for log in mended:
            log.flush()
        if mended:
            directory.checkpoint_recovery_points()
        for name in (CLEAN_STOP, CLEAN_SHUTDOWN, MENDING):
            self.disk.remove(f"{directory.path}/{name}")
        self.disk.sync_dir(directory.path)

    def _refuse_duplicates(self) -> None:
        if self._twice:
            self._release()
            raise DuplicateLog(found_twice(self._twice))

    def _add_future(self, log: Log, placement: Placement | None) -> None:
        key = log.key
        if key in self.futures or self.fate(log, placement) is not None:
            self._rename(log, DELETE)
        else:
            self.futures[key] = log

    def _add_found(self, log: Log, placement: Placement | None) -> None:
        fate = self.fate(log, placement)
        if fate is not None:
            done = (
                "removed: its topic was deleted"
                if fate == DELETE
                else "set aside: it is no longer assigned to this directory"
            )
            self._notices.append(f"{log.path} is {done}")
            self._rename(log, fate)
            return
        other = self.logs.get(log.key)
        if other is not None:
            if other.notes.moves == log.notes.moves:
                self._twice[log.key] = other.directory.path, log.directory.path
                return
            # A move was interrupted after the copy had taken the partition's place.
            older, log = sorted((other, log), key=lambda each: each.notes.moves)
            older.directory.logs.pop(log.key, None)
            try:
                self._rename(older, DELETE)
            except OSError as error:
                self._lose(older.directory, error)
        self._add(log)

    def fate(self, log: Log, placement: Placement | None) -> str | None:
        """What becomes of a log that does not belong here, as the kind of its name; None where it does."""
        key = log.key
        if placement is None:
            return None
        fate = placement.fate(key, log.topic_id, self._known.metadata_version)
        if fate == DELETE and key in placement.topic_ids and key not in self.logs and log.recovery_point == 0:
            # An id that was never synced may be torn, where a partition of that name belongs here.
            return STRAY
        return fate

    def _find_missing(self, blank: list[LogDir], placement: Placement | None) -> None:
        """What a missing directory may hold is offline. Where no partition is missing, no directory is missed."""
        here = {each.directory_id: each.path for each in self.dirs if each.failure is None and each not in blank}
        missing = {key: path for key, path in self._known.paths.items() if key not in here}
        places = {*missing.values(), *(each.path for each in self.dirs if each.failure is not None)}
        absent = set() if placement is None else placement.topic_ids.keys() - self.logs.keys()
        if absent and places:
            self.offline = absent
            self._notices.append(
                f"log directory {', '.join(sorted(places))} is missing: these partitions are offline until it is back: "
                f"{listed(absent)}. If it is lost for good, remove its line from {DIRECTORY_SET} in the other log "
                "directories: they are then recreated empty"
            )
        elif absent:
            self._notices.append(f"not found in any log directory and recreated empty: {listed(absent)}")
        for directory in blank:
            if self.offline and directory.path in places:
                what = "it is empty, and partitions are missing. Is its disk mounted?"
                directory.fail(FileNotFoundError(errno.ENOENT, what, directory.path))
        self._known = DirectorySet({**missing, **here} if self.offline else here, self._known.metadata_version)

    def remember(self, metadata_version: int) -> None:
        """Writes down which directories belong together, and with which life of the metadata."""
        paths = dict(self._known.paths)
        for directory in self.dirs:
            if directory.failure is None:
                paths[directory.directory_id] = directory.path
        self._known = DirectorySet(paths, metadata_version)
        for directory in self.dirs:
            if directory.failure is None:
                try:
                    write_directory_set(self.disk, directory.path, self._known)
                except OSError as error:
                    self._note_old_checkpoints(directory, error)

    def forget_missing(self) -> None:
        """No partition is missing, so no directory is missed."""
        self.missing = set()
        self._known = DirectorySet({}, self._known.metadata_version)

    def _add(self, log: Log) -> None:
        key = log.key
        self.logs[key] = log
        log.directory.logs[key] = log

    def _lose(self, directory: LogDir, error: OSError) -> None:
        """Takes a directory and its logs out of service."""
        directory.fail(error)
        self.offline.update(directory.logs)
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
        return self.logs.get(TopicPartition(topic, partition))

    def create(
        self,
        key: TopicPartition,
        now_ms: int,
        topic_id: bytes | None = None,
        path: str | None = None,
    ) -> Log:
        """The log of a partition, made where there is none in the directory `path`, or in that with the fewest logs.

        A cordoned directory is not chosen, and refused as `path`.

        A partition that is `offline` must not be begun anew.
        """
        log = self.logs.get(key)
        if log is not None:
            if topic_id is not None and topic_id != log.topic_id:
                log.assign_topic_id(topic_id)
            return log
        for directory in self.dirs:
            if key in directory.unopened:
                raise StorageError(f"{name_of(key)} cannot be opened: {directory.unopened[key]}")
        if key in self.offline:
            raise StorageError(f"{name_of(key)} is offline: its log directory is missing")
        directory = self._dir_for(path)
        self._forget(key)
        log = create_log(directory, key, self._config_for(key[0]), now_ms, topic_id)
        self._add(log)
        return log

    def _forget(self, key: TopicPartition) -> None:
        """Another one of that name begins: what is known of the one before must not bind it."""
        self.high_watermarks.pop(key, None)
        for directory in self.dirs:
            if directory.failure is None:
                try:
                    directory.forget(key)
                except OSError as error:
                    raise directory.refuse(error, f"the new partition {name_of(key)}") from error

    def directory(self, path: str) -> LogDir:
        """A directory of this broker by its path; raises where there is none, and where it has failed."""
        for directory in self.dirs:
            if directory.path == path:
                if directory.failure is not None:
                    raise directory.offline()
                return directory
        raise LogDirNotFound(f"{path} is not a log directory of this broker")

    def _dir_for(self, path: str | None) -> LogDir:
        online = [directory for directory in self.dirs if directory.failure is None]
        if path is not None:
            online = [directory for directory in online if directory.path == path]
            if not online:
                raise LogDirNotFound(f"{path} is not a working log directory of this broker")
        if not online:
            raise self.dirs[0].offline()
        usable = [directory for directory in online if directory.path not in self.cordoned]
        if not usable:
            paths = ", ".join(directory.path for directory in online)
            raise LogDirCordoned(f"no new partitions may be placed in {paths}: see cordoned.log.dirs")
        return min(usable, key=lambda directory: len(directory.logs))

    def delete(self, key: TopicPartition) -> None:
        """Takes the partition out of service at once; its files go after `file.delete.delay.ms`."""
        self.cancel_move(key)
        self._retire(key, DELETE)

    def mark_stray(self, key: TopicPartition) -> None:
        """Takes the partition out of service and keeps its files."""
        self._retire(key, STRAY)

    def _retire(self, key: TopicPartition, kind: str) -> None:
        log = self.logs.pop(key)
        directory = log.directory
        del directory.logs[key]
        try:
            self._rename(log, kind)
        except OSError as error:
            raise directory.refuse(error, log.path) from error

    def _rename(self, log: Log, kind: str) -> None:
        """Takes a log out of service: gives its directory a name that says what is to become of it."""
        directory = log.directory
        path = f"{directory.path}/{name_of(log.key, kind, self._new_id().hex())}"
        log.move(path)
        log.abandon()
        directory.departed.add(log.key)
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
        self._forget(key)
        name = name_of(key, FUTURE, self._new_id().hex())
        future = create_log(target, key, current.config, now_ms, current.topic_id, name)
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
        """The copy, which has caught up, becomes the partition; what was the partition is deleted afterwards."""
        move = self._moves.pop(key)
        current, future = move.current, move.future
        future.flush()
        try:
            future.note(future.notes._replace(moves=current.notes.moves + 1))
            future.move(f"{future.directory.path}/{name_of(key)}")
            self.disk.sync_dir(future.directory.path)
        except OSError as error:
            # How much of this is on the device nobody knows: it must not be taken for the partition later.
            current.note(current.notes._replace(moves=current.notes.moves + 2))
            raise future.directory.refuse(error, future.path) from error
        del self.futures[key]
        future.cleaned_offset = move.cleaned_offset
        try:
            self._retire(key, DELETE)
        except StorageError as error:
            # When it is back, the count of moves tells that what is there is out of date.
            self._notices.append(f"{name_of(key)} has left a directory that fails: {error}")
        self._add(future)
        self._try_to_checkpoint(future.directory, None)
        return future

    def cancel_move(self, key: TopicPartition) -> None:
        """Gives a copy up."""
        self._moves.pop(key, None)
        future = self.futures.pop(key, None)
        if future is not None:
            try:
                self._rename(future, DELETE)
            except OSError as error:
                raise future.directory.refuse(error, future.path) from error

    # --- what must be done from time to time

    def take_deletions(self) -> list[PendingDeletion]:
        """Deletions to be run, on a worker, each after its delay."""
        taken = []
        for directory in self.dirs:
            if directory.deletions and directory.failure is None:
                self._try_to_checkpoint_starts(directory)
            taken += directory.deletions
            directory.deletions.clear()
        return taken

    def _try_to_checkpoint_starts(self, directory: LogDir) -> None:
        """Before a segment goes: one that is missing, and from which the log should begin, was not removed by us."""
        try:
            directory.checkpoint_start_offsets()
        except OSError as error:
            self._note_old_checkpoints(directory, error)

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
        taken, self._notices = self._notices, []
        for directory in self.dirs:
            taken += directory.notices
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
                self._try_to_checkpoint(directory, high_watermarks)

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Writes the high watermarks of the directories in which one has moved.

        They are not synced: where the power takes them, the leader finds them again.
        """
        for directory in self.dirs:
            if directory.failure is None:
                try:
                    directory.checkpoint_high_watermarks(high_watermarks, sync=False)
                except OSError as error:
                    self._note_old_checkpoints(directory, error)

    def _try_to_checkpoint(self, directory: LogDir, high_watermarks: Mapping[TopicPartition, int] | None) -> None:
        try:
            self._checkpoint(directory, high_watermarks)
        except OSError as error:
            self._note_old_checkpoints(directory, error)

    @staticmethod
    def _note_old_checkpoints(directory: LogDir, error: OSError) -> None:
        """The checkpoints of before are still true, only older. Who is to hear of a failure asks `lose_failed`."""
        if error.errno in PASSING:
            directory.refuse(error, directory.path)
        else:
            directory.fail(error)

    def _checkpoint(
        self, directory: LogDir, high_watermarks: Mapping[TopicPartition, int] | None, closed: bool = False
    ) -> None:
        directory.checkpoint_recovery_points(closed)
        directory.checkpoint_start_offsets()
        if high_watermarks is not None:
            directory.checkpoint_high_watermarks(high_watermarks)

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
        """A clean stop: the next opening will not scan. Where that fails, `take_notices` tells."""
        for directory in self.dirs:
            if directory.failure is None:
                try:
                    self._close(directory, broker_epoch, high_watermarks)
                except (OSError, StorageError) as error:
                    why = error.strerror if isinstance(error, OSError) else error
                    self._notices.append(
                        f"log directory {directory.path} could not be shut down cleanly ({why}): "
                        "the next start recovers its logs"
                    )
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
