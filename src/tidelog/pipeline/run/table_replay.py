"""Building a table, or a part of it, again from the log, in one replacement.

    take over      a running runner of the pipeline is fenced: it stops with a message, and is started again afterwards
    check          the log must still hold every offset that is to be replaced; otherwise rows would be lost
    land           everything is read and decoded again, batch by batch; nobody sees the files
    commit         one log entry: the old files go, the new ones come, the offsets stay
    dead letters   likewise, see `intent.py`

A reader sees the old rows or the new ones, never some of both. A crash before the commit leaves the old table; one
after it, the new. A runner that is started during a replay fences the replay, which then fails and changes nothing.

The whole table is replaced with all its columns, so that types may change. A part is replaced row by row: files that
hold rows of the ranges go, what else they held is written again. That needs the columns that say where a row came from
(`[table] metadata`); rows that a transform made without them can only be replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidelog.pipeline.errors import DataLoss, NotReady, PipelineError
from tidelog.pipeline.land.executor import Executor
from tidelog.pipeline.land.landing import Landed
from tidelog.pipeline.land.progress_events import Listener, Notice, tell_all
from tidelog.pipeline.offset_ranges import Ends, OffsetRange
from tidelog.pipeline.read.ranges import hold, into_tasks, limit
from tidelog.pipeline.run.batches import Lander, row_schema
from tidelog.pipeline.run.brokers import Brokers
from tidelog.pipeline.run.decoding import Decoding
from tidelog.pipeline.run.incumbent import sample
from tidelog.pipeline.run.rebuilding import Rebuilding
from tidelog.pipeline.spec import Pipeline
from tidelog.pipeline.table import intent
from tidelog.pipeline.table.delta_features import Door
from tidelog.pipeline.table.marks import id_mark, start_mark
from tidelog.pipeline.table.parquet_files import WrittenFile
from tidelog.pipeline.table.pipeline_table import TableChange
from tidelog.pipeline.table.rewriting import LETTERS, Origin, without
from tidelog.pipeline.table.tables import Tables, check_partitioning, nested, starts_of
from tidelog.wire.partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class Scope:
    """What is to be built again: what the table has of each partition, or a part of that."""

    ranges: tuple[OffsetRange, ...]
    #: offsets that the log no longer holds, or whose topic is no longer read
    missing: tuple[OffsetRange, ...]
    whole: bool
    #: the pipelines that were let into a table that others had made: it holds more rows than this pipeline's
    adopters: tuple[str, ...] = ()
    #: topics that were deleted and created again since the table was read from them
    renewed: frozenset[str] = frozenset()
    #: topics that are known to be those which the table was read from
    same: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        return sum(r.size for r in self.ranges)


@dataclass(frozen=True, slots=True)
class Replayed:
    rows: int
    dead_letters: int
    files: int
    removed_files: int
    table_version: int


def scope_of(
    tables: Tables,
    ends: Mapping[TopicPartition, Ends],
    wanted: Mapping[TopicPartition, tuple[int, int]] | None,
    topic_ids: Mapping[str, int],
) -> Scope:
    """What a replay would read: all that the table has for None, else of each partition from one offset to another."""
    renewed, same = tables.renewed(topic_ids), tables.same_topics(topic_ids)
    ranges: list[OffsetRange] = []
    missing: list[OffsetRange] = []
    for at in sorted({*ends, *tables.table.partitions()}):
        start, until, held = tables.table.start(at), tables.offset(at), ends.get(at)
        if start is None or until is None:
            continue
        if wanted is not None:
            first, last = wanted.get(at, (0, 0))
            start, until = max(start, first), min(until, last)
        if held is None or at[0] in renewed:
            missing.append(OffsetRange(*at, start, until))
            if held is not None and wanted is None:
                ranges.append(OffsetRange(*at, held.first, min(until, held.end)))
            continue
        if wanted is None and until > held.end and at[0] not in same:
            # It is another log than the one that the table was read from: all of it counts.
            start = held.first
        there, gone = hold(OffsetRange(*at, start, until), held)
        missing += gone
        ranges.append(there)
    return Scope(
        tuple(r for r in ranges if r.size),
        tuple(dict.fromkeys(r for r in missing if r.size)),
        wanted is None,
        tuple(tables.table.adopters),
        renewed,
        same,
    )


def check_scope(scope: Scope, pipeline: Pipeline, columns: Sequence[str], allow_missing: bool) -> None:
    """`columns` are the table's."""
    if scope.missing and not allow_missing:
        lost = "; ".join(f"{r} ({r.size} offsets)" for r in scope.missing)
        hint = (
            "give --from an offset or a time that the log still holds, which keeps the older rows and those of topics "
            "that are no longer there or that the file no longer names; --allow-missing builds the table without them"
            if scope.whole
            else "--allow-missing replaces the rest and keeps those rows"
        )
        raise DataLoss(f"the table has rows of records that the log no longer holds: {lost}", hint)
    adopters = scope.adopters or ((pipeline.name,) if pipeline.table.adopt else ())
    if scope.whole and adopters and not allow_missing:
        raise PipelineError(
            f"{pipeline.table.path} was adopted by {', '.join(adopters)}, "
            "and may hold rows that are not from this pipeline's topics",
            "give --from and --until, which replaces this pipeline's rows only; --allow-missing drops all others",
        )
    if not scope.whole and pipeline.table.keys:
        raise PipelineError(
            f"{pipeline.table.path} has the latest row of each key, and a part of the log does not tell which that is",
            "replay the whole table, without --from, --until, --topic and --where",
        )
    if not scope.whole:
        check_origin(pipeline, columns)


