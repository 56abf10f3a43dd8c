"""Many runs, on several cores: until the seeds or the time are used up, or one fails."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from tidelog.sim.simulation import RunOutcome, simulate
from tidelog.sim.terms import Terms

#: objects that are made before young ones are looked through for garbage: most of a run lives to its end
GARBAGE_AFTER: Final = 200_000


@dataclass(slots=True)
class Tally:
    """What came of many runs."""

    runs: int = 0
    simulated_ms: int = 0
    steps: int = 0
    took_s: float = 0.0
    injected: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    failed: list[RunOutcome] = field(default_factory=list)

    def add(self, outcome: RunOutcome) -> None:
        self.runs += 1
        self.simulated_ms += outcome.simulated_ms
        self.steps += outcome.steps
        self.injected += outcome.injected
        self.operations += outcome.operations
        if not outcome.is_well:
            self.failed.append(outcome)

    @property
    def success(self) -> float:
        """The share of operations that succeeded at once."""
        good = sum(count for name, count in self.operations.items() if name.endswith(" NONE"))
        return good / max(sum(self.operations.values()), 1)

    def line(self) -> str:
        speed = self.simulated_ms / 1000 / max(self.took_s, 0.001)
        return (
            f"{self.runs} runs in {self.took_s:.0f} s, {speed:.0f} simulated seconds a second, "
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
) -> Tally:
    """Runs one seed after the other, several at a time with several `workers`."""
    began = time.monotonic()
    tally = Tally()
    for outcome in _outcomes(iter(seeds), workers, terms):
        tally.add(outcome)
        tally.took_s = time.monotonic() - began
        on_progress(tally)
        if len(tally.failed) >= most_failures or (minutes is not None and tally.took_s >= 60 * minutes):
            break
    return tally


def _outcomes(seeds: Iterator[int], workers: int, terms: Terms | None) -> Iterator[RunOutcome]:
    if workers <= 1:
        with _collecting_seldom():
            for seed in seeds:
                yield simulate(seed, terms)
        return
    with ProcessPoolExecutor(workers, initializer=_collect_seldom) as pool:
        running: set[Future[RunOutcome]] = set()
        try:
            for seed in seeds:
                running.add(pool.submit(simulate, seed, terms))
                if len(running) >= 2 * workers:
                    ended, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in ended)
            while running:
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in ended)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _collect_seldom() -> None:
    """What is there now stays: it is not looked through again and again."""
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER, 20, 50)


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    before = gc.get_threshold()
    _collect_seldom()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
