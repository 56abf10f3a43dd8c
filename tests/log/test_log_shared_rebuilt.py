"""The shared layout: nothing that was cut, or passed over by a start, comes back, and what goes with batches stays."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from logkit import NOW_MS, append, fetched, produced, values
from shared_kit import (
    COMMIT,
    CONFIG,
    checkpointed,
    commit_files,
    commit_of,
    created,
    deleted,
    killed,
    opened,
    reclaimed,
)

from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.errors import StorageError
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.producers import NOT_REQUIRED, AppendOrigin
from tidelog.log.retention import delete_old_segments
from tidelog.log.shared.commit_entry import EntryKind
from tidelog.log.shared.queue import ENTRY_SIZE
from tidelog.log.shared.queue_segment import QueueSegment
from tidelog.wire.records import ABORT, EndTxnMarker, build_batch, build_end_txn_marker


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def send(log: Log, producer_id: int = 1, transactional: bool = False) -> None:
    """One record of a producer, the next in its sequence."""
    known = log.producers.get(producer_id)
    batch = build_batch(
        [(1000, None, b"sent", None)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0 if known is None else known.last_sequence + 1,
        transactional=transactional,
    )
    log.append_as_leader(memoryview(batch), 0, NOW_MS, guard=NOT_REQUIRED)


def abort(log: Log, producer_id: int = 1) -> None:
    marker = memoryview(build_end_txn_marker(EndTxnMarker(ABORT, 0), producer_id, 0, 1))
    log.append_as_leader(marker, 0, NOW_MS, origin=AppendOrigin.COORDINATOR, guard=NOT_REQUIRED)


def sequences(log: Log) -> dict[int, int]:
    return {producer.producer_id: producer.last_sequence for producer in log.producers}


def without_queues(disk: MemoryDisk, dirs: LogDirs, log: Log, commit_bytes: int = 1 << 20) -> LogDirs:
    """A clean stop, and a start that has to make the queues of a log anew."""
    paths = [segment.log_path for segment in log.segments]
    dirs.close()
    for path in paths:
        disk.remove(path)
    return opened(disk, commit_bytes)


def test_what_was_truncated_does_not_come_back_with_a_queue_that_is_made_anew(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    for at in range(5):
        append(log, value=b"%d" % at)
    log.truncate_to(3, NOW_MS)
    assert values(without_queues(disk, dirs, log).logs[log.key]) == [(at, b"%d" % at) for at in range(3)]


def test_what_a_start_has_passed_over_does_not_come_back_with_a_queue_that_is_made_anew(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    for at in range(5):
        append(log, value=b"%d" % at)
    segment = log.segments.active
    assert isinstance(segment, QueueSegment)
    disk.content(COMMIT)[segment.queue.entry(2).place + 65] ^= 1
    dirs = killed(disk)
    log = dirs.logs[log.key]
    left = values(log)
    assert len(left) == 2 and "has lost offsets 2 to 4" in "".join(dirs.take_notices())
    dirs = without_queues(disk, dirs, log)
    assert values(dirs.logs[log.key]) == left and dirs.take_notices() == []


def test_what_a_start_has_passed_over_is_told_once(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    for _ in range(5):
        append(log)
    segment = log.segments.active
    assert isinstance(segment, QueueSegment)
    disk.content(COMMIT)[segment.queue.entry(2).place + 65] ^= 1
    assert "has lost offsets" in "".join(killed(disk).take_notices())
    assert "has lost offsets" not in "".join(killed(disk).take_notices())


def test_what_was_truncated_does_not_come_back_although_the_power_took_the_cut(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    for at in range(5):
        append(log, value=b"%d" % at)
    checkpointed(dirs)
    end = commit_of(dirs).end
    log.truncate_to(3, NOW_MS)
    del disk.content(COMMIT)[end:]
    dirs = killed(disk)
    log = dirs.logs[log.key]
    left = values(log)
    assert len(left) == 3
    assert values(without_queues(disk, dirs, log).logs[log.key]) == left


def test_on_a_full_disk_a_start_waits_with_its_checkpoint_until_it_can_tell_where_logs_end(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    for at in range(5):
        append(log, value=b"%d" % at)
    checkpointed(dirs)
    end = commit_of(dirs).end
    log.truncate_to(3, NOW_MS)
    del disk.content(COMMIT)[end:]
    disk.fail_writes_after(0)
    dirs = killed(disk)
    log = dirs.logs[log.key]
    assert len(values(log)) == 3
    disk.room_bytes = None
    assert len(values(without_queues(disk, dirs, log).logs[log.key])) == 3


@pytest.mark.parametrize("crashes", [1, 2])
def test_producers_are_known_after_a_cut_that_took_their_snapshot_and_a_crash(disk: MemoryDisk, crashes: int) -> None:
    dirs = opened(disk)
    log = created(dirs)
    for _ in range(5):
        send(log)
    checkpointed(dirs)
    log.truncate_to(3, NOW_MS)
    for _ in range(crashes):
        log = killed(disk).logs[log.key]
    assert sequences(log) == {1: 2}


def test_producers_are_known_although_two_starts_in_a_row_were_told_of_the_cut(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    for _ in range(5):
        send(log)
    checkpointed(dirs)
    log.store.tell_cut(3)  # type: ignore[union-attr]
    # The queue is not cut yet.
    for _ in range(2):
        log = killed(disk).logs[log.key]
    assert (log.log_end_offset, sequences(log)) == (3, {1: 2})


def test_a_log_that_was_begun_anew_inside_of_a_batch_is_opened(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    checkpointed(dirs)
    log.append_as_leader(produced(4), 0, NOW_MS)
    log.advance_log_start_offset(2)
    log.truncate_to(2, NOW_MS)
    assert log.log_end_offset == 2
    append(log, value=b"new")
    assert values(killed(disk).logs[log.key]) == [(2, b"new")]


def test_a_segment_that_was_begun_after_a_cut_does_not_hide_what_a_start_goes_back_to(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    append(log)
    checkpointed(dirs)
    log.append_as_follower(fetched(1, 0, produced(4, value=b"old")), NOW_MS)
    end = commit_of(dirs).end
    log.truncate_to(1, NOW_MS)
    append(log)
    append(log)
    log.roll(NOW_MS)
    assert log.segments.active.base_offset == 3
    # The power took all that was written since, and none of the names.
    del disk.content(COMMIT)[end:]
    log = killed(disk).logs[log.key]
    assert values(log)[1:] == [(at, b"old") for at in range(1, 5)]
    assert [values(log, at)[0] for at in range(1, 5)] == [(at, b"old") for at in range(1, 5)]


def test_producers_of_a_segment_that_goes_after_a_crash_outlast_a_cut(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    checkpointed(dirs)
    send(log, 2)
    log.roll(NOW_MS)
    log = killed(disk).logs[log.key]
    send(log, 1)
    send(log, 3)
    log.remove_oldest(1, NOW_MS)
    log.truncate_to(2, NOW_MS)
    assert sequences(log) == {1: 0, 2: 0}


def test_epochs_are_known_from_where_the_log_begins_although_a_crash_took_its_start_back(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    for epoch in range(3):
        append(log, leader_epoch=epoch)
    checkpointed(dirs)
    log.advance_log_start_offset(2)
    log.flush()
    log = killed(disk).logs[log.key]
    assert log.log_start_offset == 0 and log.leader_epochs.entries() == [(0, 0), (1, 1), (2, 2)]


def test_transactions_in_a_queue_that_was_made_anew_outlast_a_loss_of_power() -> None:
    for seed in range(20):
        disk = MemoryDisk()
        dirs = opened(disk)
        log = created(dirs)
        for _ in range(3):
            send(log, transactional=True)
            abort(log)
        log.flush()
        dirs = without_queues(disk, dirs, log)
        assert len(dirs.logs[log.key].aborted_transactions(0, 6)) == 3
        disk.crash(Random(seed))
        log = opened(disk).logs[log.key]
        assert (log.log_end_offset, len(log.aborted_transactions(0, 6)), sequences(log)) == (6, 3, {1: 2})


def test_a_start_that_lost_power_while_it_made_a_queue_anew_is_followed_by_one_that_does_it_again() -> None:
    for operations in range(1, 60):
        disk = MemoryDisk()
        dirs = opened(disk)
        log = created(dirs)
        for _ in range(3):
            send(log, transactional=True)
            abort(log)
        log.flush()
        paths = [segment.log_path for segment in log.segments]
        dirs.close()
        for path in paths:
            disk.remove(path)
        disk.sync_dir(log.path)
        disk.fail("open", after=operations)
        with suppress(StorageError):
            killed(disk)
        disk.fail("open", None)
        disk.crash(Random(operations))
        log = opened(disk).logs[log.key]
        assert (log.log_end_offset, len(log.aborted_transactions(0, 6)), sequences(log)) == (6, 3, {1: 2})


def test_producers_of_a_copy_are_in_a_checkpoint(disk: MemoryDisk) -> None:
    dirs = LogDirs(["/data", "/other"], disk, lambda topic: LogConfig(), commit_bytes=1 << 20)
    dirs.open(1, "c", NOW_MS)
    log = dirs.create(("t", 0), NOW_MS, bytes(15) + b"t", path="/data")  # type: ignore[arg-type]
    send(log)
    move = dirs.begin_move(log.key, "/other", NOW_MS)
    assert move is not None and move.step(NOW_MS)
    checkpointed(dirs)
    dirs.finish_move(log.key)
    disk.outlive()
    dirs = LogDirs(["/data", "/other"], disk, lambda topic: LogConfig(), commit_bytes=1 << 20)
    dirs.open(1, "c", NOW_MS)
    assert dirs.logs[log.key].path == "/other/t-0" and sequences(dirs.logs[log.key]) == {1: 0}


def test_a_partition_that_could_not_be_opened_is_told_later_what_it_has_past_the_checkpoint(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log, other = created(dirs, 0), created(dirs, 1)
    append(log, value=b"first")
    checkpointed(dirs)
    append(log, value=b"second")
    append(other)
    disk.outlive()
    path = f"{log.path}/partition.metadata"
    content = bytes(disk.content(path))
    disk.remove(path)
    disk.mkdir(path)
    dirs = opened(disk)
    assert log.key in dirs.dirs[0].unopened
    append(dirs.logs[other.key])
    checkpointed(dirs)
    dirs.close()
    disk.remove_dir(path)
    disk.open(path, create=True).write(content, 0)
    dirs = opened(disk)
    assert [value for _, value in values(dirs.logs[log.key])] == [b"first", b"second"]
    assert dirs.logs[other.key].log_end_offset == 2


def test_on_a_full_disk_a_file_that_tells_of_a_cut_stays(disk: MemoryDisk) -> None:
    dirs = opened(disk, 2000)
    long, cut, short = (created(dirs, partition) for partition in range(3))
    append(long, value=bytes(1000))
    append(cut)
    for _ in range(10):
        append(short, value=bytes(300))
    cut.truncate_to(0, NOW_MS)
    for _ in range(20):
        append(short, value=bytes(300))
    append(long, value=b"last")
    checkpointed(dirs)
    short.config = replace(CONFIG, retention_bytes=0)
    delete_old_segments(short, NOW_MS, short.log_end_offset)
    deleted(dirs)
    count = len(commit_files(disk))
    disk.fail_writes_after(100)
    reclaimed(dirs)
    deleted(dirs)
    assert len(commit_files(disk)) < count
    disk.room_bytes = None
    assert values(without_queues(disk, dirs, cut, 2000).logs[cut.key]) == []


def test_copies_of_a_log_that_was_set_aside_are_none_of_the_log_that_followed_it(disk: MemoryDisk) -> None:
    dirs = opened(disk, 2000)
    stray, short = created(dirs, 0), created(dirs, 1)
    for _ in range(4):
        append(stray, value=b"of the stray")
        append(short, value=bytes(400))
    dirs.mark_stray(stray.key)
    log = created(dirs, 0)
    append(log, value=b"new")
    for _ in range(40):
        append(short, value=bytes(300))
    checkpointed(dirs)
    short.config = replace(CONFIG, retention_bytes=0)
    delete_old_segments(short, NOW_MS, short.log_end_offset)
    for _ in range(4):
        deleted(dirs)
        reclaimed(dirs)
        checkpointed(dirs)
    kinds = [entry.kind for entry, _ in commit_of(dirs).entries_of_first()]
    assert EntryKind.START not in kinds
    for entry in disk.list(stray.path):
        disk.remove(f"{stray.path}/{entry.name}")
    disk.remove_dir(stray.path)
    assert values(without_queues(disk, dirs, log, 2000).logs[log.key]) == [(0, b"new")]


def offsets(log: Log) -> list[tuple[int, int]]:
    """Of the batches, as the queues have them."""
    segments = [segment for segment in log.segments if isinstance(segment, QueueSegment)]
    return [(queued.base_offset, queued.last_offset) for segment in segments for queued in segment.entries(0)]


def test_a_queue_that_is_made_anew_has_no_hole_below_the_start_of_the_log(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    for _ in range(5):
        append(log)
    log.advance_log_start_offset(3)
    queue = log.segments.active.log_path
    dirs.close()
    del disk.content(queue)[ENTRY_SIZE:]
    log = opened(disk).logs[log.key]
    assert log.log_start_offset == 3 and offsets(log) == [(at, at) for at in range(5)]


def test_what_was_written_after_a_lost_cut_does_not_come_back_in_the_place_of_what_the_log_went_back_to(
    disk: MemoryDisk,
) -> None:
    dirs = opened(disk)
    log = created(dirs)
    for at in range(5):
        append(log, value=b"%d" % at)
    checkpointed(dirs)
    queue, cut_at = log.segments.active.log_path, commit_of(dirs).end
    before = bytes(disk.content(queue))
    log.truncate_to(2, NOW_MS)
    append(log, value=b"x")
    # The power has taken the cut of the queue, and of the commit log what tells of it.
    disk.outlive()
    disk.content(queue)[:] = before
    disk.content(COMMIT)[cut_at] ^= 1
    dirs = killed(disk)
    log = dirs.logs[log.key]
    assert [value for _, value in values(log)] == [b"0", b"1", b"2", b"3", b"4"]
    log = without_queues(disk, dirs, log).logs[log.key]
    assert [value for _, value in values(log)] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_queue_that_ends_before_what_a_start_has_told_is_made_anew(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    for _ in range(5):
        append(log)
    checkpointed(dirs)
    log = killed(disk).logs[log.key]
    queue = log.segments.active.log_path
    disk.outlive()
    del disk.content(queue)[2 * ENTRY_SIZE :]
    assert opened(disk).logs[log.key].log_end_offset == 5


def test_a_cut_is_told_where_the_log_then_ends(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    append(log)
    append(log, count=5)
    log.truncate_to(3, NOW_MS)
    (told,) = [entry for entry, _ in commit_of(dirs).entries_of_first() if entry.kind is EntryKind.CUT]
    assert told.base_offset == log.log_end_offset == 1


def test_a_missing_first_queue_is_made_anew_although_nothing_but_the_commit_log_was_checkpointed(
    disk: MemoryDisk,
) -> None:
    dirs = opened(disk)
    log = created(dirs)
    append(log)
    log.roll(NOW_MS)
    append(log)
    checkpointed(dirs)
    first = log.segments[0].log_path
    disk.outlive()
    disk.remove(first)
    assert offsets(opened(disk).logs[log.key]) == [(0, 0), (1, 1)]


def test_a_missing_last_queue_is_missed_by_the_snapshot_of_producers(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    send(log)
    log.roll(NOW_MS)
    send(log)
    checkpointed(dirs)
    last = log.segments.active.log_path
    disk.outlive()
    disk.remove(last)
    log = opened(disk).logs[log.key]
    assert offsets(log) == [(0, 0), (1, 1)] and sequences(log) == {1: 1}


def test_files_of_the_commit_log_stay_until_the_cut_that_made_them_useless_is_on_the_device() -> None:
    for seed in range(40):
        disk = MemoryDisk()
        dirs = opened(disk, 1000)
        log = created(dirs)
        for _ in range(8):
            append(log, value=bytes(200))
        checkpointed(dirs)
        append(log)
        log.flush()
        log.truncate_to(0, NOW_MS)
        deleted(dirs)
        disk.crash(Random(seed))
        log = opened(disk, 1000).logs[log.key]
        assert offsets(log) in ([], [(at, at) for at in range(9)])
        assert log.log_end_offset == len(offsets(log))


def test_an_empty_log_that_begins_inside_of_a_batch_stays_empty_when_its_queue_is_made_anew(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    checkpointed(dirs)
    append(log, count=4)
    end = commit_of(dirs).end
    log.advance_log_start_offset(2)
    log.truncate_to(2, NOW_MS)
    # The power takes what tells that it begins anew, and leaves the names.
    del disk.content(COMMIT)[end:]
    dirs = killed(disk)
    log = dirs.logs[log.key]
    assert (log.log_start_offset, log.log_end_offset, values(log)) == (2, 2, [])
    log = without_queues(disk, dirs, log).logs[log.key]
    assert (log.log_start_offset, log.log_end_offset, values(log)) == (2, 2, [])


def test_after_a_crash_a_producer_may_repeat_more_than_its_last_batch(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    for _ in range(3):
        send(log)
    log.roll(NOW_MS)
    for _ in range(3):
        send(log)
        append(log)
    checkpointed(dirs)
    log = killed(disk).logs[log.key]
    for sequence, offset in ((1, 1), (2, 2), (3, 3), (4, 5), (5, 7)):
        batch = build_batch([(1000, None, b"sent", None)], producer_id=1, producer_epoch=0, base_sequence=sequence)
        repeated = log.append_as_leader(memoryview(batch), 0, NOW_MS, guard=NOT_REQUIRED)
        assert repeated.duplicate and repeated.first_offset == offset
