"""Syncs of a log are shared and never overtake each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.clock import SystemClock
from tidelog.log.errors import StorageError
from tidelog.node.flushing import Flushing
from tidelog.timer.host import Host
from tidelog.timer.wheel import Timer


class Directory:
    """Knows which logs wait for somebody to flush them."""

    def __init__(self) -> None:
        self.flushes: set[Any] = set()


class Log:
    """Counts the syncs that it is asked for."""

    name = "t-0"
    store = None

    def __init__(self) -> None:
        self.collected = 0
        self.done: list[int] = []
        self.clean = False
        self.failure: StorageError | None = None
        self.directory = Directory()

    def flush_work(self) -> Callable[[], None] | None:
        if self.clean:
            return None
        self.collected += 1
        number = self.collected
        work: Any = lambda: None  # noqa: E731
        work.number = number
        return work  # type: ignore[no-any-return]

    def flush_done(self, work: Any) -> None:
        if self.failure is not None:
            raise self.failure
        self.done.append(work.number)


class Workers:
    """Holds the jobs until the test lets one finish."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Any, Any]] = []

    def in_worker(self, work: Any, done: Any) -> None:
        self.jobs.append((work, done))

    def finish_one(self) -> None:
        work, done = self.jobs.pop(0)
        work()
        done(None, None)


def flushing_on(workers: Workers, reported: list[str]) -> Flushing:
    host = Host(SystemClock(), Timer(0), workers, lambda what, error: reported.append(what))  # type: ignore[arg-type]
    return Flushing(host)


def test_those_who_ask_while_a_sync_is_under_way_share_the_next_one() -> None:
    log, workers, told = Log(), Workers(), []
    flushing = flushing_on(workers, [])
    flushing.flush(log, lambda code: told.append(("first", code)))  # type: ignore[arg-type]
    for name in ("second", "third"):
        flushing.flush(log, lambda code, name=name: told.append((name, code)))  # type: ignore[arg-type, misc]
    assert (log.collected, len(workers.jobs), told) == (1, 1, [])
    workers.finish_one()
    assert told == [("first", 0)] and log.collected == 2
    workers.finish_one()
    assert told == [("first", 0), ("second", 0), ("third", 0)]
    assert (log.done, workers.jobs) == ([1, 2], [])


def test_a_log_that_is_clean_is_not_synced() -> None:
    log, workers, told = Log(), Workers(), []
    log.clean = True
    flushing_on(workers, []).flush(log, told.append)  # type: ignore[arg-type]
    assert (told, workers.jobs) == ([0], [])


def test_a_sync_that_fails_is_told_to_everyone_who_waited_for_it() -> None:
    log, workers, told, reported = Log(), Workers(), [], []
    flushing = flushing_on(workers, reported)
    log.failure = StorageError("the disk is gone")
    flushing.flush(log, told.append)  # type: ignore[arg-type]
    workers.finish_one()
    assert told == [56] and len(reported) == 1


def test_what_somebody_flushes_waits_for_nobody_else() -> None:
    log, workers = Log(), Workers()
    log.directory.flushes.add(log)
    flushing_on(workers, []).flush(log)  # type: ignore[arg-type]
    assert not log.directory.flushes
