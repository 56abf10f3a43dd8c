"""Plans for moving replicas: even, over racks, with few moves, and never worse than what was there."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.client.errors import Refused
from tidelog.client.replica_plans import (
    Assignment,
    Racks,
    balanced,
    from_json,
    moved_replicas,
    to_json,
    with_factor,
    without,
)
from tidelog.wire.partitions import TopicPartition


def t(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Assignment, dict[int, str | None]]:
    """Brokers with or without racks, and partitions of any factor on them."""
    count = draw(st.integers(1, 6))
    racks = draw(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=count, max_size=count))
    brokers = dict(enumerate(racks, 1))
    assignment = {}
    for index in range(draw(st.integers(0, 25))):
        factor = draw(st.integers(1, min(count, 4)))
        assignment[t(index)] = tuple(draw(st.permutations(sorted(brokers)))[:factor])
    return assignment, brokers


def loads(assignment: Assignment, brokers: Racks) -> list[int]:
    held = Counter(broker for replicas in assignment.values() for broker in replicas)
    return [held[broker] for broker in brokers]


def leads(assignment: Assignment, brokers: Racks) -> list[int]:
    led = Counter(replicas[0] for replicas in assignment.values())
    return [led[broker] for broker in brokers]


def racks_of(replicas: tuple[int, ...], brokers: Racks) -> int:
    return len({brokers.get(broker) for broker in replicas})


def squares(values: list[int]) -> int:
    return sum(value * value for value in values)


@given(clusters())
def test_a_balanced_plan_keeps_every_partition_whole_and_on_as_many_racks(
    cluster: tuple[Assignment, dict[int, str | None]],
) -> None:
    before, brokers = cluster
    after = {**before, **balanced(before, brokers)}
    assert after.keys() == before.keys()
    for at, replicas in after.items():
        assert len(set(replicas)) == len(replicas) == len(before[at]) and set(replicas) <= brokers.keys()
        assert racks_of(replicas, brokers) == min(len(replicas), len(set(brokers.values())))


@given(clusters())
def test_a_balanced_cluster_is_left_alone(cluster: tuple[Assignment, dict[int, str | None]]) -> None:
    before, brokers = cluster
    after = {**before, **balanced(before, brokers)}
    assert balanced(after, brokers) == {}


@given(clusters())
def test_without_racks_brokers_hold_the_same_but_for_one_with_as_few_moves_as_that_takes(
    cluster: tuple[Assignment, dict[int, str | None]],
) -> None:
    before, brokers = cluster
    flat: dict[int, str | None] = dict.fromkeys(brokers)
    plan = balanced(before, flat)
    after = {**before, **plan}
    held = loads(after, flat)
    assert max(held) - min(held) <= 1
    # Whoever has too many must give that many away; nobody can do with less.
    low, more = divmod(sum(held), len(held))
    fullest = sorted(loads(before, flat), reverse=True)
    needed = sum(max(0, have - low - (place < more)) for place, have in enumerate(fullest))
    assert moved_replicas(before, plan) == needed


@given(clusters())
def test_leaders_are_spread_by_the_order_of_replicas(cluster: tuple[Assignment, dict[int, str | None]]) -> None:
    before, brokers = cluster
    everywhere = {at: tuple(sorted(brokers)) for at in before}
    plan = balanced(everywhere, brokers)
    led = leads({**everywhere, **plan}, brokers)
    assert moved_replicas(everywhere, plan) == 0 and max(led) - min(led) <= 1


def test_leaders_are_handed_on_over_several_brokers() -> None:
    # Broker 1 leads two and shares partitions only with 2, which shares one with 3: each hands one on.
    before = {t(0): (1, 2), t(1): (1, 2), t(2): (2, 3), t(3): (3, 1), t(4): (1, 3), t(5): (2, 1)}
    led = leads({**before, **balanced(before, dict.fromkeys((1, 2, 3)))}, dict.fromkeys((1, 2, 3)))
    assert led == [2, 2, 2]


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    before = {t(p): ((p % 2) + 1,) for p in range(9)}
    plan = balanced(before, dict.fromkeys((1, 2, 3)))
    assert len(plan) == 3 and all(replicas == (3,) for replicas in plan.values())


def test_replicas_on_a_broker_that_is_not_there_stay() -> None:
    before = {t(0): (9, 1), t(1): (9, 2)}
    assert balanced(before, dict.fromkeys((1, 2))) == {}


@given(clusters(), st.data())
def test_a_broker_that_leaves_holds_nothing_and_racks_are_kept_where_they_can_be(
    cluster: tuple[Assignment, dict[int, str | None]], data: st.DataObject
) -> None:
    before, brokers = cluster
    leaving = data.draw(st.sets(st.sampled_from(sorted(brokers)), min_size=1))
    staying = brokers.keys() - leaving
    try:
        plan = without(before, brokers, leaving)
    except Refused:
        assert any(len(replicas) > len(staying) for replicas in before.values())
        return
    for at, replicas in {**before, **plan}.items():
        assert set(replicas) <= staying and len(set(replicas)) == len(before[at])
        assert set(before[at]) - leaving <= set(replicas), "whoever stays keeps what it has"
    assert all(set(before[at]) & leaving for at in plan), "nothing else moves"


def test_every_topic_gets_its_part_of_a_new_broker() -> None:
    turns = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    before = {t(p, topic): turns[p % 3] for topic, count in (("a", 50), ("b", 12), ("c", 6)) for p in range(count)}
    plan = balanced(before, dict.fromkeys((1, 2, 3, 4)))
    after = before | plan
    held = Counter(at.topic for at, replicas in after.items() if 4 in replicas)
    led = Counter(at.topic for at, replicas in after.items() if replicas[0] == 4)
    assert sum(held.values()) == moved_replicas(before, plan) == 51
    # Three of four replicas of each partition, and a quarter of the leaders, give or take one.
    assert [abs(held[topic] - share) <= 1 for topic, share in (("a", 37.5), ("b", 9), ("c", 4.5))] == [True] * 3
    assert sum(led.values()) == 17 and led["b"] >= 2 and led["c"] >= 1


def test_too_few_brokers_left_is_refused_with_what_to_do() -> None:
    with pytest.raises(Refused, match="t-0 has 2 replicas, and only 1 broker would be left") as caught:
        without({t(0): (1, 2)}, dict.fromkeys((1, 2)), [2])
    assert caught.value.hint is not None and "--replication-factor 1" in caught.value.hint
    with pytest.raises(Refused, match="no broker would be left") as caught:
        without({t(0): (1, 2)}, dict.fromkeys((1, 2)), [1, 2])
    assert caught.value.hint is not None and "add the brokers" in caught.value.hint


@given(clusters(), st.integers(1, 6))
@settings(max_examples=60)
def test_another_factor_keeps_the_leader_and_as_many_replicas_as_it_can(
    cluster: tuple[Assignment, dict[int, str | None]], factor: int
) -> None:
    before, brokers = cluster
    if factor > len(brokers):
        with pytest.raises(Refused, match=f"{factor} replicas need {factor} brokers"):
            with_factor(before, brokers, before, factor)
        return
    for at, replicas in {**before, **with_factor(before, brokers, before, factor)}.items():
        assert len(set(replicas)) == len(replicas) == factor and replicas[0] == before[at][0]
        assert len(set(replicas) & set(before[at])) == min(factor, len(before[at]))


def test_the_dead_go_first_when_there_are_too_many_replicas() -> None:
    assert with_factor({t(0): (1, 2, 3)}, dict.fromkeys((1, 3)), [t(0)], 2) == {t(0): (1, 3)}


@given(clusters())
def test_a_plan_survives_kafkas_file_format(cluster: tuple[Assignment, dict[int, str | None]]) -> None:
    plan, _ = cluster
    if plan:
        assert from_json(to_json(plan)) == plan


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([], "not a JSON object"),
        ({"version": 2}, "version 1"),
        ({"partitions": []}, "names no partitions"),
        ({"partitions": [{"topic": "t"}]}, "names no partition"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}, "names no partition"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}, "names no partition"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2}, "t-0 twice"),
    ],
)
def test_a_plan_that_is_none_is_refused(data: object, why: str) -> None:
    with pytest.raises(Refused, match=why):
        from_json(data)
