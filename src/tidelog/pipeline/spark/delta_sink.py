"""`format("tidelog-delta")`: results of Structured Streaming in a Delta table, each batch once. No JVM part, no jar.

    windows.writeStream.format("tidelog-delta").option("checkpointLocation", …).start("lake/windows")

Tasks write Parquet files; the driver commits them together with the number of the batch (`query_table`).

    append mode     the rows are added; with the options mode = upsert and keys, they replace rows that have their key
    complete mode   the rows are all that the table has
    update mode     Spark does not offer it to sinks in Python; `upsert` is a function for foreachBatch instead

Options: path, partitionBy (names with commas between), mode (append | upsert), keys, orderBy (which of several rows for
a key is the latest), deletes (which rows take theirs out), keepDeleted (how long that is remembered), targetFileSize,
compression. A batch job (`df.write`) appends or overwrites.

Spark makes these objects in several processes: the driver's Python makes a writer and pickles it, tasks call `write`,
and for each batch another process beside the driver calls `commit`. The id of the query is among the properties of a
task; the messages bring it to the commit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tidelog.pipeline.table.parquet_files import SinkSettings, WrittenFile
    from tidelog.pipeline.table.query_table import QueryTable

DEFAULT_KEEP_DELETED: Final = "30d"
_OPTIONS: Final = (
    *("path", "partitionBy", "mode", "keys", "orderBy", "deletes", "keepDeleted", "targetFileSize", "compression"),
)
#: what Spark puts beside them
_SPARKS_OWN: Final = {"queryname", "checkpointlocation"}
_MAX_BUFFERED_BYTES: Final = 32 * 1024 * 1024
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
_STAGED: Final = re.compile(r"-b(\d+)-t\d+-[0-9a-f]+-\d+\.parquet$")


@dataclass(frozen=True, slots=True)
class TableOptions:
    path: str
    partition_by: tuple[str, ...]
    keys: tuple[str, ...]
    order_by: str | None
    deletes: str | None
    keep_deleted_ms: int
    target_bytes: int
    compression: str

    @classmethod
    def of(cls, given: Mapping[str, str], overwrite: bool) -> TableOptions:
        from tidelog.pipeline.errors import PipelineError

        found = {name.lower(): value for name, value in given.items()}
        known = {name.lower(): name for name in _OPTIONS}
        for name in found:
            if name not in known and name not in _SPARKS_OWN:
                raise PipelineError(f"tidelog-delta has no option {name}", f"there are {', '.join(_OPTIONS)}")
        if not found.get("path"):
            raise PipelineError("tidelog-delta needs the path of a table", 'write .option("path", …) or .start(path)')
        mode = found.get("mode", "append").lower()
        keys = _names(found.get("keys", ""))
        if mode not in ("append", "upsert") or (mode == "upsert") != bool(keys):
            hint = "mode is append, or upsert together with keys, the columns that rows are told apart by"
            raise PipelineError(f"tidelog-delta: mode {mode} and keys ({', '.join(keys)}) do not go together", hint)
        if overwrite and keys:
            hint = "leave mode and keys out, or use append mode"
            raise PipelineError("tidelog-delta: in complete mode every batch is the whole table", hint)
        return cls(
            path=found["path"],
            partition_by=_names(found.get("partitionby", "")),
            keys=keys,
            order_by=found.get("orderby"),
            deletes=found.get("deletes"),
            keep_deleted_ms=_duration_ms(found.get("keepdeleted", DEFAULT_KEEP_DELETED)),
            target_bytes=_size(found.get("targetfilesize", "128MB")),
            compression=found.get("compression", "snappy"),
        )


class DeltaSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tidelog-delta"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return DeltaWriter(TableOptions.of(self.options, overwrite), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return DeltaStreamWriter(TableOptions.of(self.options, overwrite), schema, overwrite)


class TableFiles(WriterCommitMessage):
    """What one task wrote, and for which query."""

    def __init__(self, files: Sequence[WrittenFile], query: str | None) -> None:
        self.files = tuple(files)
        self.query = query


class _IntoTable:
    """What writers of streams and of jobs have in common; they differ in how they commit."""

    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._overwrite = overwrite
        # Before anything is written: a path that holds something else is found out now.
        self._table()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._options, self._schema, iterator)

    def _table(self) -> QueryTable:
        from tidelog.pipeline.table.changes import stored
        from tidelog.pipeline.table.delta_features import Door
        from tidelog.pipeline.table.query_table import QueryTable

        door = Door.COMPLETE if self._overwrite else Door.UPSERT if self._options.keys else Door.APPEND
        schema = stored(self._schema) if self._options.keys else self._schema
        return QueryTable.open(self._options.path, schema, self._options.partition_by, door)


class DeltaStreamWriter(_IntoTable, DataSourceStreamArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = [message for message in messages if isinstance(message, TableFiles)]
        files = [file for message in written for file in message.files]
        if not written or not (files or self._overwrite):
            return
        query = written[0].query
        if query is None:
            raise RuntimeError(f"Spark does not say the id of the query ({QUERY_ID})")
        table = self._table()
        if self._overwrite:
            table.replace(query, batchId, files)
        elif self._options.keys:
            self._merge(table, query, batchId, files)
        else:
            table.append(query, batchId, files)

    def _merge(self, table: QueryTable, query: str, batch: int, files: Sequence[WrittenFile]) -> None:
        from tidelog.pipeline.table.changes import Keyed

        options = self._options
        if not table.has(query, batch):
            rows = _read(options.path, [file.path for file in files], self._schema)
            table.merge(
                query, batch, rows, Keyed(options.keys, options.order_by, options.deletes, options.keep_deleted_ms)
            )
        _clear_staging(options.path, query, batch, {file.path for file in files})


class DeltaWriter(_IntoTable, DataSourceArrowWriter):
    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool) -> None:
        from tidelog.pipeline.errors import PipelineError

        if options.keys:
            raise PipelineError("tidelog-delta: a batch job appends or overwrites", "use upsert() in foreachBatch")
        super().__init__(options, schema, overwrite)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        files = [file for message in messages if isinstance(message, TableFiles) for file in message.files]
        self._table().write_job(files, self._overwrite)


def upsert(
    path: str,
    keys: Sequence[str],
    *,
    order_by: str | None = None,
    deletes: str | None = None,
    keep_deleted: str = DEFAULT_KEEP_DELETED,
    partition_by: Sequence[str] = (),
) -> Callable[[DataFrame, int], None]:
    """For `foreachBatch`: rows take the place of those with their key, each batch once. For update mode.

    The rows of a batch pass through the driver's memory: in update mode these are the groups that changed.
    """

    def batch_into_table(rows: DataFrame, batch: int) -> None:
        from tidelog.pipeline.table.changes import Keyed, stored
        from tidelog.pipeline.table.delta_features import Door
        from tidelog.pipeline.table.query_table import QueryTable

        query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if query is None:
            raise RuntimeError("upsert() is for foreachBatch of a streaming query")
        schema = arrow_schema(rows.schema)
        table = QueryTable.open(path, stored(schema), partition_by, Door.UPSERT)
        if table.has(query, batch):
            # The state of the query still has to take the step: rows are computed though nobody wants them.
            rows.write.format("noop").mode("overwrite").save()
            return
        found = rows.toArrow().cast(schema)
        if len(found):
            keyed = Keyed(tuple(keys), order_by, deletes, _duration_ms(keep_deleted))
            table.merge(query, batch, found, keyed)

    return batch_into_table


# --- on the executors ---------------------------------------------------------------------------------


def _write(options: TableOptions, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> TableFiles:
    from pyspark import TaskContext

    from tidelog.pipeline.table.parquet_files import write_rows

    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    batch = None if context is None else context.getLocalProperty(BATCH_ID)
    task = 0 if context is None else context.partitionId()
    files = write_rows(_settings(options, query, batch, task), (batch.cast(schema) for batch in batches))
    return TableFiles(files, query)


def _settings(options: TableOptions, query: str | None, batch: str | None, task: int) -> SinkSettings:
    from tidelog.pipeline.table.parquet_files import SinkSettings

    # What is staged says for which batch, so that it is known when nobody needs it any more.
    number = f"-b{batch}" if options.keys and batch is not None else ""
    return SinkSettings(
        root=options.path,
        # Rows to be merged are not yet rows of the table.
        directory=_staging(query) if options.keys else "",
        prefix=f"part-{query or 'job'}{number}-t{task}",
        partition_by=() if options.keys else options.partition_by,
        target_bytes=options.target_bytes,
        max_bytes=_MAX_BUFFERED_BYTES,
        compression=options.compression,
    )


def _staging(query: str | None) -> str:
    from tidelog.pipeline.table import storage

    return f"{storage.STAGING}/{query}"


def _read(root: str, paths: Sequence[str], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tidelog.pipeline.errors import PipelineError
    from tidelog.pipeline.table import storage

    tables = []
    for path in paths:
        data = storage.read(root, path)
        if data is None:
            raise PipelineError(
                f"{root}: the file {path}, which a task wrote for this batch, is gone",
                "start the query again: nothing of the batch is in the table, and it is written anew",
            )
        tables.append(pq.read_table(pa.BufferReader(data)).cast(schema))
    return pa.concat_tables(tables)


def _clear_staging(root: str, query: str, batch: int, paths: Collection[str]) -> None:
    """Removes the files of a batch that is in the table, and what attempts at earlier ones left.

    Another driver of the query may be about to commit what else is there.
    """
    from tidelog.pipeline.table import storage

    for found in storage.files_below(root, _staging(query)):
        written = _STAGED.search(found.path)
        if found.path in paths or (written is not None and int(written[1]) < batch):
            storage.remove(root, found.path)


# --- words --------------------------------------------------------------------------------------------


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns as tables have them: times in UTC, everything nullable."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.schema([field.with_nullable(True) for field in to_arrow_schema(schema, timezone="UTC")])


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _size(text: str) -> int:
    from tidelog.pipeline.spec.toml_keys import size_bytes

    return _read_option("targetFileSize", size_bytes, text)


def _duration_ms(text: str) -> int:
    from tidelog.pipeline.spec.toml_keys import duration_ms

    return _read_option("keepDeleted", duration_ms, text)


def _read_option(name: str, read: Callable[[str, str], int], text: str) -> int:
    from tidelog.pipeline.errors import PipelineError
    from tidelog.pipeline.spec.toml_keys import Wrong

    try:
        return int(read(text, ""))
    except Wrong as error:
        raise PipelineError(f"tidelog-delta: {name}: {error.message}", error.hint) from error
