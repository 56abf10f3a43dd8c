"""The event loop: one thread, level-triggered epoll, and the timer that says how long to sleep.

One turn:

    wait          for a descriptor, the timer's next deadline or a wake-up; without work or deadline, for ever
                  (see `tidelog.net.waiting`)
    descriptors   their callbacks, in the order epoll gives them
    soon          what `call_soon` had queued when this step began; what these callbacks queue waits for the next turn
    timer         what is due
    turn end      what `at_turn_end` collected: replies are written and closed sockets given back here

Sockets are closed at the end of a turn and not before: within a turn the same number could otherwise come back from
`accept`, and an event that was meant for the old socket would reach the new one.

A callback that raises is reported to `on_error`, and the loop goes on. Only `stop`, which any thread or signal handler
may call, ends it, after the turn at hand.

Wake-ups travel through a pipe rather than an eventfd, because the interpreter's own signal wake-up writes single bytes.
Without it, a signal that arrives just before epoll begins to wait would be noticed only after the next event.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from tidelog.clock import Clock
from tidelog.net.waiting import Waiting
from tidelog.net.workers import Done, Workers
from tidelog.timer import Timer

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
BROKEN = select.EPOLLHUP | select.EPOLLERR

_LONGEST_WAIT_MS = 86_400_000  # epoll counts milliseconds in 32 bits

Callback = Callable[[], object]
EventCallback = Callable[[int], object]
ErrorHook = Callable[[str, BaseException], object]


def print_error(what: str, error: BaseException) -> None:
    import sys
    import traceback

    print(f"{what}:", file=sys.stderr)
    traceback.print_exception(error, file=sys.stderr)


class Loop:
    __slots__ = (
        "_at_turn_end",
        "_callbacks",
        "_clock",
        "_epoll",
        "_ready",
        "_signals",
        "_stopping",
        "_waiting",
        "_wake_pending",
        "_wake_read",
        "_wake_write",
        "_workers",
        "now_ms",
        "on_error",
        "timer",
        "turns",
    )

    def __init__(self, clock: Clock, timer: Timer, on_error: ErrorHook = print_error, worker_threads: int = 4) -> None:
        self._clock = clock
        self.timer = timer
        self.on_error = on_error
        self.now_ms = clock.monotonic_ms()  # the monotonic time at which this turn began
        self.turns = 0
        self._epoll = select.epoll()
        self._waiting = Waiting(self._epoll.poll)
        self._callbacks: dict[int, EventCallback] = {}
        self._ready: deque[Callback] = deque()
        self._at_turn_end: list[Callback] = []
        self._stopping = False
        self._signals: dict[int, Any] = {}  # the handlers that were there before
        self._workers = Workers(self.call_soon_threadsafe, worker_threads)
        self._wake_pending = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.register(self._wake_read, READ, self._on_wake)

    def register(self, fd: int, events: int, callback: EventCallback) -> None:
        """Call `callback(events)` whenever one of `events`, a hang-up or an error holds, until `unregister`."""
        self._epoll.register(fd, events)
        self._callbacks[fd] = callback

    def modify(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        """Its callback is not called again, not even for an event of this turn."""
        del self._callbacks[fd]
        self._epoll.unregister(fd)

    def call_soon(self, callback: Callback) -> None:
        """From the loop's thread: in this turn if it still has that step before it, or else in the next."""
        self._ready.append(callback)

    def call_soon_threadsafe(self, callback: Callback) -> None:
        self._ready.append(callback)
        self._wake()

    def at_turn_end(self, callback: Callback) -> None:
        """Once, when everything else of this turn is done."""
        self._at_turn_end.append(callback)

    def in_worker(self, job: Callable[[], Any], done: Done) -> None:
        """Run `job()` on another thread, then `done(result, exception)` here."""
        self._workers.submit(job, done)

    def on_signal(self, number: int, callback: Callback) -> None:
        """Run `callback` as an event of the loop whenever the signal comes. From the main thread."""
        previous = signal.signal(number, lambda *_: self.call_soon_threadsafe(callback))
        self._signals.setdefault(number, previous)

    def stop(self) -> None:
        self._stopping = True
        self._wake()

    def run(self) -> None:
        """Turn until `stop`."""
        main = threading.current_thread() is threading.main_thread()
        previous = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False) if main else -1
        try:
            while not self._stopping:
                self.turn(self._wait_ms())
        finally:
            self._stopping = False
            if main:
                signal.set_wakeup_fd(previous)

    def turn(self, wait_ms: int) -> None:
        """One turn that waits at most `wait_ms`, or without limit if that is negative."""
        events = self._waiting.wait(wait_ms)
        self.turns += 1
        self.now_ms = self._clock.monotonic_ms()
        callbacks = self._callbacks
        for fd, mask in events:
            on_event = callbacks.get(fd)
            if on_event is not None:
                try:
                    on_event(mask)
                except Exception as error:
                    self.on_error(f"a callback of descriptor {fd} failed", error)
        ready = self._ready
        for _ in range(len(ready)):
            self._call(ready.popleft())
        try:
            self.timer.advance(self.now_ms)
        except Exception as error:
            self.on_error("a timer failed", error)
        if self._at_turn_end:
            self._end_turn()

    def close(self) -> None:
        """After `run` returned: give everything back. Waits for the workers' jobs under way."""
        for number, handler in self._signals.items():
            signal.signal(number, handler)
        self._workers.close()
        self._end_turn()
        self._callbacks.clear()
        self._epoll.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _wait_ms(self) -> int:
        if self._ready or self._at_turn_end:
            return 0
        deadline_ms = self.timer.next_deadline_ms()
        if deadline_ms is None:
            return -1
        return min(max(0, deadline_ms - self._clock.monotonic_ms()), _LONGEST_WAIT_MS)

    def _end_turn(self) -> None:
        # What these add is met by the same iteration: a write that fails closes its socket still in this turn.
        for callback in self._at_turn_end:
            self._call(callback)
        self._at_turn_end.clear()

    def _call(self, callback: Callback) -> None:
        try:
            callback()
        except Exception as error:
            self.on_error(f"{callback!r} failed", error)

    def _wake(self) -> None:
        # If the flag is set already, this callback was queued before the loop clears the flag and looks at the queue,
        # so one byte in the pipe is enough for all.
        if not self._wake_pending:
            self._wake_pending = True
            try:
                os.write(self._wake_write, b"\0")
            except BlockingIOError:
                pass  # full of signal numbers: the loop will wake up anyway

    def _on_wake(self, _events: int) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            pass
        self._wake_pending = False