def check_origin(pipeline: Pipeline, columns: Sequence[str]) -> Origin:
    """The columns that say where a row came from; PipelineError where the table lacks one."""
    origin = origin_of(pipeline)
    if origin is None or not set(origin) <= set(columns):
        raise PipelineError(
            "the rows of the table do not say which offsets they came from",
            "replay the whole table, without --from, --until, --topic and --where; parts need topic, partition and "
            "offset among [table] metadata, and in what a transform selects",
        )
    return origin


def check_drop(path: str, before: int, dropped: int, drop_most: bool) -> None:
    """PipelineError where most of a table's rows would go, and nobody has asked for that."""
    if dropped * 2 > before and not drop_most:
        raise PipelineError(
            f"the replay would drop {dropped} of the {before} rows and dead letters of {path}, for which there are no "
            "records in the log any more, or of which the pipeline no longer makes any; nothing is changed",
            "if that is what you want, say so: --drop-most-rows",
        )


def check_turned(path: str, before: int, after: int, drop_most: bool) -> None:
    """PipelineError where most rows would be dead letters, or nothing, and nobody has asked for that."""
    if after * 2 < before and not drop_most:
        raise PipelineError(
            f"the replay would leave {after} of the {before} rows of {path}: the others would be dead letters, "
            "or gone; nothing is changed",
            "see whether [decode] fits the records; if that is what you want, say so: --drop-most-rows",
        )


def origin_of(pipeline: Pipeline) -> Origin | None:
    """The columns of the table that say where a row came from, if it has all of them."""
    if pipeline.decode.format == "raw":
        return LETTERS
    names = dict(pipeline.decode.metadata)
    found = [names.get(column) for column in LETTERS]
    return None if None in found else Origin(*(name for name in found if name is not None))


