"""The wheels against a sorted list, and what a list would not show: sleeping, errors, reentrancy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidelog.timer import Timer, TimerTask

# Distances around every border between wheels, and far beyond any timeout in use.
DISTANCES = st.one_of(
    st.integers(-5, 200),
    st.sampled_from([63, 64, 65, 4095, 4096, 4097, 64**3 - 1, 64**3, 64**3 + 1, 64**4, 64**5, 10**12]),
    st.integers(0, 20_000_000),
)


def run_until_empty(timer: Timer) -> list[int]:
    """Sleep from deadline to deadline as the loop does; the times at which it woke up."""
    woke = []
    while (deadline_ms := timer.next_deadline_ms()) is not None:
        woke.append(deadline_ms)
        timer.advance(deadline_ms)
    return woke


class AgainstSortedList(RuleBasedStateMachine):
    """Whatever is added, cancelled and advanced, what runs is what a list sorted by deadline would run."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_003
        self.timer = Timer(self.now_ms)
        self.model: list[tuple[int, int]] = []  # (deadline, number), pending
        self.tasks: dict[int, TimerTask] = {}
        self.ran: list[int] = []
        self.number = 0

    @rule(distance_ms=DISTANCES)
    def add(self, distance_ms: int) -> None:
        number = self.number = self.number + 1
        deadline_ms = max(0, self.now_ms + distance_ms)
        self.tasks[number] = self.timer.add(deadline_ms, lambda: self.ran.append(number))
        self.model.append((deadline_ms, number))

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.tasks:
            number = data.draw(st.sampled_from(sorted(self.tasks)))
            task = self.tasks.pop(number)
            was_pending = (task.deadline_ms, number) in self.model
            assert task.cancel() is was_pending
            assert task.cancel() is False
            if was_pending:
                self.model.remove((task.deadline_ms, number))

    @rule(distance_ms=DISTANCES)
    def advance(self, distance_ms: int) -> None:
        self.now_ms = max(self.now_ms, self.now_ms + distance_ms)
        self.check_advance()

    @rule()
    def sleep_until_next_deadline(self) -> None:
        deadline_ms = self.timer.next_deadline_ms()
        if deadline_ms is not None:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.check_advance()

    def check_advance(self) -> None:
        due = sorted(entry for entry in self.model if entry[0] <= self.now_ms)
        self.model = [entry for entry in self.model if entry[0] > self.now_ms]
        self.ran.clear()
        self.timer.advance(self.now_ms)
        assert self.ran == [number for _, number in due]

    @invariant()
    def the_next_deadline_is_never_late_and_never_in_vain(self) -> None:
        deadline_ms = self.timer.next_deadline_ms()
        assert len(self.timer) == len(self.model)
        if not self.model:
            assert deadline_ms is None
        else:
            assert deadline_ms is not None
            assert deadline_ms <= max(self.now_ms, min(self.model)[0])
            assert deadline_ms > self.now_ms or min(self.model)[0] <= self.now_ms


TestAgainstSortedList = AgainstSortedList.TestCase


@given(st.lists(st.integers(0, 10**9), max_size=60), st.integers(0, 10**12))
def test_a_task_wakes_the_sleeper_at_most_once_per_wheel(distances_ms: list[int], now_ms: int) -> None:
    ran: list[int] = []
    timer = Timer(now_ms)
    for distance_ms in distances_ms:
        timer.add(now_ms + distance_ms, lambda at=now_ms + distance_ms: ran.append(at))  # type: ignore[misc]
    woke = run_until_empty(timer)
    assert ran == sorted(now_ms + distance_ms for distance_ms in distances_ms)
    assert len(woke) <= 6 * len(distances_ms)  # 64 ** 5 ms is more than 10 ** 9


def test_worked_example_of_the_module() -> None:
    ran: list[str] = []
    timer = Timer(0)
    for name, deadline_ms in (("A", 5), ("B", 70), ("C", 5000)):
        timer.add(deadline_ms, lambda name=name: ran.append(name))  # type: ignore[misc]
    assert run_until_empty(timer) == [5, 64, 70, 4096, 4992, 5000]
    assert ran == ["A", "B", "C"]


def test_an_idle_timer_lets_its_owner_sleep_for_ever() -> None:
    timer = Timer(0)
    assert timer.next_deadline_ms() is None
    tasks = [timer.add(deadline_ms, lambda: None) for deadline_ms in (-1, 0, 1, 100, 10_000, 10**9)]
    for task in tasks:
        task.cancel()
    assert timer.next_deadline_ms() is None
    assert len(timer) == 0


def test_a_task_that_adds_itself_again_does_not_hold_up_the_advance() -> None:
    ran: list[int] = []
    timer = Timer(0)

    def again() -> None:
        ran.append(len(ran))
        timer.add(0, again)

    timer.add(0, again)
    timer.advance(10)
    assert ran == [0]
    assert timer.next_deadline_ms() == 10
    timer.advance(10)
    assert ran == [0, 1]


def test_a_callback_can_cancel_one_that_is_due_in_the_same_advance() -> None:
    ran: list[str] = []
    timer = Timer(0)
    timer.add(1, lambda: later.cancel())
    later = timer.add(1, lambda: ran.append("cancelled"))
    timer.add(1, lambda: ran.append("kept"))
    timer.advance(5)
    assert ran == ["kept"]
    assert len(timer) == 0


def test_a_failing_callback_does_not_take_the_others_with_it() -> None:
    def fail() -> None:
        raise ValueError("no")

    ran: list[int] = []
    errors: list[tuple[object, Exception]] = []
    timer = Timer(0, on_error=lambda callback, exception: errors.append((callback, exception)))
    timer.add(1, fail)
    timer.add(2, lambda: ran.append(2))
    timer.advance(3)
    assert ran == [2]
    assert [(callback, str(exception)) for callback, exception in errors] == [(fail, "no")]

    timer = Timer(0)
    timer.add(1, fail)
    timer.add(2, lambda: ran.append(3))
    with pytest.raises(ValueError, match="no"):
        timer.advance(3)
    assert ran == [2, 3]
    assert len(timer) == 0


def test_an_interrupt_leaves_the_rest_due() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    ran: list[int] = []
    timer = Timer(0)
    timer.add(1, interrupt)
    timer.add(2, lambda: ran.append(2))
    with pytest.raises(KeyboardInterrupt):
        timer.advance(3)
    assert ran == []
    assert timer.next_deadline_ms() == 3
    timer.advance(3)
    assert ran == [2]


def test_time_that_steps_back_runs_nothing_early() -> None:
    ran: list[int] = []
    timer = Timer(1000)
    timer.add(1100, lambda: ran.append(1100))
    timer.advance(500)
    assert ran == []
    assert timer.next_deadline_ms() is not None
    assert run_until_empty(timer)[-1] == 1100
    assert ran == [1100]


def test_the_delay_queue_holds_buckets_not_tasks() -> None:
    timer = Timer(0)
    for number in range(100_000):
        timer.add(1 + number % 60_000, lambda: None)
    assert len(timer._queue) <= 3 * 64
