"""Rows in, Parquet files out, in bounded memory: what every task of a pipeline ends in.

    batches -> by partition value -> buffered up to `max_bytes` -> row groups -> files of about `target_bytes`

A sink holds at most `max_bytes` of rows, whatever comes: when more is buffered, the partition with most of it is
written as a row group. A file that has reached the target size is closed and the next one begun; where too many
partitions are open at a time, the one that was longest without rows is closed. A batch with other columns than the
file has begins a new file: Delta reads files with different columns, as long as no column changes its type.

What comes out are descriptions: path, size, rows, partition values and statistics in Delta's form, with which readers
skip files that cannot hold what they look for. The statistics come from the Parquet writer, which has them anyway.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, BinaryIO, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.pipeline.errors import Passing, PipelineError
from tidelog.pipeline.table import storage

MAX_OPEN_FILES: Final = 32
#: how many times its own size a batch may keep in memory before its rows are copied
MOST_HELD: Final = 2
#: Delta's own default: statistics of the first so many columns
INDEXED_COLUMNS: Final = 32
#: Delta's own: longer texts are cut in statistics
STATISTICS_TEXT_LENGTH: Final = 32
_LAST_CHARACTER: Final = "\U0010ffff"
Compression = str


@dataclass(frozen=True, slots=True)
class WrittenFile:
    #: relative to the root of the sink
    path: str
    size_bytes: int
    rows: int
    partition_values: Mapping[str, str | None]
    #: JSON, as Delta's log has it
    stats: str
    #: of the rows, partition columns included
    schema: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """Where and how a sink writes; it travels to executors."""

    root: str
    #: below the root; "" for the root itself
    directory: str = ""
    #: the begin of every file's name, from `part_prefix`
    prefix: str
    partition_by: tuple[str, ...] = ()
    target_bytes: int
    max_bytes: int
    compression: Compression = "snappy"
    fsync: bool = False


def part_prefix(epoch: int, batch: int, task: int, pipeline: str = "") -> str:
    return f"part-{storage.writer_of(pipeline)}-e{epoch}-b{batch}-t{task}"


class ParquetSink:
    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        # An attempt of a task never meets the files of another.
        self._prefix = f"{settings.prefix}-{uuid4().hex[:12]}"
        self._numbers = iter(range(1_000_000))
        self._open: dict[tuple[str | None, ...], _OpenFile] = {}
        self._written: list[WrittenFile] = []
        #: of rows that are in no file yet
        self.buffered_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Takes a batch; writes what does not fit into memory."""
        for values, rows in _by_partition(batch, self._settings.partition_by):
            self._take(values, rows, batch.schema)
        while self.buffered_bytes > self._settings.max_bytes:
            self._flush(max(self._open, key=lambda values: self._open[values].buffered_bytes))

    def close(self) -> list[WrittenFile]:
        """Writes what is left. The files, in the order in which they were closed."""
        for values in list(self._open):
            self._finish(values)
        written, self._written = self._written, []
        return written

    def abandon(self) -> None:
        """Closes without finishing. What is on disk is nobody's, and goes: the disk may be full of it."""
        for file in self._open.values():
            file.abandon()
        if storage.is_local(self._settings.root):
            paths = [file.path for file in self._open.values()] + [file.path for file in self._written]
            for path in paths:
                with suppress(OSError):
                    storage.remove(self._settings.root, path)
        self._open, self._written = {}, []

    def _take(self, values: tuple[str | None, ...], rows: pa.RecordBatch, schema: pa.Schema) -> None:
        file = self._open.get(values)
        if file is not None and not file.schema.equals(schema):
            self._finish(values)
            file = None
        if file is None:
            if len(self._open) >= MAX_OPEN_FILES:
                self._finish(next(iter(self._open)))
            file = self._begin(values, rows.schema, schema)
        else:
            # Whoever had rows last is at the end of the line.
            del self._open[values]
        self._open[values] = file
        size = file.take(rows)
        self.buffered_bytes += size

    def _begin(self, values: tuple[str | None, ...], columns: pa.Schema, schema: pa.Schema) -> _OpenFile:
        settings = self._settings
        named = dict(zip(settings.partition_by, values, strict=True))
        name = f"{self._prefix}-{next(self._numbers)}.parquet"
        path = f"{settings.directory}/{name}" if settings.directory else storage.directory_of(named) + name
        with self._naming(path):
            stream = storage.create(settings.root, path)
        return _OpenFile(stream, path, named, columns, schema, settings.compression)

    def _flush(self, values: tuple[str | None, ...]) -> None:
        file = self._open[values]
        self.buffered_bytes -= file.buffered_bytes
        with self._naming(file.path):
            file.flush()
        if file.stream.tell() >= self._settings.target_bytes:
            self._finish(values)

    def _finish(self, values: tuple[str | None, ...]) -> None:
        file = self._open[values]
        self.buffered_bytes -= file.buffered_bytes
        with self._naming(file.path):
            self._written.append(file.finish(self._settings.fsync))
        del self._open[values]

    @contextmanager
    def _naming(self, path: str) -> Iterator[None]:
        """What storage refuses is told with the file's name. What is remote may be back later."""
        root = self._settings.root
        try:
            yield
        except OSError as error:
            kind = PipelineError if storage.is_local(root) else Passing
            raise storage.explained(os.path.join(root, path), error, kind) from error


