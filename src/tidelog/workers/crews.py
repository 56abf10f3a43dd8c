"""Who runs the handlers: threads, each with a handler or a process of its own, or one event loop.

Whatever a handler raises is a failed attempt, `SystemExit` and the like included: nothing that a handler does ends a
worker. A handler that forks and returns in the child, too, has its child ended here, or there would be two workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

from tidelog.workers.backlog import WorkItem
from tidelog.workers.message import Message, Send, sends_of
from tidelog.workers.workplace import Workplace

_log = logging.getLogger("tidelog.workers")
Handler = Callable[[Message], Any]


class Crew(Protocol):
    def start(self) -> None: ...

    def stop(self, timeout_s: float) -> None:
        """The workplace is closed: waits this long for the workers to go home."""


class Caller(Protocol):
    """Calls the handler for one worker."""

    def __call__(self, message: Message) -> tuple[Send, ...]: ...

    def close(self) -> None: ...


class DirectCaller:
    """The handler, in the thread of the worker."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._pid = os.getpid()

    def __call__(self, message: Message) -> tuple[Send, ...]:
        try:
            return sends_of(self._handler(message))
        finally:
            if os.getpid() != self._pid:
                os._exit(0)  # the child of a handler that forked

    def close(self) -> None:
        pass


class ThreadCrew:
    """`new_caller` makes what calls the handler, one for each thread."""

    def __init__(self, place: Workplace, size: int, new_caller: Callable[[], Caller]) -> None:
        self._place = place
        self._new_caller = new_caller
        self._threads = [
            threading.Thread(target=self._work, name=f"tidelog-worker-{number}", daemon=True) for number in range(size)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        caller = self._new_caller()
        try:
            while (item := self._place.next()) is not None:
                began = perf_counter()
                try:
                    sends = caller(item.message)
                except BaseException as error:
                    self._place.failed(item, error, perf_counter() - began)
                else:
                    self._place.succeeded(item, sends, perf_counter() - began)
        except Exception as error:
            self._place.fail(error)
        finally:
            caller.close()

    def stop(self, timeout_s: float) -> None:
        until = perf_counter() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until - perf_counter()))


class AsyncCrew:
    """One thread with an event loop, and at most `size` messages in it."""

    def __init__(self, place: Workplace, size: int, handler: Handler, timeout_s: float | None) -> None:
        self._place = place
        self._size = size
        self._handler = handler
        self._timeout_s = timeout_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tidelog-workers-loop", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._pid = os.getpid()
        place.on_ready = self._wake

    def start(self) -> None:
        self._thread.start()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody takes anything any more
            self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        while len(self._tasks) < self._size and (item := self._place.take()) is not None:
            task = self._loop.create_task(self._handle(item))
            self._tasks.add(task)
            task.add_done_callback(self._went)

    def _went(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._take()

    async def _handle(self, item: WorkItem) -> None:
        began = perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s):
                sends = await self._call(item.message)
        except BaseException as error:
            self._leave_if_forked()
            self._place.failed(item, error, perf_counter() - began)
        else:
            self._leave_if_forked()
            self._place.succeeded(item, sends, perf_counter() - began)

    async def _call(self, message: Message) -> tuple[Send, ...]:
        if inspect.isasyncgenfunction(self._handler):
            return sends_of([send async for send in self._handler(message)])
        return sends_of(await self._handler(message))

    def _leave_if_forked(self) -> None:
        if os.getpid() != self._pid:
            os._exit(0)

    def stop(self, timeout_s: float) -> None:
        async def go_home() -> None:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=timeout_s)

        if self._thread.is_alive():
            leaving = asyncio.run_coroutine_threadsafe(go_home(), self._loop)
            try:
                leaving.result(timeout_s + 1)
            except TimeoutError:
                _log.warning("a handler blocks the event loop, which is left behind")
                return
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()


def is_async(handler: Handler) -> bool:
    for called in (handler, getattr(handler, "__call__", None)):  # noqa: B004
        if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
            return True
    return False
