"""Where a pipeline stands, asked from outside: the table, the log and the group are read, nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.offset_ranges import Ends
from tidelog.pipeline.read.batch_plan import BatchPlan, plan, starting_offset
from tidelog.pipeline.run.brokers import Brokers
from tidelog.pipeline.spark.session import expected_parallelism
from tidelog.pipeline.spec import Pipeline
from tidelog.pipeline.table.tables import Tables, examine
from tidelog.wire.partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """`committed` is the table's, `group` the consumer group's; None where they know nothing of the partition."""

    topic: str
    partition: int
    committed: int | None
    group: int | None
    end: int
    lag: int


@dataclass(frozen=True, slots=True)
class TableStatus:
    path: str
    version: int
    files: int
    size_bytes: int
    rows: int
    last_commit_ms: int | None


@dataclass(frozen=True, slots=True)
class Status:
    pipeline: str
    #: None before the first run
    table: TableStatus | None
    dead_letters: TableStatus | None
    #: of the runner that took over last
    epoch: int
    lag: int
    partitions: tuple[PartitionStatus, ...]
    #: why a runner would stop at once, in its own words, and what to do; None where it would go on
    problem: str | None = None
    hint: str | None = None


def status(pipeline: Pipeline, timeout_s: float) -> Status:
    tables = Tables.look(pipeline)
    with Brokers(pipeline.source, timeout_s) as brokers:
        ends = brokers.ends(brokers.partitions())
        group = brokers.group_offsets(pipeline.group.id)
    committed = _committed(pipeline, tables, ends)
    problem = _problem(pipeline, timeout_s)
    rows = tuple(
        PartitionStatus(
            *at,
            None if tables is None else tables.offset(at),
            group.get(at),
            found.end,
            max(0, found.end - committed[at]),
        )
        for at, found in sorted(ends.items())
    )
    return Status(
        pipeline.name,
        None if tables is None else _table(tables.table.path, tables),
        None if tables is None or tables.letters is None else _table(tables.letters.path, tables, letters=True),
        0 if tables is None else tables.table.epoch or 0,
        sum(row.lag for row in rows),
        rows,
        None if problem is None else problem.message,
        None if problem is None else problem.hint,
    )


def _problem(pipeline: Pipeline, timeout_s: float) -> PipelineError | None:
    try:
        next_plan(pipeline, timeout_s)
    except PipelineError as error:
        return error
    return None


def next_plan(pipeline: Pipeline, timeout_s: float) -> BatchPlan:
    """What the next batch would read; PipelineError where a runner would refuse to begin."""
    table, letters = examine(pipeline, None)
    tables = None if table is None else Tables(pipeline, table, letters)
    with Brokers(pipeline.source, timeout_s) as brokers:
        ends = brokers.ends(brokers.partitions())
    if tables is not None:
        tables.check_usable()
        tables.check_topics(brokers.topic_ids)
    return plan(
        _committed(pipeline, tables, ends),
        ends,
        max_records=pipeline.limits.max_records_per_batch,
        tasks=pipeline.limits.tasks or expected_parallelism(pipeline.spark.master),
        fail_on_data_loss=pipeline.source.fail_on_data_loss,
        same_topics=frozenset() if tables is None else tables.same_topics(brokers.topic_ids),
    )


def _committed(
    pipeline: Pipeline, tables: Tables | None, ends: Mapping[TopicPartition, Ends]
) -> dict[TopicPartition, int]:
    """What the table has, or where a partition that it does not know would begin."""
    found = {}
    for at, held in ends.items():
        known = None if tables is None else tables.offset(at)
        is_new = tables is None or tables.is_new
        start = pipeline.source.starting_offsets
        found[at] = starting_offset(at, held, start, is_new) if known is None else known
    return found


def _table(path: str, tables: Tables, letters: bool = False) -> TableStatus:
    table = tables.letters if letters else tables.table
    assert table is not None
    files = table.files()
    return TableStatus(
        path,
        table.version,
        len(files),
        sum(file.size_bytes for file in files),
        sum(file.rows for file in files),
        table.last_commit().get("timestamp"),
    )
