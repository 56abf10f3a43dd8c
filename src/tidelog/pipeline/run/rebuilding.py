"""The state that a replay of a table with keys comes to.

Its batches are merged into a table of its own first, in the directory where other things wait to become part of the
table; what that comes to replaces the table's rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable

from tidelog.pipeline.spec import Pipeline
from tidelog.pipeline.table import storage
from tidelog.pipeline.table.changes import stored
from tidelog.pipeline.table.graves import NO_GRAVES, Graves
from tidelog.pipeline.table.marks import GRAVES
from tidelog.pipeline.table.merging import keyed_of, landed_rows
from tidelog.pipeline.table.parquet_files import WrittenFile, write_rows
from tidelog.pipeline.table.query_table import QueryTable
from tidelog.pipeline.table.tables import Tables


class Rebuilding:
    """The state that a replay comes to, batch by batch."""

    def __init__(self, pipeline: Pipeline, tables: Tables, schema: pa.Schema) -> None:
        self._pipeline = pipeline
        self._tables = tables
        self._directory = f"{tables.staging(0)}-rebuilt"
        self._state = QueryTable.open(f"{tables.table.path}/{self._directory}", schema)
        self._batches = 0

    def take(self, number: int, files: Sequence[WrittenFile]) -> None:
        if files:
            rows = landed_rows(self._pipeline, self._tables.table.path, files)
            self._state = QueryTable.open(self._state.path, stored(rows.schema))
            self._state.merge(GRAVES, self._batches, rows, keyed_of(self._pipeline), in_turn=True)
            self._batches += 1
        self._tables.clear_landed(number)

    def finish(self) -> tuple[list[WrittenFile], dict[str, int]]:
        """The files of the table, and the entry that its commit has on top."""
        rows = DeltaTable(self._state.path).to_pyarrow_dataset()
        files = write_rows(
            self._tables.rows_sink(0, 0), (batch.cast(self._state.schema) for batch in rows.to_batches())
        )
        keep_ms = self._pipeline.table.keep_deleted_ms
        buried = self._state.graves(GRAVES, keep_ms)
        if buried is None:
            return list(files), {GRAVES: NO_GRAVES} if self._tables.table.mark(GRAVES) is not None else {}
        graves = Graves(self._tables.table.path, self._tables.table.writer, keep_ms)
        return list(files), {GRAVES: graves.add(None, buried)}

    def clear(self) -> None:
        """Removes it, and what replays left that died."""
        mine = f"{storage.STAGING}/{self._tables.table.writer}-e"
        for found in storage.files_below(self._tables.table.path, storage.STAGING):
            directory = found.path.partition("-rebuilt/")[0]
            if directory != found.path and directory.startswith(mine):
                storage.remove_directory(self._tables.table.path, f"{directory}-rebuilt")
