"""Work that would block everything if it were done at once: one job at a time, one slice per iteration of the loop.

A job is a generator. If it yields None, others are served before it continues. If it yields a function, the function is
called on a worker thread, and the `yield` returns its result or raises its error. Jobs run in the order in which they
arrived, so that only one of them at a time holds the memory it works on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from tidelog.timer.host import Host

Work: TypeAlias = Callable[[], Any]
Job: TypeAlias = Generator[Work | None, Any, None]


class Slices:
    """`most_bytes` is how much the requests that wait here may hold together."""

    __slots__ = ("_host", "_jobs", "_running", "held_bytes", "most_bytes")

    def __init__(self, host: Host, most_bytes: int) -> None:
        self._host = host
        self.most_bytes = most_bytes
        self._jobs: deque[tuple[Job, int]] = deque()
        self._running: Job | None = None
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._jobs) + (self._running is not None)

    def add(self, job: Job, size_bytes: int = 0) -> bool:
        """Queues a job; False if too much is waiting already. The first job is always taken."""
        if self.held_bytes and self.held_bytes + size_bytes > self.most_bytes:
            job.close()
            return False
        self.held_bytes += size_bytes
        self._jobs.append((job, size_bytes))
        if self._running is None and len(self._jobs) == 1:
            self._host.workers.call_soon(self._next)
        return True

    def _next(self) -> None:
        self._running, size_bytes = self._jobs.popleft()
        self.held_bytes -= size_bytes
        self._go_on()

    def _go_on(self, result: Any = None, error: BaseException | None = None) -> None:
        job = self._running
        assert job is not None
        try:
            work = job.send(result) if error is None else job.throw(error)
        except StopIteration:
            pass
        except Exception as failure:
            self._host.report("a long request failed", failure)
        else:
            if work is None:
                self._host.workers.call_soon(self._go_on)
            else:
                self._host.workers.in_worker(work, self._go_on)
            return
        self._running = None
        if self._jobs:
            self._host.workers.call_soon(self._next)
