"""The periodic tasks of a broker: flushes, retention, deletions, checkpoints.

Each task is a timer that sets itself again. Deciding what to do is quick and happens on the broker's thread; syncing
and removing files happens on workers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog.log.errors import LogError, WriteRefused
from tidelog.log.log_dir import LogDir, PendingDeletion
from tidelog.log.retention import delete_old_segments
from tidelog.node.cluster_view import NO_EPOCH, ClusterView
from tidelog.node.data_plane import DataPlane
from tidelog.node.generations import Generations
from tidelog.node.offline_replicas import OfflineReplicas
from tidelog.node.placing import Placing
from tidelog.timer.host import Host
from tidelog.timer.slices import Job, Slices
from tidelog.timer.wheel import TimerTask

if TYPE_CHECKING:
    from tidelog.log.compaction.cleaner_throttle import Throttle

FLUSH_CHECK_MS: Final = 1000
#: from how many bytes on, that a start would have to read, queues are checkpointed before their time
CHECKPOINT_BYTES: Final = 64 << 20
DISK_CHECK_MS: Final = 1000
#: for so long nothing may be refused for want of room before a directory counts as no longer full
ROOM_QUIET_MS: Final = 5000


class Housekeeping:
    """`fail` is told, with the reason, when no log directory is left to work with."""

    def __init__(
        self,
        cluster: ClusterView,
        data: DataPlane,
        placing: Placing,
        offline: OfflineReplicas,
        generations: Generations,
        host: Host,
        fail: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._data = data
        self._placing = placing
        self._offline = offline
        self._generations = generations
        self._host = host
        self._fail = fail
        self._tasks: dict[str, TimerTask] = {}
        self._deleting: list[TimerTask] = []
        #: one after the other: thousands that are due together must not keep the workers from everybody else's work
        self._removals = Slices(host, 0)
        #: of queues, in the shared layout
        self._checkpoints = Slices(host, 0)
        self._reclaiming: Throttle | None = None
        #: directories that are full, by path: when something was last refused
        self._full: dict[str, int] = {}

    def start(self) -> None:
        self._data.on_work_left = self.catch_up
        values = self._cluster.config.values
        first_ms = values.log_initial_task_delay_ms
        self._every("retention", lambda: values.log_retention_check_interval_ms, self.retain, first_ms)
        self._every("checkpoint", lambda: values.log_flush_offset_checkpoint_interval_ms, self.checkpoint)
        self._every(
            "high watermarks",
            lambda: values.replica_high_watermark_checkpoint_interval_ms,
            self.checkpoint_high_watermarks,
        )
        self._every("flush", self._flush_interval_ms, self.flush_due)
        self._every("disks", lambda: DISK_CHECK_MS, self.watch_disks)
        if self._cluster.is_shared and values.auto_leader_rebalance_enable:
            interval_ms = 1000 * values.leader_imbalance_check_interval_seconds
            self._every("leaders", lambda: interval_ms, self.balance_leaders)
        self._every("producers", lambda: values.producer_id_expiration_check_interval_ms, self.expire_producers)

    def stop(self) -> None:
        for task in [*self._tasks.values(), *self._deleting]:
            task.cancel()
        self._tasks = {}
        if self._reclaiming is not None:
            self._reclaiming.cancelled.set()

    def _every(
        self, name: str, interval_ms: Callable[[], int], work: Callable[[], None], first_ms: int | None = None
    ) -> None:
        def run() -> None:
            try:
                work()
            finally:
                schedule(interval_ms())

        def schedule(delay_ms: int) -> None:
            # Kafka writes "never" as the largest long; a day's sleep comes to the same.
            deadline = self._host.clock.monotonic_ms() + min(max(delay_ms, 1), 86_400_000)
            self._tasks[name] = self._host.timer.add(deadline, run)

        schedule(interval_ms() if first_ms is None else first_ms)

    def catch_up(self) -> None:
        """Something was left to do that need not wait for its time: sealed segments to sync, files to remove."""
        self.flush()
        self.delete_later()

    def balance_leaders(self) -> None:
        """On the controller: preferred replicas lead again, where too many of a broker's do not."""
        if self._cluster.controller.is_active:
            self._cluster.decide(lambda controller: controller.balance_leaders(), lambda reply: None)

    # --- retention and deletions --------------------------------------------------------------------

    def retain(self) -> None:
        now_ms = self._host.clock.wall_ms()
        for partition in list(self._data.replicas.partitions.values()):
            try:
                delete_old_segments(partition.log, now_ms, self._data.held_from(partition))
            except WriteRefused:
                # A full disk is told of once, for all that it refuses; the next round tries again.
                continue
            except LogError as error:
                self._host.report(f"retention of {partition.log.name} failed", error)
        if self._data.logs.is_shared and not len(self._checkpoints):
            self._checkpoints.add(self._reclaim())
        self.delete_later()

    def _reclaim(self) -> Job:
        """In the shared layout: makes the commit logs smaller, as fast as compaction may be."""
        from tidelog.log.compaction.cleaner_throttle import Cancelled, Throttle
        from tidelog.log.shared.reclaiming import Pace

        rate = self._cluster.config.values.log_cleaner_io_max_bytes_per_second
        self._reclaiming = Throttle(rate, self._host.clock.monotonic_ms)
        try:
            yield from self._data.logs.reclaim(Pace(self._reclaiming, self._checkpoint_if_far))
        except Cancelled:
            return
        self.delete_later()

    def _checkpoint_if_far(self) -> Job:
        """Reclaiming may take long, and a start must not have to read ever more meanwhile."""
        if self._data.logs.unqueued_bytes > CHECKPOINT_BYTES:
            yield from self._data.logs.checkpoint_queues()

    def delete_later(self) -> None:
        """Files that left their logs go after `file.delete.delay.ms`: a reader may still be sending them."""
        host = self._host
        self._deleting = [task for task in self._deleting if task.pending]
        for deletion in self._data.logs.take_deletions():
            self._deleting.append(
                host.timer.add(host.clock.monotonic_ms() + deletion.delay_ms, self._deletion(deletion))
            )

    def _deletion(self, deletion: PendingDeletion) -> Callable[[], None]:
        def due() -> None:
            self._removals.add(self._remove(deletion))

        return due

    def _remove(self, deletion: PendingDeletion) -> Job:
        try:
            yield deletion
        except OSError as error:
            self._host.report("files that have left their log could not be removed", error)

    def expire_producers(self) -> None:
        """Forgets producers that were not heard of for `producer.id.expiration.ms`."""
        now_ms = self._host.clock.wall_ms()
        self._data.logs.expire_producers(now_ms, self._cluster.config.values.producer_id_expiration_ms)

    # --- flushes and checkpoints --------------------------------------------------------------------

    def _flush_interval_ms(self) -> int:
        """`log.flush.scheduler.interval.ms`; where that is never, as by default, once a second will do for the topics
        that have a `flush.ms` of their own."""
        interval_ms: int = self._cluster.config.values.log_flush_scheduler_interval_ms
        return min(interval_ms, FLUSH_CHECK_MS)

    def flush_due(self) -> None:
        """Syncs the logs in which something has waited for `flush.ms`."""
        if self._some_flush_in_time():
            self._data.logs.want_due_flushes(self._host.clock.wall_ms())
        self.flush()
        if self._data.logs.unqueued_bytes > CHECKPOINT_BYTES:
            self._checkpoint_queues()

    def _some_flush_in_time(self) -> bool:
        """Whether any log could be due: few have a `flush.ms`, and an idle broker does not walk through thousands."""
        if any(map(self._cluster.config.is_set, ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"))):
            return True
        return any("flush.ms" in node.values for node in self._cluster.image.configs.values())

    def flush(self) -> None:
        """Syncs the logs that have asked for it: they have sealed a segment, or are due."""
        for log in self._data.logs.take_flushes():
            self._data.flushing.flush(log)

    def checkpoint(self) -> None:
        logs = self._data.logs
        self._checkpoint_queues()
        logs.checkpoint(self._data.replicas.high_watermarks())
        if not logs.missing:  # whoever gives a missing directory up takes its line out of the files
            logs.remember(self._cluster.metadata_version)
        if self._cluster.broker_epoch != NO_EPOCH and self._cluster.is_shared:
            self._generations.count(self._cluster.store)
        self._look_for_failures()

    def _look_for_failures(self) -> None:
        reason = self._offline.look()
        if reason is not None:
            self._fail(reason)

    def _checkpoint_queues(self) -> None:
        if not len(self._checkpoints):
            self._checkpoints.add(self._data.logs.checkpoint_queues())

    def checkpoint_high_watermarks(self) -> None:
        self._data.logs.checkpoint_high_watermarks(self._data.replicas.high_watermarks())

    # --- failed and full disks, and what else somebody should hear of -------------------------------

    def watch_disks(self) -> None:
        self._look_for_failures()
        for notice in self._data.logs.take_notices():
            self._host.notice(notice)
        for directory in self._data.logs.dirs:
            self._watch_room(directory)
        self._placing.try_again()

    def _watch_room(self, directory: LogDir) -> None:
        """Reports once that a directory is full, and once that it has space again. Writes are tried regardless."""
        path, now_ms = directory.path, self._host.clock.monotonic_ms()
        if directory.no_room is not None:
            directory.no_room = None
            if path not in self._full:
                self._host.notice(
                    f"log directory {path} is full: writes are refused until there is space again; "
                    "reads, retention and deletions continue"
                )
                # Once, not while it is full: where all disks are, leaders would go round and round.
                self._data.hand_over(directory)
            self._full[path] = now_ms
        elif now_ms - self._full.get(path, now_ms) >= ROOM_QUIET_MS and directory.has_room():
            del self._full[path]
            directory.keep_room_back()
            self._host.notice(f"log directory {path} has space again: writes are accepted")
            # Sealed segments whose flush was refused.
            behind = (log for log in directory.logs.values() if log.recovery_point < log.segments.active.base_offset)
            directory.flushes.update(behind)
            self.flush()
