"""Truncations and crashes, in both layouts: what was truncated vouches for nothing, and offsets do not jump."""

from __future__ import annotations

import errno
from random import Random

import pytest
from compaction_kit import FragileDisk, PowerLoss
from logkit import KEY, NOW_MS, append, new_log, produced, reopened, values

from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.disk import read_file
from tidelog.log.errors import StorageError
from tidelog.log.log_dir import LogDir
from tidelog.log.memory_disk import MemoryDisk, MemoryFile
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import build_batch


def opened(disk: MemoryDisk, commit_bytes: int | None, config: LogConfig = LogConfig()) -> LogDirs:  # noqa: B008
    dirs = LogDirs(["/data"], disk, lambda topic: config, lambda: bytes(15) + b"\1", commit_bytes)
    dirs.open(node_id=1, cluster_id="c", now_ms=NOW_MS)
    return dirs


def stopped(commit_bytes: int | None, batches: int, records: int) -> MemoryDisk:
    """After a clean stop, which says that everything is on the device."""
    disk = MemoryDisk()
    dirs = opened(disk, commit_bytes)
    log = dirs.create(KEY, NOW_MS, bytes(range(16)))  # type: ignore[arg-type]
    for _ in range(batches):
        append(log, records)
    log.advance_log_start_offset(1)
    dirs.close()
    return disk


@pytest.mark.parametrize("commit_bytes", [None, 1 << 20])
def test_what_took_the_place_of_flushed_records_is_not_taken_for_flushed_after_a_crash(
    commit_bytes: int | None,
) -> None:
    disk = stopped(commit_bytes, 4, 1)
    log = opened(disk, commit_bytes).logs[KEY]  # type: ignore[index]
    log.truncate_to(2, NOW_MS)
    append(log, value=b"other")
    append(log, value=b"other")
    disk.outlive()
    log = opened(disk, commit_bytes).logs[KEY]  # type: ignore[index]
    assert log.log_end_offset == 4
    assert log.flush_work(), "nothing would be synced"


@pytest.mark.parametrize("commit_bytes", [None, 1 << 20])
def test_a_truncation_inside_the_first_batch_and_a_loss_of_power_leave_all_or_nothing(
    commit_bytes: int | None,
) -> None:
    for seed in range(40):
        disk = stopped(commit_bytes, 3, 4)
        log = opened(disk, commit_bytes).logs[KEY]  # type: ignore[index]
        log.truncate_to(2, NOW_MS)
        assert (log.log_start_offset, log.log_end_offset) == (1, 1)
        disk.crash(Random(seed))
        log = opened(disk, commit_bytes).logs[KEY]  # type: ignore[index]
        assert (log.log_start_offset, log.log_end_offset) in ((1, 1), (1, 12))


def test_a_log_that_finds_no_room_to_be_repaired_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = stopped(None, 1, 1)
    append(opened(disk, None).logs[KEY])  # type: ignore[index]
    disk.outlive()
    opening = MemoryDisk.open

    def find_no_room(self: MemoryDisk, path: str, create: bool = False, empty: bool = False) -> MemoryFile:
        if path.endswith(".log"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return opening(self, path, create, empty)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryDisk, "open", find_no_room)
        dirs = opened(disk, None)
    (told,) = [notice for notice in dirs.take_notices() if "is offline" in notice]
    assert "partition 0 of topic t" in told and told.endswith("Make room, and start the broker again")
    disk.outlive()
    assert opened(disk, None).logs[KEY].log_end_offset == 2  # type: ignore[index]


@pytest.mark.parametrize("seed", range(30))
def test_a_log_that_is_begun_anew_knows_no_producer_though_the_power_goes(seed: int) -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data")
    batch = build_batch([(1000, None, b"value", None)], producer_id=7, producer_epoch=0, base_sequence=0)
    log.append_as_leader(memoryview(batch), 0, NOW_MS)
    log.roll(NOW_MS)
    log.flush()
    log.truncate_fully_and_start_at(9)
    disk.crash(Random(seed))
    again = reopened(log)
    assert again.log_end_offset in (0, 1, 9)
    assert len(again.producers) == (again.log_end_offset == 1)


