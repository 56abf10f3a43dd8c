"""A few threads for work that blocks: fsync, cleaning, loading. The loop's own thread never waits for them.

Threads are made on demand, up to a fixed number, and only the loop's thread counts them: a job's end is an event on
the loop like any other, so nothing here needs a lock beyond the queue's own. A job cannot be interrupted; one that
was not started when the loop closes is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

Done = Callable[[Any, BaseException | None], object]


class Workers:
    __slots__ = ("_post", "_queue", "_size", "_threads", "unfinished")

    def __init__(self, post: Callable[[Callable[[], object]], None], size: int) -> None:
        self._post = post
        self._size = size
        self._queue: SimpleQueue[tuple[Callable[[], Any], Done] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self.unfinished = 0

    def submit(self, job: Callable[[], Any], done: Done) -> None:
        self.unfinished += 1
        if self.unfinished > len(self._threads) and len(self._threads) < self._size:
            thread = Thread(target=self._work, name=f"worker-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._queue.put((job, done))

    def close(self) -> None:
        """Wait for the jobs under way. What they post is not run: the loop is over."""
        while not self._queue.empty():
            self._queue.get()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            job, done = work
            result, error = None, None
            try:
                result = job()
            except BaseException as exception:
                error = exception
            self._post(partial(self._finish, done, result, error))
            del work, job, done, result, error  # an idle thread must not keep the last job's data alive

    def _finish(self, done: Done, result: Any, error: BaseException | None) -> None:
        self.unfinished -= 1
        done(result, error)