class Replay:
    def __init__(
        self, pipeline: Pipeline, executor: Executor, listeners: Sequence[Listener] = (), *, timeout_s: float = 30.0
    ) -> None:
        self._pipeline = pipeline
        self._executor = executor
        self._listeners = listeners
        self._timeout_s = timeout_s
        #: losses are told once, however often they are met
        self._told: set[str] = set()

    def run(
        self,
        wanted: Mapping[TopicPartition, tuple[int, int]] | None = None,
        *,
        allow_missing: bool = False,
        drop_most: bool = False,
    ) -> Replayed:
        """`allow_missing`: though the log no longer holds some records; `drop_most`: though most rows would go."""
        pipeline = self._pipeline
        with Brokers(pipeline.source, self._timeout_s) as brokers:
            partitions = brokers.partitions()
            ends = brokers.ends(partitions)
            there = Tables.look(pipeline)
            if there is None or (there.table.epoch is None and not there.table.topics):
                raise NotReady(f"pipeline {pipeline.name} has no table yet", f"tidelog pipeline run {pipeline.file}")
            # Asked before anybody is fenced in vain.
            there.table.require(Door.REPLAY if wanted is None else Door.REPLAY_PART)
            scope = scope_of(there, ends, wanted, brokers.topic_ids)
            check_scope(scope, pipeline, there.table.schema.names, allow_missing)
            # Where offsets are gone, or a RESTORE brought rows that go further, the next run reads those rows again.
            drop_most = drop_most or there.table.is_restored or bool(there.table.lost())
            if scope.whole and pipeline.transform is None:
                # So many rows and letters may come at most.
                check_drop(there.table.path, there.rows, there.rows - scope.size, drop_most)
            decoding = self._decoding(there, ends, wanted is None)
            schema = row_schema(pipeline, self._executor, decoding)
            check_partitioning(schema, pipeline)
            tables = Tables.open(pipeline, there.table.schema if wanted is None else schema, None, wanted is None)
            # A table that was made, and that no runner has begun with, begins now.
            starts = starts_of(there.table, ends, pipeline.source.starting_offsets) if there.is_new else {}
            # What the table has forgotten begins anew, after all rows have gone.
            starts |= {at: ends[at].first if at in ends else 0 for at in there.table.lost()}
            tables.take_over(partitions, starts, brokers.topic_ids, rebuilds=wanted is None)
            # A runner may have gone on until now.
            ends = brokers.ends(brokers.partitions())
            topic_ids = brokers.topic_ids
        if tables.table.pin != there.table.pin:
            decoding = self._decoding(tables, ends, wanted is None)
        scope = scope_of(tables, ends, wanted, topic_ids)
        check_scope(scope, pipeline, tables.table.schema.names, allow_missing)
        lander = self._lander(tables, decoding, may_lose=allow_missing and scope.whole)
        return self._replace(tables, lander, scope, ends, topic_ids, drop_most)

    def _lander(self, tables: Tables, decoding: Decoding, may_lose: bool) -> Lander:
        # Rows go for what is read here: what the file says of a runner's gaps does not hold. A part keeps the rows of
        # what is gone, so that one which loses more while it reads must begin anew.
        source = replace(self._pipeline.source, fail_on_data_loss=not may_lose)
        return Lander(
            replace(self._pipeline, source=source),
            self._executor,
            tables,
            decoding,
            lambda _, names: self._widened(names),
            self._timeout_s,
        )

    def _decoding(self, there: Tables, ends: Mapping[TopicPartition, Ends], whole: bool) -> Decoding:
        decode = self._pipeline.decode
        # A rebuild begins with what the file says; columns that values have beside that are found again.
        pin = None if whole and not decode.infer else there.table.pin
        decoding = Decoding.of(decode, pin, lambda: sample(self._pipeline, ends, self._timeout_s))
        if decoding is None:
            raise NotReady("no topic has a record to infer the schema from", "write a schema under [decode]")
        return decoding

    def _replace(
        self,
        tables: Tables,
        lander: Lander,
        scope: Scope,
        ends: Mapping[TopicPartition, Ends],
        topic_ids: Mapping[str, int],
        drop_most: bool,
    ) -> Replayed:
        rows, dead, more_marks = self._land(tables, lander, scope)
        there, rows_there = tables.rows, sum(file.rows for file in tables.table.files())
        if scope.whole:
            coming = sum(f.rows for f in rows)
            check_drop(tables.table.path, there, there - coming - sum(f.rows for f in dead), drop_most)
            check_turned(tables.table.path, rows_there, coming, drop_most)
        marks = {intent.MARK: tables.epoch, **more_marks}
        offsets = self._offsets(tables, scope, ends)
        info = {
            "epoch": tables.epoch,
            "what": "the table is built again" if scope.whole else "a part of the table is built again",
            "offsets": nested({r.at: (r.start, r.until) for r in scope.ranges}),
        }
        if tables.letters is not None:
            going = None if scope.whole else scope.ranges
            intent.write(tables.table, intent.Intent(tables.epoch, dead, going))
        before = len(tables.table.files())
        if scope.whole:
            marks |= self._starts(tables, scope, ends)
            marks |= {id_mark(topic): number for topic, number in topic_ids.items()}
            batch = TableChange(
                files=rows, offsets=offsets, marks=marks, info=info, goes_back=True, rebuild=lander.row_schema
            )
            removed = before
        else:
            self._keep_pin(tables, lander)
            batch, removed = self._part(tables, scope, rows, marks, info)
            going_rows, coming_rows = (sum(f.rows for f in files) for files in (batch.removed, (*batch.files, *dead)))
            check_drop(tables.table.path, there, going_rows - coming_rows, drop_most)
            left = rows_there - going_rows + sum(f.rows for f in batch.files)
            check_turned(tables.table.path, rows_there, left, drop_most)
        tables.table.commit(tables.epoch, batch)
        # The old columns of a whole table may not fit the new schema, which is therefore kept when they are gone.
        self._keep_pin(tables, lander)
        if tables.letters is not None:
            intent.finish(tables.table, tables.letters, tables.epoch, tables.letters_sink(0, 0))
        return Replayed(sum(f.rows for f in rows), sum(f.rows for f in dead), len(rows), removed, tables.table.version)

    def _keep_pin(self, tables: Tables, lander: Lander) -> None:
        pin = lander.decoding.pin
        if pin is not None and pin != tables.table.pin:
            tables.table.set_pin(tables.epoch, pin)

    def _part(
        self,
        tables: Tables,
        scope: Scope,
        rows: Sequence[WrittenFile],
        marks: Mapping[str, int],
        info: Mapping[str, object],
    ) -> tuple[TableChange, int]:
        origin = origin_of(self._pipeline)
        assert origin is not None, "checked before"
        tables.refresh()
        missing = {field.name: field for file in rows for field in tables.table.missing(file.schema)}
        if missing:
            tables.table.add_columns(tables.epoch, missing.values())
        removed, kept = without(tables.table, origin, scope.ranges, tables.rows_sink(0, 0))
        return TableChange(files=[*kept, *rows], removed=removed, marks=marks, info=info), len(removed)

    def _offsets(
        self, tables: Tables, scope: Scope, ends: Mapping[TopicPartition, Ends]
    ) -> dict[TopicPartition, tuple[int | None, int]]:
        """They stay; only where the log ends before them, a rebuilt table goes on from that end."""
        found: dict[TopicPartition, tuple[int | None, int]] = {}
        for at, held in ends.items():
            before = tables.offset(at)
            if scope.whole and before is not None:
                found[at] = (before, min(before, held.end))
        return found

    def _starts(self, tables: Tables, scope: Scope, ends: Mapping[TopicPartition, Ends]) -> dict[str, int]:
        """Where a rebuilt table begins: as before, or where the log begins now."""
        # Of partitions that are no longer read it has nothing.
        gone = [at for at in tables.table.partitions() if at not in ends]
        found = {start_mark(at): until for at in gone if (until := tables.offset(at)) is not None}
        for at, held in ends.items():
            start, until = tables.table.start(at), tables.offset(at)
            if start is not None and until is not None:
                is_another = at[0] in scope.renewed or (until > held.end and at[0] not in scope.same)
                found[start_mark(at)] = min(held.first if is_another else max(start, held.first), until)
        return found

    # --- landing ------------------------------------------------------------------------------------

    def _land(
        self, tables: Tables, lander: Lander, scope: Scope
    ) -> tuple[list[WrittenFile], list[WrittenFile], dict[str, int]]:
        """Everything: files of rows and of dead letters, and what the commit says beside."""
        rows: list[WrittenFile] = []
        if not self._pipeline.table.keys:
            dead = self._land_batches(lander, scope, lambda _, files: rows.extend(files))
            return rows, dead, {}
        state = Rebuilding(self._pipeline, tables, lander.row_schema)
        try:
            dead = self._land_batches(lander, scope, state.take)
            rows, marks = state.finish()
            return rows, dead, marks
        finally:
            state.clear()

    def _land_batches(
        self, lander: Lander, scope: Scope, take: Callable[[int, Sequence[WrittenFile]], None]
    ) -> list[WrittenFile]:
        """In batches of the size that a runner's have. The dead letters; rows are for `take`."""
        dead: list[WrittenFile] = []
        tasks = self._pipeline.limits.tasks or self._executor.parallelism
        left = list(scope.ranges)
        number = read = 0
        while left:
            number += 1
            chosen = limit(left, self._pipeline.limits.max_records_per_batch)
            files = lander.land(into_tasks(chosen, tasks), number, self._landed)
            take(number, files.rows)
            dead += files.dead
            left = [r._replace(start=c.until) for r, c in zip(left, chosen, strict=True) if c.until < r.until]
            read += sum(c.size for c in chosen)
            tell_all(self._listeners, Notice(f"replay: read {read} of {scope.size} offsets"))
        return dead

    def _landed(self, result: Landed) -> None:
        for loss in result.losses:
            if loss not in self._told:
                self._told.add(loss)
                tell_all(self._listeners, Notice(f"records are lost: {loss}", "the table is built without them"))

    def _widened(self, names: list[str]) -> None:
        tell_all(self._listeners, Notice(f"values have fields that the schema lacks: {', '.join(names)}"))