@pytest.mark.parametrize("operation", ["rename", "open"])
@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("commit_bytes", [None, 10_000])
def test_nothing_is_added_to_a_log_that_could_be_cut_only_in_part(
    commit_bytes: int | None, is_full: bool, operation: str
) -> None:
    """Or else the rest of what was cut would be found among it by a start."""
    failed = 0
    for after in range(1, 12):
        disk = MemoryDisk()
        dirs = opened(disk, commit_bytes, LogConfig(segment_bytes=400))
        log = dirs.create(KEY, NOW_MS, bytes(range(16)))  # type: ignore[arg-type]
        for number in range(20):
            append(log, value=b"%d" % number)
        disk.fail(operation, errno.ENOSPC, after=after)
        cut_at = 30 if is_full else 2
        for _ in range(2):
            try:
                log.truncate_fully_and_start_at(30) if is_full else log.truncate_to(2)
                break
            except StorageError:
                continue
        disk.fail(operation, None)
        if log.directory.failure is not None:
            failed += 1
            with pytest.raises(StorageError):
                append(log)
            continue
        for _ in range(25):
            append(log, value=b"next")
        for work in dirs.checkpoint_queues():
            if work is not None:
                work()
        disk.outlive()
        again = opened(disk, commit_bytes, LogConfig(segment_bytes=400)).logs[log.key]
        assert [offset for offset, value in values(again) if value == b"next"] == list(range(cut_at, cut_at + 25))
        assert again.log_end_offset == cut_at + 25
    assert failed or operation == "open"


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_what_a_start_drops_behind_damage_does_not_come_back_though_the_power_goes(policy: str) -> None:
    """Of a compacted log nobody would see the hole."""
    config = LogConfig(segment_bytes=400, cleanup_policy=(policy,))
    for at in range(1, 200):
        disk = FragileDisk()
        log = opened(disk, None, config).create(KEY, NOW_MS, bytes(range(16)))  # type: ignore[arg-type]
        for number in range(20):
            log.append_as_leader(produced(key=b"%d" % number), 0, NOW_MS)
        first = log.segments.first_base_offset
        disk.sync_all("/data")
        disk.flip(f"/data/t-0/{first:020d}.log", 100, 0)
        disk.outlive()
        disk.operations_left = at
        try:
            opened(disk, None, config)
            break
        except PowerLoss:
            pass
        disk.operations_left = None
        disk.crash(Random(at))
        assert values(opened(disk, None, config).logs[log.key]) == [(0, b"value")], at
    assert at > 30


def damaged_disk(commit_bytes: int | None) -> FragileDisk:
    """A partition of twenty batches, of which the second one is damaged."""
    disk = FragileDisk()
    log = opened(disk, commit_bytes, LogConfig()).create(KEY, NOW_MS, bytes(range(16)))  # type: ignore[arg-type]
    for number in range(20):
        log.append_as_leader(produced(key=b"number %d" % number), 0, NOW_MS)
    commit = log.directory.commit
    file = log.segments.active.log_path if commit is None else commit.file_at(0)[0]
    disk.sync_all("/data")
    disk.flip(file, read_file(disk, file).index(b"number 1"), 0)
    disk.outlive()
    return disk


@pytest.mark.parametrize("commit_bytes", [None, 1 << 20])
def test_a_log_that_was_cut_at_damage_is_known_to_be_damaged_though_the_power_goes(commit_bytes: int | None) -> None:
    for at in range(1, 200):
        disk = damaged_disk(commit_bytes)
        disk.operations_left = at
        try:
            opened(disk, commit_bytes, LogConfig())
            break
        except PowerLoss:
            pass
        disk.operations_left = None
        disk.crash(Random(at))
        log = opened(disk, commit_bytes, LogConfig()).logs[KEY]
        assert (log.log_end_offset, log.notes.damaged) == (1, True), at
        disk.outlive()
        log = opened(disk, commit_bytes, LogConfig()).logs[KEY]
        assert (log.log_end_offset, log.notes.damaged) == (1, True), at
    assert at > 10


