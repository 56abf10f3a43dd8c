"""The assignors against an oracle: complete, exclusive, balanced, sticky."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.group.assignors import ASSIGNORS, MemberSpec, assign_range, assign_uniform

TOPICS = [bytes([n]) * 16 for n in range(1, 5)]


@st.composite
def situations(draw, same_topics=False):
    counts = {t: draw(st.integers(1, 7)) for t in TOPICS}
    names = [f"m{n}" for n in range(draw(st.integers(1, 6)))]
    subscription = st.frozensets(st.sampled_from(TOPICS), min_size=1)
    shared = draw(subscription)
    subscribed = {m: shared if same_topics else draw(subscription) for m in names}
    # Any former assignment at all: no partition twice, but of topics and partitions that may be gone.
    former: dict[str, dict[bytes, set[int]]] = {m: {} for m in names}
    for topic_id, partition in itertools.product(TOPICS, range(8)):
        owner = draw(st.sampled_from([None, *names]))
        if owner is not None:
            former[owner].setdefault(topic_id, set()).add(partition)
    instances = {m: draw(st.sampled_from([None, "i" + m])) for m in names}
    members = {
        m: MemberSpec(instances[m], subscribed[m], {t: frozenset(p) for t, p in former[m].items()}) for m in names
    }
    return members, counts


def loads(made):
    return {m: sum(map(len, partitions.values())) for m, partitions in made.items()}


def owners(made):
    found = {}
    for member, partitions in made.items():
        for topic_id, indexes in partitions.items():
            assert indexes, "no topic without partitions"
            for partition in indexes:
                assert (topic_id, partition) not in found, "two owners"
                found[topic_id, partition] = member
    return found


@pytest.mark.parametrize("name", ASSIGNORS)
@given(situation=situations())
def test_every_partition_has_exactly_one_owner_that_wants_it(name, situation):
    members, counts = situation
    made = ASSIGNORS[name](members, counts)
    subscribed = set().union(*(spec.subscribed for spec in members.values()))
    assert made.keys() == members.keys()
    found = owners(made)
    assert found.keys() == {(t, p) for t in subscribed for p in range(counts[t])}
    assert all(topic_id in members[owner].subscribed for (topic_id, _), owner in found.items())
    assert ASSIGNORS[name](members, counts) == made


@given(situation=situations(same_topics=True))
def test_uniform_is_balanced_to_one_and_keeps_all_it_can_where_topics_are_the_same(situation):
    members, counts = situation
    made = assign_uniform(members, counts)
    sizes = loads(made)
    assert max(sizes.values()) - min(sizes.values()) <= 1
    # Sticky: the number of moved partitions is the least that balance allows.
    kept = {
        m: sum(p < counts[t] for t, ps in spec.assigned.items() if t in spec.subscribed for p in ps)
        for m, spec in members.items()
    }
    quota, extra = divmod(sum(counts[t] for t in next(iter(members.values())).subscribed), len(members))
    best = sum(min(size, quota) for size in kept.values()) + min(extra, sum(size > quota for size in kept.values()))
    stayed = sum(
        partition in members[m].assigned.get(topic_id, ())
        for m, partitions in made.items()
        for topic_id, indexes in partitions.items()
        for partition in indexes
    )
    assert stayed == best


@given(situation=situations())
def test_uniform_leaves_no_move_that_would_even_two_members_out(situation):
    members, counts = situation
    made = assign_uniform(members, counts)
    sizes = loads(made)
    for (topic_id, _), owner in owners(made).items():
        for other, spec in members.items():
            if topic_id in spec.subscribed:
                assert sizes[owner] - sizes[other] <= 1


@given(situation=situations())
def test_uniform_does_not_move_anything_once_it_is_balanced(situation):
    members, counts = situation
    made = assign_uniform(members, counts)
    again = {m: spec._replace(assigned={t: frozenset(p) for t, p in made[m].items()}) for m, spec in members.items()}
    assert assign_uniform(again, counts) == made


@given(situation=situations())
def test_range_gives_each_member_a_run_of_partitions_in_the_order_of_members(situation):
    members, counts = situation
    made = assign_range(members, counts)
    order = sorted(members, key=lambda m: (members[m].instance_id is None, members[m].instance_id or m))
    for topic_id in TOPICS:
        runs = [sorted(made[m].get(topic_id, ())) for m in order if topic_id in members[m].subscribed]
        assert list(itertools.chain(*runs)) == list(range(counts[topic_id] if runs else 0))
        assert all(len(run) >= len(after) for run, after in itertools.pairwise(runs))
        assert not runs or len(runs[0]) - len(runs[-1]) <= 1


@settings(deadline=None)
@given(st.integers(1, 40))
def test_range_gives_copartitioned_topics_alike(partition_count):
    members = {f"m{n}": MemberSpec(None, frozenset(TOPICS), {}) for n in range(7)}
    made = assign_range(members, dict.fromkeys(TOPICS, partition_count))
    for partitions in made.values():
        assert len({frozenset(indexes) for indexes in partitions.values()}) <= 1
