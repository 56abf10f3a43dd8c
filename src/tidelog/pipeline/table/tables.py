"""The table and the table of its dead letters, kept as one: whose they are, how far they are, and what a batch adds.

A record is in exactly one of the two. They are two tables, so that a batch takes two commits, and this is what makes a
crash between them harmless:

    1. letters of the batch -> the dead-letter table, with the batch's offsets
    2. rows of the batch    -> the table, with the batch's offsets: now the batch is done

    The table alone says how far the pipeline is. Whoever takes over compares: letters that the other table has from
    beyond the table's offsets belong to a batch that was never finished. They are taken out in the commit that fences
    the older runner there, and come again with the batch. It does not matter whether the batch is cut or decoded
    differently the second time.

Both commits have the runner's epoch, so that an older runner which wakes up between any two steps can finish neither.

Replay changes both tables as well, and there the order is the other way: see `intent.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from tidelog.pipeline.errors import Passing, PipelineError
from tidelog.pipeline.offset_ranges import Ends, OffsetRange
from tidelog.pipeline.read.batch_plan import renewed, starting_offset
from tidelog.pipeline.spec import Pipeline, StartingOffsets
from tidelog.pipeline.table import intent, storage
from tidelog.pipeline.table.changes import stored
from tidelog.pipeline.table.delta_features import Door
from tidelog.pipeline.table.marks import id_mark, offset_mark, start_mark
from tidelog.pipeline.table.merging import check_keys, merge_rows
from tidelog.pipeline.table.parquet_files import SinkSettings, WrittenFile, part_prefix
from tidelog.pipeline.table.pipeline_table import PipelineTable, TableChange
from tidelog.pipeline.table.rewriting import LETTERS, without
from tidelog.pipeline.table.table_view import check_empty, foreign
from tidelog.wire.partitions import TopicPartition

#: beyond every offset
_END: Final = 1 << 62


class Tables:
    """The tables of a pipeline. `letters` is None where its values are never decoded, so that none can fail."""

    def __init__(self, pipeline: Pipeline, table: PipelineTable, letters: PipelineTable | None) -> None:
        self._pipeline = pipeline
        self.table = table
        self.letters = letters
        #: of this runner; 0 until it has taken over
        self.epoch = 0

    @classmethod
    def look(cls, pipeline: Pipeline) -> Tables | None:
        """The tables as they are, to be read only; None where the pipeline has none yet."""
        table = PipelineTable.open(pipeline.table.path, pipeline.name)
        if table is None:
            return None
        return cls(pipeline, table, PipelineTable.open(pipeline.dead_letters.path, pipeline.name))

    @classmethod
    def open(cls, pipeline: Pipeline, schema: pa.Schema, pin: str | None = None, rebuilds: bool = False) -> Tables:
        """The tables, made where there are none, and checked: whose they are, and whether these rows fit.

        `pin` is what a new table has from its first moment on. Nothing is made before all is known to be in order.
        Who `rebuilds` all rows can do so where offsets have got lost.
        """
        from tidelog.pipeline.values import DEAD_LETTERS

        name, fsync = pipeline.name, pipeline.table.fsync
        path, partition_by = pipeline.table.path, pipeline.table.partition_by
        table, letters = examine(pipeline, schema, rebuilds)
        has_letters = pipeline.decode.format != "raw"
        if table is None:
            table = PipelineTable.create(path, name, schema, partition_by, fsync, pin)
            # Somebody else may have been faster.
            _check_table(table, pipeline, schema)
        if table.epoch is None and not rebuilds:
            table.adopt()
        if has_letters and letters is None:
            letters = PipelineTable.create(pipeline.dead_letters.path, name, DEAD_LETTERS, (), fsync)
        return cls(pipeline, table, letters)

    def offset(self, at: TopicPartition) -> int | None:
        return self.table.offset(at)

    @property
    def rows(self) -> int:
        """How many both tables have, as far as their files tell."""
        tables = (self.table,) if self.letters is None else (self.table, self.letters)
        return sum(file.rows for table in tables for file in table.files())

    @property
    def is_new(self) -> bool:
        """Whether no runner of the pipeline has ever begun."""
        return not self.table.epoch

    def refresh(self) -> None:
        """Looks at the table again. Superseded where another runner has taken over; Passing where it cannot be seen."""
        try:
            self.table.refresh()
        except OSError as error:
            raise storage.explained(self.table.path, error, Passing) from error
        self.table.check_epoch(self.epoch)
        self.table.check_restored()

    def renewed(self, topic_ids: Mapping[str, int]) -> frozenset[str]:
        """The topics that are not those which the table was read from."""
        return frozenset(
            topic for topic, number in topic_ids.items() if self.table.mark(id_mark(topic)) not in (None, number)
        )

    def same_topics(self, topic_ids: Mapping[str, int]) -> frozenset[str]:
        """The topics that are known to be those which the table was read from."""
        return frozenset(topic for topic, number in topic_ids.items() if self.table.mark(id_mark(topic)) == number)

    def check_topics(self, topic_ids: Mapping[str, int]) -> None:
        """DataLoss where a topic was deleted and created again."""
        if found := self.renewed(topic_ids):
            raise renewed(found)

    def check_usable(self) -> None:
        """Whether a runner could take both over; nothing is written."""
        on_restore = self._pipeline.table.on_restore
        self.table.check_usable(on_restore)
        if self.letters is not None and on_restore == "stop":
            self.letters.check_restored()

    def compact(self, target_bytes: int) -> None:
        """Joins small files of both tables. No row and no offset changes, and no other commit is disturbed."""
        self.table.compact(target_bytes)
        if self.letters is not None:
            self.letters.compact(target_bytes)

    # --- taking over --------------------------------------------------------------------------------

    def take_over(
        self,
        partitions: Sequence[TopicPartition],
        starts: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, int],
        rebuilds: bool = False,
    ) -> None:
        """Fences older runners of both tables, and takes out letters of a batch that none of them finished.

        `partitions` are those of the pipeline; `starts` those among them that the table does not know, and where they
        begin. `rebuilds` is for who is about to replace all rows.
        """
        on_restore = self._pipeline.table.on_restore
        for table in (self.table, self.letters):
            if table is not None:
                table.rebuilds = rebuilds
        # A table that was made anew beside old dead letters goes on from their epoch.
        at_least = 1 if self.letters is None else (self.letters.epoch or 0) + 1
        ids = {id_mark(topic): number for topic, number in topic_ids.items()}
        self.epoch = self.table.take_over(_begin(starts) | ids, at_least, on_restore)
        self.table.remember_topics(self.epoch, [at for at in partitions if self.offset(at) is not None])
        if self.letters is None:
            return
        self.letters.follow(self.epoch, on_restore)
        intent.finish(self.table, self.letters, self.epoch, self.letters_sink(0, 0))
        self._take_out_unfinished(self.letters, partitions)

    def _take_out_unfinished(self, letters: PipelineTable, partitions: Iterable[TopicPartition]) -> None:
        ahead = {}
        for at in partitions:
            there, here = letters.offset(at), self.table.offset(at)
            if there is not None and here is not None and there > here:
                ahead[at] = (there, here)
        if not ahead:
            return
        ranges = [OffsetRange(*at, here, _END) for at, (_, here) in ahead.items()]
        removed, kept = without(letters, LETTERS, ranges, self.letters_sink(0, 0))
        info = {"what": "letters of a batch that was not finished are taken out"}
        letters.commit(self.epoch, TableChange(files=kept, removed=removed, offsets=ahead, goes_back=True, info=info))

    def begin(self, starts: Mapping[TopicPartition, int], topic_ids: Mapping[str, int]) -> None:
        """Partitions that appeared while the pipeline runs."""
        if starts:
            topics = {topic for topic, _ in starts}
            ids = {id_mark(topic): topic_ids[topic] for topic in topics & topic_ids.keys()}
            self.table.commit(self.epoch, TableChange(marks=_begin(starts) | ids, info={"what": "partitions begin"}))
            self.table.remember_topics(self.epoch, starts)

    # --- batches ------------------------------------------------------------------------------------

    def commit_letters(
        self, files: Sequence[WrittenFile], moves: Mapping[TopicPartition, tuple[int, int]], info: Mapping[str, Any]
    ) -> None:
        """The first half of a batch; nothing, where it has no dead letters."""
        if not files:
            return
        if self.letters is None:
            raise PipelineError("raw values have no dead letters", "this must not happen")
        known = {at: (self.letters.offset(at), after) for at, (_, after) in moves.items()}
        self.letters.commit(
            self.epoch, TableChange(files=files, offsets=known, info={**info, "offsets": nested(moves)})
        )

    def commit_rows(
        self, files: Sequence[WrittenFile], moves: Mapping[TopicPartition, tuple[int, int]], info: Mapping[str, Any]
    ) -> None:
        """The second half: with it the batch is done."""
        # Others may have changed the columns while the batch was read.
        self.table.refresh()
        keyed = self._pipeline.table.keys
        schemas = [stored(file.schema) if keyed else file.schema for file in files]
        missing = {field.name: field for schema in schemas for field in self.table.missing(schema)}
        if missing:
            self.table.add_columns(self.epoch, missing.values())
        batch = TableChange(files=() if keyed else files, offsets=moves, info={**info, "offsets": nested(moves)})
        if keyed and files:
            merge_rows(self._pipeline, self.table, self.epoch, batch, files)
        else:
            self.table.commit(self.epoch, batch)

    def letters_sink(self, batch: int, task: int) -> SinkSettings:
        return SinkSettings(
            root=self._pipeline.dead_letters.path,
            prefix=part_prefix(self.epoch, batch, task, self._pipeline.name),
            target_bytes=self._pipeline.table.target_file_size,
            max_bytes=self._pipeline.limits.max_bytes_per_task,
            compression=self._pipeline.table.compression,
            fsync=self._pipeline.table.fsync,
        )

    def rows_sink(self, batch: int, task: int) -> SinkSettings:
        return SinkSettings(
            root=self._pipeline.table.path,
            prefix=part_prefix(self.epoch, batch, task, self._pipeline.name),
            partition_by=self._pipeline.table.partition_by,
            target_bytes=self._pipeline.table.target_file_size,
            max_bytes=self._pipeline.limits.max_bytes_per_task,
            compression=self._pipeline.table.compression,
            fsync=self._pipeline.table.fsync,
        )

    def landing_sink(self, batch: int, task: int) -> SinkSettings:
        """Where the rows of a batch land: in the table, or where they wait to be merged into it."""
        sink = self.rows_sink(batch, task)
        if not self._pipeline.table.keys:
            return sink
        return replace(sink, directory=f"{self.staging(batch)}-rows", partition_by=(), compression="lz4")

    def clear_landed(self, batch: int) -> None:
        """Removes rows that have been merged by now, or never will be."""
        if self._pipeline.table.keys:
            storage.remove_directory(self.table.path, f"{self.staging(batch)}-rows")

    def staging_sink(self, batch: int, task: int) -> SinkSettings:
        """Where decoded rows wait for their transform."""
        return SinkSettings(
            root=self._pipeline.table.path,
            directory=self.staging(batch),
            prefix=part_prefix(self.epoch, batch, task, self._pipeline.name),
            target_bytes=self._pipeline.table.target_file_size,
            max_bytes=self._pipeline.limits.max_bytes_per_task,
            compression="lz4",
        )

    def staging(self, batch: int) -> str:
        return f"{storage.STAGING}/{self.table.writer}-e{self.epoch}-b{batch}"


def nested(moves: Mapping[TopicPartition, tuple[int, int]]) -> dict[str, dict[str, list[int]]]:
    """Topic -> partition -> [before, after], as the entry of a commit says it."""
    found: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), ends in sorted(moves.items()):
        found.setdefault(topic, {})[str(partition)] = list(ends)
    return found


def _begin(starts: Mapping[TopicPartition, int]) -> dict[str, int]:
    marks = {offset_mark(at): offset for at, offset in starts.items()}
    return marks | {start_mark(at): offset for at, offset in starts.items()}


def starts_of(
    table: PipelineTable | None, ends: Mapping[TopicPartition, Ends], starting: StartingOffsets
) -> dict[TopicPartition, int]:
    """Where to begin with partitions that the table does not know."""
    is_new = table is None or not table.epoch
    new = [at for at in ends if table is None or table.offset(at) is None]
    return {at: starting_offset(at, ends[at], starting, is_new) for at in new}


def examine(
    pipeline: Pipeline, schema: pa.Schema | None, rebuilds: bool = False
) -> tuple[PipelineTable | None, PipelineTable | None]:
    """The table and that of the dead letters, None where they can be made; PipelineError where a run cannot begin.

    Nothing is changed. Without a schema it is not looked at whether the rows fit.
    """
    if schema is not None:
        check_partitioning(schema, pipeline)
        check_keys(schema, pipeline)
    table = PipelineTable.open(pipeline.table.path, pipeline.name, pipeline.table.fsync)
    if table is None:
        check_empty(pipeline.table.path)
    else:
        _check_table(table, pipeline, schema, rebuilds)
    return table, None if pipeline.decode.format == "raw" else _open_letters(pipeline)


def _check_table(table: PipelineTable, pipeline: Pipeline, schema: pa.Schema | None, rebuilds: bool = False) -> None:
    """Whose it is, whether it can be gone on with, and whether these rows fit."""
    partition_by = pipeline.table.partition_by
    table.require(Door.RUN)
    if pipeline.table.keys:
        table.require(Door.UPSERT)
    if not rebuilds:
        table.check_offsets()
    if table.epoch is None and not pipeline.table.adopt and not (rebuilds and table.topics):
        raise foreign(table, pipeline.name)
    if table.partition_by != partition_by:
        raise PipelineError(
            f"{table.path} is partitioned by {_listed(table.partition_by)}, and the file says {_listed(partition_by)}",
            f"write partition_by = {json.dumps(list(table.partition_by))} under [table], or another path",
        )
    if schema is not None:
        table.missing(schema)


def _open_letters(pipeline: Pipeline) -> PipelineTable | None:
    """None where they can be made."""
    path = pipeline.dead_letters.path
    letters = PipelineTable.open(path, pipeline.name, pipeline.table.fsync)
    if letters is None:
        check_empty(path)
    elif letters.epoch is None:
        raise foreign(letters, pipeline.name, "dead_letters")
    else:
        letters.require(Door.RUN)
    return letters


def check_partitioning(schema: pa.Schema, pipeline: Pipeline) -> None:
    """Whether rows with these columns can be partitioned as the file says."""
    columns = pipeline.table.partition_by
    for name in columns:
        if name not in schema.names:
            raise PipelineError(
                f"{pipeline.file}: [table] partition_by: the rows have no column {name}",
                f"they have: {', '.join(schema.names)}",
            )
        if pa.types.is_nested(schema.field(name).type) or pa.types.is_binary(schema.field(name).type):
            raise PipelineError(
                f"{pipeline.file}: [table] partition_by: column {name} is {schema.field(name).type}",
                "a table is partitioned by texts, numbers, dates or times; a transform can make such a column",
            )
    if columns and len(columns) == len(schema.names):
        raise PipelineError(
            f"{pipeline.file}: [table] partition_by names every column", "leave a column to be stored in the files"
        )


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "nothing"
