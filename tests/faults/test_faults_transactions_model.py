"""A few seeds of the transactions' model; `transactions_soak.py` runs as many as one likes."""

from __future__ import annotations

import pytest
from transactions_model import CONFIG, World

from seeds import seeds
from tidelog.testing.broker import RunningBroker


@pytest.mark.parametrize("seed", seeds([1, 2], fresh=2))
def test_random_lives_of_producers_leave_exactly_what_was_committed(seed: int) -> None:
    with RunningBroker(CONFIG) as broker:
        World(broker, seed).run(steps=120, crashes=2)


@pytest.mark.parametrize("seed", seeds([11], fresh=1))
def test_producers_find_what_they_committed_after_the_broker_has_rested(seed: int) -> None:
    """Clean stops, kills of an idle broker, coordinators that load for a while, and epochs near their end."""
    with RunningBroker(CONFIG) as broker:
        World(broker, seed).run(steps=80, crashes=1, rests=3)
