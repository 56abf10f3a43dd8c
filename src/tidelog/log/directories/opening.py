"""A start of a broker: from what lies in its log directories to logs in service.

Takes the lock of every directory, reads its checkpoints and opens its logs; the clean-shutdown marker, if there is one,
is removed then, before anything is appended, so that a crash from here on is seen as one. A start that is refused has
changed nothing.

What is found is compared with what the cluster's metadata places here. A log of a topic that was deleted, and perhaps
created again under the same name, is known by its topic id and goes. A partition that is not found while a directory is
missing lies there: it is `offline`, and not made anew (`directory_set.py`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from tidelog.log.checkpoints import (
    CHECKPOINTS,
    CLEAN_SHUTDOWN,
    LOCK,
    META_PROPERTIES,
    NO_ID,
    MalformedCheckpoint,
    MetaProperties,
    parse_clean_shutdown,
)
from tidelog.log.config import LogConfig
from tidelog.log.directories.claim import Claim
from tidelog.log.directories.clean_stop import CLEAN_STOP, read_clean_stop
from tidelog.log.directories.directory_names import DELETE, FUTURE, STRAY, is_cut_short, name_of, parse_name
from tidelog.log.directories.directory_set import (
    DIRECTORY_SET,
    DirectorySet,
    Placement,
    found_twice,
    listed,
    read_directory_set,
)
from tidelog.log.directories.inventory import Inventory
from tidelog.log.directories.layout import PARTITIONED, SHARED, check_layout
from tidelog.log.directories.recovery import open_if_possible, open_stray, read_notes, read_topic_id
from tidelog.log.disk import Lock, read_file, replace_file
from tidelog.log.errors import DuplicateLog, LogDirInUse, StorageError
from tidelog.log.log import Log
from tidelog.log.log_dir import MENDING, LogDir, PendingDeletion
from tidelog.log.shared import COMMIT_DIRECTORY
from tidelog.wire.errors import CodedError
from tidelog.wire.partitions import TopicPartition


class Opening:
    """`placement` is None where the cluster's metadata is yet to be made, from what is found here, or is not known yet:
    what does not belong here is then found later, by `judging`.

    The locks that are taken join `locks`; the caller releases them, also where the start is refused.
    """

    __slots__ = (
        "_cluster_id",
        "_commit_bytes",
        "_config_for",
        "_disk",
        "_epochs",
        "_inventory",
        "_is_judged_later",
        "_locks",
        "_node_id",
        "_now_ms",
        "_placement",
        "_twice",
        "high_watermarks",
        "known",
        "missing",
    )

    def __init__(
        self,
        inventory: Inventory,
        locks: list[Lock],
        config_for: Callable[[str], LogConfig],
        node_id: int,
        cluster_id: str,
        now_ms: int,
        placement: Placement | None,
        is_judged_later: bool,
        commit_bytes: int | None,
    ) -> None:
        self._inventory = inventory
        self._disk = inventory.disk
        self._locks = locks
        self._config_for = config_for
        #: in the shared layout: how large a file of the commit log becomes
        self._commit_bytes = commit_bytes
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._now_ms = now_ms
        self._placement = placement
        self._is_judged_later = is_judged_later
        #: the broker epochs of the clean stops; -1 stands for a directory that had none
        self._epochs: set[int] = set()
        #: partitions that were found in two directories: nobody knows which is the right one
        self._twice: dict[TopicPartition, tuple[str, str]] = {}
        #: as checkpointed by the life before
        self.high_watermarks: dict[TopicPartition, int] = {}
        #: the directories that belong together, with those that are missing
        self.known = DirectorySet({})
        #: paths of directories that belong here and are not there, as long as it is not known what they hold
        self.missing: set[str] = set()

    @property
    def clean_broker_epoch(self) -> int:
        """The epoch of the broker that stopped cleanly, -1 if not every directory was stopped cleanly by the same."""
        (epoch,) = self._epochs if len(self._epochs) == 1 else (-1,)
        return epoch

    def run(self) -> None:
        """Locks and opens everything. Raises LogDirInUse; StorageError if no directory works."""
        dirs = self._inventory.dirs
        self.known = read_directory_set(self._disk, [directory.path for directory in dirs])
        blank = []
        for directory in dirs:
            try:
                if self._enter(directory):
                    self._epochs.add(self._load(directory))
                else:
                    blank.append(directory)
            except OSError as error:
                self._inventory.lose(directory, error)
        if self._is_judged_later:
            here = {each.path for each in dirs if each.failure is None and each not in blank}
            self.missing = {path for path in self.known.paths.values() if path not in here}
        else:
            self._find_missing(blank)
        for directory in blank:
            if directory.failure is None:
                try:
                    if self._commit_bytes is not None:
                        # Before it is formatted: from then on the directory is in one of the layouts.
                        self._disk.mkdir(f"{directory.path}/{COMMIT_DIRECTORY}")
                    self._format(directory)
                    self._epochs.add(self._load(directory))
                except OSError as error:
                    self._inventory.lose(directory, error)
        self._refuse_duplicates()
        # Only now: a start that is refused has changed nothing.
        for directory in dirs:
            if directory.failure is None:
                try:
                    self._leave_clean_stop(directory)
                except OSError as error:
                    self._inventory.lose(directory, error)
            if directory.failure is None:
                directory.try_to_checkpoint_start_offsets()
                directory.keep_room_back()
        if all(directory.failure for directory in dirs):
            raise dirs[0].offline()

    def _enter(self, directory: LogDir) -> bool:
        """Locks a directory and sees whose it is; False where there is nothing in it yet."""
        self._disk.mkdir(directory.path)
        lock = self._disk.lock(f"{directory.path}/{LOCK}")
        if lock is None:
            raise LogDirInUse(f"log directory {directory.path} is in use by another broker")
        self._locks.append(lock)
        check_layout(self._disk, directory.path, PARTITIONED if self._commit_bytes is None else SHARED)
        path = f"{directory.path}/{META_PROPERTIES}"
        # An empty one has got lost with the power.
        if not self._disk.exists(path) or not read_file(self._disk, path).strip():
            if not any(entry.is_dir and parse_name(entry.name) for entry in self._disk.list(directory.path)):
                return False
            self._format(directory)
            return True
        try:
            meta = MetaProperties.parse(read_file(self._disk, path), path)
        except MalformedCheckpoint as error:
            raise StorageError(str(error)) from None
        if (meta.cluster_id, meta.node_id) != (self._cluster_id, self._node_id):
            raise StorageError(
                f"log directory {directory.path} belongs to node {meta.node_id} of cluster {meta.cluster_id}, "
                f"not to node {self._node_id} of cluster {self._cluster_id}"
            )
        directory.directory_id = meta.directory_id
        if meta.directory_id == NO_ID:
            self._format(directory)
        return True

    def _format(self, directory: LogDir) -> None:
        """Writes down whose directory this is."""
        meta = MetaProperties(self._cluster_id, self._node_id, self._inventory.new_id())
        replace_file(self._disk, f"{directory.path}/{META_PROPERTIES}", meta.format())
        directory.directory_id = meta.directory_id

    def _load(self, directory: LogDir) -> int:
        """Opens the logs of a directory; returns the broker epoch of its clean stop, -1 if there was none."""
        disk, path = self._disk, directory.path
        marker = f"{path}/{CLEAN_SHUTDOWN}"
        clean = disk.exists(marker)
        clean_epoch = parse_clean_shutdown(read_file(disk, marker)) if clean else -1
        stopped = read_clean_stop(disk, path) if clean else {}
        interrupted = disk.exists(f"{path}/{MENDING}")
        if self._commit_bytes is not None:
            directory.open_commit_log(self._commit_bytes)
        if directory.commit is not None:
            # A start may have to write on a full disk. Nobody appends meanwhile.
            directory.commit.reserve.give()
        recovery_points, start_offsets, marks, cleaned_offsets = (directory.read_offsets(name) for name in CHECKPOINTS)
        directory.start_offsets, directory.recovery_points = start_offsets, recovery_points
        directory.marks_found = marks
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
                if self._placement is not None and is_cut_short(entry.name):
                    key = self._placement.whole_name(key, read_topic_id(disk, f"{path}/{entry.name}"))
                claim = Claim(clean, stopped=as_left)
                succeeds = read_notes(disk, f"{path}/{entry.name}").succeeds
                if succeeds:
                    claim = claim._replace(log_start_offset=start_offsets.get(key, 0))
                copy = open_if_possible(directory, f"{path}/{entry.name}", key, config, claim, self._now_ms)
                if copy is not None and succeeds:
                    self._succeed(copy)
                elif copy is not None:
                    self._add_future(copy)
            elif kind == STRAY:
                self._open_stray(directory, f"{path}/{entry.name}", key, config)
            else:
                offsets = recovery_points.get(key, 0), start_offsets.get(key, 0), cleaned_offsets.get(key)
                gaps = foreign or key in cleaned_offsets
                begins = None if foreign else start_offsets.get(key)
                claim = Claim(clean, *offsets, gaps, as_left, marks.get(key, 0), begins)
                found = open_if_possible(directory, f"{path}/{entry.name}", key, config, claim, self._now_ms)
                if found is not None:
                    self._add_found(found)
        directory.forget_told(directory.logs.values())
        if not clean and directory.recovery_points_stale:
            # Should the power go again, what was lost or given up must not be vouched for once more.
            try:
                directory.checkpoint_recovery_points()
            except OSError as error:
                directory.keep_old_checkpoints(error)
        if directory.commit is not None:
            from tidelog.log.directories.holes import tell_holes
            from tidelog.log.shared.upkeep import tell_ends

            futures = [log for log in self._inventory.futures.values() if log.directory is directory]
            tell_ends(directory, [*directory.logs.values(), *futures])
            tell_holes(directory, directory.logs.values())
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
        if not self._disk.exists(f"{directory.path}/{CLEAN_SHUTDOWN}"):
            return
        mended = [log for log in directory.logs.values() if log.recovery_point < log.log_end_offset]
        for log in mended:
            log.flush()
        if mended:
            directory.checkpoint_recovery_points()
        for name in (CLEAN_STOP, CLEAN_SHUTDOWN, MENDING):
            self._disk.remove(f"{directory.path}/{name}")
        self._disk.sync_dir(directory.path)

    def _refuse_duplicates(self) -> None:
        if self._twice:
            raise DuplicateLog(found_twice(self._twice))

    def _add_future(self, log: Log) -> None:
        key = log.key
        if key in self._inventory.futures or self._fate(log) is not None:
            self._inventory.rename(log, DELETE)
        else:
            self._inventory.futures[key] = log

    def _open_stray(self, directory: LogDir, path: str, key: TopicPartition, config: LogConfig) -> None:
        try:
            stray = open_stray(directory, path, key, config, self._now_ms)
        except (CodedError, ValueError) as error:
            if directory.commit is not None:
                directory.is_pinned = True
                directory.tell(
                    f"{path} cannot be read ({error}): until it is removed, the commit log is not made smaller"
                )
        else:
            if stray is not None:
                directory.add_stray(stray)

    def _succeed(self, copy: Log) -> None:
        """A stop came in between: the copy is complete, and takes the place of the partition beside it."""
        directory, key = copy.directory, copy.key
        current = directory.logs.pop(key, None)
        path = f"{directory.path}/{name_of(key)}"
        if current is not None:
            path = current.path
            del self._inventory.logs[key]
            self._inventory.rename(current, DELETE)
        copy.move(path)
        directory.disk.sync_dir(directory.path)
        self._add_found(copy)

    def _add_found(self, log: Log) -> None:
        fate = self._fate(log)
        if fate is not None:
            done = (
                "removed: its topic was deleted"
                if fate == DELETE
                else "set aside: it is no longer assigned to this directory"
            )
            self._inventory.notices.append(f"{log.path} is {done}")
            self._inventory.rename(log, fate)
            return
        other = self._inventory.logs.get(log.key)
        if other is not None:
            if self._is_judged_later and other.topic_id != log.topic_id and None not in (other.topic_id, log.topic_id):
                # The topic was deleted and made again while a directory had failed. Which one is its log is told later.
                self._inventory.add_rival(log)
                return
            if other.notes.moves == log.notes.moves:
                self._twice[log.key] = other.directory.path, log.directory.path
                return
            # A move was interrupted after the copy had taken the partition's place.
            older, log = sorted((other, log), key=lambda each: each.notes.moves)
            older.directory.logs.pop(log.key, None)
            try:
                self._inventory.rename(older, DELETE)
            except OSError as error:
                self._inventory.lose(older.directory, error)
        self._inventory.add(log)

    def _fate(self, log: Log) -> str | None:
        return self._inventory.fate(log, self._placement, self.known.metadata_version)

    def _find_missing(self, blank: list[LogDir]) -> None:
        """What a missing directory may hold is offline. Where no partition is missing, no directory is missed."""
        here = {
            each.directory_id: each.path for each in self._inventory.dirs if each.failure is None and each not in blank
        }
        missing = {key: path for key, path in self.known.paths.items() if key not in here}
        places = {*missing.values(), *(each.path for each in self._inventory.dirs if each.failure is not None)}
        absent = set() if self._placement is None else self._placement.topic_ids.keys() - self._inventory.logs.keys()
        if absent and places:
            self._inventory.offline.clear()
            self._inventory.offline.update(absent)
            self._inventory.notices.append(
                f"log directory {', '.join(sorted(places))} is missing: these partitions are offline until it is back: "
                f"{listed(absent)}. If it is lost for good, remove its line from {DIRECTORY_SET} in the other log "
                "directories: they are then recreated empty"
            )
        elif absent:
            self._inventory.notices.append(f"not found in any log directory and recreated empty: {listed(absent)}")
        for directory in blank:
            if self._inventory.offline and directory.path in places:
                what = "it is empty, and partitions are missing. Is its disk mounted?"
                directory.fail(FileNotFoundError(errno.ENOENT, what, directory.path))
        self.known = DirectorySet({**missing, **here} if self._inventory.offline else here, self.known.metadata_version)
