"""Seeds for tests that play a history from one: some that stay, those that ever failed, and fresh ones in every run.

    @pytest.mark.parametrize("seed", seeds(range(6), fresh=6))

A fresh seed has the same name in every process that collects it ("fresh-0"), and another value. Where a test fails with
one, `conftest` says which it was and puts it into `failed_seeds.txt` beside the test: with that file committed it is
played for ever.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from random import SystemRandom

import pytest
from _pytest.mark.structures import ParameterSet

FRESH = "fresh-"
FAILED = "failed_seeds.txt"


def seeds(fixed: Iterable[int], fresh: int) -> list[ParameterSet]:
    """Of the module that calls it: `failed_seeds.txt` has lines of a module's name and a seed."""
    module = Path(inspect.stack()[1].filename)
    kept = sorted({*fixed, *failed_seeds(module)})
    random = SystemRandom()
    return [
        *(pytest.param(seed, id=str(seed)) for seed in kept),
        *(pytest.param(random.randrange(1 << 32), id=f"{FRESH}{number}") for number in range(fresh)),
    ]


def failed_seeds(module: Path) -> list[int]:
    path = module.parent / FAILED
    lines = path.read_text().splitlines() if path.exists() else []
    return [int(words[1]) for words in map(str.split, lines) if words and words[0] == module.stem]


def keep(item: pytest.Function) -> str | None:
    """Keeps the fresh seed that a test has just failed with; what to say of it."""
    callspec = getattr(item, "callspec", None)
    seed = None if callspec is None else callspec.params.get("seed")
    if seed is None or not any(FRESH in each for each in callspec._idlist):
        return None
    if seed not in failed_seeds(item.path):
        with (item.path.parent / FAILED).open("a") as file:
            file.write(f"{item.path.stem} {seed} {item.originalname}\n")
    return f"seed {seed} failed; it is kept in {item.path.parent / FAILED}"
