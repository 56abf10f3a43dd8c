"""What becomes of half messages: committed once, rolled back never, and asked about while nothing is heard."""

from __future__ import annotations

from random import Random

import pytest
from delay_world import MemoryScratch

from tidelog.deciding.decision import CoordinatorRecord
from tidelog.deliver.delivery_picture import kind_of, read_picture
from tidelog.deliver.halves import ALWAYS, COMMIT, HALF_END, HALF_ID, ROLLBACK, HalfRecord, HalfSchedule, read_half

NOW_MS = 1_000_000


def half(offset: int, half_id: bytes, commits: bool | None = None) -> HalfRecord:
    return HalfRecord(offset, NOW_MS, half_id, commits)


def schedule_of(*records: HalfRecord) -> HalfSchedule:
    schedule = HalfSchedule(0, MemoryScratch())
    schedule.begin(0, NOW_MS)
    for record in records:
        schedule.found_half(record, NOW_MS)
        schedule.position = record.offset + 1
    return schedule


def offsets(schedule: HalfSchedule) -> list[int]:
    return [offset for _, offset in schedule.choose(ALWAYS, 10)]


def test_a_committed_message_is_chosen_and_a_prepared_or_rolled_back_one_is_not() -> None:
    schedule = schedule_of(
        half(0, b"a"), half(1, b"b"), half(2, b"c"), half(3, b"a", commits=True), half(4, b"b", commits=False)
    )
    assert offsets(schedule) == [0]
    assert list(schedule.prepared) == [b"c"]


def test_messages_are_chosen_in_the_order_in_which_they_were_committed() -> None:
    schedule = schedule_of(half(0, b"a"), half(1, b"b"), half(2, b"b", commits=True), half(3, b"a", commits=True))
    assert offsets(schedule) == [1, 0]


def test_only_the_first_end_of_a_message_counts() -> None:
    schedule = schedule_of(
        half(0, b"a"), half(1, b"a", commits=False), half(2, b"a", commits=True), half(3, b"x", commits=True)
    )
    assert offsets(schedule) == []


def test_an_id_can_be_used_again_after_its_end_and_not_before() -> None:
    schedule = schedule_of(half(0, b"a"), half(1, b"a"), half(2, b"a", commits=True), half(3, b"a"))
    assert offsets(schedule) == [0]
    assert [at for at, _ in schedule.malformed.first(9)] == [1]
    assert schedule.prepared[b"a"].offset == 3


def test_a_message_that_was_prepared_again_before_its_commit_is_not_delivered_again_by_who_reads_from_between() -> None:
    log = [half(0, b"a"), half(1, b"b"), half(2, b"a"), half(3, b"a", commits=True), half(4, b"c")]
    log.append(half(5, b"c", commits=True))
    schedule = schedule_of(*log[:4])
    assert offsets(schedule) == [0]
    schedule.replay(schedule.decide([10], "orders", 100, 7, NOW_MS).records[0])
    schedule.arrived()
    schedule.replay(schedule.settle().records[0])
    for record in log[4:]:
        schedule.found_half(record, NOW_MS)
        schedule.position = record.offset + 1
    assert offsets(schedule) == [4]
    schedule.replay(schedule.decide([10], "orders", 100, 7, NOW_MS).records[0])
    for last in (schedule.picture, read_picture(schedule.void().records[0].value or b"")):
        assert last.floor == 1
        fresh = HalfSchedule(0, MemoryScratch())
        fresh.picture = last
        fresh.begin(last.floor, NOW_MS)
        for record in log[last.floor :]:
            fresh.found_half(record, NOW_MS)
            fresh.position = record.offset + 1
        if fresh.parcel is not None:
            assert [offset for _, offset in fresh.parcel.keys] == [4]
            fresh.replay(fresh.void().records[0])
        assert offsets(fresh) == [4], "what was on its way, and nothing else"


def test_a_message_without_an_end_holds_the_floor() -> None:
    schedule = schedule_of(half(0, b"a"), half(1, b"b"), half(2, b"a", commits=False))
    assert schedule.floor() == 1


def test_a_sender_is_asked_when_nothing_was_heard_for_long_enough_and_again_later() -> None:
    schedule = schedule_of(half(0, b"a"), half(1, b"b"), half(2, b"b", commits=True))
    assert schedule.take_silent(NOW_MS - 1, 10) == []
    assert schedule.take_silent(NOW_MS, 10) == [b"a"]
    schedule.asked(b"a", NOW_MS + 50)
    assert schedule.prepared[b"a"].asked == 1
    assert schedule.silent_since_ms() == NOW_MS + 50
    assert schedule.take_silent(NOW_MS + 50, 10) == [b"a"]
    schedule.undecided(b"a")
    assert schedule.silent_since_ms() is None


