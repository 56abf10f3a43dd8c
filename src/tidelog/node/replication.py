"""Keeps the replicas of this broker together with those of others: what it leads by its followers' word, what it
follows by fetching.

Each change of leadership comes here: a partition that another broker leads is fetched from it, one that this broker
leads no longer is. Proposals to change an ISR go from here to the controller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.log.log import Log
from tidelog.node.cluster_view import ClusterView
from tidelog.node.data_plane import DataPlane
from tidelog.node.isr_changes import AlterPartition, IsrChanges
from tidelog.peers.requester import Link, LinkOptions, PeerAddress, Requester
from tidelog.replica.fetchers import Fetchers
from tidelog.replica.partition import NO_LEADER, Partition
from tidelog.replica.throttle import ReplicationThrottle
from tidelog.timer.host import Host
from tidelog.timer.wheel import TimerTask
from tidelog.wire.errors import ErrorCode

#: of an answer, beside the records: what it says of its partitions
ANSWER_OVERHEAD_BYTES: Final = 64 * 1024 * 1024


class Replication:
    """It is also the `FetchTerms` that fetchers go by."""

    def __init__(
        self,
        cluster: ClusterView,
        data: DataPlane,
        requester: Requester,
        alter_partition: AlterPartition,
        host: Host,
    ) -> None:
        self._cluster = cluster
        self._data = data
        self._requester = requester
        self._host = host
        self.isr_changes = IsrChanges(alter_partition, host, data.high_watermark_moved)
        data.on_isr_proposed = self.isr_changes.add
        self._fetchers = Fetchers(self, host, cluster.peer, self._link)
        self._isr_check: TimerTask | None = None
        cluster.config.on_change(["num.replica.fetchers"], lambda names: self._spread_anew())

    def _link(self, peer: PeerAddress, purpose: str) -> Link:
        values = self._cluster.config.values
        most = values.replica_fetch_response_max_bytes + values.replica_fetch_max_bytes + ANSWER_OVERHEAD_BYTES
        return self._requester.link(
            peer, purpose, LinkOptions(values.replica_socket_receive_buffer_bytes, min(most, 2**31 - 1))
        )

    # --- life -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to look for followers that lag, twice in `replica.lag.time.max.ms`."""

        def check() -> None:
            try:
                self._data.shrink_isrs()
            finally:
                self.start()

        interval_ms = max(self._cluster.config.values.replica_lag_time_max_ms // 2, 1)
        self._isr_check = self._host.timer.add(self._host.clock.monotonic_ms() + min(interval_ms, 86_400_000), check)

    def stop(self) -> None:
        if self._isr_check is not None:
            self._isr_check.cancel()
        self._fetchers.close()

    # --- what the controller says -------------------------------------------------------------------------

    def placed(self, partition: Partition) -> None:
        """Follows a partition's leader, or nobody where this broker leads it or none does."""
        if partition.leader_id in (NO_LEADER, partition.local_id):
            self._fetchers.leave((partition.topic_id, partition.index))
        else:
            self._fetchers.follow(partition, self._fetcher_count)

    def removed(self, partition: Partition) -> None:
        self._fetchers.leave((partition.topic_id, partition.index))

    def broker_registered(self, broker_id: int, is_new: bool) -> None:
        """A broker has another address, or it has started: nobody waits until the connection is tried again."""
        self._fetchers.moved((broker_id,) if is_new else (), self._fetcher_count)

    def _spread_anew(self) -> None:
        for partition in self._followed():
            self.placed(partition)

    def _followed(self) -> list[Partition]:
        return [each for each in self._data.replicas.partitions.values() if each.leader_id != each.local_id]

    @property
    def _fetcher_count(self) -> int:
        count: int = self._cluster.config.values.num_replica_fetchers
        return count

    # --- the terms of fetchers --------------------------------------------------------------------------

    @property
    def local_id(self) -> int:
        return self._cluster.id

    @property
    def broker_epoch(self) -> int:
        # A broker that joins again goes on fetching as the one that it was: leaders do not mistake it for a newer one.
        return self._cluster.known_epoch

    @property
    def max_bytes(self) -> int:
        most: int = self._cluster.config.values.replica_fetch_max_bytes
        return most

    @property
    def response_max_bytes(self) -> int:
        most: int = self._cluster.config.values.replica_fetch_response_max_bytes
        return most

    @property
    def min_bytes(self) -> int:
        least: int = self._cluster.config.values.replica_fetch_min_bytes
        return least

    @property
    def wait_max_ms(self) -> int:
        wait_ms: int = self._cluster.config.values.replica_fetch_wait_max_ms
        return wait_ms

    @property
    def backoff_ms(self) -> int:
        backoff_ms: int = self._cluster.config.values.replica_fetch_backoff_ms
        return backoff_ms

    @property
    def timeout_ms(self) -> int:
        timeout_ms: int = self._cluster.config.values.replica_socket_timeout_ms
        return timeout_ms

    @property
    def throttle(self) -> ReplicationThrottle:
        return self._data.throttles.as_follower

    def is_throttled(self, partition: Partition) -> bool:
        return self._data.throttles.covers_follower(partition)

    def appended(self, partition: Partition) -> None:
        if partition.log.directory.flushes:
            self._data.on_work_left()

    def high_watermark_moved(self, partition: Partition) -> None:
        self._data.parking.wake(partition.key)

    def flush(self, log: Log, done: Callable[[ErrorCode], None]) -> None:
        self._data.flushing.flush(log, done)

    def write_out(self) -> None:
        self._data.writing.write_out()
