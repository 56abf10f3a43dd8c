"""The shared layout: a file of the commit log, from before the checkpoint, that is missing or short."""

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
    opened,
    reclaimed,
)

from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.errors import CorruptMessage
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.retention import delete_old_segments

COMMIT_BYTES = 2000
DIRECTORY = "/data/tidelog-commit"


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def offsets_in(log: Log, first: int, end: int) -> list[int]:
    """Of the batches that lie in a piece of the commit log."""
    found = []
    for segment in log.segments:
        found += [
            each.base_offset for each in segment.held() if first < each.place + each.size_bytes and each.place < end
        ]
    return found


def two_in_turns(disk: MemoryDisk) -> tuple[LogDirs, list[Log]]:
    """Two partitions whose batches alternate in several files."""
    dirs = opened(disk, COMMIT_BYTES)
    logs = [created(dirs, 0), created(dirs, 1)]
    for _ in range(20):
        for log in logs:
            append(log, value=bytes(200))
    checkpointed(dirs)
    return dirs, logs


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("kept_bytes", [None, 400])
def test_a_start_tells_what_is_lost_with_a_file_and_serves_the_rest(
    disk: MemoryDisk, is_clean: bool, kept_bytes: int | None
) -> None:
    dirs, logs = two_in_turns(disk)
    expected = [values(log) for log in logs]
    name, after = commit_files(disk)[2:4]
    first = int(name[:20]) + (kept_bytes or 0)
    lost = [offsets_in(log, first, int(after[:20])) for log in logs]
    assert all(len(each) > 1 for each in lost)
    if is_clean:
        dirs.close()
    if kept_bytes is None:
        disk.remove(f"{DIRECTORY}/{name}")
        what = "is missing, or the file before it was cut off"
    else:
        disk.open(f"{DIRECTORY}/{name}").truncate(kept_bytes)
        what = f"was cut off at byte {kept_bytes}"
    dirs = killed(disk, COMMIT_BYTES)
    assert dirs.take_notices() == [
        f"partition {n} of topic t has lost offsets {lost[n][0]} to {lost[n][-1]}: {DIRECTORY}/{name} {what}"
        for n in range(2)
    ]
    for n, log in enumerate(logs):
        found = dirs.logs[log.key]
        assert values(found, lost[n][-1] + 1) == expected[n][lost[n][-1] + 1 :]
        with pytest.raises(CorruptMessage):
            values(found, lost[n][0])


def test_a_file_that_was_given_up_from_between_others_is_no_loss(disk: MemoryDisk) -> None:
    dirs = opened(disk, COMMIT_BYTES)
    dead_in_between(dirs)
    commit_of(dirs).reserve.give()
    disk.fail_writes_after(100)
    reclaimed(dirs)
    deleted(dirs)
    disk.room_bytes = None
    dirs = killed(disk, COMMIT_BYTES)
    assert commit_of(dirs).holes() and dirs.take_notices() == []


def test_what_lay_below_the_beginning_of_a_log_is_no_loss(disk: MemoryDisk) -> None:
    dirs = opened(disk, COMMIT_BYTES)
    log = created(dirs, 0)
    log.config = replace(CONFIG, segment_bytes=1 << 20)
    for _ in range(30):
        append(log, value=bytes(200))
    name, after = commit_files(disk)[1:3]
    lost = offsets_in(log, int(name[:20]), int(after[:20]))
    log.advance_log_start_offset(lost[-1])
    checkpointed(dirs)
    disk.remove(f"{DIRECTORY}/{name}")
    assert [line.split(":")[0] for line in killed(disk, COMMIT_BYTES).take_notices()] == [
        f"partition 0 of topic t has lost offset {lost[-1]}"
    ]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_tells_what_is_lost_with_the_oldest_file(disk: MemoryDisk, is_clean: bool) -> None:
    dirs, logs = two_in_turns(disk)
    oldest, after = commit_files(disk)[:2]
    lost = [offsets_in(log, 0, int(after[:20])) for log in logs]
    assert all(len(each) > 1 for each in lost)
    if is_clean:
        dirs.close()
    disk.remove(f"{DIRECTORY}/{oldest}")
    dirs = killed(disk, COMMIT_BYTES)
    what = f"{DIRECTORY}/{after} is the oldest file now, and they were in one before it, which is missing"
    assert dirs.take_notices() == [
        f"partition {partition} of topic t has lost offsets 0 to {each[-1]}: {what}"
        for partition, each in enumerate(lost)
    ]
    for log, each in zip(logs, lost, strict=True):
        assert len(values(dirs.logs[log.key], each[-1] + 1)) == 20 - len(each)


def test_nothing_is_missed_before_the_oldest_file_where_retention_took_it(disk: MemoryDisk) -> None:
    dirs = opened(disk, COMMIT_BYTES)
    log = created(dirs)
    for _ in range(20):
        append(log, value=bytes(200))
    checkpointed(dirs)
    log.config = replace(CONFIG, retention_bytes=1500)
    delete_old_segments(log, NOW_MS, log.log_end_offset)
    deleted(dirs)
    assert commit_of(dirs).first > 0
    assert killed(disk, COMMIT_BYTES).take_notices() == []
