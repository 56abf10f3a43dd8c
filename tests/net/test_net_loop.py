"""The loop by itself: sleeping, waking, workers, signals, errors."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time

import pytest
from net_site import HandClock

from tidelog.clock import SystemClock
from tidelog.net import Loop
from tidelog.net.loop import READ
from tidelog.timer import Timer


def run_with_watchdog(loop: Loop) -> None:
    """`run`, or a failure instead of a hang."""
    watchdog = threading.Timer(30, loop.stop)
    watchdog.start()
    loop.run()
    assert watchdog.is_alive(), "the loop did not end by itself"
    watchdog.cancel()


def test_an_idle_loop_sleeps_until_it_is_needed(system_loop: Loop) -> None:
    seen: list[int] = []

    def sleeper() -> None:
        run_with_watchdog(system_loop)

    thread = threading.Thread(target=sleeper)
    thread.start()
    system_loop.call_soon_threadsafe(lambda: seen.append(system_loop.turns))
    while not seen:
        time.sleep(0.001)
    time.sleep(0.3)  # nothing to do: time passes without a turn
    system_loop.call_soon_threadsafe(lambda: seen.append(system_loop.turns))
    system_loop.call_soon_threadsafe(system_loop.stop)
    thread.join()
    assert seen[1] - seen[0] <= 1


def test_the_loop_waits_for_the_next_deadline_and_for_ever_without_one() -> None:
    clock = HandClock()
    timer = Timer(clock.now_ms)
    loop = Loop(clock, timer)
    assert loop._wait_ms() == -1
    task = timer.add(clock.now_ms + 40, lambda: None)
    assert loop._wait_ms() == 40
    clock.now_ms += 50
    assert loop._wait_ms() == 0
    task.cancel()
    assert loop._wait_ms() == -1
    timer.add(10**15, lambda: None)
    assert 0 < loop._wait_ms() < 2**31
    loop.call_soon(lambda: None)
    assert loop._wait_ms() == 0
    loop.close()


def test_timers_run_in_the_loop(system_loop: Loop) -> None:
    ran: list[str] = []
    now_ms = SystemClock().monotonic_ms()
    system_loop.timer.add(now_ms + 20, lambda: (ran.append("late"), system_loop.stop()))
    system_loop.timer.add(now_ms + 5, lambda: ran.append("early"))
    run_with_watchdog(system_loop)
    assert ran == ["early", "late"]
    assert SystemClock().monotonic_ms() >= now_ms + 20


def test_soon_is_after_the_callbacks_of_now_and_before_the_end_of_the_turn(system_loop: Loop) -> None:
    order: list[str] = []
    system_loop.at_turn_end(lambda: order.append("end"))
    system_loop.call_soon(lambda: (order.append("first"), system_loop.call_soon(lambda: order.append("third"))))
    system_loop.call_soon(lambda: order.append("second"))
    system_loop.turn(0)
    assert order == ["first", "second", "end"]
    system_loop.turn(0)
    assert order == ["first", "second", "end", "third"]


def test_what_the_end_of_a_turn_adds_to_itself_belongs_to_the_same_turn(system_loop: Loop) -> None:
    order: list[str] = []
    system_loop.at_turn_end(lambda: system_loop.at_turn_end(lambda: order.append("nested")))
    system_loop.turn(0)
    assert order == ["nested"]


def test_a_failing_callback_is_reported_and_the_loop_goes_on() -> None:
    def fail(*_: object) -> None:
        raise ValueError("no")

    errors: list[str] = []
    clock = HandClock()
    loop = Loop(clock, Timer(0), on_error=lambda what, error: errors.append(f"{type(error).__name__} {error}"))
    ours, theirs = socket.socketpair()
    loop.register(ours.fileno(), READ, fail)
    theirs.send(b"x")
    loop.call_soon(fail)
    loop.timer.add(0, fail)
    loop.at_turn_end(fail)
    done: list[bool] = []
    loop.call_soon(lambda: done.append(True))
    loop.turn(0)
    assert errors == ["ValueError no"] * 4
    assert done == [True]
    loop.close()
    ours.close()
    theirs.close()


def test_an_unregistered_descriptor_gets_no_event_of_the_same_turn(system_loop: Loop) -> None:
    called: list[int] = []
    pairs = [socket.socketpair() for _ in range(2)]

    def on_event(which: int) -> None:
        called.append(which)
        system_loop.unregister(pairs[1 - which][0].fileno())

    for which, (ours, theirs) in enumerate(pairs):
        system_loop.register(ours.fileno(), READ, lambda _, which=which: on_event(which))  # type: ignore[misc]
        theirs.send(b"x")
    system_loop.turn(0)
    assert len(called) == 1
    for pair in pairs:
        for end in pair:
            end.close()


def test_worker_results_and_errors_come_back_on_the_loops_thread(system_loop: Loop) -> None:
    results: dict[str, tuple[object, object, bool]] = {}
    loop_thread = threading.current_thread()

    def finished(name: str, result: object, error: BaseException | None) -> None:
        results[name] = (result, error, threading.current_thread() is loop_thread)
        if len(results) == 2:
            system_loop.stop()

    failure = OSError("disk full")

    def fail() -> None:
        raise failure

    system_loop.in_worker(lambda: threading.current_thread(), lambda r, e: finished("good", r is loop_thread, e))
    system_loop.in_worker(fail, lambda r, e: finished("bad", r, e))
    run_with_watchdog(system_loop)
    assert results == {"good": (False, None, True), "bad": (None, failure, True)}


def test_workers_are_few_however_many_jobs_there_are() -> None:
    clock = SystemClock()
    loop = Loop(clock, Timer(0), worker_threads=3)
    assert loop._workers._threads == []
    threads: set[int] = set()
    done: list[object] = []
    gate = threading.Event()

    def job() -> None:
        gate.wait(10)
        threads.add(threading.get_ident())

    for _ in range(50):
        loop.in_worker(job, lambda result, error: (done.append(error), len(done) == 50 and loop.stop()))
    workers = list(loop._workers._threads)
    assert len(workers) == 3
    gate.set()
    run_with_watchdog(loop)
    assert done == [None] * 50
    assert len(threads) <= 3
    loop.close()
    assert not any(worker.is_alive() for worker in workers)


def test_a_signal_wakes_a_loop_that_would_sleep_for_ever(system_loop: Loop) -> None:
    got: list[str] = []
    previous = signal.getsignal(signal.SIGUSR1)
    system_loop.on_signal(signal.SIGUSR1, lambda: (got.append("signal"), system_loop.stop()))
    try:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        run_with_watchdog(system_loop)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert got == ["signal"]


def test_a_signal_just_before_the_wait_is_not_slept_through(system_loop: Loop) -> None:
    """The interpreter notes a signal and runs its handler later; the byte in the pipe is what ends the wait."""
    previous = signal.signal(signal.SIGUSR1, lambda *_: None)
    wakeup_fd = signal.set_wakeup_fd(system_loop._wake_write, warn_on_full_buffer=False)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert [fd for fd, _ in system_loop._epoll.poll(10)] == [system_loop._wake_read]
    finally:
        signal.set_wakeup_fd(wakeup_fd)
        signal.signal(signal.SIGUSR1, previous)


def test_many_threads_can_wake_the_loop_and_no_call_is_lost(system_loop: Loop) -> None:
    calls: list[int] = []

    def arrived(number: int) -> None:
        calls.append(number)
        if len(calls) == 4000:
            system_loop.stop()

    def post(first: int) -> None:
        for number in range(first, first + 1000):
            system_loop.call_soon_threadsafe(lambda number=number: arrived(number))  # type: ignore[misc]

    threads = [threading.Thread(target=post, args=(first,)) for first in range(0, 4000, 1000)]
    for thread in threads:
        thread.start()
    run_with_watchdog(system_loop)
    assert sorted(calls) == list(range(4000))
    for first in range(0, 4000, 1000):
        own = [number for number in calls if first <= number < first + 1000]
        assert own == sorted(own)


def test_a_closed_loop_gives_back_its_descriptors() -> None:
    loop = Loop(SystemClock(), Timer(0))
    fds = (loop._wake_read, loop._wake_write, loop._epoll.fileno())
    loop.close()
    for fd in fds:
        with pytest.raises(OSError):
            os.fstat(fd)
