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
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import CommitProperties, Transaction

from tidelog.pipeline.changes import Keyed, doubled, merge, orders_of, resolve
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.graves import Graves
from tidelog.pipeline.parquet_files import WrittenFile
from tidelog.pipeline.table import add_action, check_empty, delta_schema

#: how often a commit is tried again that somebody else was faster than
ATTEMPTS: Final = 10


class QueryTable:
    def __init__(self, delta: DeltaTable, path: str) -> None:
        self.path = path
        self._delta = delta

    @classmethod
    def open(cls, path: str, schema: pa.Schema, partition_by: Sequence[str] = ()) -> QueryTable:
        """The table, made if there is none; columns that it lacks are added."""
        try:
            table = cls(DeltaTable(path), path)
        except TableNotFoundError:
            check_empty(path)
            try:
                DeltaTable.create(path, delta_schema(schema), partition_by=list(partition_by))
            except DeltaError:
                if not DeltaTable.is_deltatable(path):
                    raise
            table = cls(DeltaTable(path), path)
        table._check_partitions(partition_by)
        table._add_missing(schema)
        return table

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
        self._once(query, batch, lambda: self._write(files, "append", self._numbered(query, batch)))

    def replace(self, query: str, batch: int, files: Sequence[WrittenFile]) -> None:
        """All rows of the table are these now."""
        self._once(query, batch, lambda: self._write(files, "overwrite", self._numbered(query, batch)))

    def merge(self, query: str, batch: int, rows: pa.Table, keyed: Keyed, *, in_turn: bool = False) -> None:
        """The latest change of each key takes the place of the row with its key, or takes it out.

        `in_turn` says that rows are in the order in which they were read: that of a key which comes last is the latest.
        """
        if keyed.order_by is None and not in_turn and (twice := doubled(rows, keyed)):
            raise PipelineError(
                f"{twice} rows of a batch have the key ({', '.join(keyed.keys)}) of another one",
                "say by orderBy which of them is the latest, for example by the offset",
            )
        graves = Graves(self.path, query)

        def change() -> None:
            kept = self._delta.transaction_version(_graves_entry(query))
            changes = resolve(rows, keyed, lambda: graves.read(kept), lambda: orders_of(self._delta, keyed))
            if changes.graves is not None:
                kept = graves.add(kept, changes.graves)
            properties = self._numbered(query, batch, kept)
            merge(self._delta, changes, keyed, properties)
            self._delta.update_incremental()
            if not self.has(query, batch):
                # Nothing of it is later than what is there; that it was seen must be known all the same.
                self._write([], "append", properties)
                self._delta.update_incremental()

        self._once(query, batch, change)

    def graves(self, query: str) -> pa.Table | None:
        """Keys and orders of what a query has deleted, and might come back."""
        return Graves(self.path, query).read(self._delta.transaction_version(_graves_entry(query)))

    def write_job(self, files: Sequence[WrittenFile], overwrite: bool) -> None:
        """The rows of a batch job, which has no number and is not tried again."""
        self._write(files, "overwrite" if overwrite else "append", CommitProperties())

    def _once(self, query: str, batch: int, change: Callable[[], None]) -> None:
        for attempt in range(ATTEMPTS):
            if self.has(query, batch):
                return
            try:
                change()
                return
            except DeltaError as error:
                # It may have happened all the same: what fails after the log entry comes as an error as well.
                self._delta.update_incremental()
                conflict = isinstance(error, CommitFailedError) and attempt + 1 < ATTEMPTS
                if not conflict and not self.has(query, batch):
                    raise PipelineError(f"{self.path}: the commit of batch {batch} failed: {error}") from error

    def _write(self, files: Sequence[WrittenFile], mode: str, properties: CommitProperties) -> None:
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

    def _add_missing(self, schema: pa.Schema) -> None:
        known = {column.name: column.type for column in self.schema}
        for column in schema:
            there = known.get(column.name)
            if there is not None and there != column.type:
                raise PipelineError(
                    f"column {column.name} of {self.path} is {there}, and the rows have it as {column.type}",
                    "cast the column, give it another name, or write to another path",
                )
        missing = [column for column in schema if column.name not in known]
        if missing:
            self._delta.alter.add_columns(delta_schema(pa.schema(missing)).fields)
            self._delta.update_incremental()


def _entry(query: str) -> str:
    return f"tidelog-delta/{query}"


def _graves_entry(query: str) -> str:
    """Which version of what was deleted belongs to the table."""
    return f"tidelog-delta/{query}/deleted"
