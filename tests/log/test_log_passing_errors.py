"""What passes by itself, a full disk or too few descriptors, costs what was asked for and nothing beyond it."""

from __future__ import annotations

import errno
from random import Random

import pytest
from logkit import KEY, NOW_MS, append, fetched, new_log, produced, reopened, values

from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.errors import StorageError, WriteRefused
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.producers import NOT_REQUIRED, AppendOrigin
from tidelog.log.retention import delete_old_segments
from tidelog.wire.records import ABORT, EndTxnMarker, build_batch, build_end_txn_marker

SEGMENTED = LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=10**15)


@pytest.mark.parametrize("operation", ["open", "pread"])
def test_too_few_descriptors_for_a_moment_leave_the_time_index_as_it_was(operation: str) -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data", SEGMENTED)
    for number in range(50):
        append(log, timestamp=1000 + number)
    log.close()
    for nth in range(1, 12):
        again = reopened(log, clean=True, recovery_point=50)
        disk.fail(operation, errno.EMFILE, after=nth)
        try:
            delete_old_segments(again, NOW_MS, again.log_end_offset)
            again.offset_for_timestamp(1003)
        except StorageError:
            pass
        disk.fail(operation, None)
        assert again.directory.failure is None
        assert [again.offset_for_timestamp(1000 + number).offset for number in range(50)] == list(range(50))
        assert [segment.largest.timestamp for segment in again.segments][-1] == 1049


@pytest.mark.files
def test_indexes_that_could_not_be_written_anew_are_written_at_the_next_use() -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data", SEGMENTED)
    for number in range(50):
        append(log, timestamp=1000 + number)
    log.close()
    disk.content("/data/t-0/00000000000000000000.timeindex")[:] = b"\x7f" * 24
    again = reopened(log, clean=True, recovery_point=50)
    disk.fail("pread", errno.EMFILE, after=3)
    with pytest.raises(StorageError):
        again.offset_for_timestamp(1003)
    for number in range(50):
        found = again.offset_for_timestamp(1000 + number)
        assert found is not None and found.offset == number


@pytest.mark.files
def test_an_append_without_a_descriptor_for_its_index_is_taken() -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data", LogConfig(index_interval_bytes=1))
    for number in range(200):
        disk.fail("open", errno.EMFILE)
        append(log, timestamp=number)
    disk.fail("open", None)
    assert len(values(log)) == 200
    assert log.directory.failure is None


def aborted_transaction(log_offset: int) -> tuple[memoryview, memoryview]:
    sent = build_batch(
        [(1000, None, b"x", None)], producer_id=9, producer_epoch=0, base_sequence=log_offset, transactional=True
    )
    return memoryview(sent), memoryview(build_end_txn_marker(EndTxnMarker(ABORT, 0), 9, 0, 1000))


@pytest.mark.files
def test_an_aborted_transaction_is_known_although_there_was_no_room_for_its_index_entry() -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data")
    for number in range(3):
        data, marker = aborted_transaction(number)
        log.append_as_leader(data, 0, NOW_MS, guard=NOT_REQUIRED)
        # Room for the marker and a part of the entry.
        disk.fail_writes_after(len(marker) + 10)
        log.append_as_leader(marker, 0, NOW_MS, origin=AppendOrigin.COORDINATOR)
        disk.room_bytes = None
    assert log.directory.failure is None
    assert [txn.last_offset for txn in log.aborted_transactions(0, 6)] == [1, 3, 5]
    log.close()
    again = reopened(log, clean=True, recovery_point=6)
    assert [txn.last_offset for txn in again.aborted_transactions(0, 6)] == [1, 3, 5]


def test_a_disk_that_fills_at_any_step_refuses_and_then_goes_on() -> None:
    """Every count of bytes after which the disk is full, through appends, rolls, retention, flushes, checkpoints."""
    config = LogConfig(segment_bytes=600, index_interval_bytes=50, retention_bytes=2000, flush_messages=5)
    for room in range(0, 2600, 13):
        disk = MemoryDisk()
        dirs = LogDirs(["/data"], disk, lambda topic: config)
        dirs.open(1, "c", NOW_MS)
        log = dirs.create(KEY, NOW_MS)
        for number in range(5):
            append(log, value=b"%03d" % number * 20, timestamp=number)
        disk.fail_writes_after(room)
        acknowledged = work_on(dirs, log)
        assert dirs.dirs[0].failure is None
        kept = [value for offset, value in values(log) if offset >= 5]
        assert kept == acknowledged[len(acknowledged) - len(kept) :]
        disk.room_bytes = None
        acknowledged += work_on(dirs, log)
        assert len(acknowledged) >= 20 and dirs.dirs[0].failure is None
        flushed = log.recovery_point
        disk.crash(Random(room))
        again = LogDirs(["/data"], disk, lambda topic: config)
        again.open(1, "c", NOW_MS)
        found = [value for _, value in values(again.logs[KEY])]
        expected = [value for _, value in values(log) if _ < flushed]
        assert found[: len(expected)] == expected


def work_on(dirs: LogDirs, log: object) -> list[bytes]:
    """What a broker does; the values that were acknowledged."""
    acknowledged = []
    for number in range(20):
        value = b"%05d" % (log.log_end_offset * 100 + number) * 12
        try:
            info = log.append_as_leader(produced(1, 1000 + number, value), 0, NOW_MS)
            acknowledged.append(value)
            if info.flush_due:
                log.flush()
            if number % 7 == 6:
                delete_old_segments(log, NOW_MS, log.log_end_offset)
        except WriteRefused:
            continue
        finally:
            for deletion in dirs.take_deletions():
                deletion()
        if number % 5 == 4:
            dirs.checkpoint({KEY: log.log_end_offset})
    return acknowledged


