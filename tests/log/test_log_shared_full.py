"""The shared layout on a disk without any room: what nobody needs any more is given back nevertheless."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest
from logkit import NOW_MS, append, values
from shared_kit import checkpointed, commit_files, commit_of, created, deleted, killed, opened, reclaimed

from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.errors import WriteRefused
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.retention import delete_old_segments
from tidelog.log.shared.commit_reserve import LEAST_BYTES
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import build_batch

COMMIT_BYTES = 4000


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def filled(dirs: LogDirs, checkpointed_to: int = 0) -> tuple[Log, Log]:
    """No file of the commit log is without something of each. Past a checkpoint a start after a crash may find all of
    a log in one segment, which stays as long as the log."""
    long, short = created(dirs, 0), created(dirs, 1)
    for at in range(80):
        if at % 4 == 0:
            value = b"%d" % at + bytes(150)
            batch = build_batch([(1000, None, value, None)], producer_id=7, producer_epoch=0, base_sequence=at // 4)
            long.append_as_leader(memoryview(batch), 0, NOW_MS)
        append(short, value=bytes(600))
        if at + 1 == checkpointed_to:
            checkpointed(dirs)
    long.flush()
    return long, short


def delete_records(dirs: LogDirs, key: TopicPartition) -> None:
    log = dirs.logs[key]
    log.advance_log_start_offset(log.log_end_offset)
    delete_old_segments(log, NOW_MS, log.log_end_offset)


def delete_topic(dirs: LogDirs, key: TopicPartition) -> None:
    dirs.delete(key)


LEAVINGS = [delete_records, delete_topic]


def kept_up(dirs: LogDirs) -> None:
    """What a broker does from time to time."""
    deleted(dirs)
    checkpointed(dirs)
    reclaimed(dirs)
    deleted(dirs)


@pytest.mark.parametrize("leave", LEAVINGS)
@pytest.mark.parametrize("is_started_anew", [False, True])
@pytest.mark.parametrize("puts_off", [False, True])
def test_a_disk_without_any_room_gets_some_back_from_what_has_left(
    disk: MemoryDisk, leave: Callable[[LogDirs, TopicPartition], None], is_started_anew: bool, puts_off: bool
) -> None:
    dirs = opened(disk, COMMIT_BYTES, puts_off=puts_off)
    long, short = filled(dirs, 60 if is_started_anew else 0)
    expected, kept = values(long), len(commit_files(disk))
    disk.room_bytes = 0
    if is_started_anew:
        dirs = killed(disk, COMMIT_BYTES)
    leave(dirs, short.key)
    kept_up(dirs)
    assert (kept > 15, len(commit_files(disk)) < (9 if is_started_anew else 6)) == (True, True)
    assert values(dirs.logs[long.key]) == expected
    assert dirs.take_notices() == []
    disk.room_bytes = 0
    dirs = killed(disk, COMMIT_BYTES)
    assert values(dirs.logs[long.key]) == expected and dirs.take_notices() == []


@pytest.mark.parametrize("leave", LEAVINGS)
def test_the_power_may_go_at_any_step_of_that(
    disk: MemoryDisk, leave: Callable[[LogDirs, TopicPartition], None]
) -> None:
    for steps in range(0, 60, 3):
        disk = MemoryDisk()
        dirs = opened(disk, COMMIT_BYTES)
        long, short = filled(dirs, 60)
        short.flush()
        expected = values(long)
        disk.room_bytes = 0
        leave(dirs, short.key)
        for _, work in zip(range(steps), _work(dirs), strict=False):
            if work is not None:
                work()
        disk.crash(Random(steps))
        disk.room_bytes = 0
        dirs = opened(disk, COMMIT_BYTES)
        assert values(dirs.logs[long.key]) == expected, steps
        if short.key in dirs.logs:
            leave(dirs, short.key)
        kept_up(dirs)
        assert values(dirs.logs[long.key]) == expected and len(commit_files(disk)) < 9, steps


def _work(dirs: LogDirs) -> Iterator[Callable[[], None] | None]:
    yield from dirs.checkpoint_queues()
    yield from dirs.reclaim()
    yield from dirs.take_deletions()


def test_meanwhile_batches_cannot_take_what_was_given_up(disk: MemoryDisk) -> None:
    dirs = opened(disk, COMMIT_BYTES)
    long, short = filled(dirs)
    disk.room_bytes = 0
    dirs.delete(short.key)
    refused = 0
    for work in dirs.checkpoint_queues():
        with pytest.raises(WriteRefused):
            append(long)
        refused += 1
        if work is not None:
            work()
    assert refused > 1 and commit_of(dirs).checkpoint == commit_of(dirs).end
    assert commit_of(dirs).reserve.size_bytes > LEAST_BYTES * 3 // 4


def test_room_that_batches_have_already_is_theirs(disk: MemoryDisk) -> None:
    dirs = opened(disk, COMMIT_BYTES, puts_off=True)
    long, _ = filled(dirs)
    commit = commit_of(dirs)
    disk.room_bytes = 0
    for work in dirs.checkpoint_queues():
        append(long, value=b"fits")
        if work is not None:
            work()
    commit.write_out()
    assert values(long)[-1][1] == b"fits"


def test_what_is_reserved_ahead_goes_where_nothing_is_kept_back(disk: MemoryDisk) -> None:
    dirs = opened(disk, 1 << 20, puts_off=True)
    filled(dirs)
    commit = commit_of(dirs)
    commit.reserve.give()
    disk.room_bytes = 0
    checkpointed(dirs)
    assert commit.checkpoint == commit.end and dirs.take_notices() == []


def test_where_all_of_it_is_not_enough_one_line_says_so_until_there_is_room(disk: MemoryDisk) -> None:
    dirs = opened(disk, COMMIT_BYTES)
    long, short = filled(dirs)
    commit_of(dirs).reserve.give()
    expected, kept = values(long), len(commit_files(disk))
    disk.room_bytes = 0
    dirs.delete(short.key)
    for _ in range(3):
        kept_up(dirs)
    assert dirs.take_notices() == ["there is no room in /data to make the commit log smaller: it is tried again"]
    assert len(commit_files(disk)) == kept
    disk.room_bytes = None
    kept_up(dirs)
    assert len(commit_files(disk)) < 6 and values(long) == expected
    assert commit_of(dirs).reserve.size_bytes == LEAST_BYTES


def test_a_clean_stop_may_have_what_is_kept_back(disk: MemoryDisk) -> None:
    dirs = opened(disk, COMMIT_BYTES)
    long, _ = filled(dirs)
    for partition in range(2, 200):
        append(created(dirs, partition))
    expected = values(long)
    disk.room_bytes = 0
    dirs.close()
    assert dirs.take_notices() == [] and disk.exists("/data/.kafka_cleanshutdown")
    dirs = opened(disk, COMMIT_BYTES)
    assert values(dirs.logs[long.key]) == expected
    assert commit_of(dirs).reserve.size_bytes >= LEAST_BYTES // 2


def test_where_room_is_scarce_reclaiming_does_not_wait_for_the_next_checkpoint(disk: MemoryDisk) -> None:
    dirs = opened(disk, COMMIT_BYTES)
    _, short = filled(dirs)
    kept = len(commit_files(disk))
    dirs.delete(short.key)
    reclaimed(dirs)
    deleted(dirs)
    assert len(commit_files(disk)) == kept
    disk.room_bytes = 0
    reclaimed(dirs)
    deleted(dirs)
    assert len(commit_files(disk)) < 6


def test_room_is_kept_back_again_as_soon_as_there_is_some(disk: MemoryDisk) -> None:
    dirs = opened(disk, COMMIT_BYTES)
    filled(dirs)
    reserve = commit_of(dirs).reserve
    disk.room_bytes = 0
    checkpointed(dirs)
    assert 0 < reserve.size_bytes < LEAST_BYTES
    disk.room_bytes = None
    checkpointed(dirs)
    assert reserve.size_bytes == LEAST_BYTES
