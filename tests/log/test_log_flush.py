"""When a log is on the device, and what the recovery point says of it."""

from __future__ import annotations

import errno
from random import Random

import pytest
from logkit import KEY, NOW_MS, append, new_log, produced, reopened, values
from shared_kit import checkpointed

from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.errors import LogError, StorageError
from tidelog.log.flush import run_all
from tidelog.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import build_batch


def test_without_a_policy_flushing_is_the_operating_systems() -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data")
    for _ in range(10):
        append(log, 1)
    assert log.recovery_point == 0 and not log.directory.flushes
    assert "sync" not in disk.counts


def test_every_nth_message_asks_for_a_flush() -> None:
    log = new_log(MemoryDisk(), "/data", LogConfig(flush_messages=3))
    due = []
    for _ in range(7):
        info = log.append_as_leader(_batch(), 0, NOW_MS)
        due.append(info.flush_due)
        if info.flush_due:
            log.flush()
    assert due == [False, False, True, False, False, True, False]


def _batch() -> memoryview:
    from logkit import produced

    return produced(1)


def test_a_flush_is_due_when_something_waited_long_enough() -> None:
    log = new_log(MemoryDisk(), "/data", LogConfig(flush_ms=1000))
    assert not log.flush_is_due(NOW_MS + 5000)
    log.append_as_leader(_batch(), 0, NOW_MS)
    log.append_as_leader(_batch(), 0, NOW_MS + 900)
    assert not log.flush_is_due(NOW_MS + 999)
    assert log.flush_is_due(NOW_MS + 1000)
    log.flush()
    assert not log.flush_is_due(NOW_MS + 5000)


def test_what_was_flushed_survives_a_power_loss() -> None:
    for seed in range(30):
        disk = MemoryDisk()
        log = new_log(disk, "/data", LogConfig(segment_bytes=400))
        for number in range(10):
            append(log, 1, value=b"%d" % number * 30, leader_epoch=number // 4)
        log.flush()
        for _ in range(5):
            append(log, 1, value=b"x" * 50, leader_epoch=9)
        flushed = log.recovery_point
        disk.crash(Random(seed))
        again = reopened(log, recovery_point=flushed)
        assert values(again)[:10] == [(number, b"%d" % number * 30) for number in range(10)]
        assert again.leader_epochs.entries()[:3] == [(0, 0), (1, 4), (2, 8)]


def test_an_asynchronous_flush_covers_what_was_there_when_it_was_collected() -> None:
    log = new_log(MemoryDisk(), "/data")
    append(log, 3)
    work = log.flush_work()
    assert work is not None
    append(log, 2)
    work()
    assert log.recovery_point == 0
    log.flush_done(work)
    assert log.recovery_point == 3


def test_a_flush_says_nothing_of_what_was_written_after_a_truncation() -> None:
    log = new_log(MemoryDisk(), "/data")
    append(log, 3)
    work = log.flush_work()
    assert work is not None
    log.truncate_to(1, NOW_MS)
    append(log, 5)
    work()
    log.flush_done(work)
    assert log.recovery_point <= 1


def test_a_roll_asks_for_a_flush_of_what_it_sealed() -> None:
    disk = MemoryDisk()
    dirs = LogDirs(["/data"], disk, lambda topic: LogConfig())
    dirs.open(1, "c", NOW_MS)
    log = dirs.create(KEY, NOW_MS)
    append(log, 2)
    assert dirs.take_flushes() == []
    log.roll(NOW_MS)
    assert dirs.take_flushes() == [log]
    log.flush()
    assert log.recovery_point == 2 and dirs.take_flushes() == []


def test_a_flush_that_fails_takes_the_directory_offline() -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data")
    append(log, 1)
    work = log.flush_work()
    assert work is not None
    disk.fail("sync", errno.EIO)
    work()
    with pytest.raises(StorageError):
        log.flush_done(work)
    assert log.recovery_point == 0
    with pytest.raises(StorageError):
        append(log, 1)


def test_a_truncation_below_the_recovery_point_is_checkpointed_before_the_next_roll() -> None:
    """Else: flush to 9, cut to 2, append to 20 with rolls, power loss: segments past 2 would be trusted unseen."""
    disk = MemoryDisk()
    dirs = LogDirs(["/data"], disk, lambda topic: LogConfig(segment_bytes=300))
    dirs.open(1, "c", NOW_MS)
    log = dirs.create(KEY, NOW_MS)
    for _ in range(9):
        append(log, 1, value=bytes(50))
    log.flush()
    dirs.checkpoint()
    log.truncate_to(2, NOW_MS)
    for _ in range(18):
        append(log, 1, value=bytes(50))
    claimed = disk.content("/data/recovery-point-offset-checkpoint").decode().split()[-1]
    assert int(claimed) <= 2


def test_a_flush_that_finds_no_room_moves_nothing_and_is_made_again() -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data")
    append(log, 3)
    disk.fail_writes_after(0)
    with pytest.raises(StorageError):
        log.flush()
    assert log.recovery_point == 0 and log.directory.failure is None
    disk.room_bytes = None
    log.flush()
    assert log.recovery_point == 3


def test_checkpoints_that_find_no_room_leave_those_of_before() -> None:
    disk = MemoryDisk()
    dirs = LogDirs(["/data"], disk, lambda topic: LogConfig())
    dirs.open(1, "c", NOW_MS)
    dirs.create(KEY, NOW_MS)
    dirs.checkpoint({KEY: 0})
    before = bytes(disk.content("/data/replication-offset-checkpoint"))
    disk.fail_writes_after(3)
    dirs.checkpoint({KEY: 99})
    assert dirs.dirs[0].failure is None
    assert disk.content("/data/replication-offset-checkpoint") == before


def idempotent(sequence: int) -> memoryview:
    record = (1000, None, b"v" * 50, None)
    return memoryview(build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence))


