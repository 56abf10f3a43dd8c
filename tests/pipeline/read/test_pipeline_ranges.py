"""How offset ranges are divided: nothing is lost, nothing is doubled, nobody has much more than the others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipeline.offset_ranges import Ends, OffsetRange
from tidelog.pipeline.read.ranges import hold, limit, split_by_size, split_evenly

sizes = st.lists(st.one_of(st.integers(0, 5), st.integers(0, 2000)), max_size=12)


def ranges_of(sizes: list[int], first: int = 7) -> list[OffsetRange]:
    return [OffsetRange("t", partition, first * partition, first * partition + n) for partition, n in enumerate(sizes)]


def joined(pieces: list[OffsetRange]) -> list[OffsetRange]:
    """Pieces that follow each other put together again; anything else stays apart."""
    whole: list[OffsetRange] = []
    for piece in pieces:
        last = whole[-1] if whole else None
        if last is not None and last[:2] == piece[:2] and last.until == piece.start:
            whole[-1] = last._replace(until=piece.until)
        else:
            whole.append(piece)
    return whole


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_what_a_partition_holds_of_a_range_and_what_is_missing_are_all_of_it(
    start: int, size: int, first: int, length: int
) -> None:
    held, missing = hold(OffsetRange("t", 0, start, start + size), Ends(first, first + length))
    kept = set(range(held.start, held.until))
    gone = [offset for r in missing for offset in range(r.start, r.until)]
    assert kept == set(range(start, start + size)) & set(range(first, first + length))
    assert sorted([*kept, *gone]) == list(range(start, start + size)) and all(r.size for r in missing)


@given(sizes, st.integers(1, 300))
def test_a_split_holds_every_offset_once_in_as_many_ranges_as_were_asked_for(sizes: list[int], tasks: int) -> None:
    ranges = [r for r in ranges_of(sizes) if r.size]
    pieces = split_evenly(ranges_of(sizes), tasks)
    assert joined(pieces) == ranges
    assert all(piece.size >= 1 for piece in pieces)
    assert len(pieces) == max(len(ranges), min(tasks, sum(r.size for r in ranges)))


@given(sizes, st.integers(1, 300))
def test_no_other_split_into_as_many_ranges_has_a_smaller_biggest_one(sizes: list[int], tasks: int) -> None:
    pieces = split_evenly(ranges_of(sizes), tasks)
    biggest = max((piece.size for piece in pieces), default=0)
    if biggest > 1:
        # With pieces of at most one less, each partition would need this many.
        needed = sum(-(-size // (biggest - 1)) for size in sizes)
        assert needed > len(pieces)
    for partition, size in enumerate(sizes):
        of_one = [piece.size for piece in pieces if piece.partition == partition]
        assert not size or max(of_one) - min(of_one) <= 1


@given(sizes, st.integers(1, 500))
def test_a_split_by_size_holds_every_offset_once_and_no_range_above_the_size(sizes: list[int], most: int) -> None:
    pieces = split_by_size(ranges_of(sizes), most)
    assert joined(pieces) == [r for r in ranges_of(sizes) if r.size]
    assert all(1 <= piece.size <= most for piece in pieces)
    assert len(pieces) == sum(-(-size // most) for size in sizes)


@given(sizes, st.integers(1, 3000))
def test_a_limit_is_used_up_and_every_partition_moves_on(sizes: list[int], most: int) -> None:
    ranges = ranges_of(sizes)
    limited = limit(ranges, most)
    waiting = sum(size > 0 for size in sizes)
    assert sum(r.size for r in limited) == min(sum(sizes), max(most, waiting))
    for before, after in zip(ranges, limited, strict=True):
        assert (before.topic, before.partition, before.start) == (after.topic, after.partition, after.start)
        assert min(before.size, 1) <= after.size <= before.size


@given(sizes, st.integers(1, 3000))
def test_a_limit_gives_each_partition_its_share_of_the_lag(sizes: list[int], most: int) -> None:
    total = sum(sizes)
    if total <= most:
        return
    for size, r in zip(sizes, limit(ranges_of(sizes), most), strict=True):
        # One for being there, and rounding, on either side.
        fair = most * size / total
        assert fair - len(sizes) - 1 <= r.size <= fair + 2


@given(sizes, st.integers(1, 100))
def test_limited_reads_one_after_the_other_reach_the_end(sizes: list[int], most: int) -> None:
    left = ranges_of(sizes)
    reads = 0
    while any(r.size for r in left):
        taken = limit(left, most)
        left = [r._replace(start=t.until) for r, t in zip(left, taken, strict=True)]
        reads += 1
    assert reads <= -(-sum(sizes) // most)


def test_a_range_that_ends_before_it_starts_holds_nothing_and_is_left_alone() -> None:
    backwards = OffsetRange("t", 0, 10, 4)
    assert backwards.size == 0
    assert split_evenly([backwards], 4) == []
    assert limit([backwards, OffsetRange("t", 1, 0, 9)], 3) == [backwards, OffsetRange("t", 1, 0, 3)]
