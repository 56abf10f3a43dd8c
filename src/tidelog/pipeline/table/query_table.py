"""A Delta table as the sink of a streaming query: rows and the number of their batch in one commit.

Spark runs a batch again, over the same input, if it does not know that the batch was finished: it writes that into its
checkpoint after the sink has committed. So every commit has a transaction entry

    tidelog-delta/<query id>    the number of the last batch of that query that is in the table

and a batch that is in the table already is passed over. The query's id is Spark's: it is kept in the checkpoint and is
the same in every run. Delta refuses the commit of somebody who read the table before another commit with this entry,
so that a run that should be dead cannot commit a batch a second time.

A crash before the commit leaves files that no reader sees; after it, everything is in the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import CommitProperties, Transaction

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.table import delta_features
from tidelog.pipeline.table.changes import Keyed, doubled, merge, orders_of, resolve
from tidelog.pipeline.table.columns import delta_schema, first_line
from tidelog.pipeline.table.delta_features import Door
from tidelog.pipeline.table.graves import Graves
from tidelog.pipeline.table.optimistic import optimistically
from tidelog.pipeline.table.parquet_files import WrittenFile
from tidelog.pipeline.table.table_files import add_action
from tidelog.pipeline.table.table_view import check_empty


class QueryTable:
    def __init__(self, delta: DeltaTable, path: str) -> None:
        self.path = path
        self._delta = delta

    @classmethod
    def open(
        cls, path: str, schema: pa.Schema, partition_by: Sequence[str] = (), door: Door = Door.APPEND
    ) -> QueryTable:
        """The table, made if there is none; columns that it lacks are added. Unsupported where `door` is closed."""
        try:
            table = cls(DeltaTable(path), path)
            delta_features.check(table._delta, path, door)
        except TableNotFoundError:
            check_empty(path)
            try:
                DeltaTable.create(path, delta_schema(schema), partition_by=list(partition_by))
            except DeltaError:
                if not DeltaTable.is_deltatable(path):
                    raise
            table = cls(DeltaTable(path), path)
        except DeltaError as error:
            raise PipelineError(
                f"{path} cannot be read as a Delta table: {first_line(error)}", "write to another path"
            ) from error
        table._check_partitions(partition_by)
        table._add_missing(schema)
        return table

    @property
    def version(self) -> int:
        return int(self._delta.version())

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self._delta.schema().to_arrow())

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._delta.metadata().partition_columns)

    def has(self, query: str, batch: int) -> bool:
        done = self._delta.transaction_version(_entry(query))
        return done is not None and int(done) >= batch

    # --- commits ------------------------------------------------------------------------------------

    def append(self, query: str, batch: int, files: Sequence[WrittenFile]) -> None:
        self._once(query, batch, lambda: self._write(files, Door.APPEND, self._numbered(query, batch)))

    def replace(self, query: str, batch: int, files: Sequence[WrittenFile]) -> None:
        """All rows of the table are these now."""
        self._once(query, batch, lambda: self._write(files, Door.COMPLETE, self._numbered(query, batch)))

    def merge(self, query: str, batch: int, rows: pa.Table, keyed: Keyed, *, in_turn: bool = False) -> None:
        """The latest change of each key takes the place of the row with its key, or takes it out.

        `in_turn` says that rows are in the order in which they were read: that of a key which comes last is the latest.
        """
        if keyed.order_by is None and not in_turn and (twice := doubled(rows, keyed)):
            raise PipelineError(
                f"{twice} rows of a batch have the key ({', '.join(keyed.keys)}) of another one",
                "use orderBy to say which of them is the latest, for example by the offset",
            )
        graves = Graves(self.path, query, keyed.keep_deleted_ms)

        def change() -> None:
            delta_features.check(self._delta, self.path, Door.UPSERT)
            kept = self._delta.transaction_version(_graves_entry(query))
            changes = resolve(rows, keyed, lambda: graves.read(kept), lambda: orders_of(self._delta, keyed))
            if changes.graves is not None:
                kept = graves.add(kept, changes.graves)
            properties = self._numbered(query, batch, kept)
            merge(self._delta, changes, keyed, properties)
            self._delta.update_incremental()
            if not self.has(query, batch):
                # Nothing of it is later than what is there; that it was seen must be known all the same.
                self._write([], Door.APPEND, properties)
                self._delta.update_incremental()

        self._once(query, batch, change)

    def graves(self, query: str, keep_ms: int) -> pa.Table | None:
        """Keys and order values of the rows that a query has deleted, which might come back."""
        return Graves(self.path, query, keep_ms).read(self._delta.transaction_version(_graves_entry(query)))

    def write_job(self, files: Sequence[WrittenFile], overwrite: bool) -> None:
        """The rows of a batch job, which has no number and is not tried again."""
        try:
            self._write(files, Door.COMPLETE if overwrite else Door.APPEND, CommitProperties())
        except DeltaError as error:
            raise PipelineError(f"{self.path}: the commit failed: {first_line(error)}") from error

    def _once(self, query: str, batch: int, change: Callable[[], None]) -> None:
        def attempt() -> None:
            if not self.has(query, batch):
                change()

        optimistically(self, attempt, f"batch {batch} can be", lambda _, __: self.has(query, batch))

    def look_again(self) -> None:
        self._delta.update_incremental()

    def check_overtaken(self, version: int, error: DeltaError) -> None:
        if not isinstance(error, CommitFailedError):
            raise PipelineError(f"{self.path}: the commit failed: {first_line(error)}") from error

    def _write(self, files: Sequence[WrittenFile], door: Door, properties: CommitProperties) -> None:
        # Others may have changed the table since it was opened, or since an attempt.
        delta_features.check(self._delta, self.path, door)
        for rows in {file.schema for file in files}:
            if lacking := self._missing(rows):
                raise PipelineError(
                    f"{self.path} has lost the columns {', '.join(column.name for column in lacking)}",
                    "see who else changes the table; start the query again, which adds them anew",
                )
        mode: Literal["append", "overwrite"] = "overwrite" if door is Door.COMPLETE else "append"
        actions: list[Any] = [add_action(file) for file in files]
        schema, partition_by = self._delta.schema(), list(self.partition_by)
        self._delta.create_write_transaction(actions, mode, schema, partition_by, commit_properties=properties)

    def _numbered(self, query: str, batch: int, graves: int | None = None) -> CommitProperties:
        now_ms = int(time.time() * 1000)
        entries = [Transaction(_entry(query), batch, now_ms)]
        if graves is not None:
            entries.append(Transaction(_graves_entry(query), graves, now_ms))
        # Trying again is ours: between two attempts it is looked whether the batch is there.
        return CommitProperties(app_transactions=entries, max_commit_retries=0)

    # --- columns ------------------------------------------------------------------------------------

    def _check_partitions(self, wanted: Sequence[str]) -> None:
        if wanted and tuple(wanted) != self.partition_by:
            there = ", ".join(self.partition_by) or "nothing"
            raise PipelineError(
                f"{self.path} is partitioned by {there}, not by {', '.join(wanted)}",
                "write to another path, or leave partitionBy as the table has it",
            )

    def _missing(self, schema: pa.Schema) -> list[pa.Field]:
        """The columns that the table lacks; PipelineError where it has them otherwise."""
        spelled = {name.lower(): name for name in self.schema.names}
        known = {column.name: column.type for column in self.schema}
        for column in schema:
            there = known.get(column.name)
            if there is not None and there != column.type:
                raise PipelineError(
                    f"column {column.name} of {self.path} is {there}, and the rows have it as {column.type}",
                    "cast the column, give it another name, or write to another path",
                )
            if (other := spelled.get(column.name.lower(), column.name)) != column.name:
                raise PipelineError(
                    f"column {column.name} of the rows differs from column {other} of {self.path} in case only",
                    f"call it {other}, or by another name",
                )
        return [column for column in schema if column.name not in known]

    def _add_missing(self, schema: pa.Schema) -> None:
        def attempt() -> None:
            if missing := self._missing(schema):
                self._delta.alter.add_columns(delta_schema(pa.schema(missing)).fields)
                self._delta.update_incremental()

        # Somebody else may have added them at the same time.
        optimistically(self, attempt, "columns can be added", lambda _, __: not self._missing(schema))


def _entry(query: str) -> str:
    return f"tidelog-delta/{query}"


def _graves_entry(query: str) -> str:
    """Which version of what was deleted belongs to the table."""
    return f"tidelog-delta/{query}/deleted"
