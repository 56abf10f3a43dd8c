"""What a batch reads: nothing twice, nothing left out, never beyond the limits."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipeline.errors import DataLoss, PipelineError
from tidelog.pipeline.offset_ranges import EARLIEST, LATEST, Ends, OffsetRange
from tidelog.pipeline.read.batch_plan import plan, starting_offset
from tidelog.pipeline.read.ranges import assign

AT = ("t", 0)


@st.composite
def positions(draw: st.DrawFn) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], Ends]]:
    committed, ends = {}, {}
    for at in draw(st.sets(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=8)):
        first = draw(st.integers(0, 1000))
        start = first + draw(st.integers(0, 1000))
        committed[at], ends[at] = start, Ends(first, start + draw(st.integers(0, 1000)))
    return committed, ends


@given(positions(), st.integers(1, 3000), st.integers(1, 9))
def test_tasks_hold_every_offset_of_the_batch_once_and_the_batch_begins_where_the_table_ends(
    where: tuple[dict[tuple[str, int], int], dict[tuple[str, int], Ends]], max_records: int, tasks: int
) -> None:
    committed, ends = where
    found = plan(committed, ends, max_records=max_records, tasks=tasks)
    by_partition: dict[tuple[str, int], list[OffsetRange]] = {}
    for r in sorted(r for ranges in found.tasks for r in ranges):
        by_partition.setdefault((r.topic, r.partition), []).append(r)
    for at, pieces in by_partition.items():
        assert pieces[0].start == committed[at]
        assert all(one.until == other.start for one, other in itertools.pairwise(pieces))
        assert found.moves[at] == (committed[at], pieces[-1].until) and pieces[-1].until <= ends[at].end
    assert found.moves.keys() == by_partition.keys()
    waiting = [at for at in ends if committed[at] < ends[at].end]
    assert set(by_partition) == set(waiting), "every partition that has something moves on"
    assert found.size <= max(max_records, len(waiting))
    assert found.lag == sum(ends[at].end - committed[at] for at in ends)
    assert len(found.tasks) <= tasks and all(found.tasks)


@given(st.lists(st.integers(1, 100), max_size=30), st.integers(1, 8))
def test_tasks_are_about_even(sizes: list[int], tasks: int) -> None:
    ranges = [OffsetRange("t", n, 0, size) for n, size in enumerate(sizes)]
    shares = assign(ranges, tasks)
    assert sorted(r for share in shares for r in share) == ranges
    loads = [sum(r.size for r in share) for share in shares]
    assert not loads or max(loads) - min(loads) <= max(sizes)


def test_records_that_are_gone_stop_the_plan_with_numbers_or_are_named_and_passed() -> None:
    committed, ends = {AT: 100}, {AT: Ends(150, 400)}
    with pytest.raises(DataLoss, match="t-0: offset 100 is due, and the log begins at 150; 50 offsets are gone") as e:
        plan(committed, ends, max_records=1000, tasks=2)
    assert "fail_on_data_loss = false" in (e.value.hint or "")
    found = plan(committed, ends, max_records=1000, tasks=2, fail_on_data_loss=False)
    assert found.moves == {AT: (100, 400)} and found.ranges[0].start == 150
    assert [gap[:4] for gap in found.gaps] == [("t", 0, 100, 150)]


def test_a_gap_up_to_the_end_is_passed_as_well() -> None:
    found = plan({AT: 100}, {AT: Ends(150, 150)}, max_records=10, tasks=1, fail_on_data_loss=False)
    assert not found.ranges and found.moves == {AT: (100, 150)}


@pytest.mark.parametrize("fail", [True, False])
def test_a_log_that_ends_before_the_table_is_refused_always(fail: bool) -> None:
    with pytest.raises(DataLoss, match="up to offset 100, and the log ends at 40"):
        plan({AT: 100}, {AT: Ends(0, 40)}, max_records=10, tasks=1, fail_on_data_loss=fail)


def test_where_a_partition_begins() -> None:
    ends = Ends(10, 20)
    assert starting_offset(AT, ends, "earliest", is_new=True) == 10
    assert starting_offset(AT, ends, "latest", is_new=True) == 20
    assert starting_offset(AT, ends, {"t": {0: 15}}, is_new=True) == 15
    assert starting_offset(AT, ends, {"t": {0: LATEST}}, is_new=True) == 20
    assert starting_offset(AT, ends, {"t": {0: EARLIEST}}, is_new=True) == 10
    assert starting_offset(AT, ends, {"other": {0: 15}}, is_new=True) == 10
    # A partition that appears later holds nothing from before the pipeline began.
    assert starting_offset(AT, ends, "latest", is_new=False) == 10
    with pytest.raises(PipelineError, match="from offset 21, and its log ends at 20"):
        starting_offset(AT, ends, {"t": {0: 21}}, is_new=True)
