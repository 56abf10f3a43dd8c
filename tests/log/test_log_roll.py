"""When a log begins a new segment."""

from __future__ import annotations

from pathlib import Path

import pytest
from logkit import NOW_MS, append, produced, reopened, system_log

from tidelog.log.append_rules import roll_jitter_ms
from tidelog.log.config import LogConfig

HOUR_MS = 3_600_000


def test_a_segment_rolls_before_it_outgrows_its_size(tmp_path: Path) -> None:
    log = system_log(tmp_path, LogConfig(segment_bytes=1000))
    for _ in range(20):
        append(log, 1, value=bytes(200))
    assert len(log.segments) > 3
    assert all(segment.size <= 1000 for segment in log.segments)
    assert [segment.base_offset for segment in log.segments][:3] == [0, 3, 6]


def test_a_segment_rolls_by_the_time_of_its_records(tmp_path: Path) -> None:
    log = system_log(tmp_path, LogConfig(segment_ms=HOUR_MS))
    append(log, 1, timestamp=0)
    append(log, 1, timestamp=HOUR_MS)
    assert len(log.segments) == 1
    append(log, 1, timestamp=HOUR_MS + 1)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_reopened_segment_still_knows_the_time_of_its_first_record(tmp_path: Path) -> None:
    log = system_log(tmp_path, LogConfig(segment_ms=HOUR_MS))
    append(log, 1, timestamp=0)
    log.close()
    log = reopened(log, clean=True)
    append(log, 1, timestamp=HOUR_MS + 1)
    assert len(log.segments) == 2


def test_records_without_time_roll_by_the_wall_clock(tmp_path: Path) -> None:
    log = system_log(tmp_path, LogConfig(segment_ms=HOUR_MS))
    log.append_as_leader(produced(1, timestamp=-1), 0, NOW_MS)
    log.append_as_leader(produced(1, timestamp=-1), 0, NOW_MS + HOUR_MS)
    assert len(log.segments) == 1
    log.append_as_leader(produced(1, timestamp=-1), 0, NOW_MS + HOUR_MS + 1)
    assert len(log.segments) == 2


def test_compaction_lag_bounds_the_age_of_a_segment(tmp_path: Path) -> None:
    log = system_log(tmp_path, LogConfig(max_compaction_lag_ms=1000, cleanup_policy=("compact",)))
    log.append_as_leader(produced(1, timestamp=0, key=b"k"), 0, NOW_MS)
    log.append_as_leader(produced(1, timestamp=1001, key=b"k"), 0, NOW_MS)
    assert len(log.segments) == 2


@pytest.mark.files
def test_a_full_index_rolls(tmp_path: Path) -> None:
    log = system_log(tmp_path, LogConfig(segment_index_bytes=24, index_interval_bytes=0))
    for _ in range(20):
        append(log, 1)
    assert len(log.segments) > 3
    assert all(segment.offset_index.count <= 3 for segment in log.segments)


def test_an_empty_segment_does_not_roll_onto_itself(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    assert log.roll(NOW_MS) is log.segments.active
    append(log, 2)
    log.roll(NOW_MS)
    log.roll(NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_jitter_spreads_rolls_within_its_bound_and_is_the_same_again() -> None:
    config = LogConfig(segment_jitter_ms=1000)
    jitters = [roll_jitter_ms(config, f"t-{n}", 0) for n in range(100)]
    assert all(0 <= jitter < 1000 for jitter in jitters)
    assert len(set(jitters)) > 50
    assert jitters == [roll_jitter_ms(config, f"t-{n}", 0) for n in range(100)]
    assert roll_jitter_ms(LogConfig(), "t-0", 0) == 0


@pytest.mark.files
def test_a_preallocated_segment_is_cut_to_its_batches_when_it_is_sealed(tmp_path: Path) -> None:
    log = system_log(tmp_path, LogConfig(preallocate=True, segment_bytes=100_000))
    path = Path(log.segments.active.log_path)
    assert path.stat().st_size == 100_000
    append(log, 3)
    size = log.segments.active.size
    log.roll(NOW_MS)
    assert path.stat().st_size == size
    append(log, 1)
    assert reopened(log).log_end_offset == 4
