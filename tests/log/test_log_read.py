"""Reading: what a reader may see, what a slice is, and what finding it costs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from logkit import NOW_MS, append, new_log, reopened, system_log, values

from tidelog.log.config import LogConfig
from tidelog.log.errors import OffsetOutOfRange
from tidelog.log.memory_disk import MemoryDisk
from tidelog.wire.batch import iter_headers

pytestmark = pytest.mark.layouts


def test_offsets_outside_the_log_are_out_of_range(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    append(log, 5)
    log.advance_log_start_offset(2)
    for offset in (1, 6):
        with pytest.raises(OffsetOutOfRange) as refused:
            log.read(offset, 100, 5)
        assert refused.value.code == 1
    assert log.read(5, 100, 5) is None


def test_nothing_at_or_past_the_bound_is_read(tmp_path: Path) -> None:
    log = system_log(tmp_path, LogConfig(index_interval_bytes=0))
    for _ in range(10):
        append(log, 3)
    for bound in range(31):
        piece = log.read(0, 1 << 20, bound)
        last = bound - bound % 3 - 1
        if last < 0:
            assert piece is None
        else:
            assert piece is not None
            assert [header.last_offset for _, header in iter_headers(piece.read())][-1] == last


def test_the_first_batch_comes_whole_or_not_at_all(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    append(log, 1, value=bytes(500))
    append(log, 1, value=bytes(500))
    assert log.read(0, 100, 2, min_one_batch=False) is None
    piece = log.read(0, 100, 2, min_one_batch=True)
    assert piece is not None and piece.next_offset == 1 and piece.size_bytes > 500


def test_a_slice_holds_its_bytes_whatever_becomes_of_the_log(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    append(log, 3, value=b"precious")
    piece = log.read(0, 1 << 20, 3)
    assert piece is not None
    before = piece.read()
    log.roll(NOW_MS)
    for segment in log.segments:
        segment.park_all()
    log.truncate_fully_and_start_at(10, NOW_MS)
    for deletion in log.directory.deletions:
        deletion()
    assert not list(Path(log.path).glob("*.deleted"))
    assert piece.read() == before and b"precious" in before


def test_reading_goes_on_across_segments(tmp_path: Path) -> None:
    log = system_log(tmp_path, LogConfig(segment_bytes=400))
    for number in range(50):
        append(log, 1, value=b"%03d" % number * 20)
    assert len(log.segments) > 10
    assert values(log) == [(number, b"%03d" % number * 20) for number in range(50)]


def reads_of(batches: int, segment_bytes: int) -> tuple[MemoryDisk, object]:
    disk = MemoryDisk(max_files=1000)
    config = LogConfig(segment_bytes=segment_bytes, segment_index_bytes=1 << 20, max_message_bytes=1 << 20)
    log = new_log(disk, "/data", config)
    for _ in range(batches):
        append(log, 1, value=bytes(900))
    return disk, log


@pytest.mark.files
@pytest.mark.parametrize("segment_bytes", [1 << 30, 20_000])
def test_a_lookup_costs_the_same_at_any_log_size(segment_bytes: int) -> None:
    costs = []
    for batches in (30, 300, 3000):
        disk, log = reads_of(batches, segment_bytes)
        log.segments.forget()  # type: ignore[attr-defined]
        worst = 0
        for offset in range(0, batches, max(batches // 50, 1)):
            log.segments.forget()  # type: ignore[attr-defined]
            before = disk.counts.get("pread", 0)
            log.read(offset, 1 << 20, batches)  # type: ignore[attr-defined]
            worst = max(worst, disk.counts.get("pread", 0) - before)
        costs.append(worst)
    assert max(costs) <= 4, costs


@pytest.mark.files
def test_a_reader_at_the_end_searches_nothing() -> None:
    disk, log = reads_of(3000, 1 << 30)
    for number in range(3000, 3050):
        append(log, 1)  # type: ignore[arg-type]
        before = dict(disk.counts)
        piece = log.read(number, 1 << 20, number + 1)  # type: ignore[attr-defined]
        assert piece is not None and piece.next_offset == number + 1
        assert disk.counts == before


@pytest.mark.files
def test_a_reader_that_goes_on_where_it_stopped_does_not_search_its_place() -> None:
    disk, log = reads_of(3000, 1 << 30)
    log.segments.forget()  # type: ignore[attr-defined]
    offset = 0
    reads = 0
    before = disk.counts.get("pread", 0)
    while offset < 3000:
        piece = log.read(offset, 50_000, 3000)  # type: ignore[attr-defined]
        assert piece is not None
        offset = piece.next_offset
        reads += 1
    # The end of a slice that does not reach the log's end is looked for: one or two reads of headers each.
    assert disk.counts["pread"] - before <= 2 * reads + 2


def test_descriptors_stay_within_their_bound(tmp_path: Path) -> None:
    disk = MemoryDisk(max_files=4)
    log = new_log(disk, "/data", LogConfig(segment_bytes=600, index_interval_bytes=0))
    for number in range(60):
        append(log, 1, value=b"%02d" % number * 60)
    assert len(log.segments) > 10
    assert values(log) == [(number, b"%02d" % number * 60) for number in range(60)]
    assert len(disk.files) <= 4 and len(disk.maps) <= 2


def test_a_time_is_found_though_timestamps_go_back_and_forth(tmp_path: Path) -> None:
    log = system_log(tmp_path, LogConfig(segment_bytes=500, index_interval_bytes=100))
    stamps = [50, 10, 70, 20, 90, 90, 30, 40, 95, 5]
    for stamp in stamps * 3:
        append(log, 1, timestamp=stamp, value=bytes(40))
    everything = stamps * 3
    for target in range(100):
        expected = next((at for at, stamp in enumerate(everything) if stamp >= target), None)
        found = log.offset_for_timestamp(target)
        assert (None if found is None else found.offset) == expected
    log.advance_log_start_offset(9)
    found = log.offset_for_timestamp(60)
    assert found is not None and (found.offset, found.timestamp) == (12, 70)
    latest = log.max_timestamp_offset()
    assert latest is not None and (latest.offset, latest.timestamp) == (8, 95)


def test_a_log_without_timestamps_finds_no_time(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    append(log, 3, timestamp=-1)
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp_offset() is None
    again = reopened(log)
    assert again.max_timestamp_offset() is None


def test_where_a_reader_stopped_is_looked_for_anew_in_a_segment_that_began_there(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    append(log, 1, value=b"short")
    at_end = log.read(0, 1 << 20, 1)
    assert at_end is not None and at_end.next_offset == 1
    log.roll(NOW_MS)
    append(log, 1, value=bytes(500))
    append(log, 1, value=b"last")
    assert values(log, 1) == [(1, bytes(500)), (2, b"last")]


def test_positions_are_remembered_without_an_object_for_each(tmp_path: Path) -> None:
    log = system_log(tmp_path)
    append(log)
    segment = log.segments.active
    log.segments.remember(0, segment, 0)
    before = sys.getallocatedblocks()
    for offset in range(10_000, 20_000):
        log.segments.remember(offset, segment, offset)
    assert sys.getallocatedblocks() - before < 100
