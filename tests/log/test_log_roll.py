"""When a log begins a new segment."""

from __future__ import annotations

from pathlib import Path

import pytest
from logkit import NOW_MS, append, new_log, produced, reopened, system_log, values

from tidelog.log.append_rules import roll_jitter_ms
from tidelog.log.config import LogConfig
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk

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


def _files(log: Log, disk: MemoryDisk) -> list[str]:
    return sorted(entry.name[20:] for entry in disk.list(log.path) if entry.name[:20].isdigit())


@pytest.mark.files
def test_index_files_are_made_with_the_first_batch_and_what_lay_there_is_gone() -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data")
    assert _files(log, disk) == [".log"]
    append(log, 2)
    assert _files(log, disk) == [".index", ".log", ".timeindex"]
    for ending in (".index", ".timeindex", ".txnindex"):
        disk.open(f"{log.path}/{2:020d}{ending}", create=True).write(b"of another", 0)
    log.roll(NOW_MS)
    append(log, 2)
    log.close()
    left = [disk.content(path) for path in disk.paths(".index") + disk.paths(".txnindex")]
    assert not any(b"of another" in content for content in left) and len(left) == 2
    assert values(reopened(log, clean=True, recovery_point=4)) == [(n, b"value") for n in range(4)]


@pytest.mark.files
def test_a_clean_stop_leaves_index_files_even_of_an_empty_log_and_on_the_device() -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data")
    log.flush()
    assert _files(log, disk) == [".log"]
    log.close()
    assert _files(log, disk) == [".index", ".log", ".timeindex"]
    assert log.path not in disk.unsynced_dirs
