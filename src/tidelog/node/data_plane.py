"""The partitions on this broker: their logs, their replicas, and the requests that wait for them.

An append wakes the fetches of followers that are parked on its partition; the high watermark, when it moves, wakes all
others. Syncing and removing files is left to upkeep.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from random import Random
from typing import Final, NamedTuple

from tidelog.control.model import Partition as Assignment
from tidelog.control.model import Topic
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.disk import Disk
from tidelog.log.errors import LogError
from tidelog.log.log import Log
from tidelog.log.log_dir import LogDir
from tidelog.node.cluster_view import ClusterView
from tidelog.node.flushing import Flushing
from tidelog.node.writing import Writing
from tidelog.replica.fetch_sessions import FetchSessions
from tidelog.replica.in_sync import NO_BROKER_EPOCH, IsrProposal
from tidelog.replica.nearest import nearest_replica, reads_in_rack
from tidelog.replica.partition import Partition
from tidelog.replica.replicas import Replicas
from tidelog.replica.throttle import Throttles
from tidelog.timer.host import Host
from tidelog.timer.parking import Parking
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.partitions import TopicPartition

#: a fetch session that was not used for so long makes room for others
FETCH_SESSION_EVICTION_MS: Final = 120_000
#: so long after the high watermark has moved, followers that consumers read from are told, if no records have come
HIGH_WATERMARK_NEWS_MS: Final = 5


class Follower(NamedTuple):
    """A broker that fetches as a follower, under one of its registrations."""

    replica: int
    broker_epoch: int
    #: it may join an ISR, as far as this broker knows: it is registered, and not anew since it sent this
    is_eligible: bool


class Held(NamedTuple):
    """What a partition held at some moment: everything below `end_offset`.

    What a leader has appended may be cut off again as soon as it has stopped leading, if only for a while.
    """

    partition: Partition
    end_offset: int
    resignations: int

    @classmethod
    def now(cls, partition: Partition) -> Held:
        return cls(partition, partition.log.log_end_offset, partition.resignations)

    @property
    def is_led(self) -> bool:
        """This broker leads the partition, and has not stopped since."""
        return self.partition.is_leader and self.partition.resignations == self.resignations


def waiting_followers(key: tuple[str, int]) -> tuple[str, int, str]:
    """Where the fetches of followers are parked that have no session: they wait for records, not for what is committed.

    Those in a session are parked under that session, which knows what happened to its partitions.
    """
    return (*key, "followers")


class DataPlane:
    def __init__(self, cluster: ClusterView, disk: Disk, host: Host, random: Random) -> None:
        self._cluster = cluster
        self._host = host
        values = cluster.config.values
        commit_bytes = values.shared_segment_bytes if values.log_layout == "shared" else None
        self.logs = LogDirs(cluster.config.log_dirs, disk, cluster.log_config, cluster.new_id, commit_bytes)
        self.throttles = Throttles(cluster.config)
        self._reads_in_rack = reads_in_rack(cluster.config.values.replica_selector_class)
        self._cordon()
        cluster.config.on_change(["cordoned.log.dirs"], lambda names: self._cordon())
        self.replicas = Replicas(cluster.id)
        self.flushing = Flushing(host)
        self.parking = Parking(host.timer, lambda parked, error: host.report("a parked request failed", error))
        self.writing = Writing(self.logs, host, self.parking.wake)
        self.fetch_sessions = FetchSessions(
            cluster.config.values.max_incremental_fetch_session_cache_slots,
            FETCH_SESSION_EVICTION_MS,
            lambda: random.randrange(1, 2**31),
        )
        #: told of changes of an ISR that leaders here propose
        self.on_isr_proposed: Callable[[Partition, IsrProposal], None] = lambda partition, proposal: None
        #: where followers are parked that are to be woken at the end of this turn
        self._awakened: dict[Hashable, None] = {}
        #: partitions whose followers are to hear of a high watermark
        self._news: dict[Partition, None] = {}
        #: leaders have changed: what followers were told of them is looked at anew
        self._must_sweep = False
        #: the first offset of a partition that retention must leave
        self.held_from: Callable[[Partition], int] = lambda partition: partition.high_watermark
        #: told of logs that have another configuration
        self.on_reconfigured: Callable[[Log], None] = lambda log: None
        #: told when a log left files to sync or to remove
        self.on_work_left: Callable[[], None] = lambda: None
        #: and is, at the end of this turn
        self._is_work_told = False

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
        in_sync = partition.in_sync
        if in_sync.followers:
            self.tell_followers(partition)
        if self.writing.is_due:
            # Who waits for records would read them at once.
            self.writing.tell_later(partition.key)
        elif not in_sync.holding:
            self.parking.wake(partition.key)
        if partition.log.directory.flushes and not self._is_work_told:
            # Once for all that this turn appends; most of it is flushed by then for those who wait for it.
            self._is_work_told = True
            self._host.workers.call_soon(self._tell_work)

    def _tell_work(self) -> None:
        self._is_work_told = False
        self.on_work_left()

    def tell_followers(self, partition: Partition) -> None:
        """There are records, or a log start offset, that followers have not heard of.

        Each of them is told once of all that a turn of the loop has brought: a message costs more than what is in it.
        """
        self._wake_soon(waiting_followers(partition.key))
        for follower in partition.in_sync.followers.values():
            session = follower.stir()
            if session is not None:
                self._awakened[session] = None

    def _wake_soon(self, key: Hashable) -> None:
        if not self._awakened:
            self._host.workers.call_soon(self._wake_followers)
        self._awakened[key] = None

    def _wake_followers(self) -> None:
        awakened, self._awakened = self._awakened, {}
        if self._must_sweep:
            self._must_sweep = False
            for session in self.fetch_sessions.of_followers():
                session.must_sweep = True
                awakened[session] = None
        for key in awakened:
            self.parking.wake(key)

    def wake_all(self, key: tuple[str, int]) -> None:
        """The partition is led by another broker, or gone: everybody who waits for it is told."""
        self.parking.wake(key)
        if self._cluster.is_shared:  # a broker that works alone has no followers
            self._must_sweep = True
            self._wake_soon(waiting_followers(key))

    def high_watermark_moved(self, partition: Partition) -> None:
        """Wakes whoever waits for what is committed; followers hear of it with the next records.

        Where consumers read from followers, these are told a little later if no records have come. For nobody else it
        would be worth a message and the next fetch, which are as many as a record needs to be replicated.
        """
        if self._reads_in_rack:
            if not self._news:
                clock = self._host.clock
                self._host.timer.add(clock.monotonic_ms() + HIGH_WATERMARK_NEWS_MS, self._tell_followers)
            self._news[partition] = None
        for follower in partition.in_sync.followers.values():
            follower.stir()
        self.parking.wake(partition.key)

    def _tell_followers(self) -> None:
        news, self._news = self._news, {}
        for partition in news:
            self.tell_followers(partition)

    # --- followers ------------------------------------------------------------------------------------

    def follower(self, replica: int, broker_epoch: int) -> Follower:
        registered = self._cluster.image.brokers.get(replica)
        is_eligible = registered is not None and broker_epoch in (NO_BROKER_EPOCH, registered.epoch)
        return Follower(replica, broker_epoch, is_eligible)

    def follower_fetched(
        self, partition: Partition, follower: Follower, fetch_offset: int, log_start_offset: int
    ) -> None:
        """A follower has everything below `fetch_offset`: the high watermark may follow, and the ISR grow."""
        now_ms = self._host.clock.monotonic_ms()
        moved = partition.record_follower_fetch(
            follower.replica, fetch_offset, log_start_offset, now_ms, follower.broker_epoch, follower.is_eligible
        )
        if follower.replica not in partition.in_sync.maximal:
            proposal = partition.propose_expansion(
                follower.replica, now_ms, self._cluster.broker_epoch, follower.is_eligible
            )
            if proposal is not None:
                self.on_isr_proposed(partition, proposal)
        if moved:
            self.high_watermark_moved(partition)

    def shrink_isrs(self) -> None:
        """Proposes to leave out followers that were not caught up for `replica.lag.time.max.ms`."""
        now_ms, max_lag_ms = self._host.clock.monotonic_ms(), self._cluster.config.values.replica_lag_time_max_ms
        local_epoch = self._cluster.broker_epoch
        for partition in self.replicas.partitions.values():
            proposal = partition.propose_shrinkage(now_ms, max_lag_ms, local_epoch)
            if proposal is not None:
                self.on_isr_proposed(partition, proposal)
            if partition.is_leader and partition.advance_high_watermark():
                # One that was about to join has fallen silent.
                self.high_watermark_moved(partition)

    def hand_over(self, directory: LogDir) -> None:
        """Has other members of the ISR lead what this broker leads in a directory that takes no writes."""
        for key in directory.logs:
            partition = self.replicas.partitions.get(key)
            if partition is not None:
                self.hand_over_partition(partition)

    def hand_over_partition(self, partition: Partition) -> bool:
        """Has another member of the ISR lead a partition; False where there is none, or the ISR is about to change."""
        proposal = partition.propose_successor(self._cluster.broker_epoch)
        if proposal is None:
            return False
        self.on_isr_proposed(partition, proposal)
        return True

    def broker_gone(self, broker_id: int) -> None:
        """Nobody waits for a broker that is not registered any more, where it is not a member of the ISR."""
        for partition in self.replicas.partitions.values():
            if partition.is_leader and partition.await_no_longer(broker_id):
                self.high_watermark_moved(partition)

    def preferred_replica(self, partition: Partition, rack: str, fetch_offset: int) -> int | None:
        """The replica in the consumer's rack that it is to read from; None where it is to read from the leader."""
        if not self._reads_in_rack or not partition.is_leader:
            return None
        return nearest_replica(partition, rack, fetch_offset, self._racks())

    def _racks(self) -> dict[int, str | None]:
        return {broker.broker_id: broker.rack for broker in self._cluster.image.brokers.values()}

    # --- waiting --------------------------------------------------------------------------------------

    def is_committed(self, topic: str, index: int) -> bool:
        """Nothing is to be waited for: all that this broker leads there is committed, or there is no such partition."""
        partition = self.replicas.partitions.get((topic, index))
        if partition is None:
            return True
        # Its leader, and not by way of `is_leader`: every request to a coordinator comes here.
        return partition.leader_id == partition.local_id and partition.high_watermark >= partition.log.log_end_offset

    def held(self, key: TopicPartition) -> Held | None:
        """What a partition holds now, for `when_committed`; None where there is no such partition."""
        partition = self.replicas.partitions.get(key)
        return None if partition is None else Held.now(partition)

    def when_committed(self, held: Held, timeout_ms: int, done: Callable[[ErrorCode], None]) -> None:
        """Calls `done` when everything that the partition held is at or below its high watermark; at once where it is.

        `done` gets NOT_LEADER_OR_FOLLOWER if this broker has stopped leading since, or does so before, and
        REQUEST_TIMED_OUT after `timeout_ms`.
        """

        def written(failed: Collection[LogDir]) -> None:
            directory = held.partition.log.directory
            done(ErrorCode.KAFKA_STORAGE_ERROR if directory in failed else ErrorCode.NONE)

        def try_complete() -> bool:
            if not held.is_led:
                done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif held.partition.high_watermark < held.end_offset:
                return False
            else:
                self.writing.when_written(written)
            return True

        if not try_complete():
            deadline_ms = self._host.clock.monotonic_ms() + timeout_ms
            self.parking.park(
                [held.partition.key], deadline_ms, try_complete, lambda: done(ErrorCode.REQUEST_TIMED_OUT)
            )

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
            checkpointed = self.logs.high_watermarks.get(key)
            if checkpointed is not None:
                log.recall_batches(checkpointed)
            partition = self.replicas.place(
                topic.topic_id, log, log.log_start_offset if checkpointed is None else checkpointed
            )
        self.replicas.follow_assignment(partition, assigned, clock.monotonic_ms())
        return partition

    def remove(self, topic: str, index: int) -> None:
        """Takes a partition out of service that was deleted, or moved to other brokers; its files go later."""
        key = (topic, index)
        self.logs.offline.discard(key)
        partition = self.replicas.remove(topic, index)
        if partition is not None:
            partition.retire()
        if key in self.logs.logs:
            try:
                self.logs.delete(key)
            except LogError as error:
                self._host.report(f"the files of {topic}-{index} could not be removed", error)
        self.wake_all(key)

    def reconfigure(self, topic: Topic) -> None:
        """Has the logs of a topic follow its configuration."""
        config = self._cluster.log_config(topic.name)
        for assigned in topic.partitions:
            log = self.logs.get(topic.name, assigned.partition_index)
            if log is not None:
                log.config = config
                self.on_reconfigured(log)

    def close(self) -> None:
        """A clean stop: everything is on the device, and the next start need not look."""
        self.logs.close(self._cluster.broker_epoch, self.replicas.high_watermarks())
        for notice in self.logs.take_notices():
            self._host.notice(notice)
