"""Taking rows out of a table by the offsets that they came from, file by file.

A Delta table changes by whole files. So the files that may hold such rows are named for removal, and what else they
held is written into new ones; the caller commits both together, and a reader sees either the old files or the new.

Which files may hold them is told by their statistics. A file that by these holds nothing else is not even read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.pipeline.offset_ranges import OffsetRange
from tidelog.pipeline.table import storage
from tidelog.pipeline.table.parquet_files import SinkSettings, WrittenFile, write_rows
from tidelog.pipeline.table.pipeline_table import PipelineTable
from tidelog.pipeline.table.table_files import TableFile


class Origin(NamedTuple):
    """The columns of a table that say where a row came from."""

    topic: str
    partition: str
    offset: str


LETTERS = Origin("topic", "partition", "offset")


class Rewritten(NamedTuple):
    removed: list[TableFile]
    #: what the removed files held beside
    kept: list[WrittenFile]


def without(table: PipelineTable, origin: Origin, ranges: Sequence[OffsetRange], settings: SinkSettings) -> Rewritten:
    """The change that takes the rows of these ranges out of the table."""
    removed: list[TableFile] = []
    kept: list[WrittenFile] = []
    for file in table.files():
        near = [r for r in ranges if _may_hold(file, origin, r)]
        if not near:
            continue
        if any(_is_within(file, origin, r) for r in near):
            removed.append(file)
            continue
        written = _rewritten(table, file, origin, near, settings)
        if written is not None:
            removed.append(file)
            kept += written
    return Rewritten(removed, kept)


def _rewritten(
    table: PipelineTable, file: TableFile, origin: Origin, ranges: Sequence[OffsetRange], settings: SinkSettings
) -> Sequence[WrittenFile] | None:
    """The rows of the file outside the ranges, in new files; None if it has no rows inside them."""
    read = 0

    def others() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for batch in read_file(table, file):
            # Counted here: not every writer tells the number of rows in its statistics.
            read += batch.num_rows
            yield _others(batch, origin, ranges)

    written = write_rows(settings, others())
    if sum(one.rows for one in written) < read:
        return written
    for one in written:
        storage.remove(table.path, one.path)
    return None


def _bounds(file: TableFile, column: str) -> tuple[Any, Any] | None:
    if column in file.partition_values:
        value = file.partition_values[column]
        return value, value
    low, high = file.least.get(column), file.greatest.get(column)
    return None if low is None or high is None else (low, high)


def _may_hold(file: TableFile, origin: Origin, r: OffsetRange) -> bool:
    topic, partition, offset = (_bounds(file, column) for column in origin)
    if topic is not None and not topic[0] <= r.topic <= topic[1]:
        return False
    if partition is not None and not int(partition[0]) <= r.partition <= int(partition[1]):
        return False
    return offset is None or (int(offset[0]) < r.until and int(offset[1]) >= r.start)


def _is_within(file: TableFile, origin: Origin, r: OffsetRange) -> bool:
    """Whether all rows of the file are of the range, as far as statistics can tell. Long topics are cut in them."""
    topic, partition, offset = (_bounds(file, column) for column in origin)
    if topic is None or partition is None or offset is None:
        return False
    one_partition = topic == (r.topic, r.topic) and int(partition[0]) == int(partition[1]) == r.partition
    return one_partition and r.start <= int(offset[0]) and int(offset[1]) < r.until


def _others(batch: pa.RecordBatch, origin: Origin, ranges: Sequence[OffsetRange]) -> pa.RecordBatch:
    """The rows that are of none of the ranges."""
    if not set(origin) <= set(batch.schema.names):
        # A file of somebody else, without the columns: its rows came from nowhere.
        return batch
    columns = [batch.column(name) for name in origin]
    hits = [
        reduce(
            pc.and_,
            (
                pc.equal(columns[0], r.topic),
                pc.equal(columns[1], r.partition),
                pc.greater_equal(columns[2], r.start),
                pc.less(columns[2], r.until),
            ),
        )
        for r in ranges
    ]
    return batch.filter(pc.invert(pc.fill_null(reduce(pc.or_, hits), False)))


def read_file(table: PipelineTable, file: TableFile) -> Iterator[pa.RecordBatch]:
    """The rows of one file, with its partition values as columns."""
    known = {field.name: field for field in table.schema}
    with pq.ParquetFile(_open(table.path, file.path)) as parquet:
        for batch in parquet.iter_batches():
            # Who joins or updates files may store texts in another form of Arrow's, and old files lack inner fields.
            columns = {name: batch.column(name).cast(known[name].type) for name in batch.schema.names}
            for name, value in file.partition_values.items():
                columns[name] = pa.repeat(_from_text(value, known[name].type), batch.num_rows)
            yield pa.RecordBatch.from_pydict(columns, schema=pa.schema([known[name] for name in columns]))


def _from_text(value: str | None, kind: pa.DataType) -> pa.Scalar:
    """A partition value, from how Delta's log has it."""
    text = pa.scalar(value, pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # Its text is in UTC and names no zone, which Arrow wants to see in one.
        return text.cast(pa.timestamp("us")).cast(pa.int64()).cast(kind)
    return text.cast(kind)


def _open(root: str, path: str) -> Any:
    from urllib.parse import unquote

    # Whoever else wrote into the table may have names that its log has in percent-encoding.
    path = path if storage.is_local(root) and os.path.exists(os.path.join(root, path)) else unquote(path)
    return storage.open_to_read(root, path)
