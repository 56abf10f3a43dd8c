"""The shared layout: appends that are put off, so that all of a turn of the loop go out in one write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from logkit import NOW_MS, append, values
from shared_kit import CONFIG, checkpointed, commit_files, commit_of, created, killed, opened

from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.disk import SystemDisk
from tidelog.log.errors import WriteRefused
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.producers import NOT_REQUIRED, AppendOrigin
from tidelog.wire.records import ABORT, EndTxnMarker, build_batch, build_end_txn_marker

LONG_SEGMENTS = LogConfig(segment_bytes=1 << 30)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def test_what_is_put_off_goes_out_in_one_write_whatever_partition_it_is_of(disk: MemoryDisk) -> None:
    dirs = opened(disk, puts_off=True)
    logs = [created(dirs, partition) for partition in range(50)]
    writes = disk.counts["write"]
    for log in logs:
        append(log, value=b"%d" % log.partition)
    assert disk.counts["write"] == writes
    commit_of(dirs).write_out()
    assert disk.counts["write"] == writes + 1
    assert all(values(killed(disk).logs[log.key]) == [(0, b"%d" % log.partition)] for log in logs[::10])


def test_who_reads_what_was_put_off_has_it_written_first(disk: MemoryDisk) -> None:
    dirs = opened(disk, puts_off=True)
    log, other = created(dirs, 0), created(dirs, 1)
    append(log)
    append(other)
    assert values(log) == [(0, b"value")] and not commit_of(dirs).has_put_off


def test_a_flush_writes_what_was_put_off(disk: MemoryDisk) -> None:
    log = created(opened(disk, puts_off=True))
    append(log)
    log.flush()
    assert values(killed(disk).logs[log.key]) == [(0, b"value")]


def test_a_checkpoint_covers_what_was_put_off_before_it(disk: MemoryDisk) -> None:
    dirs = opened(disk, puts_off=True)
    log = created(dirs)
    append(log)
    checkpointed(dirs)
    assert values(killed(disk).logs[log.key]) == [(0, b"value")]


def test_a_file_that_is_full_is_written_before_the_next_one_begins(disk: MemoryDisk) -> None:
    dirs = opened(disk, 1000, puts_off=True)
    log = created(dirs)
    for at in range(20):
        append(log, value=b"%d" % at)
    assert len(commit_files(disk)) >= 3
    commit_of(dirs).write_out()
    assert values(killed(disk, 1000).logs[log.key]) == [(at, b"%d" % at) for at in range(20)]


def test_a_cut_is_written_before_anything_is_cut(disk: MemoryDisk) -> None:
    dirs = opened(disk, puts_off=True)
    log = created(dirs)
    for at in range(10):
        append(log, value=b"%d" % at)
    log.truncate_to(4)
    assert killed(disk).logs[log.key].log_end_offset == 4


def test_an_append_for_which_there_is_no_room_is_refused_and_those_put_off_are_written(disk: MemoryDisk) -> None:
    dirs = opened(disk, config=LONG_SEGMENTS, puts_off=True)
    log = created(dirs)
    append(log, value=b"first")
    commit_of(dirs).write_out()
    disk.fail_writes_after(0)
    # What was reserved is used up.
    with pytest.raises(WriteRefused):
        for _ in range(20_000):
            append(log, value=bytes(1000))
    end_offset = log.log_end_offset
    commit_of(dirs).write_out()
    assert dirs.dirs[0].failure is None and end_offset > 100
    disk.room_bytes = None
    append(log, value=b"again")
    commit_of(dirs).write_out()
    assert killed(disk).logs[log.key].log_end_offset == end_offset + 1


def test_room_that_is_too_small_to_reserve_ahead_is_used_to_the_end(disk: MemoryDisk) -> None:
    dirs = opened(disk, config=LONG_SEGMENTS, puts_off=True)
    disk.fail_writes_after(3000)
    log = created(dirs)
    with pytest.raises(WriteRefused):
        for _ in range(100):
            append(log)
    assert log.log_end_offset > 5 and dirs.dirs[0].failure is None


def test_what_was_reserved_and_not_used_is_given_back_with_the_next_file(disk: MemoryDisk) -> None:
    dirs = opened(disk, 3000, puts_off=True)
    log = created(dirs)
    disk.fail_writes_after(100_000)
    for _ in range(60):
        append(log)
    commit_of(dirs).write_out()
    room = disk.room_bytes
    assert room is not None
    # At most what the last file may still take.
    assert 100_000 - room <= 3000 * len(commit_files(disk)) + 3000


def test_a_marker_that_was_put_off_and_got_lost_can_be_written_again(disk: MemoryDisk) -> None:
    dirs = opened(disk, puts_off=True)
    log = created(dirs)
    batch = build_batch(
        [(1000, None, b"value", None)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.append_as_leader(memoryview(batch), 0, NOW_MS, guard=NOT_REQUIRED)
    checkpointed(dirs)
    abort(log)
    assert len(log.aborted_transactions(0, 2)) == 1
    log = killed(disk).logs[log.key]
    assert log.log_end_offset == 1 and log.aborted_transactions(0, 2) == []
    abort(log)
    assert [txn.last_offset for txn in log.aborted_transactions(0, 2)] == [1]


def abort(log: Log) -> None:
    marker = build_end_txn_marker(EndTxnMarker(ABORT, 0), 7, 0, NOW_MS)
    log.append_as_leader(memoryview(marker), 0, NOW_MS, origin=AppendOrigin.COORDINATOR)


def produced_by(log: Log, producer: int) -> None:
    batch = build_batch([(1, b"k", b"v", None)], producer_id=producer, producer_epoch=0, base_sequence=0)
    log.append_as_leader(memoryview(batch), 0, NOW_MS)


def test_a_kill_within_a_checkpoint_is_no_loss(disk: MemoryDisk) -> None:
    dirs = opened(disk, puts_off=True)
    for partition in range(100):
        produced_by(created(dirs, partition), 7)
    # The first step has written snapshots, which name the ends of the logs.
    assert next(dirs.checkpoint_queues()) is None
    assert killed(disk).take_notices() == []


def test_a_kill_after_a_roll_is_no_loss(disk: MemoryDisk) -> None:
    dirs = opened(disk, puts_off=True)
    log = created(dirs)
    produced_by(log, 7)
    log.roll(NOW_MS)
    again = killed(disk)
    assert again.take_notices() == [] and again.logs[log.key].log_end_offset == 1


def test_a_kill_after_high_watermarks_were_written_is_no_loss(disk: MemoryDisk) -> None:
    dirs = opened(disk, puts_off=True)
    log = created(dirs)
    append(log)
    dirs.checkpoint_high_watermarks({log.key: 1})
    assert killed(disk).take_notices() == []


def test_a_sync_that_is_done_holds_no_files(tmp_path: Path) -> None:
    """It is kept for whoever asks next, which may be never."""
    dirs = LogDirs([str(tmp_path)], SystemDisk(8), lambda topic: CONFIG, commit_bytes=1000)
    dirs.open(node_id=1, cluster_id="c", now_ms=NOW_MS)
    log = created(dirs)
    for _ in range(100):
        append(log)
    commit = commit_of(dirs)
    commit.sync_work()()
    held = os.listdir("/proc/self/fd")
    paths = [os.path.realpath(f"/proc/self/fd/{each}") for each in held]
    assert len([path for path in paths if path.startswith(commit.path)]) <= 8
    dirs.close(1)
