"""What a schedule decides: in order of due time, once each, whatever dies in between."""

from __future__ import annotations

from dataclasses import replace

import pytest
from delay_world import KEYLESS, REFUSED, TOO_LARGE, Died, World

from tidelog.deliver.delivery_picture import (
    Doubt,
    Frontier,
    Picture,
    RecordParcel,
    SettledStep,
    Stopped,
    picture_record,
    read_picture,
)


def offsets(world: World) -> list[int]:
    return [offset for offset, _ in world.delivered]


def test_records_are_delivered_in_order_of_due_time_and_then_of_offset() -> None:
    world = World(seed=1, deaths=0)
    for due_ms in (1_000_300, 1_000_100, 1_000_200, 1_000_100):
        world.produce(due_ms)
    world.now_ms = 1_000_400
    world.work()
    assert offsets(world) == [1, 3, 2, 0]


def test_nothing_is_delivered_before_it_is_due() -> None:
    world = World(seed=1, deaths=0)
    world.produce(1_000_001)
    world.work()
    assert offsets(world) == []
    world.now_ms += 1
    world.work()
    assert offsets(world) == [0]


def test_a_record_that_comes_when_its_time_is_over_is_delivered_next() -> None:
    world = World(seed=1, deaths=0)
    world.produce(999_000)
    world.work()
    late = world.produce(5)
    far = world.produce(2_000_000)
    world.work()
    assert offsets(world) == [0, late]
    world.now_ms = 2_000_000
    world.work()
    assert offsets(world) == [0, late, far]


def test_a_record_that_is_not_due_by_a_clock_that_was_set_back_waits_as_any_other() -> None:
    world = World(seed=1, deaths=0)
    world.produce(4_000_000)
    world.now_ms = 4_000_000
    world.work()
    world.set_back(3_000_000)
    later, sooner = world.produce(1_000_200), world.produce(1_000_100)
    world.work()
    assert offsets(world) == [0]
    for _ in range(2):
        world.start()
        world.work()
        assert offsets(world) == [0]
    world.now_ms = 1_000_150
    world.work()
    assert offsets(world) == [0, sooner]
    world.now_ms = 1_000_200
    world.work()
    assert offsets(world) == [0, sooner, later]
    assert world.schedule.picture.settled.earlier == (SettledStep(4_000_000, 0, 1),)
    last = world.produce(4_000_001)
    world.now_ms = 4_000_001
    world.work()
    assert offsets(world) == [0, sooner, later, last]
    assert not world.schedule.picture.settled.earlier, "it was passed again"


def test_what_was_decided_is_delivered_again_after_a_crash_and_known_to_the_target() -> None:
    world = World(seed=1, deaths=0)
    world.produce(1)
    world.read_all()
    schedule = world.schedule
    chosen = schedule.choose(world.now_ms, 10)
    world.write(schedule.decide([10] * len(chosen), "orders", 100, 7, world.now_ms))
    parcel = schedule.parcel
    assert parcel is not None
    assert world.accept(7, parcel.sequence, [0]) == "taken"
    world.start()
    assert world.schedule.parcel == parcel
    assert world.accept(7, parcel.sequence, [0]) == "duplicate"


def test_a_record_that_is_too_large_stops_alone() -> None:
    world = World(seed=1, deaths=0)
    world.produce(1)
    large = world.produce(2, weight=TOO_LARGE)
    world.produce(3)
    world.work()
    assert offsets(world) == [0, 2]
    assert list(world.schedule.picture.stopped) == [large]
    assert world.schedule.floor() == large


def test_a_parcel_that_the_target_refuses_stops_only_the_record_that_is_to_blame() -> None:
    world = World(seed=3, deaths=0)
    for at in range(6):
        world.produce(at, weight=REFUSED if at == 3 else 10)
    world.work()
    assert sorted(offsets(world)) == [0, 1, 2, 4, 5]
    assert list(world.schedule.picture.stopped) == [3]


def test_a_stopped_record_is_delivered_when_the_target_takes_it() -> None:
    world = World(seed=3, deaths=0)
    odd = world.produce(5, weight=REFUSED)
    world.work()
    world.log[odd] = (5, 10)
    world.schedule.retry_stopped()
    world.work()
    assert offsets(world) == [odd]
    assert not world.schedule.picture.stopped


def test_a_cancelled_record_is_never_delivered_and_a_delivered_one_cannot_be_cancelled() -> None:
    world = World(seed=1, deaths=0)
    first, second = world.produce(1_000_100), world.produce(1_000_200)
    assert world.cancel(second)
    world.start()
    world.now_ms = 1_000_300
    world.work()
    assert offsets(world) == [first]
    assert not world.cancel(first)


