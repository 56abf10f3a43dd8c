"""A runner that has taken over the tables: it plans batches, lands them and commits them, one at a time.

    planned            which offsets; nothing is written yet
    landed             files are written; nobody sees them
    letters_committed  dead letters are in their table; a successor takes them out again
    committed          rows and offsets are in the table: the batch is done
    group_committed    the consumer group shows it

An incumbent ends when a successor takes over: its next look at the table, or its next commit, raises `Superseded`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog.client import ClientError
from tidelog.pipeline.land.executor import Executor
from tidelog.pipeline.land.landing import Landed
from tidelog.pipeline.land.progress_events import (
    BatchCommitted,
    Listener,
    Meter,
    Notice,
    RunProgress,
    RunState,
    Step,
    StepReached,
    partitions_of,
    tell_all,
)
from tidelog.pipeline.offset_ranges import Ends, OffsetRange
from tidelog.pipeline.read.batch_plan import BatchPlan, plan, starting_offset
from tidelog.pipeline.run.batches import BatchFiles, Lander, row_schema
from tidelog.pipeline.run.brokers import Brokers
from tidelog.pipeline.run.decoding import SAMPLE, SAMPLE_BYTES, Decoding
from tidelog.pipeline.spec import Pipeline
from tidelog.pipeline.table.pipeline_table import PipelineTable
from tidelog.pipeline.table.tables import Tables, starts_of
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class Incumbent:
    def __init__(
        self,
        pipeline: Pipeline,
        executor: Executor,
        brokers: Brokers,
        tables: Tables,
        decoding: Decoding,
        listeners: Sequence[Listener],
        timeout_s: float,
    ) -> None:
        self._pipeline = pipeline
        self._executor = executor
        self._brokers = brokers
        self._tables = tables
        self._listeners = listeners
        self._lander = Lander(pipeline, executor, tables, decoding, self._keep_pin, timeout_s)
        self._committed: dict[TopicPartition, int] = {}
        self._read: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, Ends] = {}
        #: losses are told once, however often they are met
        self._told: set[str] = set()
        self._group_failed = False
        self.meter = Meter()
        #: how many were begun
        self.batches = 0

    @classmethod
    def take_over(
        cls,
        pipeline: Pipeline,
        executor: Executor,
        brokers: Brokers,
        listeners: Sequence[Listener],
        timeout_s: float,
        began: Mapping[TopicPartition, Ends],
    ) -> Incumbent | None:
        """None where the schema is to be inferred, and no topic has a value yet.

        `began` is what the partitions held when the runner began to try: the latest offset is the latest of then.
        """
        partitions = brokers.partitions()
        ends = brokers.ends(partitions)
        there = PipelineTable.open(pipeline.table.path, pipeline.name)
        pin = None if there is None else there.pin
        decoding = Decoding.of(pipeline.decode, pin, lambda: sample(pipeline, ends, timeout_s))
        if decoding is None:
            return None
        then = {at: replace_end(found, began[at].end if at in began else 0, found.first) for at, found in ends.items()}
        starts = starts_of(there, then, pipeline.source.starting_offsets)
        tables = Tables.open(pipeline, row_schema(pipeline, executor, decoding), decoding.pin)
        tables.check_topics(brokers.topic_ids)
        tables.take_over(partitions, starts, brokers.topic_ids)
        if tables.table.pin not in (pin, decoding.pin):
            # The runner before this one went on until now, and what it pinned meanwhile is in the table.
            decoding = Decoding.of(pipeline.decode, tables.table.pin, list) or decoding
            tables.table.missing(row_schema(pipeline, executor, decoding))
        self = cls(pipeline, executor, brokers, tables, decoding, listeners, timeout_s)
        if decoding.pin is not None and decoding.pin != tables.table.pin:
            tables.table.set_pin(tables.epoch, decoding.pin)
        self._look(partitions, ends)
        self._tell_group(self._committed)
        return self

    # --- one batch ----------------------------------------------------------------------------------

    def plan(self, targets: Mapping[TopicPartition, Ends] | None = None) -> BatchPlan:
        """What comes next; of `targets`, where there are any, nothing beyond them."""
        partitions = self._brokers.partitions()
        if targets is not None:
            partitions = [at for at in partitions if at in targets]
        self._tables.refresh()
        topic_ids = self._brokers.topic_ids
        self._tables.check_topics(topic_ids)
        ends = self._brokers.ends(partitions)
        self._tables.begin({at: ends[at].first for at in partitions if self._tables.offset(at) is None}, topic_ids)
        self._look(partitions, ends)
        if targets is not None:
            ends = {at: replace_end(found, targets[at].end, self._committed[at]) for at, found in ends.items()}
        found = plan(
            self._committed,
            ends,
            max_records=self._pipeline.limits.max_records_per_batch,
            tasks=self._pipeline.limits.tasks or self._executor.parallelism,
            fail_on_data_loss=self._pipeline.source.fail_on_data_loss,
            same_topics=self._tables.same_topics(topic_ids),
        )
        self._tell_losses(map(str, found.gaps))
        return found

    def carry_out(self, batch: BatchPlan) -> None:
        """Lands a plan and commits it."""
        began = time.monotonic()
        self.batches += 1
        self.meter.begin(began)
        self._reached(Step.PLANNED)
        self.tell(RunState.READING)
        try:
            files = self._lander.land(batch.tasks, self.batches, self._landed)
            self._reached(Step.LANDED)
            self.tell(RunState.COMMITTING)
            info = {"epoch": self._tables.epoch, "batch": self.batches}
            self._tables.commit_letters(files.dead, batch.moves, info)
            self._reached(Step.LETTERS_COMMITTED)
            self._tables.commit_rows(files.rows, batch.moves, info)
        finally:
            self._tables.clear_landed(self.batches)
        self._reached(Step.COMMITTED)
        self._count(batch, files, time.monotonic() - began)
        self._tell_group({at: after for at, (_, after) in batch.moves.items()})
        self._reached(Step.GROUP_COMMITTED)
        self._compact()

    def _landed(self, result: Landed) -> None:
        offsets = sum(r.size for r in result.ranges)
        self.meter.add(time.monotonic(), result.rows, offsets)
        for r in result.ranges:
            self._read[r.at] = self._read.get(r.at, self._committed[r.at]) + r.size
        self._tell_losses(result.losses)
        self.tell(RunState.READING)

    def _count(self, batch: BatchPlan, files: BatchFiles, seconds: float) -> None:
        rows, dead = sum(f.rows for f in files.rows), sum(f.rows for f in files.dead)
        self.meter.rows += rows
        self.meter.dead_letters += dead
        self.meter.files += len(files.rows)
        self.meter.last_commit_ms = int(time.time() * 1000)
        self._committed |= {at: after for at, (_, after) in batch.moves.items()}
        self._read = {}
        size = sum(f.size_bytes for f in files.rows)
        version = self._tables.table.version
        tell_all(self._listeners, BatchCommitted(self.batches, rows, dead, len(files.rows), size, seconds, version))
        self.tell(RunState.READING if batch.lag > batch.size else RunState.CAUGHT_UP)

    def _compact(self) -> None:
        every = self._pipeline.table.compact_every
        if not every or self.batches % every:
            return
        try:
            self._tables.compact(self._pipeline.table.target_file_size)
        except Exception as error:
            # Nothing depends on it: rows and offsets stay as they are, and it comes again.
            self.notice(f"small files were not joined: {error}")

    # --- around it ----------------------------------------------------------------------------------

    def _look(self, partitions: Sequence[TopicPartition], ends: Mapping[TopicPartition, Ends]) -> None:
        self._ends = dict(ends)
        self._committed = {at: self._tables.offset(at) or 0 for at in partitions}
        self._read = {}

    def _keep_pin(self, decoding: Decoding, names: list[str]) -> None:
        assert decoding.pin is not None
        self._tables.table.set_pin(self._tables.epoch, decoding.pin)
        what = f"new columns: {', '.join(names)}" if names else "a column has new fields inside"
        self.notice(f"values have fields that the schema lacked; {what}; the batch is read again")

    def _tell_group(self, offsets: Mapping[TopicPartition, int]) -> None:
        group = self._pipeline.group
        if not group.commit or not offsets:
            return
        try:
            self._brokers.commit_group(group.id, offsets)
            self._group_failed = False
        except ClientError as error:
            if not self._group_failed:
                self.notice(
                    f"the offsets are in the table, but group {group.id} does not show them: {error}", error.hint
                )
            self._group_failed = True

    def _tell_losses(self, losses: Iterable[str]) -> None:
        for loss in losses:
            if loss not in self._told:
                self._told.add(loss)
                self.notice(f"records are lost: {loss}", "they were removed from the log before they were read")

    def notice(self, message: str, hint: str | None = None) -> None:
        tell_all(self._listeners, Notice(message, hint))

    def tell(self, state: RunState) -> None:
        now = time.monotonic()
        rows_per_s, offsets_per_s = self.meter.rates(now)
        partitions = partitions_of(self._committed, self._read, self._ends)
        lag = sum(p.lag for p in partitions)
        tell_all(
            self._listeners,
            RunProgress(
                pipeline=self._pipeline.name,
                state=state,
                batch=self.batches,
                partitions=partitions,
                rows=self.meter.rows,
                dead_letters=self.meter.dead_letters,
                files=self.meter.files,
                rows_per_s=rows_per_s,
                table_version=self._tables.table.version,
                last_commit_ms=self.meter.last_commit_ms,
                eta_s=lag / offsets_per_s if offsets_per_s else None,
            ),
        )

    def _reached(self, step: Step) -> None:
        tell_all(self._listeners, StepReached(self.batches, step))


def replace_end(ends: Ends, target: int, committed: int) -> Ends:
    """The end, not beyond a target, and not before what is committed."""
    return ends._replace(end=min(ends.end, max(target, committed)))


def sample(pipeline: Pipeline, ends: Mapping[TopicPartition, Ends], timeout_s: float) -> list[bytes]:
    """The first values of every partition, to infer a schema from, wherever in the partition they are."""
    from tidelog.pipeline.read.range_reader import read_range

    share, share_bytes = (max(1, most // max(1, len(ends))) for most in (SAMPLE, SAMPLE_BYTES))
    values: list[bytes] = []
    for at, (first, end) in ends.items():
        start = starting_offset(at, ends[at], pipeline.source.starting_offsets, is_new=True)
        start = first if start >= end else start
        found = read_range(
            pipeline.source.bootstrap,
            OffsetRange(*at, start, end),
            ("value",),
            isolation=pipeline.source.isolation,
            client_options={"client_id": "tidelog-pipeline", "timeout_s": timeout_s},
            on_loss=lambda _: None,
        )
        values += _first_values(found, share, share_bytes)
    return values


def _first_values(batches: Iterable[pa.RecordBatch], most: int, most_bytes: int) -> list[bytes]:
    values: list[bytes] = []
    size = 0
    for batch in batches:
        for value in batch.column("value"):
            if value.is_valid:
                values.append(value.as_py())
                size += len(values[-1])
                if len(values) >= most or size >= most_bytes:
                    return values
    return values
