"""Runs the compactor: asks it for work every `log.cleaner.backoff.ms`, and goes on at once while there is some.

A step runs on a worker; the swap of segments that follows is the broker's, and short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.log.cleaner import Cleaner
from tidelog.log.compaction import CleanerConfig
from tidelog.log.errors import LogError, WriteRefused

if TYPE_CHECKING:
    from tidelog.broker import Broker
    from tidelog.timer.wheel import TimerTask


class Cleaning:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.cleaner = Cleaner(broker.logs, self._stable_offset, broker.clock, self._config())
        self._task: TimerTask | None = None
        self._stopped = False
        broker.config.on_change(
            [
                "log.cleaner.dedupe.buffer.size",
                "log.cleaner.io.buffer.size",
                "log.cleaner.io.buffer.load.factor",
                "log.cleaner.io.max.bytes.per.second",
            ],
            lambda names: self._reconfigure(),
        )

    def _config(self) -> CleanerConfig:
        values = self._broker.values
        return CleanerConfig(
            dedupe_buffer_size=values.log_cleaner_dedupe_buffer_size,
            io_buffer_size=values.log_cleaner_io_buffer_size,
            io_buffer_load_factor=values.log_cleaner_io_buffer_load_factor,
            io_max_bytes_per_second=values.log_cleaner_io_max_bytes_per_second,
        )

    def _reconfigure(self) -> None:
        self.cleaner.config = self._config()

    def _stable_offset(self, key: tuple[str, int]) -> int | None:
        partition = self._broker.replicas.partitions.get(key)
        return None if partition is None else partition.last_stable_offset

    def start(self) -> None:
        if self._broker.values.log_cleaner_enable:
            self._rest()

    def stop(self) -> None:
        self._stopped = True
        self.cleaner.stop()
        if self._task is not None:
            self._task.cancel()

    def _rest(self) -> None:
        broker = self._broker
        deadline_ms = broker.clock.monotonic_ms() + max(broker.values.log_cleaner_backoff_ms, 1)
        self._task = broker.timer.add(deadline_ms, self.look)

    def look(self) -> None:
        """Starts the next step, or rests where there is none. Whatever is wrong with one log, the others are next."""
        if self._stopped:
            return
        work = None
        try:
            work = self.cleaner.next_work(self._broker.clock.wall_ms())
        except Exception as failure:
            self._tell(failure)
        if work is None:
            self._rest()
            return

        def finished(_: Any, error: BaseException | None) -> None:
            try:
                self.cleaner.done(work, error)
            except Exception as failure:
                self._tell(failure)
            self._broker.on_housekeeping_due()
            self.look()

        self._broker.workers.in_worker(work, finished)

    def _tell(self, failure: Exception) -> None:
        if isinstance(failure, LogError):
            # A full disk is told of once, for all that it refuses.
            if not isinstance(failure, WriteRefused):
                self._broker.notice(f"a log could not be compacted: {failure}")
        else:
            self._broker.report("a log could not be compacted", failure)
