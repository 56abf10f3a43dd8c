"""The coordinator is killed in the middle of a rebalance and of commits, and comes back.

A member that stands still holds the rebalance open, so that the kill strikes in the middle of it; the others go on
reading and committing where their protocol lets them.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from bench.systems.kafka import ApacheKafka
from bench.systems.process import BrokerProcess
from bench.systems.tidelog import Tidelog
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from groups_chaos import BROKER_CONFIG, SESSION_TIMEOUT_MS, Arena, Group, Plan, committed_offsets, eventually
from groups_oracle import errors_of, refused_commits, violations

LIVES = 2
STABLE_S = SESSION_TIMEOUT_MS / 1_000 + 30
#: What a client may see of a coordinator that goes and comes back; all of it is tried again.
PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
#: The rebalance that was interrupted goes on, and takes the right to commit away as any other would.
MOVED_ON = {KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID}


@pytest.fixture
def judged(request: pytest.FixtureRequest) -> type[BrokerProcess]:
    return ApacheKafka if request.config.getoption("--broker") == "kafka" else Tidelog


def state(arena: Arena, group: Group) -> tuple[ConsumerGroupState, int]:
    name = group.plan.group
    described = arena.admin.describe_consumer_groups([name], request_timeout=10)[name].result(30)
    return described.state, len(described.members)


def stable(arena: Arena, group: Group) -> bool:
    try:
        return state(arena, group) == (ConsumerGroupState.STABLE, len(group.members))
    except KafkaException as error:
        assert error.args[0].retriable() or error.args[0].code() in PASSING, error
        return False


def goes_on(arena: Arena, group: Group) -> None:
    """Every partition's committed offset moves, as the load does."""
    before = committed_offsets(arena.admin, group.plan.group)

    def moved() -> bool:
        now = committed_offsets(arena.admin, group.plan.group)
        return all(now[partition] > offset for partition, offset in before.items())

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
        eventually(lambda: stable(arena, group), STABLE_S, "the group did not become stable")
        for _ in range(LIVES):
            goes_on(arena, group)
            group.pause(group.members[0], seconds=60)
            group.join()
            eventually(lambda: state(arena, group)[0] != ConsumerGroupState.STABLE, STABLE_S, "no rebalance began")
            time.sleep(arena.chance.uniform(0, 0.5))
            broker.kill()
            acknowledged = newest_acknowledged(group)
            broker.start()
            group.resume_due()
            eventually(lambda: stable(arena, group), STABLE_S, "the group did not become stable again")
            kept = committed_offsets(arena.admin, plan.group)
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