@pytest.mark.parametrize("commit_bytes", [None, 1 << 20])
def test_a_damaged_log_is_opened_on_a_full_disk(commit_bytes: int | None) -> None:
    disk = damaged_disk(commit_bytes)
    disk.fail("write", errno.ENOSPC)
    log = opened(disk, commit_bytes, LogConfig()).logs[KEY]
    assert (log.log_end_offset, log.notes.damaged) == (1, True)


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("commit_bytes", [None, 1 << 20])
def test_what_was_truncated_is_not_missed_after_a_crash(commit_bytes: int | None, is_clean: bool) -> None:
    disk, config = MemoryDisk(), LogConfig(segment_bytes=400)
    dirs = opened(disk, commit_bytes, config)
    log = dirs.create(KEY, NOW_MS, bytes(range(16)))  # type: ignore[arg-type]
    for _ in range(12):
        append(log)
    if is_clean:
        dirs.close()
        dirs = opened(disk, commit_bytes, config)
    else:
        log.flush()
        dirs.checkpoint()
    dirs.logs[log.key].truncate_to(4, NOW_MS)
    disk.outlive()
    dirs = opened(disk, commit_bytes, config)
    assert dirs.logs[log.key].log_end_offset == 4
    assert dirs.take_notices() == []


@pytest.mark.parametrize("start", [4, 20])
@pytest.mark.parametrize("commit_bytes", [None, 1 << 20])
def test_a_log_that_was_cut_before_its_beginning_keeps_what_follows_after_a_crash(
    commit_bytes: int | None, start: int
) -> None:
    """Its beginning was written down, and what is written before it now does not lie there."""
    disk = MemoryDisk()
    dirs = opened(disk, commit_bytes)
    log = dirs.create(KEY, NOW_MS, bytes(range(16)))  # type: ignore[arg-type]
    log.truncate_fully_and_start_at(start, NOW_MS)
    for _ in range(12):
        append(log)
    log.advance_log_start_offset(start + 10)
    log.flush()
    dirs.checkpoint()
    log.truncate_to(7, NOW_MS)
    append(log, value=b"new")
    disk.outlive()
    dirs = opened(disk, commit_bytes)
    assert values(dirs.logs[log.key])[-1:] == [(7, b"new")]
    assert dirs.logs[log.key].log_start_offset == 7
    assert dirs.take_notices() == []


@pytest.mark.parametrize("rolled", [False, True], ids=["in the last segment", "in the one before"])
def test_many_logs_that_are_truncated_write_their_recovery_points_once(
    monkeypatch: pytest.MonkeyPatch, rolled: bool
) -> None:
    disk = MemoryDisk()
    dirs = opened(disk, None)
    for partition in range(10):
        log = dirs.create(TopicPartition("t", partition), NOW_MS, bytes(range(16)))
        append(log, 1)
        append(log, 2)
        if rolled:
            log.roll(NOW_MS)
            append(log, 1)
    dirs.close(1, dict.fromkeys(dirs.logs, 1))
    dirs = opened(disk, None)
    written: list[LogDir] = []
    write = LogDir.checkpoint_recovery_points

    def count(directory: LogDir, **how: bool) -> None:
        written.append(directory)
        write(directory, **how)

    monkeypatch.setattr(LogDir, "checkpoint_recovery_points", count)
    for log in dirs.logs.values():
        log.truncate_to(1, NOW_MS)
    assert len(written) == 1
    disk.outlive()
    dirs = opened(disk, None)
    assert {log.log_end_offset for log in dirs.logs.values()} == {1}
    assert dirs.take_notices() == []
