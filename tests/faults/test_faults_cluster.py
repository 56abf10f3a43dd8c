"""A few rows of the table of faults on real processes; `make faults` runs all of them."""

from __future__ import annotations

import pytest
from tests.faults.cluster_rows import leader_cut, leader_kills
from tests.faults.cluster_rows_life import transaction_coordinator

pytestmark = pytest.mark.zookeeper


def test_nothing_acknowledged_is_lost_when_leaders_are_killed() -> None:
    verdict = leader_kills(times=2)
    assert not verdict.violations, verdict


def test_no_leader_acknowledges_alone_when_it_is_cut_from_zookeeper_and_the_controller() -> None:
    verdict = leader_cut()
    assert not verdict.violations, verdict


def test_transactions_are_all_or_nothing_when_their_coordinator_is_killed() -> None:
    verdict = transaction_coordinator(times=1)
    assert not verdict.violations, verdict