def test_retention_frees_the_last_segment_of_a_full_disk() -> None:
    disk = MemoryDisk()
    dirs = LogDirs(["/data"], disk, lambda topic: LogConfig(retention_ms=1000))
    dirs.open(1, "c", NOW_MS)
    log = dirs.create(KEY, NOW_MS)
    for number in range(10):
        append(log, value=bytes(100), timestamp=number)
    disk.fail_writes_after(0)
    with pytest.raises(WriteRefused):
        append(log)
    assert delete_old_segments(log, NOW_MS, 10) == 1
    assert log.size_bytes == 0 and log.log_start_offset == log.log_end_offset == 10
    disk.room_bytes = None
    append(log)
    disk.crash(Random(1))
    again = LogDirs(["/data"], disk, lambda topic: LogConfig())
    again.open(1, "c", NOW_MS)
    assert again.dirs[0].failure is None


def test_a_partition_that_could_not_be_made_for_want_of_room_is_made_later() -> None:
    disk = MemoryDisk()
    dirs = LogDirs(["/data"], disk, lambda topic: LogConfig())
    dirs.open(1, "c", NOW_MS)
    old = dirs.create(("old", 0), NOW_MS, bytes(15) + b"1")
    for operation in ("mkdir", "open", "write"):
        for nth in range(1, 4):
            disk.fail(operation, errno.ENOSPC, after=nth)
            with pytest.raises(WriteRefused):
                dirs.create(("new", 0), NOW_MS, bytes(15) + b"2")
                raise WriteRefused("made before the error came")
            disk.fail(operation, None)
            dirs.logs.pop(("new", 0), None)
            assert dirs.dirs[0].failure is None
    append(old)
    new = dirs.create(("new", 0), NOW_MS, bytes(15) + b"2")
    append(new)
    assert values(new) == [(0, b"value")]


def test_leader_epochs_of_what_a_follower_could_not_write_are_not_known() -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data")
    for offset, epoch in enumerate([0, 0, 1, 1]):
        log.append_as_follower(fetched(offset, epoch, produced()), NOW_MS)
    sent = bytes(fetched(4, 1, produced())) + bytes(fetched(5, 2, produced()))
    disk.fail("write", errno.ENOSPC)
    with pytest.raises(WriteRefused):
        log.append_as_follower(memoryview(bytearray(sent)), NOW_MS)
    assert log.leader_epochs.entries() == [(0, 0), (1, 2)]
    log.append_as_follower(memoryview(bytearray(sent)), NOW_MS)
    assert log.leader_epochs.entries() == [(0, 0), (1, 2), (2, 5)]


def test_a_truncation_that_is_tried_again_forgets_the_producers_of_what_was_cut() -> None:
    for operation in ("open", "pread", "map", "rename", "remove"):
        for after in range(1, 12):
            disk = MemoryDisk()
            log = new_log(disk, "/data")
            for producer_id in range(6):
                log.append_as_leader(_numbered(producer_id), 0, NOW_MS)
            disk.fail(operation, errno.EMFILE, after=after)
            for _ in range(2):
                try:
                    log.truncate_to(3)
                except WriteRefused:
                    continue
            disk.fail(operation, None)
            assert sorted(producer.producer_id for producer in log.producers) == [0, 1, 2], (operation, after)
            assert not log.append_as_leader(_numbered(4), 0, NOW_MS).duplicate


def _numbered(producer_id: int) -> memoryview:
    batch = build_batch([(1000, None, b"value", None)], producer_id=producer_id, producer_epoch=0, base_sequence=0)
    return memoryview(batch)


@pytest.mark.parametrize("preallocate", [False, True])
@pytest.mark.parametrize("operation", ["open", "remove", "truncate", "rename", "write"])
def test_a_segment_that_could_not_be_begun_costs_nothing_that_is_written_without_it(
    operation: str, preallocate: bool
) -> None:
    for after in range(1, 12):
        disk = MemoryDisk()
        log = new_log(disk, "/data", LogConfig(segment_bytes=1000, preallocate=preallocate))
        while log.size_bytes < 700:
            append(log)
        disk.fail(operation, errno.ENOSPC, after=after)
        try:
            append(log, value=bytes(400))
        except WriteRefused:
            pass
        disk.fail(operation, None)
        # There is room for it in the segment before.
        append(log, value=b"small")
        log.flush()
        expected = values(log)
        disk.outlive()
        again = reopened(log)
        assert values(again) == expected and again.directory.notices == [], after


@pytest.mark.parametrize("operation", ["open", "pread", "map", "truncate"])
def test_a_truncation_that_is_tried_again_leaves_no_gap_and_no_index_entry(operation: str) -> None:
    for after in range(1, 20):
        disk = MemoryDisk()
        log = new_log(disk, "/data", LogConfig(index_interval_bytes=100))
        for number in range(20):
            log.append_as_leader(produced(3, 1000 + number, value=b"%d" % number), 0, NOW_MS)
        disk.fail(operation, errno.EMFILE, after=after)
        for _ in range(2):
            try:
                log.truncate_to(16)
                break
            except WriteRefused:
                continue
        disk.fail(operation, None)
        assert log.log_end_offset == 15 and log.directory.failure is None, after
        append(log, timestamp=5000, value=b"next")
        expected = [(offset, b"%d" % (offset // 3)) for offset in range(15)] + [(15, b"next")]
        assert values(log) == expected
        found = log.offset_for_timestamp(1010)
        assert found is not None and found.offset == 15
        disk.outlive()
        again = reopened(log)
        assert values(again) == expected and again.directory.notices == []