class _OpenFile:
    """A file being written, and the rows that are not in it yet."""

    __slots__ = ("_buffer", "_floats", "_partition", "_rows", "_writer", "buffered_bytes", "path", "schema", "stream")

    def __init__(
        self,
        stream: BinaryIO,
        path: str,
        partition: dict[str, str | None],
        columns: pa.Schema,
        schema: pa.Schema,
        compression: Compression,
    ) -> None:
        self.stream = stream
        self.schema = schema
        self.buffered_bytes = 0
        self.path = path
        self._partition = partition
        self._buffer: list[pa.RecordBatch] = []
        self._rows = 0
        #: float columns without a NaN so far: to some readers it is the greatest value, to the Parquet writer none
        self._floats = [f.name for f in columns if pa.types.is_floating(f.type)]
        self._writer = pq.ParquetWriter(stream, columns, compression=compression, **_encoding(columns))

    def take(self, rows: pa.RecordBatch) -> int:
        size: int = rows.nbytes
        if rows.get_total_buffer_size() > MOST_HELD * size:
            # A small part of something larger, all of which it would keep in memory.
            rows = rows.take(pa.array(np.arange(rows.num_rows)))
        self._buffer.append(rows)
        self.buffered_bytes += size
        self._rows += rows.num_rows
        self._floats = [name for name in self._floats if not pc.any(pc.is_nan(rows.column(name))).as_py()]
        return size

    def flush(self) -> None:
        if self._buffer:
            self._writer.write_table(pa.Table.from_batches(self._buffer))
            self._buffer = []
            self.buffered_bytes = 0

    def abandon(self) -> None:
        if isinstance(self.stream, storage.Upload):
            self.stream.abandon()
        # The writer first: it would write its end when it is collected, into a stream that is closed by then.
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        with suppress(OSError):
            self.stream.close()

    def finish(self, fsync: bool) -> WrittenFile:
        self.flush()
        self._writer.close()
        size = self.stream.tell()
        # What object storage has answered for is safe already.
        if fsync and not isinstance(self.stream, storage.Upload):
            self.stream.flush()
            os.fsync(self.stream.fileno())
        self.stream.close()
        unbounded = {f.name for f in self.schema if pa.types.is_floating(f.type) and f.name not in self._floats}
        stats = json.dumps(statistics(self._writer.writer.metadata, unbounded))
        return WrittenFile(self.path, size, self._rows, self._partition, stats, self.schema)


def _encoding(columns: pa.Schema) -> dict[str, Any]:
    """What pays: dictionaries for texts and small numbers, differences for offsets and times, bytes as they are."""
    small = (pa.types.is_string, pa.types.is_large_string, pa.types.is_int32, pa.types.is_int16, pa.types.is_int8)
    return {
        "use_dictionary": [f.name for f in columns if any(is_a(f.type) for is_a in small)],
        "column_encoding": {
            f.name: "DELTA_BINARY_PACKED" for f in columns if pa.types.is_int64(f.type) or pa.types.is_timestamp(f.type)
        },
        "write_statistics": [f.name for f in columns if not pa.types.is_nested(f.type) and not _is_binary(f.type)],
    }


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


