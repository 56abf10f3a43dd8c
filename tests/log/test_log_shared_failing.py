"""The shared layout on a disk that fails: what is acknowledged is true, and what was refused does not come back."""

from __future__ import annotations

import errno

import pytest
from logkit import append
from shared_kit import checkpointed, commit_of, created, opened

from tidelog.log.errors import StorageError
from tidelog.log.flush import run_all
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.retention import delete_old_segments


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
    run_all(works, disk, "/data")
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
