"""The shared layout: partitions that leave while a checkpoint is taken, or files are reclaimed, slice by slice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from logkit import NOW_MS, append, values
from shared_kit import CONFIG, checkpointed, commit_files, created, deleted, killed, opened

from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.errors import StorageError
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.retention import delete_old_segments
from tidelog.log.shared import reclaiming, upkeep
from tidelog.log.shared.upkeep import Slices
from tidelog.wire.records import build_batch

COMMIT_BYTES = 6000


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaiming, "_SLICE_BYTES", 500)
    monkeypatch.setattr(upkeep, "_SLICE", 1)


def delete(dirs: LogDirs, log: Log) -> None:
    dirs.delete(log.key)
    deleted(dirs)


def set_aside_and_empty(dirs: LogDirs, log: Log) -> None:
    """As `rm -r` does it at first: the directory is still there."""
    dirs.mark_stray(log.key)
    for entry in dirs.disk.list(log.path):
        dirs.disk.remove(f"{log.path}/{entry.name}")


def set_aside_and_remove(dirs: LogDirs, log: Log) -> None:
    set_aside_and_empty(dirs, log)
    dirs.disk.remove_dir(log.path)


LEAVINGS = [delete, set_aside_and_empty, set_aside_and_remove]


def stepped(slices: Slices, at: int, leave: Callable[[], None]) -> int:
    """Goes through all slices, and has somebody leave before one of them; returns how many there were."""
    steps = 0
    for steps, work in enumerate(slices, 1):
        if steps == at + 1:
            leave()
        if work is not None:
            work()
    return steps


@pytest.mark.parametrize("leave", LEAVINGS)
@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_partition_may_leave_at_any_step_of_reclaiming(
    leave: Callable[[LogDirs, Log], None], is_damaged: bool
) -> None:
    steps, at = 1, 0
    while at < steps:
        disk = MemoryDisk()
        dirs = opened(disk, COMMIT_BYTES)
        long, short, other = created(dirs, 0), created(dirs, 1), created(dirs, 2)
        for number in range(60):
            if number % 10 == 0:
                append(long, value=b"%d" % number)
            if number % 5 == 4:
                append(other, value=b"%d" % number)
            append(short, value=bytes(200))
        checkpointed(dirs)
        short.config = replace(CONFIG, retention_bytes=0)
        delete_old_segments(short, NOW_MS, short.log_end_offset)
        kept = values(long)
        if is_damaged:
            disk.flip(f"/data/tidelog-commit/{commit_files(disk)[0]}", 1000, 0)
        steps = stepped(dirs.reclaim(), at, partial(leave, dirs, other))
        assert dirs.dirs[0].failure is None, f"after {at} steps"
        deleted(dirs)
        assert len(commit_files(disk)) <= 2
        assert values(killed(disk, COMMIT_BYTES).logs[long.key]) == kept
        at += 1
    assert at > 20


@pytest.mark.parametrize("leave", LEAVINGS)
def test_a_partition_may_leave_at_any_step_of_a_checkpoint(leave: Callable[[LogDirs, Log], None]) -> None:
    steps, at = 1, 0
    while at < steps:
        disk = MemoryDisk()
        dirs = opened(disk)
        logs = [created(dirs, partition) for partition in range(4)]
        for log in logs:
            batch = build_batch([(1000, None, b"value", None)], producer_id=7, producer_epoch=0, base_sequence=0)
            log.append_as_leader(memoryview(batch), 0, NOW_MS)
        steps = stepped(dirs.checkpoint_queues(), at, partial(leave, dirs, logs[3]))
        assert dirs.dirs[0].failure is None, f"after {at} steps"
        assert dirs.unqueued_bytes == 0
        at += 1
    assert at > 5


@pytest.mark.parametrize("seed", range(30))
def test_a_partition_that_comes_back_has_nothing_of_what_it_had_although_the_power_goes(seed: int) -> None:
    disk = MemoryDisk()
    dirs = opened(disk)
    log = created(dirs)
    checkpointed(dirs)
    for _ in range(10):
        append(log)
    log.flush()
    dirs.delete(log.key)
    created(dirs)
    # As the flush of another one does.
    disk.sync_dir("/data")
    disk.crash(Random(seed))
    assert opened(disk).logs[log.key].log_end_offset == 0


@pytest.mark.parametrize("seed", range(30))
def test_nor_has_one_that_comes_back_after_a_restart(seed: int) -> None:
    """By then no checkpoint tells of the one before."""
    disk = MemoryDisk()
    dirs = opened(disk)
    log = created(dirs)
    for _ in range(10):
        append(log)
    dirs.delete(log.key)
    deleted(dirs)
    dirs.checkpoint()
    disk.sync_all("/data")
    dirs = killed(disk)
    created(dirs)
    # As the flush of one with files of its own does.
    disk.sync_dir("/data")
    disk.crash(Random(seed))
    assert opened(disk).logs[log.key].log_end_offset == 0


def test_what_is_set_aside_on_a_full_disk_keeps_what_it_points_at() -> None:
    disk = MemoryDisk()
    dirs = opened(disk, COMMIT_BYTES)
    log, other = created(dirs, 0), created(dirs, 1)
    for _ in range(10):
        append(log)
    disk.fail_writes_after(0)
    with pytest.raises(StorageError):
        dirs.mark_stray(log.key)
    disk.room_bytes = None
    for _ in range(60):
        append(other, value=bytes(200))
    checkpointed(dirs)
    other.config = replace(CONFIG, retention_bytes=0)
    delete_old_segments(other, NOW_MS, other.log_end_offset)
    deleted(dirs)
    for work in dirs.reclaim():
        if work is not None:
            work()
    deleted(dirs)
    (stray,) = killed(disk, COMMIT_BYTES).dirs[0].strays
    assert len(values(stray)) == 10
