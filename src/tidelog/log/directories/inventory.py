"""The logs of a broker, how one comes into service, and how it leaves: deleted, set aside, or with its directory."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.log.directories.directory_names import DELETE, STRAY, name_of
from tidelog.log.directories.directory_set import MetadataVersion, Placement
from tidelog.log.disk import Disk
from tidelog.log.log import Log
from tidelog.log.log_dir import LogDir, PendingDeletion
from tidelog.wire.partitions import TopicPartition


class Inventory:
    __slots__ = ("dirs", "disk", "futures", "logs", "new_id", "notices", "offline", "rivals")

    def __init__(self, dirs: list[LogDir], disk: Disk, new_id: Callable[[], bytes]) -> None:
        self.dirs = dirs
        self.disk = disk
        self.new_id = new_id
        self.logs: dict[TopicPartition, Log] = {}
        #: copies that are being made in another directory
        self.futures: dict[TopicPartition, Log] = {}
        #: other lives of partitions that are in `logs`, as long as it is not known which one belongs here
        self.rivals: list[Log] = []
        #: partitions of this broker that lie in a directory which is missing, or has failed
        self.offline: set[TopicPartition] = set()
        #: what somebody should hear of
        self.notices: list[str] = []

    def add(self, log: Log) -> None:
        self.logs[log.key] = log
        log.directory.logs[log.key] = log

    def retire(self, key: TopicPartition, kind: str) -> None:
        """Takes a partition out of service; `kind` says what is to become of its files."""
        self.dispose(self.logs.pop(key), kind)

    def dispose(self, log: Log, kind: str) -> None:
        """Of a log that is not in service, or no longer."""
        del log.directory.logs[log.key]
        try:
            self.rename(log, kind)
        except OSError as error:
            raise log.directory.refuse(error, log.path) from error

    def add_rival(self, log: Log) -> None:
        self.rivals.append(log)
        log.directory.logs[log.key] = log

    def rename(self, log: Log, kind: str) -> None:
        """Gives the directory of a log that is not in service a name that says what is to become of it."""
        directory = log.directory
        path = f"{directory.path}/{name_of(log.key, kind, self.new_id().hex())}"
        log.move(path)
        if kind == STRAY and log.store is not None:
            directory.set_aside(log)
        else:
            log.abandon()
        directory.departed.add(log.key)
        if kind == DELETE:
            directory.deletions.append(PendingDeletion(self.disk, [], log.config.file_delete_delay_ms, path))

    def fate(self, log: Log, placement: Placement | None, metadata_version: MetadataVersion) -> str | None:
        """What becomes of a log that does not belong here, as the kind of its name; None where it does."""
        key = log.key
        if placement is None:
            return None
        fate = placement.fate(key, log.topic_id, metadata_version)
        is_only_one = self.logs.get(key, log) is log
        if fate == DELETE and key in placement.topic_ids and is_only_one and log.recovery_point == 0:
            # An id that was never synced may be torn, where a partition of that name belongs here.
            return STRAY
        return fate

    def lose(self, directory: LogDir, error: OSError) -> None:
        """Takes a directory and its logs out of service."""
        directory.fail(error)
        self.offline.update(directory.logs)
        for logs in (self.logs, self.futures):
            for key in [key for key, log in logs.items() if log.directory is directory]:
                logs.pop(key).abandon()
        for rival in [log for log in self.rivals if log.directory is directory]:
            self.rivals.remove(rival)
            rival.abandon()
        directory.logs.clear()
