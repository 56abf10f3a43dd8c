"""The shared layout on a disk that fails: what is acknowledged is true, and what was refused does not come back."""

from __future__ import annotations

import errno

import pytest
from logkit import NOW_MS, append, produced, values
from shared_kit import checkpointed, commit_files, commit_of, created, killed, opened

from tidelog.log.config import LogConfig
from tidelog.log.errors import StorageError, WriteRefused
from tidelog.log.flush import run_all
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.retention import delete_old_segments
from tidelog.log.shared import commit_log


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def test_a_sync_that_fails_acknowledges_nothing_of_any_partition(disk: MemoryDisk) -> None:
    """The next one may succeed although what the one before should have written was dropped."""
    dirs = opened(disk)
    logs = [created(dirs, partition) for partition in range(3)]
    for log in logs:
        append(log)
        log.flush()
    works = []
    for log in logs:
        append(log)
        work = log.flush_work()
        assert work is not None
        works.append(work)
    disk.fail("sync", errno.EIO)
    run_all(works, disk, "/data", dirs.dirs[0].commit)
    for log, work in zip(logs, works, strict=True):
        with pytest.raises(StorageError):
            log.flush_done(work)
        assert log.recovery_point == 1
    assert dirs.dirs[0].failure is not None


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_a_sync_that_fails_before_files_go_is_not_forgotten(disk: MemoryDisk, is_checkpointed: bool) -> None:
    dirs = opened(disk, 1000)
    log = created(dirs)
    for _ in range(30):
        append(log, value=bytes(200))
    checkpointed(dirs)
    log.advance_log_start_offset(log.log_end_offset)
    delete_old_segments(log, 0, log.log_end_offset)
    append(log)
    deletions, checkpoint = dirs.take_deletions(), commit_of(dirs).checkpoint
    disk.fail("sync", errno.EIO)
    for deletion in deletions:
        deletion()
    if is_checkpointed:
        checkpointed(dirs)
        assert commit_of(dirs).checkpoint == checkpoint
    with pytest.raises(StorageError):
        log.flush()
    assert dirs.dirs[0].failure is not None


def refused(log: Log, value: bytes) -> bool:
    try:
        append(log, value=value)
    except WriteRefused:
        return True
    return False


def test_an_append_that_is_refused_because_too_much_was_put_off_is_not_written_later(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log, "_MOST_PUT_OFF_BYTES", 1000)
    dirs = opened(disk, puts_off=True)
    log = created(dirs)
    disk.fail("write", errno.ENOMEM)
    outcomes = [refused(log, b"%d" % number) for number in range(30)]
    assert outcomes.count(True) == 1 and dirs.dirs[0].failure is None
    commit_of(dirs).write_out()
    expected = values(log)
    again = killed(disk)
    assert values(again.logs[log.key]) == expected and again.take_notices() == []


def test_a_cut_that_is_refused_is_not_told_later(disk: MemoryDisk) -> None:
    dirs = opened(disk, puts_off=True)
    log = created(dirs)
    for number in range(10):
        append(log, value=b"%d" % number)
    commit_of(dirs).write_out()
    for cut in (lambda: log.truncate_to(4), lambda: log.truncate_fully_and_start_at(20)):
        disk.fail("write", errno.ENOMEM)
        with pytest.raises(WriteRefused):
            cut()
        append(log, value=b"more")
    commit_of(dirs).write_out()
    expected = values(log)
    again = killed(disk)
    assert len(expected) == 12
    assert values(again.logs[log.key]) == expected and again.take_notices() == []


def test_where_there_is_no_room_for_another_file_the_last_one_does_not_count_on_room_that_it_gave_back(
    disk: MemoryDisk,
) -> None:
    dirs = opened(disk, 3000, LogConfig(segment_bytes=1 << 20), puts_off=True)
    log = created(dirs)
    while commit_of(dirs).end < 2500:
        append(log)
    disk.fail("open", errno.ENOSPC)
    assert refused(log, bytes(500))
    disk.fail_writes_after(0)
    assert refused(log, b"small")
    commit_of(dirs).write_out()
    disk.fail_writes_after(1000)
    assert not refused(log, b"small")
    commit_of(dirs).write_out()
    assert values(killed(disk).logs[log.key]) == values(log)


@pytest.mark.parametrize("operation", ["open", "map", "truncate"])
def test_a_truncation_that_was_refused_on_the_way_can_be_tried_again(disk: MemoryDisk, operation: str) -> None:
    for after in range(1, 8):
        disk = MemoryDisk()
        disk.maps.limit = 1
        dirs = opened(disk)
        log, other = created(dirs, 0), created(dirs, 1)
        for number in range(10):
            log.append_as_leader(produced(3, value=b"%d" % number), 0, NOW_MS)
            append(other)
        checkpointed(dirs)
        # The mapping goes to the other one.
        assert len(values(log)) == 30 and len(values(other)) == 10
        disk.fail(operation, errno.ENOMEM, after=after)
        try:
            log.truncate_to(16)
        except WriteRefused:
            log.truncate_to(16)
        disk.fail(operation, None)
        append(log, value=b"next")
        expected = [(offset, b"%d" % (offset // 3)) for offset in range(15)] + [(15, b"next")]
        assert values(log) == expected
        assert values(killed(disk).logs[log.key]) == expected


def test_files_that_could_not_be_given_up_for_a_moment_go_the_next_time() -> None:
    for operation in ("open", "map", "write"):
        disk = MemoryDisk()
        disk.files.limit = disk.maps.limit = 1
        dirs = opened(disk, 1000, puts_off=True)
        log, other = created(dirs, 0), created(dirs, 1)
        for _ in range(20):
            append(log, value=bytes(200))
        append(other)
        checkpointed(dirs)
        log.advance_log_start_offset(log.log_end_offset)
        delete_old_segments(log, 0, log.log_end_offset)
        append(other)
        disk.fail(operation, errno.EMFILE)
        for _ in range(2):
            for deletion in dirs.take_deletions():
                deletion()
            disk.fail(operation, None)
        assert dirs.dirs[0].failure is None
        assert len(commit_files(disk)) <= 3, operation


def test_a_segment_that_could_not_be_begun_leaves_nothing_behind(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    append(log)
    disk.fail("remove", errno.ENOMEM)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        log.roll(NOW_MS)
    log.truncate_fully_and_start_at(5)
    checkpointed(dirs)
    append(log)
    again = killed(disk).logs[log.key]
    assert [segment.base_offset for segment in again.segments] == [5] and values(again) == [(5, b"value")]


def test_too_few_descriptors_for_a_sync_are_no_failed_sync(disk: MemoryDisk) -> None:
    dirs = opened(disk, 600)
    log = created(dirs)
    for _ in range(5):
        append(log, value=bytes(100))
    sync = commit_of(dirs).sync_work()
    disk.fail("sync_dir", errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files"):
        sync()
    sync()
    checkpointed(dirs)
    assert commit_of(dirs).checkpoint == commit_of(dirs).end


def test_after_a_sync_that_failed_for_want_of_room_the_directory_does_not_go_on(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    append(created(dirs))
    sync = commit_of(dirs).sync_work()
    disk.fail("sync", errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        sync()
    checkpointed(dirs)
    assert dirs.dirs[0].failure is not None