def test_a_target_that_forgot_the_producer_gets_the_parcel_from_another() -> None:
    world = World(seed=1, deaths=0)
    world.produce(1)
    world.work()
    world.known[1] = [(50, 1)]
    second = world.produce(2)
    world.work()
    assert offsets(world) == [0, second]
    assert world.schedule.picture.producer_id == 2


def test_a_changed_default_delay_applies_to_later_records_only() -> None:
    world = World(seed=1, deaths=0)
    decision = world.schedule.configured(100, end_offset=0)
    assert decision is not None
    world.write(decision)
    world.produce(1)
    changed = world.schedule.configured(200, end_offset=len(world.log))
    assert changed is not None
    world.write(changed)
    assert world.schedule.picture.delays == ((0, 100), (2, 200))
    assert world.schedule.configured(200, end_offset=9) is None


def test_a_picture_is_read_as_it_was_written() -> None:
    picture = Picture(
        producer_id=4,
        sequence=9,
        settled=Frontier(5, 6, 7),
        floor=3,
        delays=((0, 10), (8, 20)),
        stopped={3: Stopped(1, "too large")},
        parcel=RecordParcel("orders", 99, 9, ((6, 7), (6, 8)), Frontier(6, 8, 9)),
    )
    assert read_picture(picture_record(picture).value or b"") == picture
    cut = replace(picture, parcel=replace(picture.parcel, is_cut=True, is_alone=True))  # type: ignore[type-var]
    assert read_picture(picture_record(cut).value or b"") == cut
    doubts = (Doubt(7, "orders", 3, ((1, 3),), is_cut=True), Doubt(8, "orders", 0, ((1, 4), (2, 5))))
    doubtful = replace(picture, parcel=replace(picture.parcel, refused=(3, 5)), doubts=doubts)  # type: ignore[type-var]
    assert read_picture(picture_record(doubtful).value or b"") == doubtful
    set_back = replace(picture, settled=Frontier(5, 6, 7, (SettledStep(6, 9, 5), SettledStep(8, 1, 4))))
    parcel = replace(picture.parcel, after=Frontier(7, 8, 9, (SettledStep(8, 1, 4),)))  # type: ignore[type-var]
    set_back = replace(set_back, parcel=parcel)
    assert read_picture(picture_record(set_back).value or b"") == set_back


def under_way(world: World, records: int) -> RecordParcel:
    """A parcel of so many records, which was decided and not sent."""
    for _ in range(records):
        world.produce(1)
    world.read_all()
    schedule = world.schedule
    chosen = schedule.choose(world.now_ms, 10)
    world.write(schedule.decide([10] * len(chosen), "orders", 100, world.new_producer_id(), world.now_ms))
    parcel = schedule.parcel
    assert parcel is not None and len(parcel.keys) == records
    return parcel


@pytest.mark.parametrize("has_arrived", [True, False])
@pytest.mark.parametrize("deleted", [2, 4])
def test_records_of_a_parcel_whose_neighbours_were_deleted_arrive_once(has_arrived: bool, deleted: int) -> None:
    world = World(seed=1, deaths=0)
    parcel = under_way(world, 4)
    if has_arrived:
        world.accept(1, parcel.sequence, [offset for _, offset in parcel.keys])
    world.start()
    world.begin = deleted
    after = world.produce(2)
    world.work()
    assert offsets(world) == [*range(0 if has_arrived else deleted, 4), after]


@pytest.mark.parametrize("has_arrived", [True, False])
def test_records_of_a_parcel_that_the_target_has_come_to_refuse_arrive_once(has_arrived: bool) -> None:
    world = World(seed=1, deaths=0)
    parcel = under_way(world, 4)
    if has_arrived:
        world.accept(1, parcel.sequence, [offset for _, offset in parcel.keys])
    world.start()
    world.most_taken = 1
    late = world.produce(0)
    world.work()
    assert sorted(offsets(world)) == [0, 1, 2, 3, late]
    world.start()
    world.work()
    assert len(offsets(world)) == 5


def refuse(world: World, *refused: int) -> None:
    """The target takes these no more."""
    for offset in refused:
        world.log[offset] = (world.log[offset][0], REFUSED)


def take_all(world: World) -> None:
    """The target takes everything again, and hears of it again."""
    for due_ms, offset in world.waiting_keys():
        world.log[offset] = (due_ms, 10)
    world.retries = True
    world.work()


