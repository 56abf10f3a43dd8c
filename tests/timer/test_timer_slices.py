"""Jobs in slices: one at a time, in their order, with what they ask of workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from tidelog.clock import SystemClock
from tidelog.timer.host import Host
from tidelog.timer.slices import Job, Slices
from tidelog.timer.wheel import Timer


class Loop:
    """Turns when it is told to; a worker's result comes in a turn of its own."""

    def __init__(self) -> None:
        self.soon: deque[Callable[[], object]] = deque()

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def in_worker(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        try:
            result, error = work(), None
        except ValueError as failure:
            result, error = None, failure
        self.soon.append(lambda: done(result, error))

    def turn(self) -> None:
        self.soon.popleft()()


def stage(most_bytes: int = 100) -> tuple[Loop, Slices, list[str]]:
    loop, reports = Loop(), []
    host = Host(SystemClock(), Timer(0), loop, lambda what, error: reports.append(f"{what}: {error}"))
    return loop, Slices(host, most_bytes), reports


def test_each_slice_has_a_turn_of_its_own_and_jobs_follow_each_other() -> None:
    loop, slices, _ = stage()
    seen: list[str] = []

    def job(name: str) -> Job:
        seen.append(f"{name}1")
        yield None
        seen.append(f"{name}2")

    slices.add(job("a"))
    slices.add(job("b"))
    assert seen == []
    for _ in range(2):
        loop.turn()
    assert seen == ["a1", "a2"]
    while loop.soon:
        loop.turn()
    assert seen == ["a1", "a2", "b1", "b2"]
    assert len(slices) == 0


def test_a_job_gets_what_its_worker_found_or_failed_with() -> None:
    loop, slices, reports = stage()
    seen: list[Any] = []

    def job() -> Job:
        seen.append((yield lambda: 7))
        try:
            yield lambda: int("x")
        except ValueError:
            seen.append("refused")

    slices.add(job())
    while loop.soon:
        loop.turn()
    assert seen == [7, "refused"]
    assert reports == []


def test_a_job_that_fails_is_reported_and_the_next_goes_on() -> None:
    loop, slices, reports = stage()
    seen: list[str] = []

    def failing() -> Job:
        yield None
        raise KeyError("oh")

    def good() -> Job:
        seen.append("good")
        yield None

    slices.add(failing())
    slices.add(good())
    while loop.soon:
        loop.turn()
    assert seen == ["good"]
    assert len(reports) == 1 and "oh" in reports[0]


def test_what_waits_holds_no_more_than_it_may() -> None:
    loop, slices, _ = stage(most_bytes=100)

    def job() -> Job:
        yield None

    assert slices.add(job(), 500)  # one is always taken
    assert not slices.add(job(), 1)
    while loop.soon:
        loop.turn()
    assert slices.held_bytes == 0
    assert slices.add(job(), 60) and slices.add(job(), 40)
    assert not slices.add(job(), 1)
