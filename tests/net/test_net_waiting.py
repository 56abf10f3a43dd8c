"""When the loop stays awake for the next event, and when it sleeps."""

from __future__ import annotations

import pytest

from tidelog.net.waiting import AWAKE_NS, RUN, SHORT_NS, Waiting

SHORT_WAIT_NS = SHORT_NS // 2
LONG_WAIT_NS = SHORT_NS * 10
LOOK_NS = 2_000
Arrival = tuple[int, list[int]]


class World:
    """Events that come at given times; knows how often it was asked with and without a wait."""

    def __init__(self, processors: int = 2) -> None:
        self.now_ns = 0
        self.arrivals: list[Arrival] = []
        self.looks = 0
        self.sleeps: list[float] = []
        self.waiting = Waiting(self.poll, lambda: self.now_ns, processors)

    def poll(self, seconds: float, count: int) -> list[tuple[int, int]]:
        if seconds == 0:
            self.looks += 1
            self.now_ns += LOOK_NS
        else:
            self.sleeps.append(seconds)
            until = self.now_ns + int(seconds * 1e9) if seconds > 0 else None
            if self.arrivals and (until is None or self.arrivals[0][0] <= until):
                self.now_ns = max(self.now_ns, self.arrivals[0][0])
            else:
                assert until is not None, "it would never wake"
                self.now_ns = until
        if self.arrivals and self.arrivals[0][0] <= self.now_ns:
            return [(fd, 1) for fd in self.arrivals.pop(0)[1]]
        return []

    def turn(self, after_ns: int, *fds: int, wait_ms: int = -1) -> list[int]:
        """One wait, during which these descriptors become ready."""
        if fds:
            self.arrivals.append((self.now_ns + after_ns, list(fds)))
        return [fd for fd, _ in self.waiting.wait(wait_ms)]

    def lockstep(self, turns: int, fd: int = 5) -> None:
        for _ in range(turns):
            assert self.turn(SHORT_WAIT_NS, fd) == [fd]


def test_a_lone_client_in_lockstep_keeps_the_loop_awake() -> None:
    world = World()
    world.lockstep(RUN + 1)
    assert world.looks == 0
    assert world.turn(AWAKE_NS // 2, 5) == [5]
    assert world.looks > 1
    assert len(world.sleeps) == RUN + 1


def test_a_moment_in_vain_ends_in_sleep_and_is_not_repeated() -> None:
    world = World()
    world.lockstep(RUN + 1)
    slept, looked = len(world.sleeps), world.looks
    assert world.turn(LONG_WAIT_NS, 5) == [5]
    assert len(world.sleeps) == slept + 1
    assert (world.looks - looked) * LOOK_NS <= AWAKE_NS + LOOK_NS
    looked = world.looks
    world.lockstep(RUN)
    assert world.looks == looked, "the run has to begin anew"


def test_requests_now_and_then_let_it_sleep() -> None:
    world = World()
    for _ in range(10 * RUN):
        assert world.turn(LONG_WAIT_NS, 5) == [5]
    assert world.looks == 0


def test_several_clients_let_it_sleep() -> None:
    world = World()
    for n in range(10 * RUN):
        assert world.turn(SHORT_WAIT_NS, 5 + n % 2) == [5 + n % 2]
        assert world.turn(SHORT_WAIT_NS, 5, 6) == [5, 6]
    assert world.looks == 0


@pytest.mark.parametrize("others", [(6,), (5, 6)])
def test_a_second_client_ends_the_run(others: tuple[int, ...]) -> None:
    world = World()
    world.lockstep(RUN + 1)
    assert world.turn(AWAKE_NS // 2, *others) == list(others)
    looked = world.looks
    world.lockstep(RUN)
    assert world.looks == looked


def test_it_never_waits_longer_than_it_was_told() -> None:
    world = World()
    world.lockstep(RUN + 1)
    assert world.turn(0, wait_ms=7) == []
    assert world.sleeps[-1] == pytest.approx(0.007)
    assert world.turn(0, wait_ms=0) == []
    assert len(world.sleeps) == RUN + 2


def test_a_single_processor_is_left_to_the_client() -> None:
    world = World(processors=1)
    world.lockstep(10 * RUN)
    assert world.looks == 0
