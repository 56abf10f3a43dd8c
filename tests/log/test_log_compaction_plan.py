"""Which log is compacted next, how far, and which segments become one."""

from __future__ import annotations

from dataclasses import replace

from compaction_kit import COMPACT, HOUR_MS, NOW_MS, Compacted

from tidelog.log.compaction.compaction_plan import CompactionSource, LogToClean, dirtiest, group, measure
from tidelog.log.config import LogConfig

LARGE = replace(COMPACT, segment_bytes=1 << 20, segment_index_bytes=1 << 20)


def of_segments(*timestamps: int, config: LogConfig = LARGE) -> Compacted:
    """A segment of two offsets for each timestamp, and an empty active one."""
    it = Compacted(config)
    for timestamp in timestamps:
        it.append((b"a", b"1"), (b"b", b"2"), timestamp=timestamp)
        it.roll()
    return it


def measured(it: Compacted, last_stable_offset: int | None = None, now_ms: int = NOW_MS) -> LogToClean:
    return measure(it.log, it.log.log_end_offset if last_stable_offset is None else last_stable_offset, now_ms)


def test_a_log_that_was_never_compacted_is_dirty_from_its_start() -> None:
    it = of_segments(1000, 2000)
    plan = measured(it)
    assert (plan.first_dirty_offset, plan.first_uncleanable_offset) == (0, 4)
    assert (plan.clean_bytes, plan.cleanable_bytes) == (0, it.log.size_bytes)
    assert plan.cleanable_ratio == 1.0


def test_the_active_segment_is_not_cleanable() -> None:
    it = of_segments(1000)
    it.append((b"a", b"3"))
    plan = measured(it)
    assert plan.first_uncleanable_offset == 2
    assert plan.cleanable_bytes == it.log.segments[0].size


def test_nothing_past_the_last_stable_offset_is_cleanable() -> None:
    it = of_segments(1000, 2000, 3000)
    assert measured(it, last_stable_offset=5).first_uncleanable_offset == 4
    assert measured(it, last_stable_offset=4).first_uncleanable_offset == 4
    assert measured(it, last_stable_offset=3).first_uncleanable_offset == 2
    assert measured(it, last_stable_offset=0).cleanable_bytes == 0


def test_a_segment_with_a_record_younger_than_the_minimum_lag_is_not_cleanable() -> None:
    config = replace(LARGE, min_compaction_lag_ms=HOUR_MS)
    it = of_segments(NOW_MS - 2 * HOUR_MS, NOW_MS - HOUR_MS + 1, NOW_MS - 3 * HOUR_MS, config=config)
    assert measured(it).first_uncleanable_offset == 2
    assert measured(it, now_ms=NOW_MS + HOUR_MS).first_uncleanable_offset == 6


def test_what_an_earlier_round_has_been_over_is_clean() -> None:
    it = of_segments(1000, 2000, 3000)
    it.log.cleaned_offset = 4
    plan = measured(it)
    assert (plan.first_dirty_offset, plan.first_uncleanable_offset) == (4, 6)
    sizes = [segment.size for segment in it.log.segments]
    assert (plan.clean_bytes, plan.cleanable_bytes) == (sizes[0] + sizes[1], sizes[2])


def test_an_offset_beyond_either_end_of_the_log_counts_as_none() -> None:
    it = of_segments(1000, 2000, 3000)
    it.log.cleaned_offset = 7
    assert measured(it).first_dirty_offset == 0
    it.log.advance_log_start_offset(3)
    it.log.cleaned_offset = 2
    assert measured(it).first_dirty_offset == 3


def test_a_log_is_due_when_its_cleanable_share_is_larger_than_asked() -> None:
    it = of_segments(1000, 2000)
    it.log.cleaned_offset = 2
    for ratio, due in ((0.49, True), (0.5, False), (0.51, False)):
        it.log.config = replace(LARGE, min_cleanable_dirty_ratio=ratio)
        assert measured(it).due == due


def test_a_log_is_due_when_something_waits_for_longer_than_the_maximum_lag() -> None:
    it = of_segments(NOW_MS - 3 * HOUR_MS, NOW_MS - HOUR_MS)
    it.log.cleaned_offset = 2
    for lag_ms, due in ((HOUR_MS, False), (HOUR_MS - 10, True), (2 * HOUR_MS, False)):
        it.log.config = replace(LARGE, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=lag_ms)
        assert measured(it).due == due
    it.log.cleaned_offset = 4
    assert not measured(it).due


def test_nothing_is_due_where_nothing_is_cleanable() -> None:
    it = of_segments(
        NOW_MS - 3 * HOUR_MS, config=replace(LARGE, min_cleanable_dirty_ratio=0.0, max_compaction_lag_ms=1)
    )
    assert measured(it).due
    assert not measured(it, last_stable_offset=1).due
    it.log.cleaned_offset = 2
    assert not measured(it).due


def test_of_the_logs_that_are_due_the_dirtiest_is_next() -> None:
    logs = [of_segments(*range(1000, 1000 * count + 1, 1000)) for count in (2, 3, 4)]
    for it in logs:
        it.log.cleaned_offset = 2
    assert dirtiest(measured(it) for it in logs).log is logs[2].log  # type: ignore[union-attr]
    logs[2].log.config = replace(LARGE, min_cleanable_dirty_ratio=0.9)
    assert dirtiest(measured(it) for it in logs).log is logs[1].log  # type: ignore[union-attr]
    assert dirtiest([]) is None


def source(base_offset: int, end_offset: int, size: int = 100, index: int = 8, times: int = 12) -> CompactionSource:
    return CompactionSource(None, base_offset, end_offset, "", "", size, index, times)  # type: ignore[arg-type]


def bases(groups: list[list[CompactionSource]]) -> list[list[int]]:
    return [[member.base_offset for member in members] for members in groups]


def test_segments_become_one_as_far_as_a_segment_may_be_large() -> None:
    sources = [source(0, 10, 400), source(10, 20, 500), source(20, 30, 200), source(30, 40, 900)]
    assert bases(group(sources, replace(COMPACT, segment_bytes=1000))) == [[0, 10], [20], [30]]
    assert bases(group(sources, replace(COMPACT, segment_bytes=1100))) == [[0, 10, 20], [30]]
    assert bases(group(sources, replace(COMPACT, segment_bytes=10))) == [[0], [10], [20], [30]]


def test_segments_become_one_as_far_as_an_index_may_be_large() -> None:
    config = replace(COMPACT, segment_bytes=1 << 30, segment_index_bytes=24)
    assert bases(group([source(n, n + 1) for n in range(4)], config)) == [[0, 1], [2, 3]]
    assert bases(group([source(n, n + 1, times=0) for n in range(4)], config)) == [[0, 1, 2], [3]]


def test_an_index_entry_reaches_every_offset_of_a_group() -> None:
    config = replace(COMPACT, segment_bytes=1 << 30, segment_index_bytes=1 << 20)
    reach = (1 << 31) - 1
    assert bases(group([source(0, 10), source(10, reach + 1)], config)) == [[0, 10]]
    assert bases(group([source(0, 10), source(10, reach + 2)], config)) == [[0], [10]]
    assert bases(group([source(0, 10), source(10, reach + 2, size=0)], config)) == [[0, 10]]