# --- partition values ---------------------------------------------------------------------------------


def _by_partition(
    batch: pa.RecordBatch, columns: tuple[str, ...]
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """The rows of each combination of partition values, without those columns, in their order."""
    if not columns:
        yield (), batch
        return
    rows = batch.select([name for name in batch.schema.names if name not in columns])
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    values: list[list[str | None]] = []
    for name in columns:
        encoded = pc.dictionary_encode(batch.column(name), null_encoding="encode")
        values.append(partition_texts(encoded.dictionary))
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
    if not batch.num_rows:
        return
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order])) + 1
    for begin, end in zip([0, *edges.tolist()], [*edges.tolist(), len(codes)], strict=True):
        code = int(codes[order[begin]])
        combined: list[str | None] = []
        for texts in reversed(values):
            code, index = divmod(code, len(texts))
            combined.append(texts[index])
        # A copy for each: a slice would keep the rows of all the others in memory for as long as it is buffered.
        yield tuple(reversed(combined)), rows if len(edges) == 0 else rows.take(pa.array(order[begin:end]))


def partition_texts(values: Any) -> list[str | None]:
    """Partition values as Delta's log has them."""
    if pa.types.is_timestamp(values.type):
        # Arrow has words for times that Python has none for.
        values = values.cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.string())
    elif pa.types.is_date(values.type):
        values = values.cast(pa.string())
    return [partition_text(value) for value in values.to_pylist()]


def partition_text(value: Any) -> str | None:
    """A partition value as Delta's log has it; the empty text is null there as well."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return moment.isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return str(value)


def write_rows(settings: SinkSettings, batches: Iterable[Any]) -> tuple[WrittenFile, ...]:
    """Rows that are already in Arrow, as files: the end of a transform, and what replay keeps of a file."""
    sink = ParquetSink(settings)
    try:
        for batch in batches:
            if batch.num_rows:
                sink.write(batch)
        return tuple(sink.close())
    finally:
        sink.abandon()


# --- statistics ---------------------------------------------------------------------------------------


def statistics(metadata: pq.FileMetaData, unbounded: Collection[str] = ()) -> dict[str, Any]:
    """Delta's statistics of a finished file: rows, and least, greatest and nulls of its columns.

    Of `unbounded` columns neither the least nor the greatest value is told.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(min(metadata.num_columns, INDEXED_COLUMNS)):
        found = [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]
        name = metadata.schema.column(index).path
        if "." in name or not found or any(not column.is_stats_set for column in found):
            continue
        stats = [column.statistics for column in found]
        nulls[name] = sum(s.null_count for s in stats)
        known = [s for s in stats if s.num_values]
        if known and name not in unbounded and all(s.has_min_max for s in known):
            low, high = _bounds(known)
            if low is not None and high is not None:
                least[name], greatest[name] = low, high
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _bounds(stats: list[pq.Statistics]) -> tuple[Any, Any]:
    try:
        return _least(min(s.min for s in stats)), _greatest(max(s.max for s in stats))
    except (ValueError, OverflowError):
        # A time that Python has no word for: the file is never skipped for it.
        return None, None


def _least(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, str):
        return value[:STATISTICS_TEXT_LENGTH]
    if isinstance(value, datetime):
        return _moment(value.replace(microsecond=value.microsecond // 1000 * 1000))
    if isinstance(value, (int, float)):
        return value
    return value.isoformat() if isinstance(value, date) else None


def _greatest(value: Any) -> Any:
    if isinstance(value, str) and len(value) > STATISTICS_TEXT_LENGTH:
        # Every text that begins like this is below it.
        return value[:STATISTICS_TEXT_LENGTH] + _LAST_CHARACTER
    if isinstance(value, datetime) and value.microsecond % 1000:
        return _least(value + timedelta(milliseconds=1))
    return _least(value)


def _moment(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if value.tzinfo is None else f"{text}Z"
