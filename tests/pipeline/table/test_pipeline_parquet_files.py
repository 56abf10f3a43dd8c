"""Rows become files: all of them, in their order, of the right size, with statistics that never lie."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.pipeline.table import parquet_files
from tidelog.pipeline.table.parquet_files import ParquetSink, SinkSettings, part_prefix
from tidelog.pipeline.table.pipeline_table import PipelineTable, TableChange
from tidelog.pipeline.table.storage import parse_part, writer_of

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("small", pa.int32()),
        ("text", pa.string()),
        ("when", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("share", pa.float64()),
        ("flag", pa.bool_()),
        ("money", pa.decimal128(10, 2)),
        ("bytes", pa.binary()),
        ("inner", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
    ]
)


def sink_settings(root: Path, **options: Any) -> SinkSettings:
    defaults: dict[str, Any] = {"prefix": part_prefix(1, 2, 3, "p"), "target_bytes": 1 << 20, "max_bytes": 1 << 20}
    return SinkSettings(root=str(root), **{**defaults, **options})


def stored(tmp_path: Path, batches: list[pa.RecordBatch], **options: Any) -> tuple[PipelineTable, list[Any]]:
    """The batches through a sink into a Delta table."""
    root = tmp_path / "table"
    partition_by = options.get("partition_by", ())
    table = PipelineTable.create(str(root), "p", batches[0].schema, partition_by)
    epoch = table.take_over()
    sink = ParquetSink(sink_settings(root, **options))
    for batch in batches:
        sink.write(batch)
    files = sink.close()
    table.commit(epoch, TableChange(files=files))
    return table, files


moments = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))
rows = st.fixed_dictionaries(
    {
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "small": st.none() | st.integers(-(2**31), 2**31 - 1),
        "text": st.none() | st.text(max_size=50),
        "when": st.none() | moments,
        "local": st.none() | st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),
        "day": st.none() | st.dates(),
        "share": st.none() | st.floats(),
        "flag": st.none() | st.booleans(),
        "money": st.none() | st.decimals(-9999, 9999, places=2),
        "bytes": st.none() | st.binary(max_size=5),
        "inner": st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), "b": st.just(["x"])}),
    }
)


def delta_value(text: Any, kind: pa.DataType) -> Any:
    """A value of Delta's statistics as Python has it."""
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(text)
        return moment if kind.tz is None else moment.astimezone(UTC)
    return date.fromisoformat(text) if pa.types.is_date(kind) else text


@given(st.lists(rows, min_size=1, max_size=30), st.integers(1, 400))
@settings(max_examples=50, deadline=None)
def test_statistics_bound_every_value_and_count_every_null(
    tmp_path_factory: pytest.TempPathFactory, data: list[dict[str, Any]], max_bytes: int
) -> None:
    root = tmp_path_factory.mktemp("sink")
    sink = ParquetSink(sink_settings(root, max_bytes=max_bytes))
    for row in data:
        sink.write(pa.RecordBatch.from_pylist([row], SCHEMA))
    (file,) = sink.close()
    assert repr(pq.read_table(root / file.path).to_pylist()) == repr(pa.Table.from_pylist(data, SCHEMA).to_pylist())
    stats = json.loads(file.stats)
    assert stats["numRecords"] == len(data) == file.rows
    for name, count in stats["nullCount"].items():
        assert count == sum(row[name] is None for row in data)
    for name, text in stats["minValues"].items():
        kind = SCHEMA.field(name).type
        low, high = delta_value(text, kind), delta_value(stats["maxValues"][name], kind)
        for row in data:
            if row[name] is not None and row[name] == row[name]:
                assert low <= row[name] <= high
    assert {"bytes", "inner", "flag", "money"}.isdisjoint(stats["minValues"])
    shares = [row["share"] for row in data if row["share"] is not None]
    assert ("share" in stats["minValues"]) == (bool(shares) and not any(map(math.isnan, shares)))


def test_readers_skip_files_by_the_statistics_and_find_every_row(tmp_path: Path) -> None:
    batches = [
        pa.RecordBatch.from_pylist(
            [{"id": n, "at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=n * 777_777)}],
            pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]),
        )
        for n in range(50)
    ]
    table, files = stored(tmp_path, batches, max_bytes=1, target_bytes=1)
    assert len(files) == 50
    delta = DeltaTable(table.path)
    for n in (0, 17, 49):
        exact = batches[n].column("at")[0].as_py()
        for filters in ([("id", "=", n)], [("at", "=", exact)]):
            found = delta.to_pyarrow_table(filters=filters)
            assert found.column("id").to_pylist() == [n]


