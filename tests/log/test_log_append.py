"""Appending: what is checked, what is patched, what a failed write leaves behind."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from logkit import KEY, NOW_MS, append, fetched, new_log, produced, reopened, stamped, system_log, values

from tidelog.log.config import LOG_APPEND_TIME, LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.errors import RecordListTooLarge, StorageError, UnexpectedAppendOffset
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.producers import NOT_REQUIRED, AppendOrigin, ProducerRefused
from tidelog.wire.batch import InvalidBatch, crc_matches, iter_headers, read_header
from tidelog.wire.records import ABORT, EndTxnMarker, build_batch, build_end_txn_marker, read_records

pytestmark = pytest.mark.layouts


def test_offsets_follow_each_other_and_the_epoch_is_stamped(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    first = log.append_as_leader(produced(3), leader_epoch=7, now_ms=NOW_MS)
    second = log.append_as_leader(produced(2), leader_epoch=7, now_ms=NOW_MS)
    assert (first.first_offset, first.last_offset) == (0, 2)
    assert (second.first_offset, second.last_offset) == (3, 4)
    stored = log.read(0, 1 << 20, 5)
    assert stored is not None
    headers = [header for _, header in iter_headers(stored.read())]
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(0, 7), (3, 7)]
    assert log.leader_epochs.entries() == [(7, 0)]


def test_an_append_is_one_write() -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data", LogConfig(index_interval_bytes=0))
    before = disk.counts.get("write", 0)
    for _ in range(20):
        append(log, 3)
    assert disk.counts["write"] - before == 20


def test_a_batch_goes_to_the_file_as_it_came_but_for_its_place(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    sent = produced(4, codec=4)
    before = bytes(sent)
    log.append_as_leader(sent, 1, NOW_MS)
    stored = log.read(0, 1 << 20, 4)
    assert stored is not None and stored.read()[16:] == before[16:]


@pytest.mark.parametrize(("config", "code"), [({"max_message_bytes": 200}, 10), ({"cleanup_policy": ("compact",)}, 87)])
def test_what_the_topic_does_not_allow_is_refused_and_not_written(
    tmp_path: Path, config: dict[str, object], code: int
) -> None:
    log = system_log(tmp_path, replace(LogConfig(), **config))
    with pytest.raises(InvalidBatch) as refused:
        log.append_as_leader(produced(1, value=bytes(300)), 1, NOW_MS)
    assert refused.value.code == code
    assert log.log_end_offset == 0 and log.size_bytes == 0


def test_a_damaged_batch_is_refused(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    batch = produced(1)
    batch[-1] ^= 1
    with pytest.raises(InvalidBatch) as refused:
        log.append_as_leader(batch, 1, NOW_MS)
    assert refused.value.code == 2 and log.log_end_offset == 0


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = system_log(tmp_path, LogConfig(segment_bytes=200))
    with pytest.raises(RecordListTooLarge) as refused:
        append(log, 1, value=bytes(300))
    assert refused.value.code == 18


def test_zstd_is_refused_where_the_request_is_too_old(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    with pytest.raises(InvalidBatch) as refused:
        log.append_as_leader(produced(1, codec=4), 1, NOW_MS, zstd_allowed=False)
    assert refused.value.code == 76


def test_log_append_time_replaces_the_producers_and_the_crc_follows(tmp_path: Path) -> None:
    log = system_log(tmp_path, LogConfig(message_timestamp_type=LOG_APPEND_TIME))
    info = log.append_as_leader(stamped([5, 6, 7]), 1, NOW_MS)
    assert info.log_append_time_ms == NOW_MS
    stored = log.read(0, 1 << 20, 3)
    assert stored is not None
    batch = memoryview(stored.read())
    assert crc_matches(batch, 0, read_header(batch))
    assert {record.timestamp for record in read_records(batch)} == {NOW_MS}
    found = log.offset_for_timestamp(NOW_MS)
    assert found is not None and found.offset == 0


def test_a_topic_with_a_codec_of_its_own_stores_by_it(tmp_path: Path) -> None:
    log = system_log(tmp_path, LogConfig(compression_type="lz4"))
    log.append_as_leader(produced(5, value=bytes(500), codec=1), 1, NOW_MS)
    log.append_as_leader(produced(5, value=bytes(500), codec=3), 1, NOW_MS)
    stored = log.read(0, 1 << 20, 10)
    assert stored is not None
    assert [header.codec for _, header in iter_headers(stored.read())] == [3, 3]
    assert values(log) == [(offset, bytes(500)) for offset in range(10)]


def test_another_configuration_takes_effect_on_a_live_log(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    append(log, 1, value=bytes(300))
    log.config = replace(log.config, max_message_bytes=100)
    with pytest.raises(InvalidBatch):
        append(log, 1, value=bytes(300))


# --- a disk that fails


@pytest.mark.files
@pytest.mark.parametrize("room", [0, 1, 60, 150])
def test_a_full_disk_leaves_nothing_half_written_and_the_log_goes_on_when_there_is_room(room: int) -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data")
    append(log, 3, value=b"kept")
    size = log.size_bytes
    disk.fail_writes_after(room)
    with pytest.raises(StorageError) as failed:
        append(log, 3, value=b"lost" * 50)
    assert failed.value.code == 56
    assert log.log_end_offset == 3
    assert len(disk.content(log.segments.active.log_path)) == size
    assert values(log) == [(offset, b"kept") for offset in range(3)]
    disk.room_bytes = None
    append(log, 1, value=b"next")
    kept = [*((offset, b"kept") for offset in range(3)), (3, b"next")]
    assert values(log) == kept and values(reopened(log)) == kept


@pytest.mark.files
def test_index_entries_wait_in_memory_while_the_disk_is_full() -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data", LogConfig(index_interval_bytes=0))
    for _ in range(100):
        # Only an index opens its file for an append.
        disk.fail("open", errno.ENOSPC)
        append(log, 1)
    disk.fail("open", None)
    assert [offset for offset, _ in values(log)] == list(range(100))
    append(log, 1)
    log.close()
    assert len(disk.content(log.segments.active.index_paths[0])) == 100 * 8
    assert len(values(reopened(log, clean=True))) == 101


@pytest.mark.files
@pytest.mark.parametrize("room", [0, 300, 700])
def test_a_roll_that_finds_no_room_is_made_up_for_later(room: int) -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data", LogConfig(segment_bytes=500, index_interval_bytes=0))
    written = []
    for number in range(40):
        disk.room_bytes = room if number % 7 == 3 else None
        try:
            append(log, 1, value=b"%02d" % number * 60)
        except StorageError:
            assert log.directory.failure is None
        else:
            written.append(b"%02d" % number * 60)
    assert len(written) > 30
    assert values(log) == list(enumerate(written))
    assert values(reopened(log)) == list(enumerate(written))


@pytest.mark.parametrize("operation", ["open", "write", "sync"])
def test_an_io_error_in_a_roll_or_flush_takes_the_log_offline(operation: str) -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data")
    append(log, 1)
    disk.fail(operation, errno.EIO)
    with pytest.raises(StorageError):
        append(log, 1)
        log.flush()
        log.roll(NOW_MS)
    assert log.directory.failure is not None and log.directory.failure.errno == errno.EIO


# --- followers


def test_a_follower_takes_offsets_and_epochs_as_they_come(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    sent = bytearray()
    sent += fetched(0, 3, produced(2, value=b"a"))
    sent += fetched(2, 3, produced(1, value=b"b"))
    sent += fetched(3, 5, produced(2, value=b"c"))
    info = log.append_as_follower(memoryview(sent), NOW_MS)
    assert (info.first_offset, info.last_offset) == (0, 4)
    assert values(log) == [(0, b"a"), (1, b"a"), (2, b"b"), (3, b"c"), (4, b"c")]
    assert log.leader_epochs.entries() == [(3, 0), (5, 3)]


def test_a_follower_leaves_out_a_torn_batch(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    sent = bytearray(fetched(0, 0, produced(2))) + bytearray(fetched(2, 0, produced(2)))[:-1]
    info = log.append_as_follower(memoryview(sent), NOW_MS)
    assert info.last_offset == 1 and log.log_end_offset == 2


def test_a_follower_refuses_what_does_not_continue_its_log(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    log.append_as_follower(fetched(0, 0, produced(3)), NOW_MS)
    with pytest.raises(UnexpectedAppendOffset) as refused:
        log.append_as_follower(fetched(2, 0, produced(2)), NOW_MS)
    assert (refused.value.first_offset, refused.value.last_offset) == (2, 3)
    assert log.log_end_offset == 3


def test_a_follower_leaves_out_batches_of_a_later_leader(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    sent = bytearray(fetched(0, 4, produced(2))) + bytearray(fetched(2, 5, produced(2)))
    log.append_as_follower(memoryview(sent), NOW_MS, leader_epoch=4)
    assert log.log_end_offset == 2 and log.leader_epochs.entries() == [(4, 0)]


def test_a_fetched_set_larger_than_a_segment_fills_several(tmp_path: Path) -> None:
    log = system_log(tmp_path, LogConfig(segment_bytes=500))
    sent = bytearray()
    for offset in range(10):
        sent += fetched(offset, 0, produced(1, value=bytes(100)))
    log.append_as_follower(memoryview(sent), NOW_MS)
    assert len(values(log)) == 10
    assert len(log.segments) > 2 and all(segment.size <= 500 for segment in log.segments)


@pytest.mark.files
def test_a_gap_too_wide_for_a_relative_offset_begins_a_segment(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    far = (1 << 31) + 5
    sent = bytearray(fetched(0, 0, produced(1, value=b"near"))) + bytearray(fetched(far, 0, produced(1, value=b"far")))
    log.append_as_follower(memoryview(sent), NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, far]
    assert values(log) == [(0, b"near"), (far, b"far")]


# --- producers


def idempotent(sequence: int, count: int = 2, producer_id: int = 9, epoch: int = 0) -> memoryview:
    batch = build_batch(
        [(1000, None, b"v", None)] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    return memoryview(batch)


@pytest.mark.parametrize("restart", ["none", "clean", "crash"])
def test_a_retry_is_answered_with_the_first_offsets_and_not_written(tmp_path: Path, restart: str) -> None:
    log = system_log(tmp_path)
    append(log, 5)
    log.append_as_leader(idempotent(0), 0, NOW_MS)
    log.append_as_leader(idempotent(2), 0, NOW_MS)
    if restart == "clean":
        log.close()
    if restart != "none":
        log = reopened(log, clean=restart == "clean")
    size = log.size_bytes
    again = log.append_as_leader(idempotent(2), 0, NOW_MS)
    assert again.duplicate and (again.first_offset, again.last_offset) == (7, 8)
    assert log.size_bytes == size and log.log_end_offset == 9
    with pytest.raises(ProducerRefused) as refused:
        log.append_as_leader(idempotent(7), 0, NOW_MS)
    assert refused.value.code == 45


def test_a_refused_batch_and_a_failed_write_leave_no_trace_of_the_producer() -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data")
    disk.fail_writes_after(10)
    with pytest.raises(StorageError):
        log.append_as_leader(idempotent(0), 0, NOW_MS)
    assert log.producers.get(9) is None


def test_truncation_forgets_the_sequences_that_it_cut(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    log.append_as_leader(idempotent(0), 0, NOW_MS)
    log.roll(NOW_MS)
    log.append_as_leader(idempotent(2), 0, NOW_MS)
    log.append_as_leader(idempotent(4), 0, NOW_MS)
    log.truncate_to(4, NOW_MS)
    info = log.append_as_leader(idempotent(4), 0, NOW_MS)
    assert not info.duplicate and info.first_offset == 4


@pytest.mark.parametrize("offset", [6, 8])
def test_truncation_keeps_what_is_known_of_the_batches_that_stay(tmp_path: Path, offset: int) -> None:
    log = system_log(tmp_path)
    for sequence in (0, 2, 4):
        log.append_as_leader(idempotent(sequence), 0, NOW_MS)
    log.roll(NOW_MS)
    for sequence in (6, 8):
        log.append_as_leader(idempotent(sequence), 0, NOW_MS)
    log.truncate_to(offset, NOW_MS)
    for sequence in range(0, offset, 2):
        info = log.append_as_leader(idempotent(sequence), 0, NOW_MS)
        assert info.duplicate and info.first_offset == sequence
    assert not log.append_as_leader(idempotent(offset), 0, NOW_MS).duplicate


def transact(log: object, producer_id: int, sequence: int, end: int | None) -> None:
    assert hasattr(log, "append_as_leader")
    batch = build_batch(
        [(1000, None, b"t", None)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    log.append_as_leader(memoryview(batch), 0, NOW_MS, guard=NOT_REQUIRED)
    if end is not None:
        marker = build_end_txn_marker(EndTxnMarker(end, 0), producer_id, 0, 1000)
        log.append_as_leader(memoryview(marker), 0, NOW_MS, origin=AppendOrigin.COORDINATOR)


@pytest.mark.parametrize("restart", ["none", "clean", "crash", "torn index"])
def test_aborted_transactions_are_found_wherever_their_markers_lie(tmp_path: Path, restart: str) -> None:
    log = system_log(tmp_path)
    transact(log, 1, 0, None)  # offset 0, ended below
    log.roll(NOW_MS)
    transact(log, 2, 0, ABORT)  # offsets 1 and 2
    marker = build_end_txn_marker(EndTxnMarker(ABORT, 0), 1, 0, 1000)
    log.append_as_leader(memoryview(marker), 0, NOW_MS, origin=AppendOrigin.COORDINATOR)  # offset 3
    log.roll(NOW_MS)
    transact(log, 3, 0, None)  # offset 4, open
    if restart == "torn index":
        (Path(log.path) / f"{1:020d}.txnindex").write_bytes(b"\0\7" + bytes(32))
    if restart in ("clean", "torn index"):
        log.close()
    if restart != "none":
        log = reopened(log, clean=restart != "crash")
    assert log.producers.first_undecided_offset() == 4
    log.producers.on_high_watermark(5)
    assert log.first_unstable_offset == 4
    found = log.aborted_transactions(0, 5)
    assert [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in found] == [(2, 1, 2), (1, 0, 3)]
    assert log.aborted_transactions(4, 5) == []


def test_snapshots_leave_with_the_segments_that_they_speak_of(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    for sequence in range(0, 10, 2):
        log.append_as_leader(idempotent(sequence), 0, NOW_MS)
        log.roll(NOW_MS)
    assert log.snapshots.offsets == [2, 4, 6, 8, 10]
    log.remove_oldest(2, NOW_MS)
    # Not before the flush has made sure of those that stay.
    assert log.snapshots.offsets == [2, 4, 6, 8, 10]
    log.flush()
    # In the shared layout that is what a checkpoint does.
    stays = [] if log.store is None else [2]
    assert log.snapshots.offsets == [*stays, 4, 6, 8, 10]
    log.truncate_to(7, NOW_MS)
    assert log.snapshots.offsets == [*stays, 4, 6]
    on_disk = sorted(int(path.stem) for path in Path(log.path).glob("*.snapshot"))
    assert on_disk == [*stays, 4, 6]


def test_topic_ids_do_not_change() -> None:
    disk = MemoryDisk()
    dirs = LogDirs(["/data"], disk, lambda topic: LogConfig())
    dirs.open(1, "c", NOW_MS)
    dirs.create(KEY, NOW_MS, b"a" * 16)
    assert dirs.create(KEY, NOW_MS, b"a" * 16) is dirs.logs[KEY]
    with pytest.raises(Exception, match="another topic ID") as refused:
        dirs.create(KEY, NOW_MS, b"b" * 16)
    assert getattr(refused.value, "code", None) == 103