def test_a_sender_that_may_answer_from_the_same_moment_twice_is_asked_once() -> None:
    schedule = schedule_of(half(0, b"a"))
    assert schedule.take_silent(NOW_MS, 10) == [b"a"]
    schedule.asked(b"a", NOW_MS + 50, counts=False)
    schedule.asked(b"a", NOW_MS + 50)
    assert schedule.take_silent(NOW_MS + 50, 10) == [b"a"]


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ([(HALF_ID, b"a")], None),
        ([(HALF_ID, b"a"), (HALF_END, COMMIT)], True),
        ([(HALF_END, ROLLBACK), (HALF_ID, b"a")], False),
    ],
)
def test_headers_say_what_a_record_means(headers: list[tuple[bytes, bytes | None]], said: bool | None) -> None:
    record = read_half(7, NOW_MS, headers)
    assert isinstance(record, HalfRecord)
    assert (record.offset, record.half_id, record.commits) == (7, b"a", said)


@pytest.mark.parametrize("headers", [[], [(HALF_ID, b"")], [(HALF_ID, None)], [(HALF_ID, b"a"), (HALF_END, b"maybe")]])
def test_headers_that_mean_nothing_are_told_from_others(headers: list[tuple[bytes, bytes | None]]) -> None:
    assert isinstance(read_half(7, NOW_MS, headers), str)


@pytest.mark.parametrize("seed", range(40))
def test_each_committed_message_is_delivered_once_in_order_of_commits_however_often_the_deliverer_dies(
    seed: int,
) -> None:
    chance = Random(seed)
    log: list[HalfRecord | CoordinatorRecord] = []
    delivered: list[int] = []
    known: dict[tuple[int, int], None] = {}
    open_ids: dict[bytes, int] = {}
    committed: list[int] = []
    schedule = HalfSchedule(0, MemoryScratch())

    def start() -> HalfSchedule:
        fresh = HalfSchedule(0, MemoryScratch())
        pictures = [each for each in log if isinstance(each, CoordinatorRecord) and kind_of(each.key) == 10001]
        if pictures:
            fresh.replay(pictures[-1]._replace(meaning=None))
        fresh.begin(fresh.picture.floor, NOW_MS)
        return fresh

    def read() -> None:
        for at in range(schedule.position, len(log)):
            entry = log[at]
            if isinstance(entry, HalfRecord):
                schedule.found_half(entry, NOW_MS)
        schedule.position = len(log)

    def write(record: CoordinatorRecord) -> None:
        log.append(record)
        schedule.replay(record)

    schedule = start()
    for number in range(80):
        step = chance.random()
        if step < 0.4 or not open_ids:
            half_id = b"%d" % number
            open_ids[half_id] = len(log)
            log.append(half(len(log), half_id))
        elif step < 0.7:
            half_id = chance.choice(list(open_ids))
            commits = chance.random() < 0.7
            if commits:
                committed.append(open_ids[half_id])
            del open_ids[half_id]
            log.append(half(len(log), half_id, commits))
        if chance.random() < 0.3:
            schedule = start()
        read()
        if schedule.parcel is None and (chosen := schedule.choose(ALWAYS, chance.randint(1, 3))):
            write(schedule.decide([10] * len(chosen), "orders", 100, 7, NOW_MS).records[0])
        if schedule.parcel is not None and chance.random() < 0.7:
            key = (schedule.parcel.sequence, len(schedule.parcel.keys))
            if key not in known:
                known[key] = None
                delivered += [offset for _, offset in schedule.parcel.keys]
            if chance.random() < 0.7:
                schedule.arrived()
    for _ in range(60):
        read()
        if schedule.parcel is not None:
            key = (schedule.parcel.sequence, len(schedule.parcel.keys))
            if key not in known:
                known[key] = None
                delivered += [offset for _, offset in schedule.parcel.keys]
            schedule.arrived()
        elif chosen := schedule.choose(ALWAYS, 3):
            write(schedule.decide([10] * len(chosen), "orders", 100, 7, NOW_MS).records[0])
    assert delivered == committed
    assert {each.offset for each in schedule.prepared.values()} == set(open_ids.values())
