"""Everything that a pipeline needs, looked at one after the other: what is there, what is wrong, and what to do.

Nothing is written, and no runner is disturbed. A check that cannot be made because an earlier one failed is left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

from tidelog import how_to_install
from tidelog.client import ClientError
from tidelog.pipeline import places, session
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.spec import Pipeline


class Finding(NamedTuple):
    what: str
    ok: bool
    message: str
    hint: str | None = None


def findings(pipeline: Pipeline, timeout_s: float, with_spark: bool = False) -> Iterator[Finding]:
    yield Finding("file", True, pipeline.file)
    missing = [name for name in _modules(pipeline) if find_spec(name) is None]
    if missing:
        advice = how_to_install("spark", "schema")
        yield Finding("packages", False, f"{', '.join(missing)} is not installed", advice)
        return
    yield from _brokers(pipeline, timeout_s)
    yield from _schema(pipeline)
    yield from _table(pipeline)
    yield from _transform(pipeline)
    spark = list(_spark(pipeline))
    yield from spark
    if with_spark and all(finding.ok for finding in spark):
        yield from _start(pipeline)


def _modules(pipeline: Pipeline) -> list[str]:
    formats = {"avro": ["fastavro"], "protobuf": ["google.protobuf"]}
    return ["pyarrow", "deltalake", *formats.get(pipeline.decode.format, [])]


def _failed(what: str, error: PipelineError | ClientError) -> Finding:
    return Finding(what, False, str(error), error.hint)


def _brokers(pipeline: Pipeline, timeout_s: float) -> Iterator[Finding]:
    from tidelog.pipeline.watching import Brokers

    source = pipeline.source
    try:
        with Brokers(source, timeout_s) as brokers:
            partitions = brokers.partitions()
            ends = brokers.ends(partitions)
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


def _schema(pipeline: Pipeline) -> Iterator[Finding]:
    from tidelog.pipeline.decoding import Decoding
    from tidelog.pipeline.table import PipelineTable

    try:
        table = PipelineTable.open(pipeline.table.path, pipeline.name)
        decoding = Decoding.of(pipeline.decode, None if table is None else table.pin, list)
    except PipelineError as error:
        yield _failed("schema", error)
        return
    if decoding is None:
        yield Finding("schema", True, "will be inferred from the first records")
        return
    yield Finding("schema", True, ", ".join(f"{field.name} {field.type}" for field in decoding.decoder.schema))
    if pipeline.table.keys and pipeline.transform is None:
        yield from _keys(pipeline, decoding.decoder.schema)


def _keys(pipeline: Pipeline, schema: Any) -> Iterator[Finding]:
    from tidelog.pipeline.merging import check_keys

    try:
        check_keys(schema, pipeline)
        yield Finding("keys", True, ", ".join(pipeline.table.keys))
    except PipelineError as error:
        yield _failed("keys", error)


def _table(pipeline: Pipeline) -> Iterator[Finding]:
    from tidelog.pipeline.table import check_empty, foreign
    from tidelog.pipeline.tables import Tables

    try:
        tables = Tables.look(pipeline)
        if tables is None:
            check_empty(pipeline.table.path)
            yield from _writable(pipeline.table.path)
            return
        if tables.table.epoch is None and not pipeline.table.adopt:
            raise foreign(tables.table, pipeline.name)
        if tables.table.partition_by != pipeline.table.partition_by:
            raise PipelineError(
                f"the table is partitioned by {list(tables.table.partition_by)}",
                "write the same under partition_by in [table], or another path",
            )
        tables.table.check_usable()
    except PipelineError as error:
        yield _failed("table", error)
        return
    yield Finding("table", True, f"{pipeline.table.path}: version {tables.table.version}")


def _writable(path: str) -> Iterator[Finding]:
    if not places.is_local(path):
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


def _start(pipeline: Pipeline) -> Iterator[Finding]:
    from tidelog.pipeline.batches import row_schema
    from tidelog.pipeline.decoding import Decoding
    from tidelog.pipeline.on_spark import OnSpark
    from tidelog.pipeline.table import PipelineTable

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
        table = PipelineTable.open(pipeline.table.path, pipeline.name)
        decoding = Decoding.of(pipeline.decode, None if table is None else table.pin, list)
        if decoding is not None and pipeline.transform is not None:
            schema = row_schema(pipeline, executor, decoding)
            if table is not None:
                table.missing(schema)
            yield Finding("rows", True, ", ".join(f"{field.name} {field.type}" for field in schema))
    except PipelineError as error:
        yield _failed("rows", error)
    finally:
        executor.close()
