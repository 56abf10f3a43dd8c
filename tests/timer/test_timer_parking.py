"""Parked requests: each ends exactly once, and nothing of it is kept."""

from __future__ import annotations

import gc

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidelog.timer import Parked, Parking, Timer

KEYS = st.integers(0, 5)


class AgainstPlainLists(RuleBasedStateMachine):
    """The model asks every request in the order of its parking, with no index at all."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.timer = Timer(0)
        self.parking = Parking(self.timer)
        self.model: list[tuple[int, list[int], int]] = []  # (number, keys, deadline), waiting
        self.parked: dict[int, Parked] = {}
        self.ready: set[int] = set()  # numbers whose next try completes
        self.asked: list[int] = []
        self.expired: list[int] = []
        self.ended = 0

    @rule(keys=st.lists(KEYS, max_size=4), wait_ms=st.integers(0, 300))
    def park(self, keys: list[int], wait_ms: int) -> None:
        number = len(self.parked)

        def try_complete() -> bool:
            self.asked.append(number)
            return number in self.ready

        self.parked[number] = self.parking.park(
            keys, self.now_ms + wait_ms, try_complete, lambda: self.expired.append(number)
        )
        self.model.append((number, keys, self.now_ms + wait_ms))

    @rule(data=st.data())
    def make_ready(self, data: st.DataObject) -> None:
        if self.parked:
            self.ready.add(data.draw(st.sampled_from(sorted(self.parked))))

    @rule(key=KEYS)
    def wake(self, key: int) -> None:
        self.asked.clear()
        self.parking.wake(key)
        assert self.asked == [number for number, keys, _ in self.model if key in keys]
        self.end([number for number, keys, _ in self.model if key in keys and number in self.ready])

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.parked:
            number = data.draw(st.sampled_from(sorted(self.parked)))
            assert self.parked[number].cancel() is any(number == entry[0] for entry in self.model)
            self.end([number] if any(number == entry[0] for entry in self.model) else [])

    @rule(distance_ms=st.integers(0, 200))
    def advance(self, distance_ms: int) -> None:
        self.now_ms += distance_ms
        self.expired.clear()
        self.timer.advance(self.now_ms)
        due = [number for number, _, deadline_ms in self.model if deadline_ms <= self.now_ms]
        assert sorted(self.expired) == due
        self.end(due)

    def end(self, numbers: list[int]) -> None:
        self.model = [entry for entry in self.model if entry[0] not in numbers]
        self.ended += len(numbers)

    @invariant()
    def nothing_of_an_ended_request_is_kept(self) -> None:
        assert len(self.parking) == len(self.model) == len(self.timer)
        assert len(self.parking._watched) == len({key for _, keys, _ in self.model for key in keys})
        assert self.parking.completed + self.parking.expired + self.parking.cancelled == self.ended
        waiting = {number for number, _, _ in self.model}
        assert {number for number, parked in self.parked.items() if parked.waiting} == waiting


TestAgainstPlainLists = AgainstPlainLists.TestCase


def unexpected() -> None:
    raise AssertionError("must not be called")


def test_worked_example_of_the_module() -> None:
    bytes_there = 0
    timer = Timer(0)
    parking = Parking(timer)
    parking.park([("orders", 0), ("orders", 1)], 500, lambda: bytes_there >= 10, unexpected)
    parking.wake(("orders", 1))
    assert len(parking) == 1
    bytes_there = 10
    parking.wake(("orders", 0))
    assert (len(parking), len(parking._watched), timer.next_deadline_ms()) == (0, 0, None)
    parking.wake(("orders", 1))
    assert parking.completed == 1


def test_a_wake_inside_a_wake_is_neither_lost_nor_nested() -> None:
    parking = Parking(Timer(0))
    events: list[str] = []
    depth = 0

    def step(name: str, then: str | None, done: bool) -> bool:
        nonlocal depth
        depth += 1
        assert depth == 1
        events.append(name)
        if then is not None:
            parking.wake(then)
        depth -= 1
        return done

    tries = iter([False, True])
    parking.park(["a"], 10, lambda: step("first", "b", True), unexpected)
    parking.park(["a", "b"], 10, lambda: step("second", None, next(tries)), unexpected)
    parking.wake("a")
    assert events == ["first", "second", "second"]
    assert parking.completed == 2


def test_a_long_chain_of_wakes_does_not_exhaust_the_stack() -> None:
    parking = Parking(Timer(0))

    def chain(number: int) -> bool:
        parking.wake(number + 1)
        return True

    for number in range(20_000):
        parking.park([number], 10, lambda number=number: chain(number), unexpected)  # type: ignore[misc]
    parking.wake(0)
    assert (parking.completed, len(parking), len(parking._watched)) == (20_000, 0, 0)


def test_a_request_parked_during_a_wake_is_not_asked_by_it() -> None:
    parking = Parking(Timer(0))

    def answer() -> bool:
        parking.park(["a"], 10, lambda: pytest.fail("asked"), unexpected)
        return True

    parking.park(["a"], 10, answer, unexpected)
    parking.wake("a")
    assert len(parking) == 1


def test_a_request_cancelled_by_its_neighbour_is_not_asked() -> None:
    parking = Parking(Timer(0))

    def answer() -> bool:
        assert second.cancel()
        return True

    parking.park(["a"], 10, answer, unexpected)
    second = parking.park(["a"], 10, lambda: pytest.fail("asked"), unexpected)
    parking.wake("a")
    assert (parking.completed, parking.cancelled, len(parking._watched)) == (1, 1, 0)


def test_a_request_cancelled_by_its_own_answer_ends_once() -> None:
    parking = Parking(Timer(0))
    parked = parking.park(["a"], 10, lambda: parked.cancel(), unexpected)
    parking.wake("a")
    assert (parking.completed, parking.cancelled, len(parking)) == (0, 1, 0)


def test_a_failing_request_is_reported_stays_and_expires() -> None:
    def fail() -> bool:
        raise ValueError("no")

    timer = Timer(0)
    errors: list[tuple[Parked, str]] = []
    parking = Parking(timer, on_error=lambda parked, exception: errors.append((parked, str(exception))))
    answered: list[str] = []
    failing = parking.park(["a"], 10, fail, lambda: answered.append("expired"))
    parking.park(["a"], 10, lambda: True, unexpected)
    parking.wake("a")
    assert errors == [(failing, "no")]
    assert parking.completed == 1
    timer.advance(10)
    assert answered == ["expired"]

    strict = Parking(timer)
    strict.park(["a"], 20, fail, unexpected)
    strict.park(["a"], 20, lambda: True, unexpected)
    with pytest.raises(ValueError, match="no"):
        strict.wake("a")
    assert (strict.completed, len(strict)) == (1, 1)
    strict.wake("b")  # a failed wake leaves nothing under way
    with pytest.raises(ValueError, match="no"):
        strict.wake("a")


def test_an_expired_request_is_off_its_keys_before_its_hook_runs() -> None:
    timer = Timer(0)
    parking = Parking(timer)
    seen: list[int] = []
    parking.park(["a", "b"], 5, lambda: pytest.fail("asked"), lambda: (seen.append(len(parking)), parking.wake("a")))
    timer.advance(5)
    assert seen == [0]
    assert (parking.expired, len(parking._watched)) == (1, 0)


def test_a_failing_request_leaves_nothing_to_the_cyclic_collector() -> None:
    def fail() -> bool:
        raise ValueError("no")

    gc.collect()
    gc.disable()
    try:
        parking = Parking(Timer(0))
        parking.park(["a"], 10, fail, unexpected)
        with pytest.raises(ValueError, match="no"):
            parking.wake("a")
        strict = Timer(0)
        strict.add(5, fail)
        with pytest.raises(ValueError, match="no"):
            strict.advance(5)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert [thing for thing in gc.garbage if isinstance(thing, ValueError)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
