"""Which offsets the rows of a table came from: what a replay by time, or by partition value, is about.

The log is asked for times by the first record that is as late as that. Where timestamps are out of order that tells
where a range of time begins, and not where it ends: records that belong to it may follow behind later ones. The table
knows, for its rows have both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.table.rewriting import read_file
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.pipeline.table.pipeline_table import PipelineTable
    from tidelog.pipeline.table.rewriting import Origin
    from tidelog.pipeline.table.table_files import TableFile

#: from the first offset to behind the last, by partition
Hull = dict[TopicPartition, tuple[int, int]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_time(table: PipelineTable, origin: Origin, timestamp: str, since_ms: int | None, until_ms: int | None) -> Hull:
    """Of the rows with a timestamp in since <= timestamp < until."""
    since = None if since_ms is None else _EPOCH + timedelta(milliseconds=since_ms)
    until = None if until_ms is None else _EPOCH + timedelta(milliseconds=until_ms)

    def chosen(batch: pa.RecordBatch) -> Any:
        times = batch.column(timestamp)
        kind = pa.timestamp("us", tz="UTC")
        after = True if since is None else pc.greater_equal(times, pa.scalar(since, kind))
        before = True if until is None else pc.less(times, pa.scalar(until, kind))
        return pc.and_(pc.and_(pc.is_valid(times), after), before)

    def may_hold(file: TableFile) -> bool:
        least, greatest = file.least.get(timestamp), file.greatest.get(timestamp)
        too_late = until is not None and isinstance(least, datetime) and _in_utc(least) >= until
        too_early = since is not None and isinstance(greatest, datetime) and _in_utc(greatest) < since
        return not too_late and not too_early

    return _hull(table, origin, filter(may_hold, table.files()), chosen)


def in_partition(table: PipelineTable, origin: Origin, wanted: Mapping[str, str | None]) -> Hull:
    """Of the rows with these values of columns that the table is partitioned by."""
    if strange := sorted(wanted.keys() - set(table.partition_by)):
        by = f"by {', '.join(table.partition_by)}" if table.partition_by else "by no column"
        raise PipelineError(
            f"{table.path} is not partitioned by {', '.join(strange)}",
            f"it is partitioned {by}; other parts of a table are told by --topic, --from and --until",
        )
    files = [file for file in table.files() if wanted.items() <= dict(file.partition_values).items()]
    if not files:
        said = ", ".join(f"{name}={value}" for name, value in wanted.items())
        raise PipelineError(
            f"{table.path} has no rows with {said}",
            "rows that are gone do not say which offsets they came from: give --from and --until instead",
        )
    return _hull(table, origin, files)


def _hull(
    table: PipelineTable,
    origin: Origin,
    files: Iterable[TableFile],
    chosen: Callable[[pa.RecordBatch], Any] | None = None,
) -> Hull:
    found: Hull = {}
    for file in files:
        for batch in read_file(table, file):
            rows = batch if chosen is None else batch.filter(chosen(batch))
            origins = pa.table(dict(zip(("topic", "partition", "offset"), map(rows.column, origin), strict=True)))
            bounds = origins.group_by(["topic", "partition"]).aggregate([("offset", "min"), ("offset", "max")])
            for row in bounds.to_pylist():
                at = TopicPartition(row["topic"], row["partition"])
                first, until = found.get(at, (row["offset_min"], 0))
                found[at] = min(first, row["offset_min"]), max(until, row["offset_max"] + 1)
    return found


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
