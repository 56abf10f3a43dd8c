"""Runs the compactor: asks it for work every `log.cleaner.backoff.ms`, and continues at once while there is more.

A step runs on a worker. The swap of segments that follows runs on the broker's thread, and is short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.config.broker_config import BrokerConfig
from tidelog.log.checkpoints import CLEANED_OFFSETS
from tidelog.log.errors import LogError, WriteRefused
from tidelog.node.data_plane import DataPlane
from tidelog.timer.host import Host
from tidelog.timer.wheel import TimerTask

if TYPE_CHECKING:
    from tidelog.log.compaction.cleaner import Cleaner
    from tidelog.log.compaction.compaction_round import CleanerConfig


class Cleaning:
    def __init__(self, config: BrokerConfig, data: DataPlane, host: Host) -> None:
        self._config = config
        self._data = data
        self._host = host
        #: made when there is work for it
        self._cleaner: Cleaner | None = None
        self._task: TimerTask | None = None
        self._stopped = False
        config.on_change(
            [
                "log.cleaner.dedupe.buffer.size",
                "log.cleaner.io.buffer.size",
                "log.cleaner.io.buffer.load.factor",
                "log.cleaner.io.max.bytes.per.second",
            ],
            lambda names: self._reconfigure(),
        )

    def _has_work(self) -> bool:
        """Whether a log is compacted that has more than the segment that grows, or one was that may be gone since: then
        its offset is still written down."""
        logs = self._data.logs
        return any(log.config.compact and len(log.segments) > 1 for log in logs.logs.values()) or any(
            logs.disk.exists(f"{directory.path}/{CLEANED_OFFSETS}") for directory in logs.dirs
        )

    def _made_cleaner(self) -> Cleaner:
        if self._cleaner is None:
            # Late: a broker starts sooner without, and needs none before there is something to compact.
            from tidelog.log.compaction.cleaner import Cleaner

            self._cleaner = Cleaner(self._data.logs, self._stable_offset, self._host.clock, self._cleaner_config())
        return self._cleaner

    def _cleaner_config(self) -> CleanerConfig:
        from tidelog.log.compaction.compaction_round import CleanerConfig

        values = self._config.values
        return CleanerConfig(
            dedupe_buffer_size=values.log_cleaner_dedupe_buffer_size,
            io_buffer_size=values.log_cleaner_io_buffer_size,
            io_buffer_load_factor=values.log_cleaner_io_buffer_load_factor,
            io_max_bytes_per_second=values.log_cleaner_io_max_bytes_per_second,
        )

    def _reconfigure(self) -> None:
        if self._cleaner is not None:
            self._cleaner.config = self._cleaner_config()

    def _stable_offset(self, key: tuple[str, int]) -> int | None:
        partition = self._data.replicas.partitions.get(key)
        return None if partition is None else partition.last_stable_offset

    def start(self) -> None:
        if self._config.values.log_cleaner_enable:
            self._rest()

    def stop(self) -> None:
        self._stopped = True
        if self._cleaner is not None:
            self._cleaner.stop()
        if self._task is not None:
            self._task.cancel()

    def _rest(self) -> None:
        deadline_ms = self._host.clock.monotonic_ms() + max(self._config.values.log_cleaner_backoff_ms, 1)
        self._task = self._host.timer.add(deadline_ms, self.look)

    def look(self) -> None:
        """Starts the next step, or rests where there is none. Whatever is wrong with one log, the others are next."""
        if self._stopped:
            return
        cleaner = work = None
        try:
            if self._cleaner is not None or self._has_work():
                cleaner = self._made_cleaner()
                work = cleaner.next_work(self._host.clock.wall_ms())
        except Exception as failure:
            self._tell(failure)
        if cleaner is None or work is None:
            self._rest()
            return

        def finished(_: Any, error: BaseException | None) -> None:
            try:
                cleaner.done(work, error)
            except Exception as failure:
                self._tell(failure)
            self._data.on_work_left()
            self.look()

        self._host.workers.in_worker(work, finished)

    def _tell(self, failure: Exception) -> None:
        if isinstance(failure, LogError):
            # A full disk is told of once, for all that it refuses.
            if not isinstance(failure, WriteRefused):
                self._host.notice(f"a log could not be compacted: {failure}")
        else:
            self._host.report("a log could not be compacted", failure)
