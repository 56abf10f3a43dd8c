"""The segment that a compaction writes has the files that appending the same batches would have made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from compaction_kit import COMPACT, FACES, kernel_face
from hypothesis import given, settings
from logkit import NOW_MS, fetched, stamped

import tidelog.wire
from tidelog.log import cleaned_segment
from tidelog.log.cleaned_segment import Output
from tidelog.log.directories.recovery import create_log
from tidelog.log.log_dir import LogDir
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.txn_index import AbortedTxn
from tidelog.wire.batch import read_header

WIRE_KERNEL = Path(tidelog.wire.__file__).parent / "kernel.py"
CONFIG = replace(COMPACT, segment_bytes=1 << 20, max_message_bytes=1 << 20)

shapes = st.lists(
    st.tuples(st.lists(st.integers(-1, 1000), min_size=1, max_size=4), st.integers(0, 300), st.integers(0, 3)),
    min_size=1,
    max_size=30,
)


@pytest.mark.parametrize("face", FACES)
@given(
    shapes=shapes,
    cuts=st.sets(st.integers(1, 29)),
    interval=st.sampled_from([0, 150, 4096]),
    index_bytes=st.sampled_from([48, 1 << 20]),
)
@settings(max_examples=60, deadline=None)
def test_the_indexes_are_those_of_a_segment_that_was_appended_to(
    face: str, shapes: list[Any], cuts: set[int], interval: int, index_bytes: int
) -> None:
    config = replace(CONFIG, index_interval_bytes=interval, segment_index_bytes=index_bytes)
    batches, offset = [], 0
    for timestamps, size, gap in shapes:
        batch = fetched(offset + gap, 0, stamped(timestamps, bytes(size)))
        batches.append(bytes(batch))
        offset = read_header(batch).next_offset
    disk = MemoryDisk()
    disk.mkdir("/data/new")
    log = create_log(LogDir(disk, "/data"), ("t", 0), config, NOW_MS)
    segment = log.segments.active
    for at in batches:
        header = read_header(at)
        segment.append(memoryview(at), header.last_offset, header.max_timestamp)
    segment.seal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaned_segment, "kernel", kernel_face(WIRE_KERNEL, face))
        output = Output(disk, "/data/new", 0, config)
        for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(batches)], strict=True):
            if batches[start:end]:
                output.write(memoryview(b"".join(batches[start:end])))
        cleaned = output.finish([], 77)
    cleaned.rename_to_swap()
    cleaned.rename_to_log()
    for suffix in (".log", ".index", ".timeindex"):
        name = f"{0:020d}{suffix}"
        assert disk.content(f"/data/new/{name}") == disk.content(f"{log.path}/{name}"), suffix
    again = cleaned.segment(config)
    assert (again.size, again.next_offset(), again.largest) == (segment.size, segment.next_offset(), segment.largest)


def test_aborted_transactions_are_in_the_index_only_where_there_are_any() -> None:
    disk = MemoryDisk()
    disk.mkdir("/data")
    output = Output(disk, "/data", 5, CONFIG)
    entries = [AbortedTxn(1, 5, 7, 8), AbortedTxn(2, 6, 9, 10)]
    output.finish(entries, 0).remove()
    assert disk.list("/data") == []
    cleaned = Output(disk, "/data", 5, CONFIG).finish(entries, 0)
    assert f"{5:020d}.txnindex.cleaned" in {entry.name for entry in disk.list("/data")}
    cleaned.rename_to_swap()
    cleaned.rename_to_log()
    assert cleaned.segment(CONFIG).txn_index.entries() == entries
    Output(disk, "/data", 9, CONFIG).finish([], 0)
    assert f"{9:020d}.txnindex.cleaned" not in {entry.name for entry in disk.list("/data")}
