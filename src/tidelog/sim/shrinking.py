"""Fewer faults, same failure: what a person looks at should have nothing in it that does not matter."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.sim.faults import InjectedFault
from tidelog.sim.simulation import RunOutcome, simulate
from tidelog.sim.terms import Terms


def shrink(failed: RunOutcome, terms: Terms | None = None, most_runs: int = 60) -> RunOutcome:
    """Leaves faults out, halves first and then one by one, as long as the same promise is broken."""
    assert failed.violation is not None, f"seed {failed.seed} did not fail"
    promise = failed.violation.promise
    best, runs = failed, 0

    def still_fails(faults: list[InjectedFault]) -> bool:
        nonlocal best, runs
        runs += 1
        outcome = simulate(failed.seed, terms, faults)
        if outcome.violation is None or outcome.violation.promise != promise:
            return False
        best = outcome
        return True

    faults = list(failed.faults)
    size = max(len(faults) // 2, 1)
    while faults and runs < most_runs:
        faults = _without_pieces(faults, size, lambda rest: runs < most_runs and still_fails(rest))
        if size == 1:
            break
        size //= 2
    return best


def _without_pieces(
    faults: list[InjectedFault], size: int, still_fails: Callable[[list[InjectedFault]], bool]
) -> list[InjectedFault]:
    at = 0
    while at < len(faults):
        rest = faults[:at] + faults[at + size :]
        if still_fails(rest):
            faults = rest
        else:
            at += size
    return faults
