"""From record batches to Arrow: the right rows, in columns of the right kind, whatever the log looks like."""

from __future__ import annotations

import os
from types import ModuleType

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_logs import FACES, KERNEL, PARTITION, TOPIC, Log, build_log, kernel_face, logs

from tidelog.client.errors import ClientError
from tidelog.client.reader import chunk_records
from tidelog.pipeline.read import arrow
from tidelog.pipeline.read.arrow import COLUMNS, ArrowDecoder, schema_of
from tidelog.wire.records import ABORT

NOW = 1_700_000_000_000


@pytest.fixture(params=FACES, autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    face = kernel_face(KERNEL, request.param)
    monkeypatch.setattr(arrow, "kernel", face)
    return face


def write(new: list, codec: int = 0, producer: int | None = None, stamp: int | None = None) -> tuple:
    return ("write", new, codec, producer, stamp, 0, set())


def decode(log: Log, columns: tuple[str, ...] = COLUMNS, start: int = 0, until: int | None = None, **how) -> list:
    committed = how.pop("committed", True)
    return list(ArrowDecoder(columns, **how).decode(log.chunk(start, until, committed)))


def rows_of(batches: list[pa.RecordBatch]) -> list[dict]:
    for batch in batches:
        batch.validate(full=True)
        assert batch.num_rows > 0
    plain = [
        batch.set_column(i, "timestamp", batch.column(i).cast(pa.int64()))
        if (i := batch.schema.get_field_index("timestamp")) >= 0
        else batch
        for batch in batches
    ]
    return [row for batch in plain for row in batch.to_pylist()]


@settings(max_examples=150, deadline=None)
@given(
    log=logs(),
    committed=st.booleans(),
    bounds=st.tuples(st.integers(0, 60), st.one_of(st.none(), st.integers(0, 80))),
    max_rows=st.sampled_from([1, 3, 7, 1000]),
    max_bytes=st.sampled_from([1, 100, 1000, 1 << 20]),
)
def test_rows_are_those_that_a_consumer_may_see(
    log: Log, committed: bool, bounds: tuple[int, int | None], max_rows: int, max_bytes: int
) -> None:
    start, until = bounds
    batches = decode(log, COLUMNS, start, until, committed=committed, max_rows=max_rows, max_bytes=max_bytes)
    found = rows_of(batches)
    assert found == [row.dict() for row in log.rows(start, until, committed)]
    seen = chunk_records(log.chunk(start, until, committed))
    assert [(r.offset, r.timestamp * 1000, r.key, r.value) for r in seen] == [
        (row["offset"], row["timestamp"], row["key"], row["value"]) for row in found
    ]
    assert all(batch.num_rows <= max_rows for batch in batches)


@settings(max_examples=60, deadline=None)
@given(log=logs(), columns=st.permutations(COLUMNS).flatmap(lambda p: st.integers(1, 8).map(lambda n: tuple(p[:n]))))
def test_only_the_columns_asked_for_are_made_in_their_order(log: Log, columns: tuple[str, ...]) -> None:
    batches = decode(log, columns)
    assert all(batch.schema == schema_of(columns) for batch in batches)
    expected = [row.dict() for row in log.rows(0, None, True)]
    assert rows_of(batches) == [{name: row[name] for name in columns} for row in expected]


def test_columns_have_the_types_of_the_stock_connector() -> None:
    assert schema_of(COLUMNS) == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )
    with pytest.raises(ValueError, match="there is no column 'values'"):
        schema_of(("key", "values"))


def test_null_and_empty_are_told_apart() -> None:
    new = [(NOW, None, b"", [("h", None), ("h", b"")]), (NOW, b"", None, [])]
    batch = decode(build_log([write(new)]))[0]
    assert batch.column("key").to_pylist() == [None, b""]
    assert batch.column("value").to_pylist() == [b"", None]
    assert batch.column("headers").to_pylist() == [[{"key": "h", "value": None}, {"key": "h", "value": b""}], None]
    assert (batch.column("key").null_count, batch.column("headers").null_count) == (1, 1)


