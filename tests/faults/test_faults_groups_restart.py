"""The coordinator is killed in the middle of a rebalance and of commits, and comes back.

A member that stands still holds the rebalance open, so that the kill strikes in the middle of it; the others go on
reading and committing where their protocol lets them.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from bench.systems.judged import JUDGED
from bench.systems.process import BrokerProcess
from confluent_kafka import KafkaError
from groups_chaos import BROKER_CONFIG, PARTITIONS, PASSING, SESSION_TIMEOUT_MS, Arena, Group, Plan, eventually
from groups_oracle import errors_of, refused_commits, violations

from tidelog.client import Client
from tidelog.client.errors import NotFound

LIVES = 2
STABLE_S = SESSION_TIMEOUT_MS / 1_000 + 30
#: The rebalance that was interrupted goes on, and takes the right to commit away as any other would.
MOVED_ON = {KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID}


@pytest.fixture
def judged(request: pytest.FixtureRequest) -> type[BrokerProcess]:
    return JUDGED[request.config.getoption("--broker")]


def state(broker: BrokerProcess, group: Group) -> tuple[str, int]:
    """State and number of members. (librdkafka's own call for this aborts the process while a coordinator loads.)"""
    with Client(broker.bootstrap) as client:
        described = client.groups.describe(group.plan.group)
        return described.state, len(described.members)


def stable(broker: BrokerProcess, group: Group) -> bool:
    try:
        return state(broker, group) == ("Stable", len(group.members))
    except NotFound:  # nobody has joined it yet
        return False


def goes_on(group: Group) -> None:
    """Every partition's committed offset moves, as the load does."""
    before = group.polls[-1].offsets

    def moved() -> bool:
        now = group.polls[-1].offsets
        return len(now) == PARTITIONS and all(offset > before.get(partition, 0) for partition, offset in now.items())

    eventually(moved, STABLE_S, "the group committed nothing more")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "strategy"),
    [("classic", "range"), ("classic", "cooperative-sticky"), ("consumer", "")],
    ids=["classic-eager", "classic-cooperative", "consumer"],
)
def test_a_coordinator_killed_in_a_rebalance_keeps_every_acknowledged_commit(
    judged: type[BrokerProcess], tmp_path: Path, protocol: str, strategy: str
) -> None:
    plan = Plan("g", "after", protocol=protocol, strategy=strategy)
    with judged(tmp_path / "broker", BROKER_CONFIG) as broker, Arena(broker, [plan], tmp_path, seed=1) as arena:
        (group,) = arena.groups
        eventually(lambda: stable(broker, group), STABLE_S, "the group did not become stable")
        for _ in range(LIVES):
            goes_on(group)
            group.pause(group.members[0], seconds=60)
            group.join()
            eventually(lambda: state(broker, group)[0] != "Stable", STABLE_S, "no rebalance began")
            time.sleep(arena.chance.uniform(0, 0.5))
            killed_at = time.monotonic()
            broker.kill()
            acknowledged = newest_acknowledged(group)
            broker.start()
            arena.note_outage(killed_at)
            group.resume_due()
            eventually(lambda: stable(broker, group), STABLE_S, "the group did not become stable again")
            kept = group.committed_offsets()
            assert all(kept[partition] >= offset for partition, offset in acknowledged.items())
            group.check_members_live()
        arena.settle()
    history = arena.histories()[plan.group]
    assert violations(history, plan.commit) == []
    assert {code for code, _ in errors_of(history.members)} <= PASSING
    assert {code for code, _ in refused_commits(history.members)} <= PASSING | MOVED_ON


def newest_acknowledged(group: Group) -> dict[int, int]:
    newest: dict[int, int] = {}
    for member in group.histories():
        for _, partition, offset in member.acknowledged():
            newest[partition] = max(offset, newest.get(partition, 0))
    assert newest
    return newest