@pytest.mark.parametrize("recognises", [True, False], ids=["", "as a client"])
@pytest.mark.parametrize("has_arrived", [True, False], ids=["arrived", "lost"])
@pytest.mark.parametrize("dies", [False, True], ids=["", "after a death"])
@pytest.mark.parametrize(
    ("records", "refused"), [(1, [0]), (3, [0]), (3, [2]), (3, [0, 1, 2])], ids=["one", "the first", "the last", "all"]
)
def test_what_may_have_arrived_and_is_refused_now_arrives_once(
    records: int, refused: list[int], dies: bool, has_arrived: bool, recognises: bool
) -> None:
    """What follows it is neither taken for it nor held up, and it is delivered once the target takes it, unless it was
    there all the time."""
    world = World(seed=1, deaths=0)
    world.recognises = recognises
    parcel = under_way(world, records)
    if has_arrived:
        world.accept(1, parcel.sequence, [offset for _, offset in parcel.keys])
    world.start()
    refuse(world, *refused)
    world.work()
    after = world.produce(2)
    world.work()
    assert after in offsets(world)
    if has_arrived and recognises:
        assert not world.schedule.picture.stopped
    if dies:
        world.start()
        world.work()
    take_all(world)
    assert sorted(offsets(world)) == [*range(records), after]
    assert not world.schedule.picture.stopped and not world.schedule.picture.doubts


def test_a_parcel_that_arrives_after_its_repeat_was_refused_is_not_delivered_again() -> None:
    """It was on its way when it was sent again, and was overtaken."""
    world = World(seed=1, deaths=0)
    parcel = under_way(world, 2)
    producer_id = world.schedule.picture.producer_id
    world.start()
    refuse(world, 0, 1)
    world.work()
    after = world.produce(2)
    world.work()
    for offset in (0, 1):
        world.log[offset] = (1, 10)
    assert world.accept(producer_id, parcel.sequence, [0, 1]) == "taken"
    take_all(world)
    assert offsets(world) == [after, 0, 1]


def test_a_record_that_may_have_arrived_says_so_while_it_is_stopped_and_can_be_cancelled() -> None:
    world = World(seed=1, deaths=0)
    under_way(world, 1)
    world.start()
    refuse(world, 0)
    world.work()
    assert "may have arrived" in world.schedule.picture.stopped[0].reason
    assert world.cancel(0)
    take_all(world)
    after = world.produce(2)
    world.work()
    assert offsets(world) == [after]
    assert not world.schedule.picture.doubts


@pytest.mark.parametrize("are_mended", [True, False], ids=["mended", "refused again"])
def test_many_stopped_records_are_tried_again_together(are_mended: bool) -> None:
    world = World(seed=1, deaths=0)
    world.compacted = True
    odd = [world.produce(at, weight=KEYLESS) for at in range(60)]
    world.random.randint = lambda least, most: 100  # type: ignore[method-assign]
    world.work()
    assert list(world.schedule.picture.stopped) == odd
    before = len(world.log)
    if are_mended:
        take_all(world)
        assert offsets(world) == odd
    else:
        world.retries = True
        world.work()
        assert list(world.schedule.picture.stopped) == odd
    assert len(world.log) - before <= 4


def a_retry_that_has_arrived() -> World:
    """Two records are stopped, and tried again. The first has arrived, and no picture says so yet."""
    world = World(seed=1, deaths=0)
    world.compacted = True
    world.produce(1, KEYLESS)
    world.produce(2, KEYLESS)
    world.work()
    world.compacted = False
    schedule = world.schedule
    schedule.retry_stopped()
    schedule.choose(world.now_ms, 1)
    world.write(schedule.decide([11], "orders", 999, schedule.picture.producer_id, world.now_ms))
    world.send()
    assert offsets(world) == [0]
    return world


def test_what_has_just_arrived_is_not_tried_again_when_the_target_changes_once_more() -> None:
    world = a_retry_that_has_arrived()
    world.retries = True
    world.work()
    assert offsets(world) == [0, 1]


def test_what_has_just_arrived_cannot_be_cancelled() -> None:
    world = a_retry_that_has_arrived()
    assert not world.cancel(0)
    assert world.cancel(1)