def test_small_batches_are_gathered_and_large_ones_divided() -> None:
    small = build_log([write([(NOW, None, b"v" * 10, [])] * 3) for _ in range(50)])
    assert [b.num_rows for b in decode(small)] == [150]
    assert [b.num_rows for b in decode(small, max_rows=40)] == [40, 40, 40, 30]
    large = build_log([write([(NOW, None, b"v" * 100, [])] * 64, codec=4)])
    assert [b.num_rows for b in decode(large, max_bytes=1000, columns=("value",))] == [10] * 6 + [4]


def test_a_record_larger_than_max_bytes_has_a_batch_to_itself() -> None:
    new = [(NOW, b"k", b"a", []), (NOW, b"k" * 50, os.urandom(5000), [("h", b"x" * 300)] * 9), (NOW, b"k", b"b", [])]
    log = build_log([write(new, codec=3)])
    batches = decode(log, max_bytes=64, max_rows=4)
    assert [b.num_rows for b in batches] == [1, 1, 1]
    assert rows_of(batches) == [row.dict() for row in log.rows(0, None, True)]


def test_what_unpacks_to_much_is_handed_out_in_slices_of_bounded_memory() -> None:
    log = build_log([write([(NOW, b"k" * 10, b"v" * 1000, [])] * 4000, codec=4)])
    chunk = log.chunk(0, None, True)
    assert len(chunk.fetched.records) < 100_000
    before = pa.total_allocated_bytes()
    rows = 0
    for batch in ArrowDecoder(max_bytes=100_000, max_rows=1000).decode(chunk):
        assert batch.num_rows <= 100
        assert pa.total_allocated_bytes() - before < 1_500_000
        rows += batch.num_rows
    assert rows == 4000


def test_log_append_time_is_the_time_of_every_record_of_its_batch() -> None:
    log = build_log([write([(NOW + i, None, b"v", []) for i in range(3)], stamp=s) for s in (None, NOW + 99, None)])
    batch = decode(log)[0]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist()[2:7] == [
        (NOW + 2) * 1000,
        *[(NOW + 99) * 1000] * 3,
        NOW * 1000,
    ]
    assert batch.column("timestampType").to_pylist() == [0, 0, 0, 1, 1, 1, 0, 0, 0]


def test_times_beyond_64_bits_of_microseconds_become_the_nearest() -> None:
    new = [(ms, None, b"v", []) for ms in (0, 2**62, -(2**62), -1)]
    stamps = decode(build_log([write(new)]), ("timestamp",))[0].column("timestamp").cast(pa.int64()).to_pylist()
    limit = (2**63 - 1) // 1000 * 1000
    assert stamps == [0, limit, -limit, -1000]


def test_header_names_that_are_not_text_are_mended() -> None:
    batch = decode(build_log([write([(NOW, None, b"v", [(b"caf\xc3\xa9", b"1"), (b"caf\xe9", b"\xff")])])]))[0]
    batch.validate(full=True)
    assert batch.column("headers").to_pylist() == [
        [{"key": "café", "value": b"1"}, {"key": "caf\ufffd", "value": b"\xff"}]
    ]


def test_aborted_transactions_show_only_to_those_who_ask_for_them() -> None:
    log = build_log([write([(NOW, None, b"gone", [])], producer=1001), ("end", 1001, ABORT)])
    assert decode(log) == []
    assert rows_of(decode(log, ("value",), committed=False)) == [{"value": b"gone"}]


def test_a_damaged_batch_is_named_by_partition_and_offset() -> None:
    log = build_log([write([(NOW, None, b"good", [])]), write([(NOW, None, b"bad!", [])])])
    chunk = log.chunk(0, None, True)
    data = bytearray(chunk.fetched.records)
    data[-3] ^= 1
    chunk = chunk._replace(fetched=chunk.fetched._replace(records=memoryview(data)))
    with pytest.raises(ClientError, match=f"offset 1 of {TOPIC}-{PARTITION} is damaged: its checksum"):
        list(ArrowDecoder().decode(chunk))
    assert rows_of(list(ArrowDecoder(("value",), check_crcs=False).decode(chunk)))[0] == {"value": b"good"}
