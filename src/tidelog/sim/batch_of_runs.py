"""Many runs, on several cores: until the seeds or the time are used up, one fails, or somebody stops them."""

from __future__ import annotations

import gc
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final

from tidelog.sim.simulation import RunOutcome, simulate
from tidelog.sim.terms import Terms

#: how the names of operations end that succeeded
SUCCEEDED: Final = ": NONE"


@dataclass(slots=True)
class Tally:
    """What came of many runs."""

    runs: int = 0
    simulated_ms: int = 0
    steps: int = 0
    took_s: float = 0.0
    injected: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    witnessed: Counter[str] = field(default_factory=Counter)
    failed: list[RunOutcome] = field(default_factory=list)

    def add(self, outcome: RunOutcome) -> None:
        self.runs += 1
        self.simulated_ms += outcome.simulated_ms
        self.steps += outcome.steps
        self.injected += outcome.injected
        self.operations += outcome.operations
        self.witnessed += outcome.witnessed
        if not outcome.is_well:
            self.failed.append(outcome)

    @property
    def success(self) -> float:
        """The share of operations that succeeded at once."""
        good = sum(count for name, count in self.operations.items() if name.endswith(SUCCEEDED))
        return good / max(sum(self.operations.values()), 1)

    @property
    def speed(self) -> float:
        """Simulated time for each second that passed."""
        return self.simulated_ms / 1000 / max(self.took_s, 0.001)

    def by_operation(self) -> dict[str, tuple[int, int]]:
        """How often each was tried, and how often it succeeded at once."""
        found: dict[str, tuple[int, int]] = {}
        for name, count in sorted(self.operations.items()):
            operation = name.partition(": ")[0]
            tried, succeeded = found.get(operation, (0, 0))
            found[operation] = tried + count, succeeded + (count if name.endswith(SUCCEEDED) else 0)
        return found

    def line(self) -> str:
        return (
            f"{self.runs} runs in {self.took_s:.0f} s, {self.speed:.0f} simulated seconds a second, "
            f"{sum(self.injected.values())} faults, {sum(self.operations.values())} operations "
            f"({100 * self.success:.1f} % at once), {len(self.failed)} failed"
        )


def run_all(
    seeds: Iterable[int],
    minutes: float | None = None,
    workers: int = 1,
    most_failures: int = 1,
    terms: Terms | None = None,
    on_progress: Callable[[Tally], None] = lambda tally: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Tally:
    """Runs one seed after the other, several at a time with several `workers`.

    What was begun is ended, whatever ends the rest: those that have run are the first of `seeds`, without a gap.
    """
    began = time.monotonic()
    tally = Tally()

    def goes_on(seed: int) -> bool:
        is_late = minutes is not None and time.monotonic() - began >= 60 * minutes
        return len(tally.failed) < most_failures and not is_late and not is_stopped()

    for outcome in _outcomes(takewhile(goes_on, seeds), workers, terms):
        tally.add(outcome)
        tally.took_s = time.monotonic() - began
        on_progress(tally)
    return tally


def _outcomes(seeds: Iterator[int], workers: int, terms: Terms | None) -> Iterator[RunOutcome]:
    if workers <= 1:
        with _collecting_between_runs():
            for seed in seeds:
                yield _run(seed, terms)
        return
    with ProcessPoolExecutor(workers, initializer=_begin_worker) as pool:
        running: set[Future[RunOutcome]] = set()
        try:
            for seed in seeds:
                running.add(pool.submit(_run, seed, terms))
                # One more than can run waits, so that no worker does.
                if len(running) > workers:
                    ended, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in ended)
            while running:
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in ended)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _run(seed: int, terms: Terms | None) -> RunOutcome:
    outcome = simulate(seed, terms)
    gc.collect()
    # Nobody reads the story of a run in which all is well, and it is long.
    return replace(outcome, happenings=[]) if outcome.is_well else outcome


def _begin_worker() -> None:
    # Ctrl-C reaches everybody at a terminal: whoever handed the seeds out decides when to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.freeze()
    gc.disable()


@contextmanager
def _collecting_between_runs() -> Iterator[None]:
    """Most of a run lives to its end: it is looked through once, then, and what was there before never."""
    was_enabled = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
