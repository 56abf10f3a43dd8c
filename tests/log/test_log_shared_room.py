"""The shared layout on a disk that is nearly full: reclaiming does with the room that there is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from logkit import NOW_MS, append, values
from shared_kit import (
    CONFIG,
    checkpointed,
    commit_files,
    commit_of,
    created,
    dead_in_between,
    deleted,
    killed,
    long_and_short,
    opened,
    reclaimed,
)

from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.log_dir import LogDir
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.retention import delete_old_segments


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def test_reclaiming_wants_room_for_what_is_alive_in_a_file_and_not_for_the_file(disk: MemoryDisk) -> None:
    dirs = opened(disk, 20000)
    long, _ = long_and_short(dirs)
    short = created(dirs, 2)
    for _ in range(40):
        append(short, value=bytes(200))
    checkpointed(dirs)
    short.config = replace(CONFIG, retention_bytes=0)
    delete_old_segments(short, NOW_MS, short.log_end_offset)
    deleted(dirs)
    oldest, expected = commit_files(disk)[0], values(long)
    disk.fail_writes_after(5000)
    reclaimed(dirs)
    deleted(dirs)
    assert oldest not in commit_files(disk) and values(long) == expected
    disk.room_bytes = None
    assert values(killed(disk, 20000).logs[long.key]) == expected


def test_on_a_full_disk_files_in_which_nothing_is_alive_go_wherever_they_stand(disk: MemoryDisk) -> None:
    dirs = opened(disk, 2000)
    long = dead_in_between(dirs)
    expected, kept = values(long), len(commit_files(disk))
    # Nothing is kept back.
    commit_of(dirs).reserve.give()
    disk.fail_writes_after(100)
    reclaimed(dirs)
    deleted(dirs)
    assert (kept > 5, len(commit_files(disk)) <= 3, values(long)) == (True, True, expected)
    assert "there is no room in /data" in "".join(dirs.take_notices())
    dirs = killed(disk, 2000)
    assert values(dirs.logs[long.key]) == expected and dirs.take_notices() == []


def test_on_a_full_disk_less_than_half_of_the_commit_log_is_worth_reclaiming(disk: MemoryDisk) -> None:
    dirs = opened(disk, 2000)
    long, short = created(dirs, 0), created(dirs, 1)
    for log in (long, short, long):
        for _ in range(20):
            append(log, value=bytes(300))
    checkpointed(dirs)
    short.config = replace(CONFIG, retention_bytes=0)
    delete_old_segments(short, NOW_MS, short.log_end_offset)
    expected, kept = values(long), commit_files(disk)
    reclaimed(dirs)
    deleted(dirs)
    assert commit_files(disk) == kept
    disk.fail_writes_after(100)
    reclaimed(dirs)
    deleted(dirs)
    assert len(commit_files(disk)) < len(kept) - 2 and values(long) == expected
    disk.room_bytes = None
    assert values(killed(disk, 2000).logs[long.key]) == expected


def test_reclaiming_ends_although_the_batches_are_smaller_than_the_heads_of_their_copies(disk: MemoryDisk) -> None:
    dirs = opened(disk, 2000)
    log = created(dirs, 0)
    for _ in range(60):
        append(log, value=b"")
    checkpointed(dirs)
    expected = values(log)
    for steps, work in enumerate(dirs.reclaim()):
        assert steps < 1000
        if work is not None:
            work()
    assert values(log) == expected


def test_as_long_as_no_queue_lets_go_of_anything_nobody_looks_for_files_that_could_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dirs = opened(MemoryDisk())
    log = created(dirs)
    append(log)
    deleted(dirs)
    asked: list[LogDir] = []
    looking = LogDirs._all_in
    monkeypatch.setattr(LogDirs, "_all_in", lambda self, directory: asked.append(directory) or looking(self, directory))
    append(log)
    deleted(dirs)
    assert asked == []
    log.truncate_fully_and_start_at(9, NOW_MS)
    deleted(dirs)
    assert asked == dirs.dirs
