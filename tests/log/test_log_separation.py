"""A partition that becomes compacted leaves the commit log: it is copied, in its directory, into files of its own."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from logkit import NOW_MS, append, values
from shared_kit import CONFIG, checkpointed, commit_of, created, deleted, opened

from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.file_segment import FileSegment
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.shared.queue_segment import QueueSegment
from tidelog.wire.records import build_batch

COMPACTED = replace(CONFIG, cleanup_policy=("compact",))


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def filled(dirs: LogDirs) -> Log:
    log = created(dirs)
    for at in range(30):
        append(log, value=b"%d" % at, leader_epoch=at // 10)
    log.advance_log_start_offset(7)
    log.flush()
    dirs.checkpoint()
    return log


def separated(dirs: LogDirs, log: Log) -> Log:
    log.config = COMPACTED
    move = dirs.begin_separation(log.key, NOW_MS)
    while not move.step(NOW_MS):
        pass
    return dirs.finish_move(log.key)


def kinds(log: Log) -> set[type]:
    return {type(segment) for segment in log.segments}


def test_it_holds_what_it_held_and_has_files_of_its_own(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = filled(dirs)
    expected, epochs = values(log), log.leader_epochs.format()
    log = separated(dirs, log)
    log.append_as_leader(memoryview(build_batch([(1000, b"key", b"more", None)])), 2, NOW_MS)
    deleted(dirs)
    assert kinds(log) == {FileSegment} and dirs.logs[log.key] is log and not dirs.futures
    assert values(log) == [*expected, (30, b"more")] and log.log_start_offset == 7
    log.flush()
    disk.outlive()
    again = opened(disk, config=COMPACTED).logs[log.key]
    assert kinds(again) == {FileSegment} and values(again) == values(log)
    assert again.leader_epochs.format() == epochs


def test_the_commit_log_lets_go_of_it(disk: MemoryDisk) -> None:
    dirs = opened(disk, 1000)
    log = separated(dirs, filled(dirs))
    for work in dirs.checkpoint_queues():
        if work is not None:
            work()
    deleted(dirs)
    deleted(dirs)
    assert commit_of(dirs).first > 0 and len(values(log)) == 23


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_any_step_leaves_the_partition_whole(power: bool) -> None:
    finished = False
    for crash_at in range(1, 400):
        disk = MemoryDisk()
        dirs = opened(disk)
        log = filled(dirs)
        expected = values(log)
        log.config = COMPACTED
        before = dict(disk.counts)
        move = dirs.begin_separation(log.key, NOW_MS)
        while not move.step(NOW_MS):
            pass
        # The last steps are those after which it is the partition.
        steps = ("write", "sync", "rename", "sync_dir", "open")
        operation = steps[crash_at % len(steps)]
        disk.fail(operation, after=crash_at // len(steps) + 1)
        failed = False
        try:
            dirs.finish_move(log.key)
        except Exception:
            failed = True
        finished |= not failed and before != disk.counts
        if power:
            disk.crash(Random(crash_at))
        else:
            disk.outlive()
            disk._failures.clear()
        again = opened(disk, config=COMPACTED)
        assert log.key in again.logs, f"step {crash_at}"
        found = again.logs[log.key]
        assert values(found) == expected and found.log_start_offset == 7, f"step {crash_at}"
        assert kinds(found) in ({QueueSegment}, {FileSegment})
        if not failed and operation == "open":
            break
    assert finished


def test_a_copy_that_was_not_finished_is_never_taken_for_the_partition(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = filled(dirs)
    log.config = COMPACTED
    move = dirs.begin_separation(log.key, NOW_MS)
    move.step(NOW_MS, 500)
    disk.outlive()
    again = opened(disk, config=COMPACTED)
    assert kinds(again.logs[log.key]) == {QueueSegment} and values(again.logs[log.key]) == values(log)
    (resumed,) = again.resume_moves()
    while not resumed.step(NOW_MS):
        pass
    assert kinds(again.finish_move(log.key)) == {FileSegment}


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_what_is_still_in_the_commit_log_is_not_given_up_because_its_queues_are_missing(
    disk: MemoryDisk, is_checkpointed: bool
) -> None:
    """As where a start that made them anew was interrupted."""
    dirs = opened(disk)
    log = filled(dirs)
    expected = values(log)
    if is_checkpointed:
        checkpointed(dirs)
    for path in disk.paths(".queue"):
        disk.remove(path)
    disk.outlive()
    dirs = opened(disk, config=COMPACTED)
    log = dirs.logs[log.key]
    assert kinds(log) == {QueueSegment} and values(log) == expected and dirs.take_notices() == []
    log = separated(dirs, log)
    assert values(log) == expected
    for path in disk.paths(".log"):
        disk.remove(path)
    disk.outlive()
    # What the commit log still has is of before.
    assert kinds(opened(disk, config=COMPACTED).logs[log.key]) == {FileSegment}


@pytest.mark.parametrize("seed", range(40))
def test_one_that_comes_back_with_files_of_its_own_gets_nothing_that_the_commit_log_tells_of(
    disk: MemoryDisk, seed: int
) -> None:
    configs = [CONFIG]
    dirs = LogDirs(["/data"], disk, lambda topic: configs[-1], lambda: bytes(15) + b"\1", 1 << 20)
    dirs.open(node_id=1, cluster_id="c", now_ms=NOW_MS)
    log = filled(dirs)
    dirs.delete(log.key)
    configs.append(COMPACTED)
    assert kinds(created(dirs)) == {FileSegment}
    disk.crash(Random(seed))
    again = opened(disk, config=COMPACTED).logs.get(log.key)
    assert again is None or again.log_end_offset == 0
