"""The oracle over groups sees what it is there to see: each kind of violation, planted into a clean history."""

from __future__ import annotations

from typing import Any

import pytest
from groups_oracle import GroupHistory, MemberHistory, Poll, lost_without_a_reason, violations


def event(at: float, kind: str, **fields: Any) -> dict[str, Any]:
    return {"event": kind, "at": at, **fields}


def committed(at: float, offset: int, error: Any = None) -> dict[str, Any]:
    return event(at, "committed", began=at - 0.1, offsets=[[0, offset]], error=error)


@pytest.fixture
def clean() -> GroupHistory:
    """Partition 0 with ten records: a reads five and gives it back, b reads the other five."""
    a = [
        event(1.0, "assigned", partitions=[0], generation=1, member_id="a"),
        event(2.0, "processed", records=[[0, n] for n in range(5)]),
        committed(2.2, 5),
        event(3.0, "revoked", partitions=[0]),
    ]
    b = [
        event(3.5, "assigned", partitions=[0], generation=2, member_id="b"),
        event(4.0, "processed", records=[[0, n] for n in range(5, 10)]),
        committed(4.2, 10),
        event(5.0, "leaving"),
    ]
    polls = [Poll(2.1, 2.3, {0: 5}), Poll(4.5, 4.6, {0: 10})]
    return GroupHistory([MemberHistory("a", a), MemberHistory("b", b)], {0: 10}, polls, [(0, 5), (0, 10)])


@pytest.mark.parametrize("commit", ["after", "before"])
def test_a_clean_history_has_no_violations(clean: GroupHistory, commit: str) -> None:
    assert violations(clean, commit) == []


def test_a_record_that_nobody_processed_is_seen(clean: GroupHistory) -> None:
    clean.members[0].events[1]["records"].pop()
    assert violations(clean, "after") == ["1 records were never processed, such as [(0, 4)]"]
    assert violations(clean, "before") == []


def test_a_record_processed_twice_is_seen(clean: GroupHistory) -> None:
    clean.members[1].events[1]["records"].append([0, 4])
    assert violations(clean, "before") == ["(0, 4) was processed by ['a', 'b']"]
    assert violations(clean, "after") == []


def test_two_owners_in_one_generation_are_seen(clean: GroupHistory) -> None:
    clean.members[1].events[0]["generation"] = 1
    assert violations(clean, "after") == ["partition 0 was given to ['a', 'b'] in generation 1"]


def test_two_owners_at_a_time_are_seen_unless_the_first_stood_still(clean: GroupHistory) -> None:
    clean.members[1].events[0]["at"] = 2.5
    (found,) = violations(clean, "after")
    assert found.startswith("partition 0: b had it from 2.500")
    clean.members[0].pauses.append((2.3, 2.9))
    assert violations(clean, "after") == []


def test_one_that_stood_still_before_it_knew_of_its_partition_may_be_robbed_of_it(clean: GroupHistory) -> None:
    """When it goes on, it hears that it has the partition, and then that it has lost it."""
    late, owner = MemberHistory("late", []), clean.members[0]
    owner.events[0]["generation"] = 2
    clean.members[1].events[0]["generation"] = 3
    late.events += [
        event(2.4, "assigned", partitions=[0], generation=1, member_id="l"),
        event(2.5, "lost", partitions=[0]),
    ]
    clean.members.append(late)
    (found,) = violations(clean, "after")
    assert found.startswith("partition 0: late had it from 2.400")
    late.pauses.append((0.5, 2.3))
    assert violations(clean, "after") == []
    late.events[-1]["event"] = "revoked"
    assert violations(clean, "after") == [found]
    late.events[-1]["event"], late.pauses[0] = "lost", (1.5, 2.3)
    assert violations(clean, "after") == [found], "the owner had it before this one stood still"


def test_a_killed_member_holds_nothing_any_more(clean: GroupHistory) -> None:
    del clean.members[0].events[-1]
    assert violations(clean, "after") != []
    clean.members[0].killed_at = 3.2
    assert violations(clean, "after") == []


def test_a_commit_that_goes_back_is_seen_in_the_log_and_in_polls(clean: GroupHistory) -> None:
    clean.commits.append((0, 7))
    assert violations(clean, "after") == ["partition 0 went back from 10 to 7 in the offsets topic"]
    clean.commits.pop()
    clean.polls.append(Poll(6.0, 6.1, {}))
    assert "partition 0 was polled at 10, then at None" in violations(clean, "after")


def test_an_acknowledged_commit_that_is_not_told_or_not_kept_is_seen(clean: GroupHistory) -> None:
    clean.polls[1].offsets[0] = 9
    assert violations(clean, "after") == ["partition 0: 10 was acknowledged, later 9 was told"]
    clean.members[1].events[2]["error"] = [25, "UNKNOWN_MEMBER_ID"]
    assert violations(clean, "after") == []
    clean.members[1].events[2]["error"] = None
    clean.polls[1].offsets[0] = 10
    clean.commits.pop()
    assert violations(clean, "after") == ["the acknowledged commit (0, 10) is not in the offsets topic"]


def test_a_loss_without_a_pause_is_seen(clean: GroupHistory) -> None:
    clean.members[0].events[-1]["event"] = "lost"
    assert lost_without_a_reason(clean) == ["a lost partition 0 of generation 1"]
    clean.members[0].pauses.append((1.5, 2.9))
    assert lost_without_a_reason(clean) == []
