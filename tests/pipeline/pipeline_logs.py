"""Logs made up for the decoder's tests, with what a consumer should see of them; and both faces of the kernel."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from hypothesis import strategies as st

import tidelog.pipeline
from tidelog.client.reader import Chunk, Fetched, Span
from tidelog.wire.records import ABORT, COMMIT, EndTxnMarker, RecordIndex, build_batch, build_end_txn_marker, retain

KERNEL = Path(tidelog.pipeline.__file__).parent / "read" / "kernel.py"
TOPIC, PARTITION = "orders", 3
PRODUCERS = (1001, 1002)


def _faces() -> tuple[tuple[str, ...], Callable[[Path, str], ModuleType]]:
    path = Path(__file__).parents[1] / "wire" / "wire_kernels.py"
    spec = importlib.util.spec_from_file_location("wire_kernels_of_pipeline", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FACES, module.kernel_face


FACES, kernel_face = _faces()


class Row(NamedTuple):
    """A record as the decoder should show it."""

    key: bytes | None
    value: bytes | None
    offset: int
    timestamp_ms: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...]

    def dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "value": self.value,
            "topic": TOPIC,
            "partition": PARTITION,
            "offset": self.offset,
            "timestamp": self.timestamp_ms * 1000,
            "timestampType": self.timestamp_type,
            "headers": [{"key": k, "value": v} for k, v in self.headers] or None,
        }


class Batch(NamedTuple):
    data: bytes
    base_offset: int
    next_offset: int
    rows: list[Row]
    #: the transactional producer that wrote it
    producer_id: int | None


class Log(NamedTuple):
    batches: list[Batch]
    #: (producer id, first offset, offset of the marker) of the aborted transactions
    aborted: list[tuple[int, int, int]]
    #: where the first transaction that is still open begins, else the end
    last_stable_offset: int
    end_offset: int

    def chunk(self, start: int, until: int | None, committed: bool) -> Chunk:
        """What a broker would answer a fetch from `start` on."""
        upto = self.last_stable_offset if committed else self.end_offset
        batches = [b for b in self.batches if b.next_offset > start and b.base_offset < upto]
        data = memoryview(b"".join(b.data for b in batches))
        last = batches[-1].next_offset if batches else start
        aborted = [(pid, first) for pid, first, marker in self.aborted if marker >= start and first < last]
        fetched = Fetched(data, self.end_offset, self.last_stable_offset, 0, aborted if committed else [])
        return Chunk(Span(TOPIC, PARTITION, last, until), start, fetched)

    def rows(self, start: int, until: int | None, committed: bool) -> list[Row]:
        """What a consumer should see, by the transactions' ends and not by the bytes."""

        def is_visible(batch: Batch, offset: int) -> bool:
            if offset < start or (until is not None and offset >= until):
                return False
            if not committed:
                return True
            if offset >= self.last_stable_offset:
                return False
            return not any(pid == batch.producer_id and first <= offset < end for pid, first, end in self.aborted)

        return [row for batch in self.batches for row in batch.rows if is_visible(batch, row.offset)]


contents = st.one_of(st.none(), st.binary(max_size=12), st.binary(min_size=60, max_size=140))
headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=6))), max_size=3)
timestamps = st.integers(min_value=-1, max_value=4_102_444_800_000)
records = st.lists(st.tuples(timestamps, contents, contents, st.one_of(st.just([]), headers)), min_size=1, max_size=12)
writes = st.tuples(
    st.just("write"),
    records,
    st.integers(0, 4),  # codec
    st.sampled_from([None, None, *PRODUCERS]),
    st.one_of(st.none(), timestamps),  # log append time
    st.integers(0, 3),  # a gap before it
    st.sets(st.integers(0, 11), max_size=6),  # what compaction took
)
ends = st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.sampled_from([ABORT, COMMIT]))


@st.composite
def logs(draw: st.DrawFn) -> Log:
    return build_log(draw(st.lists(st.one_of(writes, writes, ends), max_size=14)))


def build_log(events: list[tuple[Any, ...]]) -> Log:
    batches: list[Batch] = []
    aborted: list[tuple[int, int, int]] = []
    opened: dict[int, int] = {}
    offset = 0
    for event in events:
        if event[0] == "end":
            _, producer_id, kind = event
            marker = build_end_txn_marker(EndTxnMarker(kind, 0), producer_id, 0, 1_700_000_000_000, base_offset=offset)
            batches.append(Batch(bytes(marker), offset, offset + 1, [], None))
            if producer_id in opened:
                first = opened.pop(producer_id)
                if kind == ABORT:
                    aborted.append((producer_id, first, offset))
            offset += 1
            continue
        _, new, codec, producer_id, stamp, gap, removed = event
        offset += gap
        batches.append(build_data_batch(new, codec, producer_id, stamp, offset, removed))
        if producer_id is not None:
            opened.setdefault(producer_id, offset)
        offset += len(new)
    return Log(batches, aborted, min(opened.values(), default=offset), offset)


def build_data_batch(
    new: list[Any], codec: int, producer_id: int | None, stamp: int | None, offset: int, removed: set[int]
) -> Batch:
    who = {} if producer_id is None else {"producer_id": producer_id, "producer_epoch": 0, "transactional": True}
    data = build_batch(new, base_offset=offset, codec=codec, log_append_time_ms=stamp, **who)
    keep = [i for i in range(len(new)) if i not in removed]
    if len(keep) < len(new):
        data = retain(RecordIndex(data), keep)
    rows = [
        Row(key, value, offset + i, timestamp if stamp is None else stamp, int(stamp is not None), tuple(pairs))
        for i, (timestamp, key, value, pairs) in enumerate(new)
        if i in set(keep)
    ]
    return Batch(bytes(data), offset, offset + len(new), rows, producer_id)
