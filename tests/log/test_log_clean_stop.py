"""Damage that was done between a clean stop and the next start: found without a scan, told, and one log's alone."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from compaction_kit import FragileDisk, PowerLoss
from logkit import NOW_MS, append, values

from tidelog.log.config import LogConfig
from tidelog.log.directories.clean_stop import CLEAN_STOP
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.disk import Disk, SystemDisk
from tidelog.log.errors import StorageError
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.producers import NOT_REQUIRED, AppendOrigin
from tidelog.wire.batch import iter_headers
from tidelog.wire.records import ABORT, EndTxnMarker, build_batch, build_end_txn_marker

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100)
DAMAGED, OTHER = ("damaged", 0), ("other", 0)
PATH = "/data/damaged-0"


def opened(disk: Disk, path: str = "/data") -> LogDirs:
    dirs = LogDirs([path], disk, lambda topic: CONFIG)
    dirs.open(1, "c", NOW_MS)
    return dirs


def stopped(disk: Disk, path: str = "/data") -> None:
    """Two logs of forty batches each, some of aborted transactions, stopped cleanly."""
    dirs = opened(disk, path)
    for key in (DAMAGED, OTHER):
        log = dirs.create(key, NOW_MS)
        for number in range(40):
            if number % 4 == 3:
                abort_one(log, number // 4)
            else:
                append(log, 1, value=b"%03d" % number * 10, timestamp=1000 + number)
    dirs.close(broker_epoch=5)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    stopped(disk)
    return disk


def abort_one(log: Log, sequence: int) -> None:
    batch = [(1000, None, b"aborted", None)]
    sent = build_batch(batch, producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True)
    log.append_as_leader(memoryview(sent), 0, NOW_MS, guard=NOT_REQUIRED)
    marker = build_end_txn_marker(EndTxnMarker(ABORT, 0), 9, 0, 1000)
    log.append_as_leader(memoryview(marker), 0, NOW_MS, origin=AppendOrigin.COORDINATOR)


def bases(disk: MemoryDisk) -> list[int]:
    return sorted(int(entry.name[:20]) for entry in disk.list(PATH) if entry.name.endswith(".log"))


def file(base: int, suffix: str = ".log") -> str:
    return f"{PATH}/{base:020d}{suffix}"


def offsets(log: Log) -> list[int]:
    """Of all batches, markers included."""
    found: list[int] = []
    at = log.log_start_offset
    while (piece := log.read(at, 1 << 20, log.log_end_offset)) is not None:
        for _, header in iter_headers(piece.read()):
            found += range(header.base_offset, header.next_offset)
        at = piece.next_offset
    return found


def test_what_was_not_touched_is_not_read_and_nothing_is_told(disk: MemoryDisk) -> None:
    disk.counts.clear()
    dirs = opened(disk)
    assert disk.counts["pread"] < 40 and dirs.take_notices() == []
    assert offsets(dirs.logs[DAMAGED]) == list(range(50))
    assert not disk.exists(f"/data/{CLEAN_STOP}")


def test_a_tail_torn_anywhere_is_cut_and_told_and_appended_to(disk: MemoryDisk) -> None:
    last = bases(disk)[-1]
    size = len(disk.content(file(last)))
    for cut in range(1, size + 1, 9):
        disk = MemoryDisk()
        stopped(disk)
        del disk.content(file(last))[size - cut :]
        dirs = opened(disk)
        log = dirs.logs[DAMAGED]
        end = log.log_end_offset
        assert last <= end < 50 and offsets(log) == list(range(end))
        (notice,) = dirs.take_notices()
        lost = f"offset {end}:" if end == 49 else f"offsets {end} to 49:"
        assert "partition 0 of topic damaged" in notice and lost in notice and file(last) in notice
        append(log, 1, value=b"next")
        assert values(log)[-1] == (end, b"next")


def test_junk_behind_the_last_batch_is_cut_and_costs_nothing(disk: MemoryDisk) -> None:
    disk.content(file(bases(disk)[-1])).extend(b"\xff" * 100)
    dirs = opened(disk)
    assert offsets(dirs.logs[DAMAGED]) == list(range(50)) == offsets(dirs.logs[OTHER])
    (notice,) = dirs.take_notices()
    assert "has lost no offset" in notice and "100 bytes are truncated" in notice
    append(dirs.logs[DAMAGED], 1)
    assert offsets(dirs.logs[DAMAGED]) == list(range(51))


@pytest.mark.parametrize("which", ["first", "middle", "last"])
@pytest.mark.parametrize("fate", ["missing", "empty", "log file missing", "cut in half"])
def test_a_damaged_segment_costs_its_own_offsets_and_they_are_told(disk: MemoryDisk, which: str, fate: str) -> None:
    found = bases(disk)
    at = {"first": 0, "middle": 2, "last": len(found) - 1}[which]
    base = found[at]
    end = found[at + 1] if at + 1 < len(found) else 50
    if fate == "missing":
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            disk.remove(file(base, suffix))
    elif fate == "log file missing":
        disk.remove(file(base))
    elif fate == "empty":
        disk.content(file(base)).clear()
    else:
        content = disk.content(file(base))
        del content[len(content) // 2 :]
    dirs = opened(disk)
    log = dirs.logs[DAMAGED]
    left = offsets(log)
    lost = [offset for offset in range(50) if offset not in left]
    assert lost == list(range(lost[0], end)) and lost[0] >= base
    assert (lost[0] > base) == (fate == "cut in half")
    told = dirs.take_notices()
    assert [notice for notice in told if f"offsets {lost[0]} to {end - 1}:" in notice and file(base) in notice], told
    log.producers.on_high_watermark(log.log_end_offset)
    # No transaction hangs for a marker that was lost.
    assert log.first_unstable_offset is None
    append(log, 1, value=b"next")
    assert values(log)[-1][1] == b"next"
    assert offsets(dirs.logs[OTHER]) == list(range(50))


@pytest.mark.parametrize("fate", ["missing", "empty", "cut"])
def test_aborted_records_stay_aborted_without_their_transaction_index(disk: MemoryDisk, fate: str) -> None:
    def aborted(dirs: LogDirs, key: tuple[str, int]) -> list[tuple[int, int]]:
        return [(txn.first_offset, txn.last_offset) for txn in dirs.logs[key].aborted_transactions(0, 50)]

    for base in bases(disk):
        path = file(base, ".txnindex")
        if not disk.exists(path):
            continue
        if fate == "missing":
            disk.remove(path)
        elif fate == "empty":
            disk.content(path).clear()
        else:
            del disk.content(path)[-34:]
    dirs = opened(disk)
    assert len(aborted(dirs, OTHER)) == 10
    assert aborted(dirs, DAMAGED) == aborted(dirs, OTHER)
    assert dirs.take_notices() == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_was_cut_at_an_entry_is_written_anew(disk: MemoryDisk, suffix: str) -> None:
    size = 8 if suffix == ".index" else 12
    before = {base: bytes(disk.content(file(base, suffix))) for base in bases(disk)}
    for base in before:
        del disk.content(file(base, suffix))[-size:]
    dirs = opened(disk)
    log = dirs.logs[DAMAGED]
    found = log.max_timestamp_offset()
    assert found is not None and found.timestamp == dirs.logs[OTHER].max_timestamp_offset().timestamp  # type: ignore[union-attr]
    dirs.close()
    assert {base: bytes(disk.content(file(base, suffix))) for base in before} == before


def test_all_segments_missing_is_told_and_the_offsets_are_not_given_away_again(disk: MemoryDisk) -> None:
    for entry in disk.list(PATH):
        disk.remove(f"{PATH}/{entry.name}")
    dirs = opened(disk)
    assert dirs.logs[DAMAGED].log_end_offset == 50
    assert any("offsets" in notice and PATH in notice for notice in dirs.take_notices())


def test_the_sizes_of_an_older_stop_are_passed_over(disk: MemoryDisk) -> None:
    """As after another broker has used the directory and stopped it cleanly."""
    sizes = bytes(disk.content(f"/data/{CLEAN_STOP}"))
    dirs = opened(disk)
    log = dirs.logs[DAMAGED]
    append(log, 1)
    log.advance_log_start_offset(20)
    assert dirs.delete_old_segments(NOW_MS, lambda each: each.log_end_offset) > 0
    dirs.close()
    disk.content(f"/data/{CLEAN_STOP}")[:] = sizes
    again = opened(disk)
    assert again.take_notices() == [] and again.logs[DAMAGED].log_end_offset == 51


def test_a_transaction_whose_end_is_lost_with_its_segment_is_known_to_have_ended() -> None:
    disk = MemoryDisk()
    dirs = opened(disk)
    log = dirs.create(DAMAGED, NOW_MS)
    sent = build_batch([(1000, None, b"x", None)], producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_as_leader(memoryview(sent), 0, NOW_MS, guard=NOT_REQUIRED)
    log.roll(NOW_MS)
    marker = build_end_txn_marker(EndTxnMarker(ABORT, 0), 9, 0, 1000)
    log.append_as_leader(memoryview(marker), 0, NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.roll(NOW_MS)
    append(log, 1)
    dirs.close()
    disk.open(file(1)).truncate(0)
    again = opened(disk)
    assert again.logs[DAMAGED].first_unstable_offset is None
    (notice,) = again.take_notices()
    assert "has lost offset 1:" in notice


def test_a_torn_tail_is_found_without_sizes_too(disk: MemoryDisk) -> None:
    disk.remove(f"/data/{CLEAN_STOP}")
    del disk.content(file(bases(disk)[-1]))[-5:]
    dirs = opened(disk)
    assert dirs.logs[DAMAGED].log_end_offset == 49
    assert "offset 49:" in dirs.take_notices()[0]


def test_a_log_that_cannot_be_mended_for_want_of_room_is_offline_alone_until_the_next_start(disk: MemoryDisk) -> None:
    damaged = bases(disk)[2]
    disk.open(file(damaged)).truncate(100)
    disk.fail_writes_after(0)
    dirs = opened(disk)
    assert list(dirs.logs) == [OTHER] and offsets(dirs.logs[OTHER]) == list(range(50))
    assert any("partition 0 of topic damaged is offline" in notice for notice in dirs.take_notices())
    disk.room_bytes = None
    disk.locked.clear()
    dirs = opened(disk)
    assert len(offsets(dirs.logs[DAMAGED])) > 40
    (notice,) = dirs.take_notices()
    assert f"has lost offsets {damaged + 1} to {bases(disk)[3] - 1}" in notice
    assert offsets(dirs.logs[OTHER]) == list(range(50))


def test_a_log_that_cannot_be_opened_is_offline_alone_and_not_begun_anew(tmp_path: Path) -> None:
    disk = SystemDisk()
    stopped(disk, str(tmp_path))
    (tmp_path / "damaged-0" / f"{100:020d}.log").symlink_to("gone")
    dirs = opened(disk, str(tmp_path))
    assert DAMAGED not in dirs.logs and offsets(dirs.logs[OTHER]) == list(range(50))
    (notice,) = dirs.take_notices()
    assert "partition 0 of topic damaged is offline" in notice and f"{100:020d}.log" in notice
    with pytest.raises(StorageError):
        dirs.create(DAMAGED, NOW_MS)
    dirs.close()


@pytest.mark.parametrize("clean", [True, False], ids=["with damage after a clean stop", "while it stops"])
def test_power_that_is_lost_at_any_step_of_a_start_or_stop_costs_nothing_that_was_whole(clean: bool) -> None:
    """The start that finds damage is interrupted before each of its operations, or the stop is."""
    whole = operations = 0
    while whole == operations:
        disk = FragileDisk()
        stopped(disk)
        last = bases(disk)[-1]
        if clean:
            disk.content(file(last)).extend(b"junk" * 30)
            disk.remove(file(bases(disk)[0], ".txnindex"))
        else:
            dirs = opened(disk)
        disk.operations_left = operations
        try:
            if clean:
                opened(disk)
            else:
                dirs.close()
            whole -= 1
        except PowerLoss:
            pass
        disk.operations_left = None
        disk.crash(Random(operations))
        again = opened(disk)
        for key in (DAMAGED, OTHER):
            assert offsets(again.logs[key]) == list(range(50)), operations
            assert len(again.logs[key].aborted_transactions(0, 50)) == 10
        operations += 1
        whole += 1
