"""A short life of delayed messages through kills; `python -m tests.faults.delay_soak` runs as long as one likes."""

from __future__ import annotations

import pytest
from delay_soak import Plan, run_alone, run_cluster


def test_delayed_records_arrive_once_and_not_early_through_kills() -> None:
    """In order, too, as far as they were there in time, which is for the longer run to see to."""
    verdict = run_alone(Plan(records=2_000, kills=3, most_delay_ms=3_000, per_second=2_000))
    assert verdict.sent >= 1_000


@pytest.mark.long
def test_delayed_records_arrive_once_in_order_and_not_early_through_changes_of_leader() -> None:
    verdict = run_cluster(Plan(records=20_000, kills=6, most_delay_ms=20_000, per_second=2_000, brokers=3))
    assert verdict.in_time > 0