def test_a_retry_waits_for_the_flush_of_what_it_repeats() -> None:
    log = new_log(MemoryDisk(), "/data", LogConfig(flush_messages=1))
    assert log.append_as_leader(idempotent(0), 0, NOW_MS).flush_due
    retried = log.append_as_leader(idempotent(0), 0, NOW_MS)
    assert retried.duplicate and retried.flush_due
    log.flush()
    retried = log.append_as_leader(idempotent(0), 0, NOW_MS)
    assert retried.duplicate and not retried.flush_due


@pytest.mark.parametrize("rolls", [1, 2])
def test_a_flush_in_flight_does_not_vouch_for_the_indexes_of_a_segment_that_is_sealed_meanwhile(rolls: int) -> None:
    config = LogConfig(index_interval_bytes=100)
    for seed in (*range(5), 25, 41):
        disk = MemoryDisk()
        dirs = LogDirs(["/data"], disk, lambda topic: config)
        dirs.open(1, "c", NOW_MS)
        log = dirs.create(KEY, NOW_MS)
        for number in range(100):
            log.append_as_leader(produced(1, 1000 + number, b"v" * 100), 0, NOW_MS)
        work = log.flush_work()
        assert work is not None
        for _ in range(rolls):
            log.roll(NOW_MS)
            append(log, 1, timestamp=1100)
        work()
        log.flush_done(work)
        assert log.recovery_point == 0
        dirs.checkpoint()
        disk.crash(Random(seed))
        again = LogDirs(["/data"], disk, lambda topic: config)
        again.open(1, "c", NOW_MS)
        recovered = again.logs[KEY]
        for number in range(100):
            found = recovered.offset_for_timestamp(1000 + number)
            assert found is not None and found.offset == number
        assert recovered.segments[0].largest.timestamp == 1099