def the_rest_of_a_refused_parcel_arrives(world: World) -> None:
    """Two are sent, and not answered; the repeat is refused because of the second. The first goes on and arrives, and
    nobody hears of it."""
    under_way(world, 2)
    world.schedule.unanswered()
    refuse(world, 1)
    world.send()
    parcel = world.schedule.parcel
    assert parcel is not None and [offset for _, offset in parcel.keys] == [0]
    assert world.accept(world.schedule.picture.producer_id, parcel.sequence, [0]) == "taken"


def test_a_record_that_was_refused_is_not_taken_for_the_rest_of_its_parcel_that_was_deleted_since() -> None:
    world = World(seed=1, deaths=0)
    the_rest_of_a_refused_parcel_arrives(world)
    world.start()
    world.begin = 1
    world.work()
    take_all(world)
    assert offsets(world) == [0, 1]


def test_what_follows_is_not_taken_for_a_parcel_of_which_nothing_is_left() -> None:
    world = World(seed=1, deaths=0)
    the_rest_of_a_refused_parcel_arrives(world)
    world.schedule.unanswered()
    assert world.cancel(1)
    world.begin = 1
    after = world.produce(2)
    world.work()
    assert offsets(world) == [0, after]


def test_a_record_that_travels_alone_is_not_taken_for_the_one_before_that_arrives_after_all() -> None:
    world = World(seed=1, deaths=0)
    under_way(world, 2)
    world.start()
    world.most_taken = 1
    world.send()
    parcel, producer_id = world.schedule.parcel, world.schedule.picture.producer_id
    assert parcel is not None and parcel.is_alone
    world.schedule.unanswered()
    refuse(world, 0)
    world.send()
    world.log[0] = (1, 10)
    assert world.accept(producer_id, parcel.sequence, [0]) == "taken"
    take_all(world)
    assert sorted(offsets(world)) == [0, 1]


def test_what_was_stopped_when_the_clock_was_ahead_is_not_tried_again_before_it_is_due() -> None:
    world = World(seed=1, deaths=0)
    world.compacted = True
    world.produce(4_600_000, KEYLESS)
    world.now_ms += 7_200_000
    world.work()
    world.set_back(7_200_000)
    world.compacted, world.retries = False, True
    world.work()
    assert offsets(world) == []
    world.now_ms, world.retries = 4_600_000, True
    world.work()
    assert offsets(world) == [0]


def test_a_record_that_is_cancelled_before_it_is_read_does_not_make_fewer_than_none_wait() -> None:
    world = World(seed=1, deaths=0)
    world.produce(9_000_000)
    world.write(world.schedule.cancel([(9_000_000, 0)]))
    assert len(world.schedule) == 0
    world.schedule.deleted_below(1)
    world.produce(9_000_000)
    world.begin = 2
    world.read_all()
    assert len(world.schedule) == 1


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("disturbed", [False, True], ids=["", "beside deletions and changes of the target"])
@pytest.mark.parametrize("jumps", [False, True], ids=["", "by a clock that is set back"])
def test_each_record_is_delivered_once_in_order_however_often_the_deliverer_dies(
    seed: int, disturbed: bool, jumps: bool
) -> None:
    world = World(seed, deaths=(seed % 4) * 0.06, disturbed=disturbed)
    world.now_ms += 200_000_000 * jumps
    random = world.random
    for _ in range(25):
        for _ in range(random.randint(0, 6)):
            weight = random.choice([10, 10, 10, 10, 400, REFUSED, TOO_LARGE, *([KEYLESS] * 2 * disturbed)])
            world.produce(world.now_ms + random.choice([-5000, 0, 3, 900, 4000, 90_000, 7_000_000]), weight)
        if random.random() < 0.2:
            waiting = [at for due_ms, at in world.waiting_keys() if due_ms > world.now_ms]
            if waiting:
                chosen = random.choice(waiting)
                was_stopped = chosen in world.schedule.picture.stopped  # when the clock was ahead
                try:
                    world.cancel(chosen)
                except Died:
                    world.start()
                    world.read_all()
                    entry = world.log[chosen]
                    is_stopped = chosen in world.schedule.picture.stopped
                    if chosen in world.schedule._cancelled or (was_stopped and not is_stopped):
                        world.cancelled.add(chosen)
                    assert entry
        world.live()
        world.mend()
        world.check()
        world.now_ms += random.choice([1, 500, 5_000, 100_000, 5_000_000])
        if jumps and random.random() < 0.3:
            world.set_back(random.choice([1, 700, 60_000, 4_000_000]))
    world.now_ms = max([world.now_ms, *(due_ms for due_ms, _ in world.waiting_keys())]) + 1
    world.live()
    world.mend()
    world.check()
    assert len(world.schedule) == 0
