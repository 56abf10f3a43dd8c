"""The wheels give back what was put in, in order, from memory and from scratch."""

from __future__ import annotations

from random import Random

import pytest
from delay_world import MemoryScratch

from tidelog.deliver.due import DELAY, DELIVER_AT, MAX_DELAY_MS, due_ms
from tidelog.deliver.wheels import Wheels

START_MS = 1_700_000_000_000
YEAR_MS = 366 * 86_400_000


@pytest.mark.parametrize("seed", range(40))
def test_what_waits_comes_back_in_order_at_its_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr("tidelog.deliver.wheels.MOST_POURED", random.choice([1, 7, 8192]))
    scratch = MemoryScratch()
    waiting = Wheels(scratch, most_in_memory=random.choice([4, 50, 10_000]))
    now_ms, model, offset = START_MS, [], 0
    waiting.follow(now_ms - random.choice([0, 10_000_000]))
    for _ in range(60):
        for _ in range(random.randint(0, 20)):
            due = now_ms + random.choice([-2000, 0, 1, 700, 5000, 60_000, 3_600_000, 86_400_000, YEAR_MS])
            due += random.randint(0, 3000)
            waiting.add(due, offset)
            model.append((due, offset))
            offset += 1
        model.sort()
        least = min((at for _, at in model), default=None)
        assert waiting.view().first(5) == model[:5]
        gone = {at for _, at in model[1::2]}
        assert waiting.view().first(5, gone) == model[::2][:5]
        assert least is None or waiting.least_offset() <= least
        now_ms += random.choice([0, 100, 2000, 50_000, 4_000_000, 90_000_000, -3000, -5_000_000])
        most = random.choice([1, 3, 1000])
        view, before = waiting.view(), model[:7]
        while (due_now := waiting.take(now_ms, most)) or waiting.is_pouring:
            assert due_now == model[: len(due_now)]
            del model[: len(due_now)]
        assert not model or model[0][0] > now_ms
        assert view.first(7) == before, "what has moved since is seen where it was"
        assert len(waiting) == len(model)
        next_ms = waiting.next_ms()
        assert (next_ms is None) == (not model)
        assert next_ms is None or next_ms <= model[0][0]
        waiting.follow(now_ms)
        assert waiting.near <= sum(due >> 10 <= now_ms >> 10 for due, _ in model)
    waiting.clear()
    assert not scratch.files


def test_a_million_that_wait_are_neither_objects_nor_many_buckets() -> None:
    scratch = MemoryScratch()
    waiting = Wheels(scratch)
    waiting.follow(START_MS)
    random = Random(1)
    for offset in range(70_000):
        waiting.add(START_MS + 5000 + random.randrange(YEAR_MS), offset)
    assert waiting.near == 0
    assert len(waiting._buckets) < 400
    assert sum(len(bucket.pairs) for bucket in waiting._buckets.values()) <= 2 * 65536


def test_what_comes_after_a_clock_that_was_ahead_is_right_again_is_not_kept_as_objects() -> None:
    waiting = Wheels(MemoryScratch())
    waiting.follow(START_MS + YEAR_MS)
    waiting.add(START_MS + 9_000, 0)
    assert waiting.near == 1
    waiting.follow(START_MS)
    for offset in range(1, 100):
        waiting.add(START_MS + 9_000 - offset, offset)
    assert waiting.near == 0
    assert waiting.least_offset() == 0
    assert waiting.take(START_MS + 8_000, 200) == []
    assert [offset for _, offset in waiting.take(START_MS + 9_000, 200)] == list(range(99, -1, -1))


@pytest.mark.parametrize("reads_on", [True, False])
def test_a_clock_that_is_set_back_while_much_moves_on_holds_up_nothing_that_is_due(
    reads_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.deliver.wheels.MOST_POURED", 2)
    waiting = Wheels(MemoryScratch())
    waiting.follow(START_MS)
    for offset in range(10):
        waiting.add(START_MS + YEAR_MS, offset)
    assert waiting.take(START_MS + YEAR_MS, 1) == []
    assert waiting.is_pouring
    waiting.follow(START_MS)
    waiting.add(START_MS + 1_000, 10)
    assert waiting.next_ms() == START_MS + 1_000
    while reads_on and waiting.is_pouring:
        waiting.follow(START_MS)
    taken = waiting.take(START_MS + 1_000, 5)
    while waiting.is_pouring:
        taken += waiting.take(START_MS + 1_000, 5)
    taken += waiting.take(START_MS + 1_000, 5)
    assert taken == [(START_MS + 1_000, 10)]
    waiting.follow(START_MS + 1_000)
    assert (len(waiting), waiting.near) == (10, 0)


def test_what_the_disk_does_not_take_waits_in_memory() -> None:
    class FullDisk(MemoryScratch):
        def write(self, name: str, data: bytes, position: int) -> None:
            raise OSError(28, "No space left on device")

    waiting = Wheels(FullDisk(), most_in_memory=4)
    for offset in range(100):
        waiting.add(START_MS + 10_000 * offset, offset)
    assert [offset for _, offset in waiting.take(START_MS + YEAR_MS, 200)] == list(range(100))


@pytest.mark.parametrize(
    ("headers", "due"),
    [
        ([], 1_500),
        ([(DELAY, b"20")], 1_020),
        ([(DELIVER_AT, b"4000")], 4_000),
        ([(DELIVER_AT, b"4000"), (DELAY, b"1")], 4_000),
        ([(DELAY, b"1"), (DELIVER_AT, b"4000")], 4_000),
        ([(DELAY, b"1"), (DELAY, b"2")], 1_002),
        ([(DELIVER_AT, b"0")], 0),
        ([(b"other", b"7")], 1_500),
    ],
)
def test_due_time_is_what_the_headers_say_or_the_topics_default(
    headers: list[tuple[bytes, bytes | None]], due: int
) -> None:
    assert due_ms(1_000, headers, 500) == due


@pytest.mark.parametrize(
    "header",
    [
        (DELAY, None),
        (DELAY, b""),
        (DELAY, b"-1"),
        (DELAY, b"1.5"),
        (DELAY, b"soon"),
        (DELAY, b"9" * 40),
        (DELAY, str(MAX_DELAY_MS + 1).encode()),
        (DELIVER_AT, str(MAX_DELAY_MS + 1_001).encode()),
        (DELIVER_AT, "\u0665".encode()),
    ],
)
def test_headers_that_name_no_time_within_a_year_are_told_from_others(header: tuple[bytes, bytes | None]) -> None:
    assert isinstance(due_ms(1_000, [header], 500), str)
