"""All logs of a broker, spread over its log directories.

A directory that fails, when it is opened (`opening.py`) or later, goes offline with its logs and leaves the others
alone. Closing flushes, writes checkpoints, and last of all the marker of a clean shutdown.

Checkpoints speak of partitions by name only. Where one has left a directory, its entries go from the checkpoints there
before another one of that name begins.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.log.checkpoints import CLEAN_SHUTDOWN, PartitionNotes, format_clean_shutdown
from tidelog.log.config import LogConfig
from tidelog.log.directories.clean_stop import write_clean_stop
from tidelog.log.directories.directory_names import DELETE, FUTURE, STRAY, name_of
from tidelog.log.directories.directory_set import DirectorySet, MetadataVersion, Placement, write_directory_set
from tidelog.log.directories.inventory import Inventory
from tidelog.log.directories.moves import Move
from tidelog.log.directories.opening import Opening
from tidelog.log.directories.recovery import create_log
from tidelog.log.disk import NO_ROOM, Disk, Lock, Usage, replace_file
from tidelog.log.errors import CorruptMessage, LogDirCordoned, LogDirNotFound, LogError, StorageError
from tidelog.log.flush import MANY, run_together
from tidelog.log.log import Log
from tidelog.log.log_dir import LogDir, PendingDeletion
from tidelog.log.retention import delete_old_segments
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.log.shared.commit_log import CommitLog
    from tidelog.log.shared.reclaiming import Pace
    from tidelog.log.shared.upkeep import Slices


class DirDescription(NamedTuple):
    """One directory as DescribeLogDirs shows it. `usage` is None where the directory is offline."""

    path: str
    failure: OSError | None
    usage: Usage | None
    sizes_bytes: dict[TopicPartition, int]
    future_sizes_bytes: dict[TopicPartition, int]


class LogDirs:
    __slots__ = (
        "_commit_bytes",
        "_config_for",
        "_inventory",
        "_known",
        "_locks",
        "_moves",
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
        commit_bytes: int | None = None,
    ) -> None:
        """`commit_bytes` is given in the shared layout: how large a file of the commit log becomes."""
        self.disk = disk
        self.dirs = [LogDir(disk, path) for path in paths]
        self._inventory = Inventory(self.dirs, disk, new_id)
        self.logs = self._inventory.logs
        self.futures = self._inventory.futures
        self.offline = self._inventory.offline
        self._moves: dict[TopicPartition, Move] = {}
        #: paths of directories that belong here and are not there, as long as it is not known what they hold
        self.missing: set[str] = set()
        #: as checkpointed by the life before
        self.high_watermarks: dict[TopicPartition, int] = {}
        #: the epoch of the broker that stopped cleanly, -1 if not every directory was stopped cleanly by the same
        self.clean_broker_epoch = -1
        #: paths of directories that get no new partitions; what they hold stays in use
        self.cordoned: frozenset[str] = frozenset()
        self._config_for = config_for
        self._commit_bytes = commit_bytes
        self._locks: list[Lock] = []
        #: the directories that belong together, with those that are missing
        self._known = DirectorySet({})

    @property
    def is_shared(self) -> bool:
        """Whether this is the shared layout."""
        return self._commit_bytes is not None

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
        yet: what does not belong here is then found later, by `judging`.
        """
        opening = Opening(
            self._inventory,
            self._locks,
            self._config_for,
            node_id,
            cluster_id,
            now_ms,
            placement,
            is_judged_later,
            self._commit_bytes,
        )
        try:
            opening.run()
        except LogError:
            self._release()
            raise
        self.high_watermarks = opening.high_watermarks
        self.clean_broker_epoch = opening.clean_broker_epoch
        self._known = opening.known
        self.missing = opening.missing
        self.remember(self._known.metadata_version)

    @property
    def is_incomplete(self) -> bool:
        """Logs may have been here that are not now: a directory is missing, or it or one of its logs has failed."""
        return bool(self.missing) or any(each.failure is not None or each.unopened for each in self.dirs)

    @property
    def out_of_reach(self) -> set[TopicPartition]:
        """Partitions of this broker whose logs it cannot open, or not any more."""
        return self.offline.union(*(each.unopened for each in self.dirs))

    def mark_incomplete(self, log: Log, incomplete: bool) -> None:
        """Writes down whether a log lacks records that it had; raises StorageError where it cannot."""
        self._note(log, log.notes._replace(incomplete=incomplete))

    def forget_damage(self, log: Log) -> None:
        """Writes down that somebody has decided who leads, though this log was damaged; raises as above. If the power
        takes that, it is decided once more."""
        self._note(log, log.notes._replace(damaged=False), sync=False)

    @staticmethod
    def _note(log: Log, notes: PartitionNotes, sync: bool = True) -> None:
        try:
            log.note(notes, sync)
        except OSError as error:
            raise log.directory.refuse(error, log.name) from error

    def fate(self, log: Log, placement: Placement) -> str | None:
        """What becomes of a log that does not belong here, as the kind of its name; None where it does."""
        return self._inventory.fate(log, placement, self._known.metadata_version)

    def settle_rivals(self, placement: Placement) -> Iterator[Log]:
        """Has each partition that lies in several directories, under different ids, be the one that belongs here; gives
        the others, which are to be disposed of."""
        rivals, self._inventory.rivals = self._inventory.rivals, []
        for rival in rivals:
            key = rival.key
            chosen, other = self.logs.get(key), rival
            if chosen is None or placement.topic_ids.get(key) == rival.topic_id:
                self.logs[key] = rival
                chosen, other = rival, chosen
            if key in chosen.directory.marks_found:
                self.high_watermarks[key] = chosen.directory.marks_found[key]
            else:
                self.high_watermarks.pop(key, None)
            if other is not None:
                yield other

    def dispose(self, log: Log, placement: Placement) -> str:
        """Of a log that is not in service and does not belong here; the kind of its name from then on."""
        kind = self.fate(log, placement) or STRAY
        self._inventory.dispose(log, kind)
        return kind

    def is_newer_than(self, placement: Placement) -> bool:
        """Whether these directories were in use with metadata of later."""
        return placement.version.is_older_than(self._known.metadata_version)

    def forget_missing(self) -> None:
        """No partition is missing, so no directory is missed."""
        self.missing = set()
        self._known = DirectorySet({}, self._known.metadata_version)

    def remember(self, metadata_version: MetadataVersion) -> None:
        """Writes down which directories belong together, and how far the metadata was."""
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
                    directory.keep_old_checkpoints(error)

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
        is_back = self._forget(key) or (topic_id, key[1]) in directory.told_of
        log = create_log(directory, key, self._config_for(key[0]), now_ms, topic_id, is_back=is_back)
        self._inventory.add(log)
        return log

    def _forget(self, key: TopicPartition) -> bool:
        """Another one of that name begins: what is known of the one before must not bind it. Whether there was one."""
        self.high_watermarks.pop(key, None)
        was_here = any(key in directory.departed for directory in self.dirs)
        for directory in self.dirs:
            if directory.failure is None:
                try:
                    directory.forget(key)
                except OSError as error:
                    raise directory.refuse(error, f"the new partition {name_of(key)}") from error
        return was_here

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
        self._inventory.retire(key, DELETE)

    def mark_stray(self, key: TopicPartition) -> None:
        """Takes the partition out of service and keeps its files."""
        self._inventory.retire(key, STRAY)

    # --- moving between directories

    def begin_move(self, key: TopicPartition, path: str, now_ms: int) -> Move | None:
        """Begins to copy a partition into the directory `path`; None if it is there already."""
        current = self.logs[key]
        target = self._dir_for(path)
        self.cancel_move(key)
        if current.directory is target:
            return None
        self._forget(key)
        return self._begin_copy(current, target, now_ms)

    def begin_separation(self, key: TopicPartition, now_ms: int) -> Move:
        """Begins to copy a partition that is compacted now, beside itself, out of the commit log into files."""
        self.cancel_move(key)
        current = self.logs[key]
        return self._begin_copy(current, current.directory, now_ms)

    def _begin_copy(self, current: Log, target: LogDir, now_ms: int) -> Move:
        key = current.key
        name = name_of(key, FUTURE, self._inventory.new_id().hex())
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
        if future.directory is current.directory:
            return self._succeed(move)
        try:
            future.note(self._notes_of(move))
            future.move(f"{future.directory.path}/{name_of(key)}")
            self.disk.sync_dir(future.directory.path)
        except OSError as error:
            # How much of this is on the device nobody knows: it must not be taken for the partition later.
            current.note(current.notes._replace(moves=current.notes.moves + 2))
            raise future.directory.refuse(error, future.path) from error
        del self.futures[key]
        future.cleaned_offset = move.cleaned_offset
        try:
            self._inventory.retire(key, DELETE)
        except StorageError as error:
            # When it is back, the count of moves tells that what is there is out of date.
            self._inventory.notices.append(f"{name_of(key)} has left a directory that fails: {error}")
        self._inventory.add(future)
        future.directory.try_to_checkpoint(None)
        return future

    @staticmethod
    def _notes_of(move: Move) -> PartitionNotes:
        """Of the copy once it is the partition: what is missing from the one is missing from the other."""
        was = move.current.notes
        return move.future.notes._replace(moves=was.moves + 1, incomplete=was.incomplete, damaged=was.damaged)

    def _succeed(self, move: Move) -> Log:
        """As `finish_move` within a directory: the copy gets the name that the partition had."""
        current, future, directory = move.current, move.future, move.future.directory
        key, path = current.key, current.path
        try:
            future.note(self._notes_of(move)._replace(succeeds=True))
        except OSError as error:
            raise directory.refuse(error, future.path) from error
        try:
            self._inventory.rename(current, DELETE)
            future.move(path)
            self.disk.sync_dir(directory.path)
        except OSError as error:
            # Nothing may be written to the partition any more: the next opening takes the copy for it.
            raise directory.fail(error) from error
        del self.futures[key]
        self._inventory.add(future)
        future.cleaned_offset = move.cleaned_offset
        directory.departed.discard(key)
        directory.try_to_checkpoint(None)
        return future

    def cancel_move(self, key: TopicPartition) -> None:
        """Gives a copy up."""
        self._moves.pop(key, None)
        future = self.futures.pop(key, None)
        if future is not None:
            try:
                self._inventory.rename(future, DELETE)
            except OSError as error:
                raise future.directory.refuse(error, future.path) from error

    # --- what must be done from time to time

    def take_deletions(self) -> list[PendingDeletion]:
        """Deletions to be run, on a worker, each after its delay."""
        taken = []
        for directory in self.dirs:
            if directory.failure is None:
                self._release_files(directory)
            due = [*directory.deletions, *directory.dropped]
            if due and directory.failure is None:
                directory.try_to_checkpoint_start_offsets()
            taken += due
            directory.deletions.clear()
            directory.dropped.clear()
        return taken

    def _release_files(self, directory: LogDir) -> None:
        if directory.commit is None:
            return
        from tidelog.log.shared.upkeep import release_files

        try:
            release_files(directory, partial(self._all_in, directory))
        except OSError as error:
            directory.keep_old_checkpoints(error)

    @property
    def unqueued_bytes(self) -> int:
        """In the shared layout: how much a start would have to read, of the directory in which that is most."""
        commits = [directory.commit for directory in self.dirs if directory.commit is not None]
        return max((commit.end - commit.checkpoint for commit in commits), default=0)

    def checkpoint_queues(self) -> Slices:
        """In the shared layout, of every directory; see `shared.upkeep`."""
        for directory in self.dirs:
            if directory.commit is not None and directory.failure is None:
                from tidelog.log.shared.upkeep import checkpoint_in_slices

                try:
                    yield from checkpoint_in_slices(directory, partial(self._all_in, directory))
                except OSError as error:
                    directory.keep_old_checkpoints(error)

    def reclaim(self, pace: Pace | None = None) -> Slices:
        """In the shared layout: gives room back that dead batches occupy; see `shared.reclaiming`."""
        for directory in self.dirs:
            if directory.commit is not None and directory.failure is None:
                try:
                    yield from self._reclaim(directory, directory.commit, pace)
                except CorruptMessage as error:
                    directory.pin(error)
                except OSError as error:
                    directory.keep_old_checkpoints(error)

    def _reclaim(self, directory: LogDir, commit: CommitLog, pace: Pace | None) -> Slices:
        from tidelog.log.shared.reclaiming import Pace, is_worth_it, make_room_in_slices, reclaim_in_slices
        from tidelog.log.shared.upkeep import checkpoint_in_slices, is_room_scarce, remove_dropped, saving

        if is_room_scarce(directory):
            # Nothing past the last one can go. It may be long until the next.
            yield from checkpoint_in_slices(directory, partial(self._all_in, directory))
        # Once round and no further: what was moved meanwhile is left to the next one.
        end = commit.end
        while directory.failure is None and commit.first < end and is_worth_it(directory, self._all_in(directory)):
            with saving(directory):
                if not (yield from make_room_in_slices(directory, self._all_in(directory))) or not commit.can_reclaim:
                    return
                oldest = commit.first
                yield from reclaim_in_slices(directory, partial(self._all_in, directory), pace or Pace())
                self._release_files(directory)
                if commit.is_saving:
                    yield from remove_dropped(directory)
            if commit.first == oldest:
                return

    def _all_in(self, directory: LogDir) -> list[Log]:
        """The logs in a directory, and the copies that are being made there."""
        return [*directory.logs.values(), *(log for log in self.futures.values() if log.directory is directory)]

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
        taken: list[str] = []
        for notices in (self._inventory.notices, *(directory.notices for directory in self.dirs)):
            taken += notices
            notices.clear()
        return taken

    def lose_failed(self) -> list[str]:
        """Takes the logs of directories that failed meanwhile out of service; returns the paths of these."""
        failed = [directory for directory in self.dirs if directory.failure is not None and directory.logs]
        for directory in failed:
            self._inventory.lose(directory, directory.failure or OSError())
        return [directory.path for directory in failed]

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Writes recovery points, log start offsets and, where given, high watermarks of every directory."""
        for directory in self.dirs:
            if directory.failure is None:
                directory.try_to_checkpoint(high_watermarks)

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Writes the high watermarks of the directories in which one has moved.

        They are not synced: where the power takes them, the leader finds them again.
        """
        for directory in self.dirs:
            if directory.failure is None:
                try:
                    directory.checkpoint_high_watermarks(high_watermarks, sync=False)
                except OSError as error:
                    directory.keep_old_checkpoints(error)

    def describe(self) -> list[DirDescription]:
        return [self._describe(directory) for directory in self.dirs]

    def _describe(self, directory: LogDir) -> DirDescription:
        usage = None
        if directory.failure is None:
            try:
                usage = self.disk.usage(directory.path)
            except OSError as error:
                self._inventory.lose(directory, error)
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
                    if isinstance(error, OSError) and error.errno in NO_ROOM:
                        directory.no_room = error
                    why = error.strerror if isinstance(error, OSError) else error
                    self._inventory.notices.append(
                        f"log directory {directory.path} could not be shut down cleanly ({why}): "
                        "the next start recovers its logs"
                    )
        self._release()

    def _close(
        self, directory: LogDir, broker_epoch: int, high_watermarks: Mapping[TopicPartition, int] | None
    ) -> None:
        if directory.commit is not None:
            from tidelog.log.shared.upkeep import checkpoint

            directory.commit.give_back_ahead()
            checkpoint(directory, partial(self._all_in, directory))
        # The next start keeps room back again.
        directory.give_kept_room()
        works = [(log, log.close_work()) for log in self._all_in(directory)]
        pending = [work for _, work in works if work]
        if len(pending) > MANY:
            run_together(pending, self.disk, directory.path, directory.commit)
        else:
            for work in pending:
                work()
        for log, work in works:
            log.flush_done(work)
            log.abandon()
        directory.checkpoint(high_watermarks, closed=True)
        if directory.commit is not None:
            directory.commit.close()
        write_clean_stop(self.disk, directory.path, (log for log, _ in works))
        replace_file(self.disk, f"{directory.path}/{CLEAN_SHUTDOWN}", format_clean_shutdown(broker_epoch))
        self.disk.sync_dir(directory.path)
