"""Carrying out one batch up to the point where it could be committed: what runner and replay have in common.

    tasks -> land -> [values had fields beside the schema: pin the wider one, land again] -> [transform] -> files

Nothing here is visible to a reader of the table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tidelog.pipeline.errors import Passing, PipelineError
from tidelog.pipeline.land.executor import Done, Executor
from tidelog.pipeline.land.landing import Landed, LandingTask
from tidelog.pipeline.offset_ranges import OffsetRange
from tidelog.pipeline.run.decoding import Decoding
from tidelog.pipeline.spec import Pipeline
from tidelog.pipeline.table import storage
from tidelog.pipeline.table.changes import stored
from tidelog.pipeline.table.parquet_files import WrittenFile
from tidelog.pipeline.table.tables import Tables

if TYPE_CHECKING:
    import pyarrow as pa

#: how often a batch is landed again because its values have fields that the schema lacks
WIDENINGS: Final = 5


@dataclass(frozen=True, slots=True)
class BatchFiles:
    rows: tuple[WrittenFile, ...]
    dead: tuple[WrittenFile, ...]


class Lander:
    """Lands batches with the schema as it is known so far. `on_pin` keeps a wider one before it is used."""

    def __init__(
        self,
        pipeline: Pipeline,
        executor: Executor,
        tables: Tables,
        decoding: Decoding,
        on_pin: Callable[[Decoding, list[str]], None],
        timeout_s: float,
    ) -> None:
        self._pipeline = pipeline
        self._executor = executor
        self._tables = tables
        self._on_pin = on_pin
        self._timeout_s = timeout_s
        self.decoding = decoding

    def land(self, tasks: Sequence[Sequence[OffsetRange]], batch: int, done: Done) -> BatchFiles:
        """The files of a batch. What cannot be landed is raised: Passing where it may work later."""
        try:
            results = self._land(tasks, batch, done)
            dead = tuple(file for result in results for file in result.dead_files)
            staged = [file for result in results for file in result.files]
            if self._pipeline.transform is None:
                return BatchFiles(tuple(staged), dead)
            if not staged:
                return BatchFiles((), dead)
            rows = self._executor.transform(
                self._pipeline.transform,
                self.decoding.decoder.schema,
                [os.path.join(self._pipeline.table.path, file.path) for file in staged],
                self._tables.landing_sink(batch, 0),
            )
            return BatchFiles(tuple(rows), dead)
        finally:
            if self._pipeline.transform is not None:
                storage.remove_directory(self._pipeline.table.path, self._tables.staging(batch))

    def _land(self, tasks: Sequence[Sequence[OffsetRange]], batch: int, done: Done) -> list[Landed]:
        self.decoding = replace(self.decoding, is_full=False)
        for _ in range(WIDENINGS):
            results = self._executor.land([self._task(n, ranges, batch) for n, ranges in enumerate(tasks)], done)
            _raise_failures(results)
            wider = [result.wider for result in results if result.wider is not None]
            if not wider:
                return results
            before = set(self.decoding.decoder.fields.names)
            self.decoding = self.decoding.widened(self._pipeline.decode, wider)
            self._on_pin(self.decoding, [n for n in self.decoding.decoder.fields.names if n not in before])
        raise PipelineError(
            f"the values of batch {batch} have new fields however often it is read",
            "set evolve = false under [decode], and report this",
        )

    def _task(self, number: int, ranges: Sequence[OffsetRange], batch: int) -> LandingTask:
        tables, source = self._tables, self._pipeline.source
        staged = self._pipeline.transform is not None
        decoding = self.decoding
        return LandingTask(
            number=number,
            ranges=tuple(ranges),
            bootstrap=source.bootstrap,
            isolation=source.isolation,
            fail_on_data_loss=source.fail_on_data_loss,
            decoder=decoding.closed(self._pipeline.decode) if decoding.is_full else decoding.decoder,
            rows=tables.staging_sink(batch, number) if staged else tables.landing_sink(batch, number),
            dead=tables.letters_sink(batch, number),
            timeout_s=self._timeout_s,
        )

    @property
    def row_schema(self) -> pa.Schema:
        return row_schema(self._pipeline, self._executor, self.decoding)


def row_schema(pipeline: Pipeline, executor: Executor, decoding: Decoding) -> pa.Schema:
    """The columns that the table gets."""
    schema: pa.Schema = decoding.decoder.schema
    if pipeline.transform is not None:
        schema = executor.transformed_schema(pipeline.transform, schema)
    return stored(schema) if pipeline.table.keys else schema


def _raise_failures(results: Iterable[Landed]) -> None:
    failures = [result.failure for result in results if result.failure is not None]
    # What does not pass by itself is the one to be told.
    for failure in sorted(failures, key=lambda failure: isinstance(failure, Passing)):
        raise failure
