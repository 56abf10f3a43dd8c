"""Files into topics, each row once: what is new since the last run is written, and remembered with it.

    files that the paths stand for  -  files that this job has loaded  ->  rows  ->  records  ->  one write

A job has a name. What it has loaded stands in the ledger of writes, in the entry of the write that loaded it: a run
either writes its records and is remembered, or neither. So a run that is repeated, after a failure anywhere or out of
habit, loads what is not loaded yet, and a job that runs every hour loads what came in the hour.

The note of an entry holds what was loaded `before` it and what it loads itself, so that the first is known where the
second has come to nothing: fingerprints of files, or the version of a Delta table.

    {"files": {"before": ["90a1…", …], "new": ["07fe…", …]}}
    {"delta": {"table": "lake/orders", "before": 11, "new": 14}}

A record's value is its row as JSON, or an expression; key, headers, partition and time are expressions over the
columns, in Spark's SQL.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.client.client import Client
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.load.files import (
    DeltaFile,
    DeltaFiles,
    SourceFile,
    escaped,
    format_of,
    is_delta,
    is_directory,
    list_delta,
    list_files,
    read_delta,
)
from tidelog.pipeline.options.given import LEDGER_TOPIC
from tidelog.pipeline.options.sink_options import DEFAULT_PREFIX
from tidelog.pipeline.write.committing import Committer, Family
from tidelog.pipeline.write.ledger import LedgerEntry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AUTO: Final = "auto"
DELTA: Final = "delta"
MAX_FILES: Final = 50_000
_LOOK_EVERY_S: Final = 0.2
#: a CSV file names its columns, unless it is said that it does not
_READ_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {"csv": {"header": "true"}}


class BadLoad(PipelineError):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    job: str
    bootstrap: str
    topic: str
    paths: Sequence[str]
    format: str = AUTO
    #: the columns of files that do not say, as Spark's DDL
    schema: str | None = None
    #: expressions; without a value the row becomes JSON
    value: str | None = None
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    partition: str | None = None
    timestamp: str | None = None
    where: str | None = None
    read_options: Mapping[str, str] = field(default_factory=dict)
    write_options: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 30.0

    @property
    def identity(self) -> str:
        return f"load:{self.job}"

    def option(self, name: str, default: str) -> str:
        return next((value for key, value in self.write_options.items() if key.lower() == name), default)


class Todo(NamedTuple):
    """What a run would load."""

    format: str
    files: Sequence[SourceFile] | DeltaFiles
    version: int
    note: str

    @property
    def file_count(self) -> int:
        return len(self._each())

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self._each())

    @property
    def names(self) -> list[str]:
        return [each.address if isinstance(each, SourceFile) else each.path for each in self._each()]

    def _each(self) -> Sequence[SourceFile | DeltaFile]:
        return self.files.files if isinstance(self.files, DeltaFiles) else self.files


class LoadDone(NamedTuple):
    files: int
    rows: int


Watch = Callable[[int, int], None]


def plan(spark: SparkSession, load: Load) -> Todo:
    """Finishes what an earlier run decided, and finds what is new since."""
    if "/" in load.job:
        raise BadLoad(f"{load.job!r} is not the name of a job: it has a slash", "say another --job")
    with Client(load.bootstrap, "tidelog-load", load.timeout_s) as client:
        memory = remembered(_committer(client, load).recover())
    if load.format == DELTA or (load.format == AUTO and len(load.paths) == 1 and is_delta(spark, load.paths[0])):
        return _plan_delta(load, memory)
    if memory.table is not None:
        raise BadLoad(f"job {load.job} loads the table {memory.table}", "load files under another --job")
    new = [each for each in list_files(spark, load.paths) if each.fingerprint not in memory.files]
    known = len(memory.files) + len(new)
    if known > MAX_FILES:
        raise BadLoad(
            f"job {load.job} would know {known} files, and can remember {MAX_FILES}",
            "go on under another --job, with files that this one has not loaded",
        )
    kind = load.format if load.format != AUTO or not new else format_of(new)
    note = {"files": {"before": sorted(memory.files), "new": [each.fingerprint for each in new]}}
    return Todo(kind, new, memory.version, json.dumps(note, separators=(",", ":")))


def _plan_delta(load: Load, memory: Memory) -> Todo:
    if len(load.paths) != 1:
        raise BadLoad("a Delta table is loaded alone", "give its path and no other")
    (path,) = load.paths
    if memory.files or memory.table not in (None, path):
        known = "files" if memory.files else f"the table {memory.table}"
        raise BadLoad(f"job {load.job} loads {known}", "load another table under another --job")
    found = list_delta(path, memory.table_version)
    note = {"delta": {"table": path, "before": memory.table_version, "new": found.version}}
    return Todo(DELTA, found, memory.version, json.dumps(note, separators=(",", ":")))


class Memory(NamedTuple):
    """What a job has loaded, and the version that its next write has in the ledger."""

    version: int = 0
    files: frozenset[str] = frozenset()
    table: str | None = None
    table_version: int | None = None


def remembered(latest: LedgerEntry | None) -> Memory:
    """An entry that is not done was aborted: what it meant to load is to be loaded still."""
    if latest is None:
        return Memory()
    version = latest.batch + latest.done
    note = json.loads(latest.note or "{}")
    if "delta" in note:
        known = note["delta"]
        return Memory(version, table=known["table"], table_version=known["new" if latest.done else "before"])
    known = note.get("files", {"before": [], "new": []})
    return Memory(version, frozenset(known["before"] + (known["new"] if latest.done else [])))


def records(spark: SparkSession, load: Load, todo: Todo) -> DataFrame:
    """The rows of what is new, as records."""
    frame = _rows(spark, load, todo)
    if load.where is not None:
        frame = frame.where(load.where)
    return frame.selectExpr(*_expressions(frame, load))


def _rows(spark: SparkSession, load: Load, todo: Todo) -> DataFrame:
    if isinstance(todo.files, DeltaFiles):
        return read_delta(spark, todo.files)
    options = {**_READ_OPTIONS.get(todo.format, {}), **load.read_options}
    if len(load.paths) == 1 and is_directory(spark, load.paths[0]):
        # Names such as day=2026-01-31 are columns.
        options.setdefault("basePath", load.paths[0])
    reader = spark.read.format(todo.format).options(**options)
    if load.schema is not None:
        reader = reader.schema(load.schema)
    return reader.load([escaped(each.address) for each in todo.files])


def _expressions(frame: DataFrame, load: Load) -> list[str]:
    # What is null in a row is said to be null: a column that came later is missing, which is another thing.
    whole = "to_json(struct(*), map('ignoreNullFields', 'false'))"
    found = [f"{_written(frame, load.value) if load.value else whole} AS value"]
    if load.key is not None:
        found.append(f"{_written(frame, load.key)} AS key")
    if load.headers:
        each = (
            f"named_struct('key', {_quoted(name)}, 'value', CAST({_written(frame, text)} AS BINARY))"
            for name, text in load.headers.items()
        )
        found.append(f"array({', '.join(each)}) AS headers")
    if load.partition is not None:
        found.append(f"CAST(({load.partition}) AS INT) AS partition")
    if load.timestamp is not None:
        found.append(f"CAST(({load.timestamp}) AS TIMESTAMP) AS timestamp")
    return found


def _written(frame: DataFrame, expression: str) -> str:
    """Bytes and text as they are, what has parts as JSON, the rest as text."""
    kind = frame.selectExpr(f"({expression}) AS it").schema["it"].dataType.typeName()
    if kind in ("binary", "string"):
        return f"({expression})"
    return f"to_json({expression})" if kind in ("struct", "array", "map") else f"CAST(({expression}) AS STRING)"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def run(spark: SparkSession, load: Load, todo: Todo, watch: Watch = lambda done, total: None) -> LoadDone:
    """Writes what is new; `watch` is told how many tasks are done, of how many."""
    from tidelog.pipeline.spark.source import register

    register(spark)
    frame = records(spark, load, todo)
    options = {
        **load.write_options,
        "kafka.bootstrap.servers": load.bootstrap,
        "topic": load.topic,
        "tidelog.write.id": load.identity,
        "tidelog.write.version": str(todo.version),
        "tidelog.write.note": todo.note,
    }
    if load.timestamp is not None:
        options["tidelog.timestamp.column"] = "timestamp"
    writer = frame.write.format("tidelog").options(**options).mode("append")
    _watched(spark, f"load {load.job}", writer.save, watch)
    with Client(load.bootstrap, "tidelog-load", load.timeout_s) as client:
        latest = _committer(client, load).recover()
    return LoadDone(todo.file_count, 0 if latest is None else latest.rows)


def _committer(client: Client, load: Load) -> Committer:
    prefix = load.option("tidelog.transactional.id.prefix", DEFAULT_PREFIX)
    return Committer(client, Family(prefix, load.identity), load.option("tidelog.ledger.topic", LEDGER_TOPIC))


def _watched(spark: SparkSession, group: str, work: Callable[[], None], watch: Watch) -> None:
    """Does the work, while a thread beside it tells how far it is. An interrupt cancels the job."""
    context = spark.sparkContext
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_EVERY_S):
            watch(*_tasks(context, group))

    watcher = threading.Thread(target=look, daemon=True)
    context.setJobGroup(group, group, interruptOnCancel=True)
    watcher.start()
    try:
        work()
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    finally:
        over.set()
        watcher.join()
        context._jsc.clearJobGroup()


def _tasks(context: Any, group: str) -> tuple[int, int]:
    """Tasks that are done, and tasks that there are, of the newest job of a group."""
    tracker = context.statusTracker()
    jobs = tracker.getJobIdsForGroup(group)
    info = tracker.getJobInfo(max(jobs)) if jobs else None
    stages = [] if info is None else [stage for each in info.stageIds if (stage := tracker.getStageInfo(each))]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
