"""The sections of a pipeline file, as frozen dataclasses that can travel to executors.

What a key means is said on its field, and `docs/pipelines.md` prints the same words.
"""

# ruff: noqa: RUF009 — `key` makes a dataclass field.
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tidelog.pipeline.spec.toml_keys import (
    Wrong,
    choice,
    count,
    duration_ms,
    flag,
    key,
    names,
    path,
    settings,
    size_bytes,
    table_path,
    text,
)

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
MIB: Final = 1024 * 1024
#: Kafka's column -> its name in a table of decoded rows, unless `[table] metadata` says otherwise
METADATA: Final = {
    "topic": "_topic",
    "partition": "_partition",
    "offset": "_offset",
    "timestamp": "_timestamp",
    "key": "_key",
}
#: the column of decoded rows that says that a record had no value: of a table with keys, which does not keep it
DELETED: Final = "_deleted"
#: how long a table with keys knows of a deletion, unless it is said otherwise
KEEP_DELETED_MS: Final = 30 * 86_400_000
#: the rows of a batch are merged in the driver's memory where the table has keys
MAX_KEYED_RECORDS: Final = 1_000_000

Format = Literal["json", "avro", "protobuf", "text", "raw"]
OnTrouble = Literal["dead_letter", "stop"]
OnRestore = Literal["stop", "read_again", "go_on"]
StartingOffsets = Literal["earliest", "latest"] | Mapping[str, Mapping[int, int]]


def _starting_offsets(value: Any, _: str) -> StartingOffsets:
    if value in ("earliest", "latest"):
        return "earliest" if value == "earliest" else "latest"
    hint = 'write "earliest", "latest", or offsets such as { orders = { "0" = 1200 } }'
    if not isinstance(value, dict):
        raise Wrong(f"{value!r} is not a place to start", hint)
    found: dict[str, dict[int, int]] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise Wrong(f"{topic} = {partitions!r} names no partitions", hint)
        found[topic] = {}
        for partition, offset in partitions.items():
            if not partition.isdigit() or not isinstance(offset, int) or offset < -2:
                raise Wrong(f"{topic}: {partition} = {offset!r} is not a partition with an offset", hint)
            found[topic][int(partition)] = offset
    return found


def _pattern(value: Any, directory: str) -> str:
    written = text(value, directory)
    try:
        re.compile(written)
    except re.error as error:
        raise Wrong(f"{written!r} is not a regular expression: {error}", 'write for example "orders-.*"') from error
    return written


def _schema_files(value: Any, directory: str) -> dict[str, str]:
    hint = 'write for example { "7" = "orders-7.avsc" }'
    if not isinstance(value, dict) or not all(number.isdigit() for number in value):
        raise Wrong(f"{value!r} names no files by schema ids", hint)
    return {number: path(file, directory) for number, file in value.items()}


