"""Groups whose members are killed, paused, added and dismissed under load: what was promised about delivery holds.

The members are stock clients in processes of their own; `groups_oracle` says what must be true of what they wrote
down. This is a short run; `python -m tests.faults.groups_soak` does the same for as long as one likes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.systems.judged import JUDGED
from bench.systems.process import BrokerProcess
from groups_chaos import BROKER_CONFIG, Arena
from groups_oracle import tenures, violations
from groups_variants import VARIANTS

RAGE_S = 14


@pytest.fixture
def judged(request: pytest.FixtureRequest) -> type[BrokerProcess]:
    return JUDGED[request.config.getoption("--broker")]


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_delivery_and_ownership_hold_whatever_happens_to_the_members(
    judged: type[BrokerProcess], tmp_path: Path, variant: str
) -> None:
    with (
        judged(tmp_path / "broker", BROKER_CONFIG) as broker,
        Arena(broker, VARIANTS[variant], tmp_path, seed=848) as arena,
    ):
        arena.rage(RAGE_S)
        arena.settle()
    histories = arena.histories()
    found = {plan.group: violations(histories[plan.group], plan.commit) for plan in arena.plans}
    assert found == {plan.group: [] for plan in arena.plans}
    # The run was worth something: all kinds of faults, several rebalances, and records all the while.
    assert set(arena.faults) == {"kill", "pause", "leave", "join"}
    for history in histories.values():
        processed = {record for member in history.members for record in member.processed()}
        assert len(processed) > 0.8 * sum(history.ends.values()) > 0.8 * 100 * RAGE_S
        assert len({tenure.generation for member in history.members for tenure in tenures(member)}) >= 3
