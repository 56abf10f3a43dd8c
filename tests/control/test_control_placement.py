"""Where replicas are placed: Apache Kafka's own examples, and the spread that it promises."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from control_cluster import NoChance
from hypothesis import given
from hypothesis import strategies as st

from tidelog.control.errors import Rejected
from tidelog.control.placement import alternate_racks, place_replicas
from tidelog.wire.errors import ErrorCode


def test_followers_shift_with_every_round() -> None:
    placed = place_replicas(dict.fromkeys(range(5)), 10, 3, NoChance())
    assert placed == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


def test_racks_take_turns() -> None:
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert alternate_racks(racks) == [0, 3, 1, 5, 4, 2]
    placed = place_replicas(racks, 7, 3, NoChance())
    assert placed == [(0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3), (0, 4, 2)]


def test_more_partitions_go_on_where_the_first_ended() -> None:
    brokers = dict.fromkeys(range(4))
    whole = place_replicas(brokers, 4, 2, NoChance())
    more = place_replicas(brokers, 2, 2, NoChance(), first_partition=2)
    assert more == whole[2:]


@pytest.mark.parametrize("brokers, factor", [(0, 1), (1, 2), (3, 4)])
def test_more_replicas_than_brokers_are_refused(brokers: int, factor: int) -> None:
    with pytest.raises(Rejected) as caught:
        place_replicas(dict.fromkeys(range(brokers)), 1, factor, NoChance())
    assert caught.value.error.code == ErrorCode.INVALID_REPLICATION_FACTOR


@given(st.integers(1, 8), st.integers(1, 40), st.integers(0, 2**32), st.data())
def test_leaders_are_spread_evenly_and_replicas_are_distinct(
    brokers: int, partitions: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, brokers))
    placed = place_replicas(dict.fromkeys(range(brokers)), partitions, factor, Random(seed))
    assert all(len(set(replicas)) == factor for replicas in placed)
    leaders = Counter(dict.fromkeys(range(brokers), 0))
    leaders.update(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.values()) <= 1


@given(
    st.dictionaries(st.integers(0, 20), st.sampled_from("abcd"), min_size=1, max_size=10),
    st.integers(1, 20),
    st.integers(0, 2**32),
    st.data(),
)
def test_no_rack_has_two_replicas_while_another_has_none(
    racks: dict[int, str], partitions: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    for replicas in place_replicas(racks, partitions, factor, Random(seed)):
        assert len(set(replicas)) == factor
        assert len({racks[r] for r in replicas}) == min(factor, len(set(racks.values())))
