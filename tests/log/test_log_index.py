"""The indexes: Kafka's bytes, searches against a list, and files that cannot be what they claim."""

from __future__ import annotations

import struct
from bisect import bisect_right

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tidelog.log.index import OffsetIndex, TimeIndex, TimestampOffset
from tidelog.log.memory_disk import MemoryDisk

BASE = 1000


def disk_with_root() -> MemoryDisk:
    disk = MemoryDisk()
    disk.mkdir("/d")
    return disk


def offset_index(disk: MemoryDisk, max_bytes: int = 1 << 16, file_bytes: int = 0) -> OffsetIndex:
    return OffsetIndex(disk, "/d/x.index", BASE, max_bytes, file_bytes)


def time_index(disk: MemoryDisk, max_bytes: int = 1 << 16, file_bytes: int = 0) -> TimeIndex:
    return TimeIndex(disk, "/d/x.timeindex", BASE, max_bytes, file_bytes)


def test_entries_have_kafkas_bytes() -> None:
    disk = disk_with_root()
    offsets, times = offset_index(disk), time_index(disk)
    offsets.append(BASE + 7, 4200)
    times.append(1_700_000_000_123, BASE + 7)
    offsets.trim()
    times.trim()
    assert disk.content("/d/x.index") == struct.pack(">ii", 7, 4200)
    assert disk.content("/d/x.timeindex") == struct.pack(">qi", 1_700_000_000_123, 7)


steps = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=200)


@given(steps=steps, park_every=st.integers(1, 50), target=st.integers(0, 10_000), reopen=st.booleans())
def test_an_offset_lookup_agrees_with_a_list(
    steps: list[tuple[int, int]], park_every: int, target: int, reopen: bool
) -> None:
    disk = disk_with_root()
    index = offset_index(disk)
    offsets, positions = [], []
    offset, position = BASE, 0
    for n, (more, size) in enumerate(steps):
        offset += more
        position += size
        index.append(offset, position)
        offsets.append(offset)
        positions.append(position)
        if n % park_every == 0:
            index.park()
    if reopen:
        index.trim()
        index = offset_index(disk, file_bytes=len(disk.content("/d/x.index")))
        assert index.load(position + 1) == position
    assert index.count == len(steps)
    for probe in (BASE + target, offset, offset + 1):
        at = bisect_right(offsets, probe)
        assert index.lookup(probe) == (positions[at - 1] if at else 0)
    for probe in (target * 50, position, position - 1):
        at = bisect_right(positions, probe)
        assert index.position_up_to(probe) == (positions[at - 1] if at else 0)
    assert [index.entry(n) for n in range(index.count)] == list(zip(offsets, positions, strict=True))


@given(steps=steps, cut=st.integers(0, 5000), more=steps)
def test_a_truncated_index_goes_on_as_if_the_rest_had_never_been(
    steps: list[tuple[int, int]], cut: int, more: list[tuple[int, int]]
) -> None:
    disk = disk_with_root()
    index, times = offset_index(disk), time_index(disk)
    entries: list[tuple[int, int]] = []
    stamps: list[tuple[int, int]] = []

    def add(steps: list[tuple[int, int]]) -> None:
        for step, size in steps:
            offset = (entries[-1][0] if entries else BASE) + step
            position = (entries[-1][1] if entries else 0) + size
            index.append(offset, position)
            times.append(position * 3, offset)
            entries.append((offset, position))
            stamps.append((position * 3, offset))

    add(steps)
    index.truncate_to(BASE + cut)
    times.truncate_to(BASE + cut)
    entries[:] = [entry for entry in entries if entry[0] < BASE + cut]
    stamps[:] = [stamp for stamp in stamps if stamp[1] < BASE + cut]
    assert times.last == (stamps[-1] if stamps else (-1, BASE))
    add(more)
    index.trim()
    times.trim()
    assert [index.entry(n) for n in range(index.count)] == entries
    assert [times.entry(n) for n in range(times.count)] == stamps
    assert len(disk.content("/d/x.index")) == 8 * len(entries)
    assert len(disk.content("/d/x.timeindex")) == 12 * len(entries)


@given(stamps=st.lists(st.integers(0, 500), max_size=200), target=st.integers(-2, 502))
def test_a_time_lookup_agrees_with_a_list(stamps: list[int], target: int) -> None:
    index = time_index(disk_with_root())
    kept: list[TimestampOffset] = []
    for n, stamp in enumerate(stamps):
        index.append(stamp, BASE + n)
        if not kept or stamp > kept[-1].timestamp:
            kept.append(TimestampOffset(stamp, BASE + n))
    assert index.count == len(kept)
    below = [entry for entry in kept if entry.timestamp <= target]
    assert index.lookup(target) == (below[-1] if below else (-1, BASE))


def test_a_full_index_says_so_and_takes_no_more() -> None:
    disk = disk_with_root()
    offsets, times = offset_index(disk, max_bytes=8 * 3 + 5), time_index(disk, max_bytes=12 * 3)
    for n in range(1, 6):
        offsets.append(BASE + n, n)
        times.append(n, BASE + n)
    assert offsets.count == offsets.capacity == 3
    assert times.count == times.capacity == 2
    times.append(99, BASE + 9, final=True)
    assert times.count == 3 and times.last == (99, BASE + 9)


@pytest.mark.parametrize(
    "content",
    [
        bytes(80),
        struct.pack(">ii", 5, 100) + bytes(8),
        struct.pack(">iiii", 5, 100, 9, 5000),
        struct.pack(">iiii", -5, 100, 9, 200),
    ],
    ids=["a hole", "a hole behind an entry", "a position past the log", "an offset before the segment"],
)
def test_an_offset_index_that_cannot_be_one_is_told(content: bytes) -> None:
    disk = disk_with_root()
    disk.open("/d/x.index", create=True).write(content, 0)
    assert offset_index(disk, file_bytes=len(content)).load(log_bytes=1000) is None


@pytest.mark.parametrize("content", [bytes(36), struct.pack(">qiqi", 100, 5, 50, 9)], ids=["a hole", "time goes back"])
def test_a_time_index_that_cannot_be_one_is_told(content: bytes) -> None:
    disk = disk_with_root()
    disk.open("/d/x.timeindex", create=True).write(content, 0)
    assert not time_index(disk, file_bytes=len(content)).load()
