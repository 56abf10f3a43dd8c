"""The partitions on this broker: their logs, their replicas, and the requests that wait for them.

An append wakes the requests that are parked on its partition. Syncing and removing files is left to upkeep.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tidelog.control.model import Partition as Assignment
from tidelog.control.model import Topic
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.disk import Disk
from tidelog.log.errors import LogError
from tidelog.node.cluster_view import ClusterView
from tidelog.node.flushing import Flushing
from tidelog.replica.fetch_sessions import FetchSessions
from tidelog.replica.partition import Partition
from tidelog.replica.replicas import Replicas
from tidelog.timer.host import Host
from tidelog.timer.parking import Parking
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.partitions import TopicPartition

#: a fetch session that was not used for so long makes room for others
FETCH_SESSION_EVICTION_MS: Final = 120_000


class DataPlane:
    def __init__(self, cluster: ClusterView, disk: Disk, host: Host, random: Random) -> None:
        self._cluster = cluster
        self._host = host
        self.logs = LogDirs(cluster.config.log_dirs, disk, cluster.log_config)
        self._cordon()
        cluster.config.on_change(["cordoned.log.dirs"], lambda names: self._cordon())
        self.replicas = Replicas(cluster.id)
        self.flushing = Flushing(host)
        self.parking = Parking(host.timer, lambda parked, error: host.report("a parked request failed", error))
        self.fetch_sessions = FetchSessions(
            cluster.config.values.max_incremental_fetch_session_cache_slots,
            FETCH_SESSION_EVICTION_MS,
            lambda: random.randrange(1, 2**31),
        )
        #: told when a log left files to sync or to remove
        self.on_work_left: Callable[[], None] = lambda: None

    def _cordon(self) -> None:
        config = self._cluster.config
        cordoned = config.values.cordoned_log_dirs
        self.logs.cordoned = frozenset(config.log_dirs if "*" in cordoned else cordoned)

    def partition(self, topic: str, index: int) -> Partition:
        """The replica of a partition on this broker, or the error that a client is answered with."""
        partition = self.replicas.partitions.get((topic, index))
        if partition is not None:
            return partition
        raise KafkaError(self._cluster.why_missing(topic, index))

    def appended(self, partition: Partition) -> None:
        """Something was appended: whoever waits for the partition looks again."""
        self.parking.wake(partition.key)
        if partition.log.directory.flushes:
            self.on_work_left()

    def when_committed(self, key: TopicPartition, timeout_ms: int, done: Callable[[ErrorCode], None]) -> None:
        """Calls `done` when everything that the partition holds now is at or below its high watermark.

        At once where it already is, or where there is no such partition. `done` gets NOT_LEADER_OR_FOLLOWER if this
        broker stops leading before, and REQUEST_TIMED_OUT after `timeout_ms`.
        """
        partition = self.replicas.partitions.get(key)
        if partition is None or partition.high_watermark >= partition.log.log_end_offset:
            done(ErrorCode.NONE)
            return
        end = partition.log.log_end_offset

        def try_complete() -> bool:
            if not partition.is_leader:
                done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif partition.high_watermark < end:
                return False
            else:
                done(ErrorCode.NONE)
            return True

        deadline_ms = self._host.clock.monotonic_ms() + timeout_ms
        self.parking.park([key], deadline_ms, try_complete, lambda: done(ErrorCode.REQUEST_TIMED_OUT))

    def place(self, topic: Topic, assigned: Assignment) -> Partition | None:
        """Brings a partition that is assigned to this broker into service; raises LogError where it cannot.

        None where its log directory is offline.
        """
        key = TopicPartition(topic.name, assigned.partition_index)
        partition = self.replicas.partitions.get(key)
        if partition is None and key in self.logs.offline:
            return None
        clock = self._host.clock
        if partition is None:
            log = self.logs.create(key, clock.wall_ms(), topic.topic_id)
            checkpointed = self.logs.high_watermarks.get(key, log.log_start_offset)
            partition = self.replicas.place(topic.topic_id, log, checkpointed)
        self.replicas.follow_assignment(partition, assigned, clock.monotonic_ms())
        return partition

    def remove(self, topic: str, index: int) -> None:
        """Takes a partition of a deleted topic out of service; its files go later."""
        key = (topic, index)
        self.logs.offline.discard(key)
        if self.replicas.remove(topic, index) is not None and key in self.logs.logs:
            try:
                self.logs.delete(key)
            except LogError as error:
                self._host.report(f"the files of {topic}-{index} could not be removed", error)
        self.parking.wake(key)

    def reconfigure(self, topic: Topic) -> None:
        """Has the logs of a topic follow its configuration."""
        config = self._cluster.log_config(topic.name)
        for assigned in topic.partitions:
            log = self.logs.get(topic.name, assigned.partition_index)
            if log is not None:
                log.config = config

    def close(self) -> None:
        """A clean stop: everything is on the device, and the next start need not look."""
        self.logs.close(self._cluster.broker_epoch, self.replicas.high_watermarks())
        for notice in self.logs.take_notices():
            self._host.notice(notice)
