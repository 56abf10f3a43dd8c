"""Which segments go, which stay, and what becomes of their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from logkit import NOW_MS, append, produced, system_log
from shared_kit import checkpointed, deleted

from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.retention import delete_old_segments
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import build_batch

pytestmark = pytest.mark.layouts


def rolled(path: Path, config: LogConfig, stamps: list[int]) -> Log:
    """A segment for each timestamp, the last one active."""
    log = system_log(path, config)
    for at, stamp in enumerate(stamps):
        if at:
            log.roll(NOW_MS)
        append(log, 2, timestamp=stamp)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_segments_past_their_time_go_oldest_first(tmp_path: Path) -> None:
    log = rolled(tmp_path, LogConfig(retention_ms=100, retention_bytes=-1), [10, 20, 30, 1000])
    assert delete_old_segments(log, now_ms=125, held_from=8) == 2
    assert bases(log) == [4, 6] and log.log_start_offset == 4


def test_a_later_record_in_an_early_segment_keeps_it_and_all_after_it(tmp_path: Path) -> None:
    log = rolled(tmp_path, LogConfig(retention_ms=100), [500, 20, 30, 40])
    assert delete_old_segments(log, now_ms=300, held_from=8) == 0


def test_an_active_segment_whose_records_are_all_expired_is_rolled_and_goes(tmp_path: Path) -> None:
    log = rolled(tmp_path, LogConfig(retention_ms=100), [10, 20])
    assert delete_old_segments(log, now_ms=1000, held_from=4) == 2
    assert bases(log) == [4] and log.log_start_offset == 4 == log.log_end_offset
    assert delete_old_segments(log, now_ms=5000, held_from=4) == 0


def test_nothing_past_the_high_watermark_goes(tmp_path: Path) -> None:
    log = rolled(tmp_path, LogConfig(retention_ms=100), [10, 20, 30])
    assert delete_old_segments(log, now_ms=1000, held_from=3) == 1
    assert bases(log) == [2, 4]


def test_segments_over_the_size_go_but_never_below_it(tmp_path: Path) -> None:
    log = rolled(tmp_path, LogConfig(retention_ms=-1), [10, 20, 30, 40])
    size = log.segments[0].size
    log.config = replace(log.config, retention_bytes=2 * size + 1)
    assert delete_old_segments(log, NOW_MS, held_from=8) == 1
    assert log.size_bytes == 3 * size
    log.config = replace(log.config, retention_bytes=2 * size)
    assert delete_old_segments(log, NOW_MS, held_from=8) == 1


def test_segments_below_the_log_start_go_whatever_the_policy(tmp_path: Path) -> None:
    for policy in (("delete",), ("compact",), ()):
        log = rolled(tmp_path / str(policy), LogConfig(retention_ms=-1), [10, 20, 30])
        log.config = replace(log.config, cleanup_policy=policy)
        assert log.advance_log_start_offset(5)
        assert delete_old_segments(log, NOW_MS, held_from=6) == 2
        assert bases(log) == [4] and log.log_start_offset == 5


def test_a_policy_without_delete_keeps_time_and_size(tmp_path: Path) -> None:
    config = LogConfig(retention_ms=1, retention_bytes=1, cleanup_policy=("compact",))
    log = system_log(tmp_path, config)
    for _ in range(3):
        log.append_as_leader(produced(1, timestamp=1, key=b"k"), 0, NOW_MS)
        log.roll(NOW_MS)
    assert delete_old_segments(log, now_ms=10_000, held_from=3) == 0


@pytest.mark.files
def test_files_are_renamed_at_once_and_removed_when_their_delay_is_over(tmp_path: Path) -> None:
    log = rolled(tmp_path, LogConfig(retention_ms=100, file_delete_delay_ms=1234), [10, 1000])
    delete_old_segments(log, now_ms=200, held_from=4)
    directory = Path(log.path)
    assert sorted(path.name for path in directory.glob("*.deleted")) == [
        f"{0:020d}.index.deleted",
        f"{0:020d}.log.deleted",
        f"{0:020d}.timeindex.deleted",
    ]
    (deletion,) = log.directory.deletions
    assert deletion.delay_ms == 1234
    deletion()
    assert not list(directory.glob("*.deleted"))


def test_without_timestamps_the_files_own_time_counts(tmp_path: Path) -> None:
    import os

    log = system_log(tmp_path, LogConfig(retention_ms=1000))
    append(log, 1, timestamp=-1)
    log.roll(NOW_MS)
    os.utime(log.segments[0].log_path, (5, 5))
    assert delete_old_segments(log, now_ms=6000, held_from=1) == 0
    assert delete_old_segments(log, now_ms=6001, held_from=1) == 1


def keeping_nothing(disk: MemoryDisk, commit_bytes: int | None) -> LogDirs:
    """In the shared layout where a size of its files is given."""
    config = LogConfig(segment_bytes=400, retention_bytes=0)
    dirs = LogDirs(["/data"], disk, lambda topic: config, lambda: bytes(15) + b"\1", commit_bytes)
    dirs.open(node_id=1, cluster_id="c", now_ms=NOW_MS)
    return dirs


def with_a_producer_before(dirs: LogDirs) -> Log:
    """Only its first batch is of a producer that is to be known."""
    log = dirs.create(TopicPartition("t", 0), NOW_MS, bytes(range(16)))
    batch = build_batch([(1000, None, b"value", None)], producer_id=7, producer_epoch=0, base_sequence=0)
    log.append_as_leader(memoryview(batch), 0, NOW_MS)
    for _ in range(10):
        append(log)
    return log


@pytest.mark.parametrize("commit_bytes", [None, 1 << 20])
def test_a_producer_whose_batches_have_gone_is_known_though_the_power_goes(commit_bytes: int | None) -> None:
    """A repetition would be appended once more otherwise."""
    for seed in range(20):
        disk = MemoryDisk()
        dirs = keeping_nothing(disk, commit_bytes)
        log = with_a_producer_before(dirs)
        log.flush()
        checkpointed(dirs)
        assert delete_old_segments(log, NOW_MS, log.log_end_offset) > 1
        deleted(dirs)
        disk.crash(Random(seed))
        dirs = keeping_nothing(disk, commit_bytes)
        assert dirs.logs[log.key].log_end_offset == 11
        assert dirs.logs[log.key].producers.get(7) is not None, seed


@pytest.mark.parametrize("commit_bytes", [None, 1 << 20])
def test_retention_syncs_nothing_itself_and_needs_no_snapshot(commit_bytes: int | None) -> None:
    """It goes over thousands of logs on the broker's thread."""
    disk = MemoryDisk()
    log = with_a_producer_before(keeping_nothing(disk, commit_bytes))
    disk.remove(log.snapshots.file_path(log.snapshots.offsets[-1]))
    before = {name: disk.counts.get(name, 0) for name in ("sync", "sync_dir", "sync_all")}
    assert delete_old_segments(log, NOW_MS, log.log_end_offset) > 1
    assert {name: disk.counts.get(name, 0) for name in before} == before


def test_snapshots_that_nobody_needs_any_more_go_with_the_flush() -> None:
    log = with_a_producer_before(keeping_nothing(MemoryDisk(), None))
    delete_old_segments(log, NOW_MS, log.log_end_offset)
    log.flush()
    assert log.snapshots.offsets == [11]
