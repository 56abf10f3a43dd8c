"""The pure core: tracker, shard queues, retries and intake, driven by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.workers.backlog import Backlog, PartitionWork, WorkItem
from tidelog.workers.intake import HoldLimits, Intake, Valve
from tidelog.workers.message import Message
from tidelog.workers.offset_map import decode, encode
from tidelog.workers.offset_tracker import OffsetTracker
from tidelog.workers.retrying import Backoff, RetrySchedule
from tidelog.workers.shard_queues import UNORDERED, ShardQueues


def message(offset: int, key: bytes | None = b"k", partition: int = 0) -> Message:
    return Message("t", partition, offset, key, b"v")


# --- tracker ------------------------------------------------------------------------------------------


def test_the_committable_offset_is_the_smallest_that_is_not_finished() -> None:
    tracker = OffsetTracker(10)
    for offset in (10, 11, 12, 15):
        assert tracker.receive(offset)
    tracker.finish(11)
    tracker.finish(15)
    assert tracker.committable().offset == 10
    tracker.finish(10)
    assert tracker.committable().offset == 12
    tracker.finish(12)
    assert tracker.committable() == (16, "", True)


def test_what_a_map_tells_to_be_finished_is_not_handled_again() -> None:
    tracker = OffsetTracker(10, decode(10, encode(10, [10, 13], 16)[0]))
    assert [offset for offset in range(10, 18) if tracker.receive(offset)] == [10, 13, 16, 17]


def test_what_is_known_of_records_that_have_not_arrived_stays_in_the_next_commit() -> None:
    tracker = OffsetTracker(10, decode(10, encode(10, [10, 13], 16)[0]))
    assert tracker.receive(10)
    tracker.finish(10)
    at = tracker.committable()
    assert at.offset == 13 and decode(13, at.metadata) == ((13,), 16)


def test_an_awaited_record_that_is_gone_from_the_log_holds_nothing_up() -> None:
    tracker = OffsetTracker(10, decode(10, encode(10, [10, 13], 16)[0]))
    assert tracker.receive(20)
    assert tracker.base == 20


@given(st.data())
def test_a_restart_repeats_exactly_what_was_not_finished(data: st.DataObject) -> None:
    """Any records, finished in any order, with any number of restarts between: each is handled until it is finished,
    and never after that was committed."""
    offsets = data.draw(st.sets(st.integers(0, 60), min_size=1).map(sorted))
    finished: set[int] = set()
    committed, metadata = 0, ""
    for _ in range(data.draw(st.integers(1, 4))):
        tracker = OffsetTracker(committed, decode(committed, metadata))
        upto = data.draw(st.integers(0, len(offsets)))
        arrived = [offset for offset in offsets[:upto] if offset >= committed and tracker.receive(offset)]
        assert arrived == [offset for offset in offsets[:upto] if offset not in finished]
        for offset in data.draw(st.lists(st.sampled_from(arrived), unique=True)) if arrived else ():
            tracker.finish(offset)
            finished.add(offset)
        at = tracker.committable()
        assert at.offset >= committed and not any(o < at.offset and o not in finished for o in offsets)
        committed, metadata = at.offset, at.metadata


# --- shards -------------------------------------------------------------------------------------------


def test_of_one_shard_one_is_handled_at_a_time_and_others_go_on() -> None:
    queues: ShardQueues[str] = ShardQueues()
    for shard, item in (("a", "a1"), ("a", "a2"), ("b", "b1"), (UNORDERED, "n1"), (UNORDERED, "n2")):
        queues.put(shard, item)
    assert [queues.take() for _ in range(5)] == ["a1", "b1", "n1", "n2", None]
    queues.release("a")
    assert queues.take() == "a2"
    queues.release("b")
    queues.release("a")
    queues.put("a", "a3")
    assert queues.take() == "a3"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans())), st.randoms())
def test_every_shard_comes_out_in_the_order_in_which_it_went_in(puts: list[tuple[str, bool]], chance: object) -> None:
    queues: ShardQueues[tuple[str, int]] = ShardQueues()
    out: list[tuple[str, int]] = []
    held: list[tuple[str, int]] = []
    for number, (shard, is_put) in enumerate(puts):
        if is_put:
            queues.put(shard, (shard, number))
        elif held:
            item = held.pop(chance.randrange(len(held)))  # type: ignore[attr-defined]
            queues.release(item[0])
        if (taken := queues.take()) is not None:
            assert taken[0] not in {shard for shard, _ in held}
            held.append(taken)
            out.append(taken)
    for shard in "abc":
        numbers = [number for of, number in out if of == shard]
        assert numbers == sorted(numbers)


# --- retries ------------------------------------------------------------------------------------------


def test_each_attempt_waits_twice_as_long_up_to_a_limit() -> None:
    backoff = Backoff(attempts=6, first_s=1, most_s=5)
    assert [backoff.delay_s(attempt) for attempt in range(1, 7)] == [1, 2, 4, 5, 5, None]
    assert Backoff(attempts=1_000_000).delay_s(999_999) == 60


def test_whoever_is_due_comes_in_the_order_of_the_times() -> None:
    schedule: RetrySchedule[str] = RetrySchedule()
    for due, item in ((3.0, "c"), (1.0, "a"), (1.0, "b")):
        schedule.add(due, item)
    assert schedule.take_due(2.0) == ["a", "b"] and schedule.take_due(2.0) == []
    assert schedule.take_due(3.0) == ["c"] and not len(schedule)


# --- backlog ------------------------------------------------------------------------------------------


def taken(backlog: Backlog) -> list[WorkItem]:
    found = []
    while (item := backlog.take()) is not None:
        found.append(item)
    return found


def done(backlog: Backlog, item: WorkItem) -> None:
    backlog.release(item)
    backlog.finish(item)


@pytest.mark.parametrize(("order", "at_once"), [("key", [0, 1, 3, 4]), ("partition", [0]), ("none", [0, 1, 2, 3, 4])])
def test_the_order_says_who_waits_for_whom(order: str, at_once: list[int]) -> None:
    backlog = Backlog(order)  # type: ignore[arg-type]
    backlog.assign(("t", 0), None)
    for offset, key in enumerate((b"a", b"b", b"a", None, None)):
        backlog.receive(message(offset, key))
    assert [item.message.offset for item in taken(backlog)] == at_once


def test_a_message_that_fails_keeps_its_key_waiting_and_nobody_else() -> None:
    backlog = Backlog("key", Backoff(attempts=2, first_s=10))
    backlog.assign(("t", 0), None)
    for offset, key in enumerate((b"a", b"a", b"b")):
        backlog.receive(message(offset, key))
    first, other = taken(backlog)
    assert backlog.fail(first, now=100.0)
    done(backlog, other)
    assert taken(backlog) == [] and backlog.wake(109.0) == 0 and backlog.wake(110.0) == 1
    (again,) = taken(backlog)
    assert (again.message.offset, again.message.attempt) == (0, 2)
    assert not backlog.fail(again, now=110.0)
    done(backlog, again)
    assert [item.message.offset for item in taken(backlog)] == [1]


def test_what_is_under_way_for_a_partition_that_was_revoked_counts_for_nothing() -> None:
    backlog = Backlog()
    old = backlog.assign(("t", 0), 5)
    backlog.receive(message(5))
    backlog.receive(message(6))
    (late,) = taken(backlog)
    backlog.revoke(("t", 0))
    new = backlog.assign(("t", 0), 5)
    done(backlog, late)
    assert not old.is_owned and new.tracker.base == 5 and taken(backlog) == []
    backlog.receive(message(5))
    assert len(taken(backlog)) == 1


def test_of_a_partition_that_is_about_to_go_nothing_more_is_begun() -> None:
    backlog = Backlog("key", Backoff(first_s=1))
    work = backlog.assign(("t", 0), 0)
    for offset, key in enumerate((b"a", b"a", b"b", b"c")):
        backlog.receive(message(offset, key))
    running, failing = backlog.take(), backlog.take()
    assert running and failing
    backlog.stop_giving_out(work)
    backlog.fail(failing, now=0.0)
    done(backlog, running)
    assert backlog.wake(10.0) == 0 and taken(backlog) == [] and not backlog.receive(message(9))
    ((_, at),) = backlog.commits(4095)
    assert at.offset == 1 and work.taken == 0


def test_partitions_are_served_in_turn() -> None:
    backlog = Backlog("none")
    for partition in (0, 1):
        backlog.assign(("t", partition), None)
        for offset in range(3):
            backlog.receive(message(offset, None, partition))
    assert [item.message.partition for item in taken(backlog)] == [0, 1, 0, 1, 0, 1]


def test_a_log_that_begins_anew_is_read_from_where_it_is() -> None:
    """The topic was deleted and created again: what is committed lies beyond its end."""
    backlog = Backlog()
    backlog.assign(("t", 0), 1_000)
    assert backlog.receive(message(0)) and backlog.counts.rewound == 1
    (item,) = taken(backlog)
    done(backlog, item)
    ((_, at),) = backlog.commits(4095)
    assert at.offset == 1


def test_nothing_is_committed_of_a_partition_of_which_nothing_was_received() -> None:
    backlog = Backlog()
    backlog.assign(("t", 0), None)
    backlog.assign(("t", 1), 7, "somebody else's")
    assert list(backlog.commits(4095)) == []


# --- intake -------------------------------------------------------------------------------------------


def holding(partition: int, pending: int) -> PartitionWork:
    work = PartitionWork(("t", partition), 0, None)
    for offset in range(pending):
        work.tracker.receive(offset)
    return work


def test_a_partition_that_has_used_up_its_share_is_paused_until_half_of_it_is_free() -> None:
    intake = Intake(HoldLimits(pending=20, pending_bytes=1000, least_share=1), patience_s=1)
    assert intake.plan([holding(0, 10), holding(1, 2)], now=0) == Valve([("t", 0)], [], 8)
    assert intake.plan([holding(0, 6), holding(1, 2)], now=0) == Valve([], [], 8)
    assert intake.plan([holding(0, 5), holding(1, 2)], now=0) == Valve([], [("t", 0)], 13)


def test_where_all_are_full_it_waits_for_room_and_pauses_only_when_that_takes_long() -> None:
    intake = Intake(HoldLimits(pending=10, pending_bytes=1000, least_share=1), patience_s=1)
    assert intake.plan([holding(0, 10)], now=0.0).room == 0
    assert intake.plan([holding(0, 10)], now=0.9) == Valve([], [], 0)
    assert intake.plan([holding(0, 10)], now=1.0) == Valve([("t", 0)], [], 1)
    assert intake.plan([holding(0, 10)], now=1.1) == Valve([], [], 1), "who has paused everything must go on polling"


def test_bytes_count_as_well_and_so_does_a_map_that_is_full() -> None:
    intake = Intake(HoldLimits(pending=20, pending_bytes=100, least_share=1), patience_s=0)
    fat, crowded = holding(0, 1), holding(1, 1)
    fat.pending_bytes, crowded.is_crowded = 50, True
    assert intake.plan([fat, crowded], now=0).pause == [("t", 0), ("t", 1)]
    fat.pending_bytes, crowded.is_crowded = 25, False
    assert intake.plan([fat, crowded], now=0).resume == [("t", 0), ("t", 1)]


def test_without_partitions_one_polls() -> None:
    assert Intake(HoldLimits(10, 10, 1), patience_s=1).plan([], now=0) == Valve([], [], 1)
