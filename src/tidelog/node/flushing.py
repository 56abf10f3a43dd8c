"""Syncs logs on workers, one sync per log at a time.

Requests that arrive while a log is being synced share the next sync: a hundred producers that wait for the same log
cost two syncs, not a hundred. And the steps of two syncs of the same log can never overtake each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.log.errors import LogError, WriteRefused
from tidelog.log.log import Log
from tidelog.timer.host import Host
from tidelog.wire.errors import ErrorCode

Done = Callable[[ErrorCode], None]


class Flushing:
    __slots__ = ("_host", "_running", "_waiting")

    def __init__(self, host: Host) -> None:
        self._host = host
        self._running: set[Log] = set()
        self._waiting: dict[Log, list[Done]] = {}

    def flush(self, log: Log, done: Done = lambda error: None) -> None:
        """`done` gets NONE once everything that the log holds now is on the device, or the error."""
        self._waiting.setdefault(log, []).append(done)
        if log not in self._running:
            self._start(log)

    def _start(self, log: Log) -> None:
        asked = self._waiting.pop(log)
        try:
            work = log.flush_work()
        except (LogError, OSError) as failure:
            self._answer(asked, self._failed(log, failure))
            return
        if work is None:
            self._answer(asked, ErrorCode.NONE)
            return

        def finished(_: Any, error: BaseException | None) -> None:
            self._running.discard(log)
            code = ErrorCode.NONE
            try:
                if error is not None:
                    raise error
                log.flush_done(work)
            except (LogError, OSError) as failure:
                code = self._failed(log, failure)
            self._answer(asked, code)
            if log in self._waiting:
                self._start(log)

        self._running.add(log)
        self._host.workers.in_worker(work, finished)

    def _failed(self, log: Log, failure: LogError | OSError) -> ErrorCode:
        """Tells of it, and what it does to the directory; the code to answer with."""
        refusal = log.directory.refuse(failure, log.name) if isinstance(failure, OSError) else failure
        # A full disk is told of once, for all that it refuses.
        if not isinstance(refusal, WriteRefused):
            self._host.report(f"{log.name} could not be flushed", refusal)
        return refusal.code

    @staticmethod
    def _answer(asked: list[Done], code: ErrorCode) -> None:
        for done in asked:
            done(code)
