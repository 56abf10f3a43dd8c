"""Whole clusters from seeds: all is well, the same seed is the same run, and mistakes in the product are found.

Seeds that ever failed are in `failed_seeds.txt`, one on a line with the reason; they run every time, with fresh ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import SystemRandom

import pytest
from mutations import HUNTS, MUTATIONS

from tidelog.sim.faults import InjectedFault
from tidelog.sim.shrinking import shrink
from tidelog.sim.simulation import simulate
from tidelog.sim.terms import Terms
from tidelog.sim.timeline import picture_of

FAILED_SEEDS = Path(__file__).parent / "failed_seeds.txt"
FAILED = [int(line.split()[0]) for line in FAILED_SEEDS.read_text().splitlines() if line]
FRESH = [SystemRandom().randrange(1 << 32) for _ in range(2)]
#: short runs in which much goes wrong
ROUGH = Terms(
    brokers=4,
    length_ms=8_000,
    most_faults=16,
    partitions=2,
    producers=2,
    transactors=1,
    transformers=1,
    short_lived_topics=1,
    admin_pause_ms=600,
)
#: seeds in which a mistake must be found
MOST_SEEDS = 30


@pytest.mark.parametrize("seed", FAILED)
def test_what_failed_once_does_not_fail_again(seed: int) -> None:
    outcome = simulate(seed)
    assert outcome.is_well, f"seed {seed}: {outcome.violation}\n{outcome.trace}"


def test_fresh_seeds_break_no_promise() -> None:
    for seed in FRESH:
        outcome = simulate(seed)
        if not outcome.is_well:
            with FAILED_SEEDS.open("a") as file:
                file.write(f"{seed} {outcome.violation}\n")
        assert outcome.is_well, f"tidelog sim --seed {seed}: {outcome.violation}\n{outcome.trace}"
        assert outcome.operations["produce: NONE"] and outcome.operations["fetch: NONE"]


@pytest.mark.parametrize("shared_brokers", [1, 4], ids=["mixed", "all"])
def test_fresh_seeds_break_no_promise_in_the_shared_layout(shared_brokers: int) -> None:
    for seed in FRESH:
        outcome = simulate(seed, replace(ROUGH, shared_brokers=shared_brokers))
        assert outcome.is_well, f"seed {seed}: {outcome.violation}\n{outcome.trace}"
        assert outcome.operations["produce: NONE"] and outcome.operations["fetch: NONE"]


def test_a_seed_is_the_same_run_in_every_process() -> None:
    program = (
        "from tidelog.sim.simulation import simulate\n"
        "from tidelog.sim.terms import Terms\n"
        "outcome = simulate(5, Terms(length_ms=3_000, most_faults=12, shared_brokers=1))\n"
        "print(outcome.trace, sorted(outcome.operations.items()), outcome.steps)"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hashing},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hashing in ("1", "2")
    }
    assert len(told) == 1


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_a_mistake_in_the_product_is_found(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    hunt = dict(HUNTS.get(mutate.__name__, {}))
    faults = hunt.pop("faults", None)
    terms = replace(ROUGH, **hunt)
    mutate(monkeypatch)
    assert any(not simulate(seed, terms, faults).is_well for seed in range(MOST_SEEDS))


def test_a_failure_is_shrunk_to_the_faults_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    (nobody_joins_again,) = (each for each in MUTATIONS if each.__name__ == "nobody_joins_again")
    nobody_joins_again(monkeypatch)
    terms = Terms(length_ms=3_000, partitions=1, producers=1)
    idle = [InjectedFault(at_ms, "wall clock jumps", "any", at_ms, 0) for at_ms in (100, 900, 2_500)]
    failed = simulate(1, terms, sorted([*idle, InjectedFault(1_000, "session expires", "any", 1, 0)]))
    assert failed.violation is not None and failed.violation.promise == "recovery"
    shrunk = shrink(failed, terms)
    assert [fault.kind for fault in shrunk.faults] == ["session expires"]
    picture = picture_of("a run", shrunk.happenings)
    assert picture.startswith("<svg") and "session expires" in picture and ">b2<" in picture