def test_files_roll_at_the_target_size_and_memory_stays_below_the_bound(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"%032d" % n * 8 for n in range(1000)]})
    sink = ParquetSink(sink_settings(tmp_path, max_bytes=1 << 20, target_bytes=2 << 20, compression="none"))
    before, most = pa.total_allocated_bytes(), 0
    for _ in range(60):
        sink.write(batch)
        most = max(most, sink.buffered_bytes)
    files = sink.close()
    assert sum(file.rows for file in files) == 60_000
    assert most <= (1 << 20) + batch.nbytes
    assert len(files) == 6 and all(1.9 * (1 << 20) < file.size_bytes < 3.2 * (1 << 20) for file in files[:-1])
    assert pa.total_allocated_bytes() - before < 1 << 20
    assert [parse_part(file.path) for file in files] == [(1, 2, 3, writer_of("p"))] * 6
    assert pq.ParquetFile(tmp_path / files[0].path).metadata.num_row_groups > 1


@pytest.mark.parametrize("partition_by", [(), ("part",)])
@pytest.mark.parametrize("parts", [1, 20])
def test_no_more_is_kept_in_memory_than_is_counted(tmp_path: Path, partition_by: tuple[str, ...], parts: int) -> None:
    rows = 20_000
    sink = ParquetSink(sink_settings(tmp_path, max_bytes=1 << 30, partition_by=partition_by))
    before = pa.total_allocated_bytes()
    for _ in range(5):
        whole = pa.RecordBatch.from_pydict(
            {"value": [b"%0100d" % n for n in range(rows)], "part": [n % parts for n in range(rows)]}
        )
        # A batch, and one row of another: most of what came goes to no file, and must not stay.
        sink.write(whole.slice(0, rows // 20 * parts))
        sink.write(whole.slice(7, 1))
        del whole
    assert pa.total_allocated_bytes() - before < 2 * sink.buffered_bytes + (1 << 20)
    for file in sink._open.values():
        assert sum(batch.get_total_buffer_size() for batch in file._buffer) < 2 * file.buffered_bytes + (1 << 10)
    sink.close()


def test_two_attempts_of_a_task_never_meet(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1]})
    paths = set()
    for _ in range(2):
        sink = ParquetSink(sink_settings(tmp_path))
        sink.write(batch)
        paths |= {file.path for file in sink.close()}
    assert len(paths) == 2


PARTITION_VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["a", "b/c", "ä b=1%", "..", None, "x" * 30]),
    (pa.int32(), [1, -5, None]),
    (pa.date32(), [date(2026, 1, 31), date(1, 1, 1), None]),
    (pa.timestamp("us", "UTC"), [datetime(2026, 1, 31, 23, 59, 59, 999_999, tzinfo=UTC), None]),
    (pa.bool_(), [True, False, None]),
    (pa.decimal128(5, 2), [Decimal("1.50"), None]),
]


@pytest.mark.parametrize(
    ("kind", "values"), PARTITION_VALUES, ids=lambda v: str(v) if isinstance(v, pa.DataType) else ""
)
def test_partition_values_come_back_as_they_were(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    data = [{"part": values[n % len(values)], "n": n} for n in range(40)]
    schema = pa.schema([("n", pa.int64()), ("part", kind)])
    batches = [pa.RecordBatch.from_pylist(data[i : i + 7], schema) for i in range(0, 40, 7)]
    table, files = stored(tmp_path, batches, partition_by=("part",))
    assert sorted(DeltaTable(table.path).to_pyarrow_table().to_pylist(), key=lambda r: r["n"]) == data
    assert len(files) == len(values)
    # Within a partition rows keep their order, and the column itself is not in the files.
    for file in files:
        numbers = pq.read_table(Path(table.path) / file.path).column("n").to_pylist()
        assert numbers == sorted(numbers) and pq.read_schema(Path(table.path) / file.path).names == ["n"]


def test_two_partition_columns_and_more_values_than_files_may_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "MAX_OPEN_FILES", 4)
    data = [{"a": n % 5, "b": str(n % 3), "n": n} for n in range(300)]
    schema = pa.schema([("a", pa.int32()), ("b", pa.string()), ("n", pa.int64())])
    batches = [pa.RecordBatch.from_pylist(data[i : i + 50], schema) for i in range(0, 300, 50)]
    table, files = stored(tmp_path, batches, partition_by=("a", "b"))
    read = DeltaTable(table.path).to_pyarrow_table(columns=["a", "b", "n"])
    assert sorted(read.to_pylist(), key=lambda r: r["n"]) == data
    assert {tuple(file.partition_values.values()) for file in files} == {
        (str(a), str(b)) for a in range(5) for b in range(3)
    }


def test_rows_with_other_columns_begin_a_new_file(tmp_path: Path) -> None:
    sink = ParquetSink(sink_settings(tmp_path))
    for batch in ({"a": [1]}, {"a": [2]}, {"a": [3], "b": ["x"]}):
        sink.write(pa.RecordBatch.from_pydict(batch))
    files = sink.close()
    assert [(file.rows, file.schema.names) for file in files] == [(2, ["a"]), (1, ["a", "b"])]