def _metadata(value: Any, _: str) -> tuple[tuple[str, str], ...]:
    if isinstance(value, bool):
        return tuple(METADATA.items()) if value else ()
    hint = f'write true, false, or new names such as {{ offset = "kafka_offset" }}; there are: {", ".join(METADATA)}'
    if not isinstance(value, dict):
        raise Wrong(f"{value!r} is neither true, false nor a table of names", hint)
    chosen = dict(METADATA)
    for column, name in value.items():
        if column not in METADATA or not (name is False or (isinstance(name, str) and name)):
            raise Wrong(f"{column} = {name!r} is not a metadata column with a name", hint)
        if name is False:
            chosen.pop(column, None)
        else:
            chosen[column] = name
    return tuple(chosen.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """[source]: which topics are read, and from where on."""

    bootstrap: str = key(
        text,
        "brokers to ask first: host:port, separated by commas",
        default=DEFAULT_BOOTSTRAP,
        shown="$TIDELOG_BOOTSTRAP, else localhost:9092",
    )
    topics: tuple[str, ...] = key(names, "the topics to read", default=())
    topic_pattern: str | None = key(
        _pattern, "instead of topics: a regular expression; topics that appear later are read as well", default=None
    )
    starting_offsets: StartingOffsets = key(
        _starting_offsets,
        'where a new pipeline begins: "earliest", "latest", or offsets such as { orders = { "0" = 1200 } }; '
        "partitions that appear later are read from their beginning",
        default="earliest",
    )
    isolation: Literal["read_committed", "read_uncommitted"] = key(
        choice("read_committed", "read_uncommitted"),
        "whether what belongs to open or aborted transactions is left out (read_committed)",
        default="read_committed",
    )
    fail_on_data_loss: bool = key(
        flag,
        "stop where the log no longer holds an offset that is due; false reports the gap and goes on behind it",
        default=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """[decode]: how values become columns."""

    format: Format = key(choice("json", "avro", "protobuf", "text", "raw"), "what the values are", default="raw")
    schema: str | None = key(
        text,
        'the columns: a Spark DDL string such as "id BIGINT, at TIMESTAMP", or an Avro schema as JSON',
        default=None,
    )
    schema_file: str | None = key(
        path, "instead of schema: a file with it; for protobuf a .proto file or a descriptor set", default=None
    )
    infer: bool = key(
        flag,
        "instead of schema: find the columns in the first records, once, and keep them with the table",
        default=False,
    )
    message: str | None = key(text, "the message type of protobuf values, such as shop.Order", default=None)
    on_error: OnTrouble = key(
        choice("dead_letter", "stop"), "what becomes of a value that cannot be decoded", default="dead_letter"
    )
    on_type_change: OnTrouble = key(
        choice("dead_letter", "stop"), "what becomes of a value whose field has another type", default="dead_letter"
    )
    evolve: bool = key(flag, "add a column to the table where values have a field that it lacks", default=True)
    framing: Literal["none", "confluent"] = key(
        choice("none", "confluent"),
        "whether a schema's id stands before each value, as clients of a schema registry write it",
        default="none",
    )
    writer_schema_file: str | None = key(
        path, "the schema that Avro values were written with, where it is not that of the table", default=None
    )
    writer_schemas: Mapping[str, str] = key(
        _schema_files,
        'files with the schemas that Avro values were written with, by their ids: { "7" = "orders-7.avsc" }',
        factory=dict,
        shown="{}",
    )
    key_format: Literal["binary", "text"] = key(
        choice("binary", "text"), "what keys are; as text, those that are not UTF-8 are dead letters", default="binary"
    )
    #: (Kafka's column, its name in the rows); from `[table] metadata`
    metadata: tuple[tuple[str, str], ...] = field(default=tuple(METADATA.items()))
    #: columns without which a record is a dead letter; from `[table] keys`
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """[transform]: one of the three; the decoded records are the view `records`."""

    sql: str | None = key(text, "a query over the view records", default=None)
    sql_file: str | None = key(path, "a file with the query", default=None)
    python: str | None = key(
        text,
        "module:function, which is given a DataFrame and returns one; the file's directory is on the path",
        default=None,
    )
    #: where a module of the pipeline's own is looked for
    directory: str = "."


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """[table]: the Delta table that the rows land in."""

    path: str = key(
        table_path, "the directory of the Delta table, relative to the file; or an address such as s3://bucket/orders"
    )
    partition_by: tuple[str, ...] = key(names, "columns that the table is partitioned by", default=())
    target_file_size: int = key(
        size_bytes, "how large a Parquet file may grow before the next is begun", default=128 * MIB, shown='"128MB"'
    )
    compression: Literal["snappy", "zstd", "lz4", "none"] = key(
        choice("snappy", "zstd", "lz4", "none"), "of the Parquet files, smallest with zstd", default="snappy"
    )
    fsync: bool = key(
        flag, "force the files of a batch to disk before it is committed, against a loss of power", default=False
    )
    compact_every: int = key(count(0), "join small files after so many batches; 0 for never", default=0)
    metadata: tuple[tuple[str, str], ...] = key(
        _metadata,
        "the columns _topic, _partition, _offset, _timestamp, _key of decoded rows: true, false, or new names such as "
        '{ offset = "kafka_offset", key = false }',
        default=tuple(METADATA.items()),
        shown="true",
    )
    adopt: bool = key(flag, "write into a table that exists and was not made by this pipeline", default=False)
    on_restore: OnRestore = key(
        choice("stop", "read_again", "go_on"),
        "what becomes of records whose rows a RESTORE of the table took out: stop says so, read_again goes back to the "
        "offsets that belong to the rows, go_on leaves them out",
        default="stop",
    )
    keys: tuple[str, ...] = key(
        names,
        "make it a table of the latest state: columns that rows are told apart by; a row takes the place of the one "
        "with its key, and a record without a value takes it out",
        default=(),
    )
    order_by: str | None = key(
        text,
        "with keys: the column whose greatest value is the latest; without it what was read later is",
        default=None,
    )
    deletes: str | None = key(
        text,
        'with keys: which rows are deletions as well, by a column that is true ("gone") or has a value ("op=d")',
        default=None,
    )
    keep_deleted_ms: int = key(
        duration_ms,
        "with order_by: how long a deletion is remembered; a change from before it that is read later than that brings "
        "the row back",
        default=KEEP_DELETED_MS,
        shown='"30d"',
        named="keep_deleted",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """[trigger]: how often a batch is begun."""

    interval_ms: int = key(
        duration_ms,
        "time from the start of a batch to the start of the next",
        default=5000,
        shown='"5s"',
        named="interval",
    )
    once: bool = key(flag, "read what there is at the start, and end", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """[limits]: how much is done at a time."""

    max_records_per_batch: int = key(
        count(1),
        "offsets that one batch covers at most, shared out by lag; with [table] keys 1000000 by default",
        default=10_000_000,
        shown="10000000",
    )
    max_bytes_per_task: int = key(
        size_bytes, "what a task holds in memory before it writes a row group", default=32 * MIB, shown='"32MB"'
    )
    tasks: int | None = key(
        count(1), "tasks per batch; large ranges are split", default=None, shown="Spark's default parallelism"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """[dead_letters]: the table of what could not be decoded."""

    path: str = key(table_path, "its directory", default="", shown="the table's path with _dead_letters behind it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """[spark]: where the work runs."""

    master: str = key(
        text,
        'local[*], the address of a cluster, or "none": in this process alone, without Spark, Java and transforms',
        default="local[*]",
    )
    conf: Mapping[str, str] = key(settings, "Spark's own settings", factory=dict, shown="{}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """[group]: the consumer group that shows how far the pipeline is. It never decides where the pipeline goes on."""

    id: str = key(text, "its id", default="", shown="the pipeline's name")
    commit: bool = key(flag, "whether its offsets are committed after each batch", default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    name: str
    source: Source
    decode: Decode
    transform: Transform | None
    table: Table
    trigger: Trigger
    limits: BatchLimits
    dead_letters: DeadLetters
    spark: Spark
    group: Group
    #: the file that it was read from
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Top:
    name: str = key(text, 'what the pipeline is called: name = "orders"')


SECTIONS: Final[Mapping[str, type]] = {
    "source": Source,
    "decode": Decode,
    "transform": Transform,
    "table": Table,
    "trigger": Trigger,
    "limits": BatchLimits,
    "dead_letters": DeadLetters,
    "spark": Spark,
    "group": Group,
}
