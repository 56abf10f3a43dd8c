"""`df.write.format("tidelog")` and `df.writeStream.format("tidelog")`: rows into topics, each exactly once.

The columns are those of Spark's stock Kafka connector: `value`, and where they are there `key`, `headers`, `topic` and
`partition`; `sink_options` has the options. A task encodes its rows straight from Arrow and writes them in a
transaction of its own, which it leaves open; the driver commits the transactions of the tasks that count, and aborts
the others: `committing` says how, and what holds when something dies on the way. With `tidelog.exactly.once` false a
task just writes, which is at-least-once, as the stock connector is.

What a task must know of itself it is told by Spark: the query's id, the id of this run of it and the batch travel with
every task as local properties of the job. The driver learns them from the tasks' messages. A writer object is pickled
on its way, and made anew for the commit of a stream; so it holds options, and the name of its run.

A batch write has an identity if it is given one (`tidelog.write.id`). Without it a write that fails halfway through its
commits cannot be finished by anybody, and one that is run again writes again.
"""

from __future__ import annotations

import logging
import os
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.client.client import Client
from tidelog.client.errors import ClientError
from tidelog.client.transactional import Prepared
from tidelog.pipeline.options.given import BadOption
from tidelog.pipeline.options.sink_options import SinkOptions, parse_sink
from tidelog.pipeline.read.range_reader import borrowed_client
from tidelog.pipeline.write.committing import Committer, Family
from tidelog.pipeline.write.ledger import Part

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext

    from tidelog.client.producer import Producer
    from tidelog.client.transactional import TransactionalProducer

WRITTEN_COLUMNS: Final = ("key", "value", "headers", "topic", "partition")
_TYPES: Final = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
#: a streaming query runs its jobs in a group that is named by the id of its run
_RUN_ID: Final = "spark.jobGroup.id"
_KEPT_COMMITTERS: Final = 16

_log = logging.getLogger(__name__)

#: connections of drivers, kept from batch to batch: by process, for one that was forked must not share its parent's.
#: Where several queries run, Spark gives the commits of each to changing processes; `committing` says what holds then.
_committers: dict[tuple[object, ...], tuple[Client, Committer]] = {}


class TaskAttempt(NamedTuple):
    """Which part of which batch a task writes."""

    identity: str
    run: str
    batch: int
    task: int
    #: counted from 0 in every attempt of the stage, so that several of a task may have the same
    attempt: int
    #: no other attempt of the application has it
    attempt_id: int
    #: whether the run goes on with other batches
    streaming: bool


class TaskRows(WriterCommitMessage):
    """What a task tells the driver: its transaction, unless it wrote nothing or in none."""

    def __init__(self, place: TaskAttempt, prepared: Prepared | None, rows: int, checksum: int) -> None:
        self.place = place
        self.prepared = prepared
        self.rows = rows
        self.checksum = checksum

    def part(self) -> Part | None:
        return None if self.prepared is None else Part(self.place.task, self.prepared, self.rows, self.checksum)


class WriteFailed(Exception):
    """What went wrong, and what to do about it, in one message: Spark shows nothing else."""


def topic_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    if overwrite:
        raise BadOption(
            "save mode Overwrite is not allowed for topics: a topic is appended to, write with mode('append')"
        )
    return TopicWriter(_checked(options, schema, streaming=False))


def topic_stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """`overwrite` is output mode complete: every batch is the whole result. It is appended, as by `format("kafka")`."""
    return TopicStreamWriter(_checked(options, schema, streaming=True))


class TopicWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._run = _new_run()
        self._identity = options.write_id or f"batch-{self._run}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _task_context()
        place = _place(context, self._identity, self._run, self._options.write_version, streaming=False)
        return _write(self._options, place, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if not self._options.exactly_once:
            return
        written = _written(messages)
        parts = _parts(written)
        with _committer(self._options, self._identity) as committer:
            recorded = self._options.write_id is not None
            if recorded:
                committer.commit(self._options.write_version, parts, self._options.write_note)
            else:
                committer.commit_unrecorded([part.prepared for part in parts])
            committer.sweep(self._run, now=True, recorded=recorded)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once:
            recorded = self._options.write_id is not None
            _abort(self._options, self._identity, self._run, self._options.write_version, _written(messages), recorded)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._run = _new_run()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        place = _stream_place(_task_context(), self._run, self._options.exactly_once)
        return _write(self._options, place, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = _written(messages)
        parts = _parts(written)
        if not self._options.exactly_once or not written:
            return
        identity, run = _one_origin(written)
        with _committer(self._options, identity, run) as committer:
            committer.commit(batchId, parts, even_empty=False)
            committer.sweep(run, now=any(each.place.attempt for each in written))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = _written(messages)
        if self._options.exactly_once and written:
            identity, run = _one_origin(written)
            _abort(self._options, identity, run, batchId, written, recorded=True)


# --- on the executors -------------------------------------------------------------------------------


def _write(options: SinkOptions, place: TaskAttempt, batches: Iterable[pa.RecordBatch]) -> TaskRows:
    import pyarrow  # noqa: F401  (before the first rows come, not with them)

    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return TaskRows(place, None, 0, 0)
    try:
        with borrowed_client(options.bootstrap, _client_options(options)) as client:
            if options.exactly_once:
                return _write_prepared(options, place, client, first, rows)
            producer = client.producer(
                acks=options.acks, idempotent=options.idempotent, compression=options.compression
            )
            count, checksum = _encode(options, producer, first, rows)
            producer.flush()
            return TaskRows(place, None, count, checksum)
    except ClientError as error:
        raise _told(error) from error


def _write_prepared(
    options: SinkOptions, place: TaskAttempt, client: Client, first: pa.RecordBatch, rows: Iterator[pa.RecordBatch]
) -> TaskRows:
    producer: TransactionalProducer = client.transactional_producer(
        _transactional_id(options, place, client),
        timeout_ms=options.transaction_timeout_ms,
        compression=options.compression,
    )
    producer.begin()
    try:
        count, checksum = _encode(options, producer, first, rows)
        return TaskRows(place, producer.prepare(), count, checksum)
    except BaseException:
        # Readers of committed records wait behind an open transaction.
        try:
            producer.abort()
        except ClientError:
            pass
        raise


def _transactional_id(options: SinkOptions, place: TaskAttempt, client: Client) -> str:
    """One that no other attempt has prepared a transaction under: to take an id aborts what is open under it.

    A stream writes under few ids again and again, and takes another only where one is in use. What it finds may change
    until it takes the id; a run of one batch has nothing to use again, and each attempt an id of its own.
    """
    family = Family(options.prefix, place.identity)
    if place.streaming:
        name = family.transactional_id(place.run, place.task, place.attempt)
        state = client.transactions.describe_all([name])[name]
        if state is None or state.state != "Ongoing":
            return name
    return family.transactional_id(place.run, place.task, place.attempt, place.attempt_id)


def _encode(
    options: SinkOptions, producer: Producer, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]
) -> tuple[int, int]:
    """Rows, and their checksum: two runs of a task wrote the same if theirs agree."""
    from tidelog.pipeline.write.encode import ArrowEncoder

    encoder = ArrowEncoder(
        producer.topic,
        producer.send_encoded,
        topic=options.topic,
        timestamp=options.timestamp_column,
        compression=options.compression,
        batch_bytes=options.batch_bytes,
        max_request_bytes=options.max_request_bytes,
    )
    columns = [*WRITTEN_COLUMNS, *filter(None, [options.timestamp_column])]
    ours = [name for name in first.schema.names if name in columns]
    checksum = 0
    batch: pa.RecordBatch | None = first
    while batch is not None:
        batch = batch.select(ours)
        checksum = zlib.crc32(batch.serialize(), checksum)
        encoder.write(batch)
        batch = next(rest, None)
    encoder.close()
    return encoder.rows_written, checksum


def _task_context() -> TaskContext:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise WriteFailed("rows are written to topics by the tasks of a Spark job, and this is none")
    return context


def _place(context: TaskContext, identity: str, run: str, batch: int, streaming: bool) -> TaskAttempt:
    attempt, attempt_id = context.attemptNumber(), context.taskAttemptId()
    return TaskAttempt(identity, run, batch, context.partitionId(), attempt, attempt_id, streaming)


def _stream_place(context: TaskContext, own_run: str, exactly_once: bool) -> TaskAttempt:
    identity, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    if not exactly_once:
        identity, batch = identity or "", batch or "0"
    if identity is None or batch is None:
        raise WriteFailed(
            "this Spark does not tell its tasks the id of their streaming query and batch "
            f"({_QUERY_ID}, {_BATCH_ID}), without which a batch cannot be written once: "
            "write with foreachBatch and tidelog.write.id, or set tidelog.exactly.once to false"
        )
    run = context.getLocalProperty(_RUN_ID) or ""
    try:
        # One name for all batches of a run, so that its transactional ids are used again; another after a restart,
        # so that what was decided before it is not disturbed.
        run = uuid.UUID(run).hex[:12]
    except ValueError:
        run = own_run
    return _place(context, identity, run, int(batch), streaming=True)


# --- on the driver ----------------------------------------------------------------------------------


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[TaskRows]:
    """What tasks told; of those that failed there is nothing."""
    return [message for message in messages if isinstance(message, TaskRows)]


def _parts(written: Iterable[TaskRows]) -> list[Part]:
    return [part for each in written if (part := each.part()) is not None]


def _one_origin(written: Sequence[TaskRows]) -> tuple[str, str]:
    """The identity and run that all tasks of a batch share."""
    (origin,) = {(each.place.identity, each.place.run) for each in written}
    return origin


def _abort(
    options: SinkOptions, identity: str, run: str, batch: int, written: Sequence[TaskRows], recorded: bool
) -> None:
    """Spark aborts also where a commit has failed: what is decided stays as it is.

    Where this fails the transactions end by their timeout; it is the failure before it that Spark is to tell of.
    """
    prepared = [part.prepared for part in _parts(written)]
    try:
        with _committer(options, identity) as committer:
            committer.abort(committer.undecided(prepared) if recorded else prepared)
            committer.sweep(run, now=True, recorded=recorded)
    except WriteFailed as error:
        _log.warning("what batch %s of %s wrote is not aborted yet: %s", batch, identity, error)


@contextmanager
def _committer(options: SinkOptions, identity: str, run: str | None = None) -> Iterator[Committer]:
    """With a `run`, one that is kept for its next batch, should this process be given it; another may be."""
    key = (os.getpid(), options.bootstrap, options.client_id, options.prefix, options.ledger_topic, identity, run)
    found = _committers.pop(key, None)
    if found is None:
        client = Client(options.bootstrap, **_client_options(options), wait_for_first=True)
        found = client, Committer(client, Family(options.prefix, identity), options.ledger_topic, run)
    try:
        yield found[1]
    except BaseException as error:
        found[0].close()
        if isinstance(error, ClientError):
            raise _told(error) from error
        raise
    if run is None:
        found[0].close()
        return
    _committers[key] = found
    while len(_committers) > _KEPT_COMMITTERS:
        _committers.pop(next(iter(_committers)))[0].close()


def _client_options(options: SinkOptions) -> dict[str, Any]:
    return {"client_id": options.client_id, "timeout_s": options.delivery_timeout_ms / 1000}


def _told(error: ClientError) -> WriteFailed:
    return WriteFailed(f"{error}; {error.hint}" if error.hint else str(error))


# --- what can be written ----------------------------------------------------------------------------


def _checked(options: Mapping[str, str], schema: StructType, streaming: bool) -> SinkOptions:
    parsed = parse_sink(options, streaming)
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if parsed.topic is None and "topic" not in types:
        raise BadOption(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in types:
        raise BadOption("Required attribute 'value' not found")
    for name, wanted in _TYPES.items():
        if name in types and types[name] not in wanted and not (name == "topic" and parsed.topic is not None):
            raise BadOption(
                f"{name} attribute unsupported type {types[name]}. {name} must be a(n) {' or '.join(wanted)}"
            )
    stamps = parsed.timestamp_column
    if stamps is not None and types.get(stamps) not in ("timestamp", "timestamp_ntz"):
        found = "there is no such column" if stamps not in types else f"the column is of type {types[stamps]}"
        raise BadOption(f"option tidelog.timestamp.column is {stamps}, and {found}: it must be a timestamp")
    return parsed


def _new_run() -> str:
    return uuid.uuid4().hex[:12]
