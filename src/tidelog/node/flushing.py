"""Syncs logs on workers, one sync per log at a time; of logs that share a commit log, one for all of them.

Requests that arrive while a log is being synced share the next sync: a hundred producers that wait for the same log
cost two syncs, not a hundred. And the steps of two syncs of the same log can never overtake each other. In the shared
layout the same goes for a hundred producers that wait for a hundred logs: what a turn of the loop brings is written
with one write, and synced with one sync.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from tidelog.log.errors import LogError, WriteRefused
from tidelog.log.flush import FlushWork, flushed_with, run_all
from tidelog.log.log import Log
from tidelog.timer.host import Host
from tidelog.wire.errors import ErrorCode

Done = Callable[[ErrorCode], None]


class Flushing:
    __slots__ = ("_host", "_running", "_waiting")

    def __init__(self, host: Host) -> None:
        self._host = host
        #: what is synced now, or about to be: a log, or a commit log
        self._running: set[Hashable] = set()
        self._waiting: dict[Hashable, dict[Log, list[Done]]] = {}

    def flush(self, log: Log, done: Done = lambda error: None) -> None:
        """`done` gets NONE once everything that the log holds now is on the device, or the error."""
        log.directory.flushes.discard(log)
        together = flushed_with(log)
        self._waiting.setdefault(together, {}).setdefault(log, []).append(done)
        if together in self._running:
            return
        self._running.add(together)
        if together is log:
            self._start(together)
        else:
            # Others of this turn come along.
            self._host.workers.call_soon(partial(self._start, together))

    def _start(self, together: Hashable) -> None:
        works: list[tuple[Log, FlushWork, list[Done]]] = []
        for log, asked in self._waiting.pop(together).items():
            try:
                work = log.flush_work()
            except (LogError, OSError) as failure:
                self._answer(asked, self._failed(log, failure))
                continue
            if work is None:
                self._answer(asked, ErrorCode.NONE)
            else:
                works.append((log, work, asked))
        if not works:
            self._go_on(together)
            return

        def finished(_: Any, error: BaseException | None) -> None:
            for log, work, asked in works:
                self._answer(asked, self._outcome(log, work, error))
            self._go_on(together)

        if len(works) == 1:
            self._host.workers.in_worker(works[0][1], finished)
            return
        directory = works[0][0].directory
        everything = partial(run_all, [work for _, work, _ in works], directory.disk, directory.path, directory.commit)
        self._host.workers.in_worker(everything, finished)

    def _outcome(self, log: Log, work: FlushWork, error: BaseException | None) -> ErrorCode:
        try:
            if error is not None:
                raise error
            log.flush_done(work)
        except (LogError, OSError) as failure:
            return self._failed(log, failure)
        return ErrorCode.NONE

    def _go_on(self, together: Hashable) -> None:
        if together in self._waiting:
            self._start(together)
        else:
            self._running.discard(together)

    def _failed(self, log: Log, failure: LogError | OSError) -> ErrorCode:
        """Tells of it, and what it does to the directory; the code to answer with."""
        refusal = log.directory.refuse(failure, log.name) if isinstance(failure, OSError) else failure
        # A full disk is told of once, for all that it refuses.
        if not isinstance(refusal, WriteRefused):
            self._host.report(f"{log.name} could not be flushed", refusal)
        return refusal.code

    def _answer(self, asked: list[Done], code: ErrorCode) -> None:
        for done in asked:
            try:
                done(code)
            except Exception as error:
                # The others have waited too.
                self._host.report("what waited for a flush failed", error)
