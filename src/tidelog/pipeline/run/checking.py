"""Everything that a pipeline needs, looked at one after the other: what is there, what is wrong, and what to do.

Nothing is written, and no runner is disturbed. A check that cannot be made because an earlier one failed is left out.
What a runner refuses at its start is refused here by the same code (`tables.examine`), so that both say the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog import how_to_install
from tidelog.client import ClientError
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.offset_ranges import Ends
from tidelog.pipeline.spark import session
from tidelog.pipeline.spec import Pipeline
from tidelog.pipeline.table import storage
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.pipeline.run.decoding import Decoding
    from tidelog.pipeline.table.pipeline_table import PipelineTable


class Finding(NamedTuple):
    what: str
    ok: bool
    message: str
    hint: str | None = None


@dataclass(slots=True)
class _Known:
    """What the checks so far have found, for those after them."""

    ends: dict[TopicPartition, Ends] = field(default_factory=dict)
    topic_ids: dict[str, int] = field(default_factory=dict)
    table: PipelineTable | None = None
    decoding: Decoding | None = None


def findings(pipeline: Pipeline, timeout_s: float, with_spark: bool = False) -> Iterator[Finding]:
    yield Finding("file", True, pipeline.file)
    missing = [name for name in _modules(pipeline) if find_spec(name) is None]
    if missing:
        advice = how_to_install("spark", "schema")
        yield Finding("packages", False, f"{', '.join(missing)} is not installed", advice)
        return
    known = _Known()
    yield from _brokers(pipeline, timeout_s, known)
    yield from _table(pipeline, timeout_s, known)
    yield from _transform(pipeline)
    spark = list(_spark(pipeline))
    yield from spark
    if with_spark and all(finding.ok for finding in spark):
        yield from _start(pipeline, known)


def _modules(pipeline: Pipeline) -> list[str]:
    formats = {"avro": ["fastavro"], "protobuf": ["google.protobuf"]}
    return ["pyarrow", "deltalake", *formats.get(pipeline.decode.format, [])]


def _failed(what: str, error: PipelineError | ClientError) -> Finding:
    return Finding(what, False, str(error), error.hint)


def _brokers(pipeline: Pipeline, timeout_s: float, known: _Known) -> Iterator[Finding]:
    from tidelog.pipeline.run.brokers import Brokers

    source = pipeline.source
    try:
        with Brokers(source, timeout_s) as brokers:
            partitions = brokers.partitions()
            known.ends = ends = brokers.ends(partitions)
            known.topic_ids = brokers.topic_ids
            brokers.group_offsets(pipeline.group.id)
    except ClientError as error:
        yield _failed("topics" if error.code > 0 else "broker", error)
        return
    yield Finding("broker", True, source.bootstrap)
    if not partitions:
        yield Finding(
            "topics",
            False,
            f"no topic matches {source.topic_pattern!r}",
            "a running pipeline waits for one; the pattern has to fit the whole name",
        )
        return
    topics = sorted({topic for topic, _ in partitions})
    offsets = sum(found.end - found.first for found in ends.values())
    yield Finding("topics", True, f"{', '.join(topics)}: {len(partitions)} partitions, {offsets} offsets")


def _table(pipeline: Pipeline, timeout_s: float, known: _Known) -> Iterator[Finding]:
    from tidelog.pipeline.table.pipeline_table import PipelineTable

    try:
        known.table = PipelineTable.open(pipeline.table.path, pipeline.name)
    except PipelineError as error:
        yield _failed("table", error)
        return
    yield from _schema(pipeline, timeout_s, known)
    if pipeline.table.keys and pipeline.transform is None and known.decoding is not None:
        keys = _keys(pipeline, known.decoding.decoder.schema)
        yield keys
        if not keys.ok:
            return
    yield from _fit(pipeline, known)


def _keys(pipeline: Pipeline, schema: Any) -> Finding:
    from tidelog.pipeline.table.merging import check_keys

    try:
        check_keys(schema, pipeline)
    except PipelineError as error:
        return _failed("keys", error)
    return Finding("keys", True, ", ".join(pipeline.table.keys))


def _schema(pipeline: Pipeline, timeout_s: float, known: _Known) -> Iterator[Finding]:
    from tidelog.pipeline.run.decoding import Decoding
    from tidelog.pipeline.run.incumbent import sample

    pin = None if known.table is None else known.table.pin
    try:
        known.decoding = Decoding.of(pipeline.decode, pin, lambda: sample(pipeline, known.ends, timeout_s))
    except (PipelineError, ClientError) as error:
        yield _failed("schema", error)
        return
    if known.decoding is None:
        yield Finding("schema", True, "will be inferred from the first records")
        return
    yield Finding("schema", True, ", ".join(f"{column.name} {column.type}" for column in known.decoding.decoder.schema))


def _fit(pipeline: Pipeline, known: _Known) -> Iterator[Finding]:
    """Whether table and rows fit; what a transform makes of them is known when Spark has started."""
    from tidelog.pipeline.table.tables import Tables, examine, starts_of

    path = pipeline.table.path
    try:
        rows = known.decoding.decoder.schema if known.decoding is not None and pipeline.transform is None else None
        table, letters = examine(pipeline, rows)
        starts_of(table, known.ends, pipeline.source.starting_offsets)
        if table is not None:
            tables = Tables(pipeline, table, letters)
            tables.check_usable()
            tables.check_topics(known.topic_ids)
    except PipelineError as error:
        yield _failed("table", error)
        return
    if table is not None:
        yield Finding("table", True, f"{path}: version {table.version}")
    else:
        yield from _writable(path)


def _writable(path: str) -> Iterator[Finding]:
    if not storage.is_local(path):
        yield Finding("table", True, f"{path} will be made")
        return
    parent = path
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    if os.access(parent, os.W_OK):
        yield Finding("table", True, f"{path} will be made")
    else:
        yield Finding("table", False, f"{parent} cannot be written to", "change its rights, or path under [table]")


def _transform(pipeline: Pipeline) -> Iterator[Finding]:
    transform = pipeline.transform
    if transform is None:
        return
    if transform.sql_file is not None and not os.path.isfile(transform.sql_file):
        yield Finding("transform", False, f"there is no file {transform.sql_file}", "paths are relative to the file")
    elif transform.python is not None:
        module, _, function = transform.python.partition(":")
        if _importable(module, transform.directory):
            yield Finding("transform", True, f"function {function} of module {module}; --spark looks whether it fits")
        else:
            hint = f"put it beside the pipeline file, in {transform.directory}, or install it"
            yield Finding("transform", False, f"there is no module {module}", hint)
    else:
        yield Finding("transform", True, "SQL; --spark looks whether it fits")


def _importable(module: str, directory: str) -> bool:
    sys.path.insert(0, directory)
    try:
        return find_spec(module) is not None
    except ImportError:
        return False
    finally:
        sys.path.remove(directory)


def _spark(pipeline: Pipeline) -> Iterator[Finding]:
    if pipeline.spark.master == session.NONE:
        if pipeline.transform is not None:
            hint = 'write master = "local[*]" under [spark]'
            yield Finding("spark", False, 'a [transform] needs Spark, and the file says master = "none"', hint)
        else:
            yield Finding("spark", True, "none: tasks run in the runner's own process")
        return
    try:
        session.check_pyspark()
        java = session.check_java()
        yield Finding("java", True, java)
        master = session.check_master(pipeline.spark.master)
        yield Finding("spark", True, master)
    except PipelineError as error:
        yield _failed("spark", error)


def _start(pipeline: Pipeline, known: _Known) -> Iterator[Finding]:
    from tidelog.pipeline.run.batches import row_schema
    from tidelog.pipeline.spark.on_spark import OnSpark
    from tidelog.pipeline.table.tables import examine

    try:
        executor = OnSpark(session.spark_session(pipeline.spark, pipeline.name))
    except PipelineError as error:
        yield _failed("start of spark", error)
        return
    try:
        try:
            executor.check_tasks()
        except PipelineError as error:
            yield _failed("start of spark", error)
            return
        yield Finding("start of spark", True, f"{executor.parallelism} tasks at a time")
        if known.decoding is not None and pipeline.transform is not None:
            schema = row_schema(pipeline, executor, known.decoding)
            examine(pipeline, schema)
            yield Finding("rows", True, ", ".join(f"{column.name} {column.type}" for column in schema))
    except PipelineError as error:
        yield _failed("rows", error)
    finally:
        executor.close()
