"""A process on a simulated machine: its clock, its timers and its workers. It can be paused, and it can be killed.

Everything that a process does happens in a callback that passes its gate: while it is paused, callbacks wait there in
their order; when it is over, they are dropped. So a paused process finds, when it goes on, that much is due at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

from tidelog.timer.wheel import Timer, TimerTask

#: wall time at the beginning of a simulation
EPOCH_MS: Final = 1_700_000_000_000
_MILLION: Final = 1_000_000

Callback = Callable[[], object]


class TrueTime:
    """The time of the world, which no process sees."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return EPOCH_MS + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class MachineClock:
    """The clock of one machine: it runs a little too fast or too slow, and its wall time may jump."""

    def __init__(self, time: TrueTime, rate_ppm: int = _MILLION) -> None:
        self._time = time
        self._rate_ppm = rate_ppm
        self._since_ms = time.now_ms
        self._was_ms = time.now_ms
        self.wall_error_ms = 0
        #: somebody has set the clock on the wall
        self.was_set = False

    def monotonic_ms(self) -> int:
        return self._was_ms + (self._time.now_ms - self._since_ms) * self._rate_ppm // _MILLION

    def wall_ms(self) -> int:
        return EPOCH_MS + self.monotonic_ms() + self.wall_error_ms

    def true_ms(self, monotonic_ms: int) -> int:
        """The earliest moment at which this clock shows at least `monotonic_ms`."""
        return self._since_ms - (self._was_ms - monotonic_ms) * _MILLION // self._rate_ppm

    def set_wall(self, error_ms: int) -> None:
        self.wall_error_ms = error_ms
        self.was_set = True

    def drift(self, rate_ppm: int) -> None:
        """Runs at another rate from now on."""
        self._was_ms, self._since_ms = self.monotonic_ms(), self._time.now_ms
        self._rate_ppm = rate_ppm


class ProcessTask:
    """A callback that waits for its time, and then for its process."""

    __slots__ = ("_callback", "_process", "deadline_ms", "waiting")

    def __init__(self, process: Process, deadline_ms: int, callback: Callback) -> None:
        self._process = process
        self._callback: Callback | None = callback
        self.deadline_ms = deadline_ms
        self.waiting: TimerTask | None = None

    @property
    def pending(self) -> bool:
        return self._callback is not None

    def cancel(self) -> bool:
        if self._callback is None:
            return False
        self._callback = None
        if self.waiting is not None:
            self.waiting.cancel()
        return True

    def come_due(self) -> None:
        """It runs if its process does; else it waits at the gate, or is dropped."""
        process = self._process
        if process.is_over:
            return
        if process.is_paused:
            process.at_gate.append(self)
            return
        process.on_run()
        callback, self._callback = self._callback, None
        if callback is not None:
            try:
                callback()
            except Exception as error:
                process.on_error(error)


class Process:
    """The timer and the workers of a `Host`. `on_error` is told of a callback that raised, `on_run` of each to come."""

    def __init__(
        self,
        time: TrueTime,
        timer: Timer,
        clock: MachineClock,
        random: Random,
        on_error: Callable[[Exception], None],
        on_run: Callable[[], object] = lambda: None,
    ) -> None:
        self.is_over = False
        self.is_paused = False
        #: how long work on a worker thread takes at most
        self.slowest_work_ms = 2
        self._time = time
        self._timer = timer
        self._clock = clock
        self._random = random
        self.on_error = on_error
        self.on_run = on_run
        #: what came due while it was paused
        self.at_gate: deque[ProcessTask] = deque()

    # --- a timer ------------------------------------------------------------------------------------------

    def add(self, deadline_ms: int, callback: Callback) -> ProcessTask:
        task = ProcessTask(self, deadline_ms, callback)
        task.waiting = self._timer.add(self._clock.true_ms(deadline_ms), task.come_due)
        return task

    def at(self, true_ms: int, callback: Callback) -> ProcessTask:
        """Something from outside reaches the process at this moment."""
        task = ProcessTask(self, 0, callback)
        task.waiting = self._timer.add(true_ms, task.come_due)
        return task

    # --- workers ------------------------------------------------------------------------------------------

    def call_soon(self, callback: Callback) -> None:
        self.at(self._time.now_ms, callback)

    def in_worker(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        def run() -> None:
            try:
                result, error = work(), None
            except Exception as failure:
                result, error = None, failure
            self.at(self._later(), lambda: done(result, error))

        self.at(self._later(), run)

    def _later(self) -> int:
        return self._time.now_ms + self._random.randint(0, self.slowest_work_ms)

    # --- its life -----------------------------------------------------------------------------------------

    def pause(self) -> None:
        self.is_paused = True

    def go_on(self) -> None:
        self.is_paused = False
        waiting, self.at_gate = self.at_gate, deque()
        for task in waiting:
            self._timer.add(self._time.now_ms, task.come_due)

    def end(self) -> None:
        self.is_over = True
        self.at_gate.clear()