def test_the_names_of_a_new_partition_are_on_the_device_with_its_first_flush() -> None:
    disk = MemoryDisk()
    dirs = LogDirs(["/data"], disk, lambda topic: LogConfig())
    dirs.open(1, "c", NOW_MS)
    log = dirs.create(KEY, NOW_MS)
    append(log, 1)
    log.flush()
    assert not disk.unsynced_dirs & {"/data", log.path}
    append(log, 1)
    synced = disk.counts["sync_dir"]
    log.flush()
    assert disk.counts["sync_dir"] == synced


def shared_logs(disk: MemoryDisk, count: int = 6) -> tuple[LogDirs, list[Log]]:
    """More than a few, each with something to be flushed and files of its own to be written."""
    config = LogConfig(flush_messages=1)
    dirs = LogDirs(["/data"], disk, lambda topic: config, lambda: bytes(15) + b"\1", 1 << 20)
    dirs.open(node_id=1, cluster_id="c", now_ms=NOW_MS)
    logs = [dirs.create(TopicPartition("t", at), NOW_MS, b"t".ljust(16, b".")) for at in range(count)]
    for log in logs:
        append(log)
    return dirs, logs


def flushed_together(dirs: LogDirs, logs: list[Log]) -> list[bool]:
    """Which of them were."""
    works = [work for log in logs if (work := log.flush_work()) is not None]
    directory = dirs.dirs[0]
    run_all(works, directory.disk, directory.path, directory.commit)
    flushed = []
    for log, work in zip(logs, works, strict=True):
        try:
            log.flush_done(work)
        except LogError:
            flushed.append(False)
        else:
            flushed.append(True)
    return flushed


def test_a_failed_sync_of_the_volume_is_not_taken_for_a_full_disk() -> None:
    disk = MemoryDisk()
    dirs, logs = shared_logs(disk)
    disk.fail_writes_after(0)
    disk.fail("sync_all", errno.EIO)
    assert not any(flushed_together(dirs, logs))
    # What it should have written may be dropped: the next one says nothing.
    assert dirs.dirs[0].failure is not None


def test_after_a_failed_sync_of_the_commit_log_none_of_the_volume_counts() -> None:
    disk = MemoryDisk()
    dirs, logs = shared_logs(disk)
    commit = dirs.dirs[0].commit
    assert commit is not None
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        commit.sync_work()()
    assert not any(flushed_together(dirs, logs))


def test_after_a_checkpoint_whose_sync_failed_nothing_in_the_commit_log_counts() -> None:
    disk = MemoryDisk()
    dirs, logs = shared_logs(disk)
    disk.fail("sync_all", errno.ENOSPC)
    checkpointed(dirs)
    assert not any(flushed_together(dirs, logs))


@pytest.mark.parametrize("operation", ["sync_dir", "open"])
def test_for_want_of_descriptors_a_flush_is_refused_and_the_directory_goes_on(operation: str) -> None:
    disk = MemoryDisk()
    dirs, (log, *_) = shared_logs(disk, 1)
    work = log.flush_work()
    assert work is not None
    disk.fail(operation, errno.EMFILE)
    work()
    with pytest.raises(LogError):
        log.flush_done(work)
    assert dirs.dirs[0].failure is None
    log.flush()
    assert log.recovery_point == 1


@pytest.mark.parametrize("count", [1, 6], ids=["one by one", "together"])
def test_a_log_that_was_made_again_meanwhile_gets_nothing_of_the_one_before(count: int) -> None:
    disk = MemoryDisk()
    dirs, logs = shared_logs(disk, count)
    for log in logs:
        log.begin_leader_epoch(7)
    works = [work for log in logs if (work := log.flush_work()) is not None]
    key = logs[0].key
    dirs.delete(key)
    again = dirs.create(key, NOW_MS, b"again".ljust(16, b"."))
    run_all(works, disk, "/data", dirs.dirs[0].commit)
    assert not disk.exists(f"{again.path}/{LEADER_EPOCH_FILE}")
