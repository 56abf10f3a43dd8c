"""Tasks on Spark: each is one Spark task that runs `land` in a Python worker and returns what it wrote.

Without a transform, rows never pass through the JVM on the way from the log to the files. Spark gives what it is good
at: processes on many machines, and trying again. A speculative or repeated attempt writes files of its own; of each
task one result arrives. With a transform, the landed files are what Spark's SQL reads, and tasks write what it makes.

The job runs in a thread of its own, so that results can be told as they come and the driver's thread stays free for
signals. A driver that is interrupted cancels the job.
"""

from __future__ import annotations

import math
import pickle
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark import AccumulatorParam

from tidelog.pipeline.errors import NotReady, PipelineError, TasksFailed
from tidelog.pipeline.land.executor import Done
from tidelog.pipeline.land.landing import Landed, LandingTask, land
from tidelog.pipeline.land.progress_events import Listener, Notice, tell_all
from tidelog.pipeline.table import storage
from tidelog.pipeline.table.columns import all_nullable
from tidelog.pipeline.table.parquet_files import SinkSettings, WrittenFile, write_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tidelog.pipeline.spec import Transform

T = TypeVar("T")
_LOOK_EVERY_S: Final = 0.1
#: how long a process may take to be gone whose connections are broken
_LAST_MOMENT_S: Final = 0.5
#: how long a job may have no task that runs before somebody is told
IDLE_S: Final = 30.0
Told = list[tuple[int, Landed]]


class _Telling(AccumulatorParam[Told]):
    def zero(self, value: Told) -> Told:
        return []

    def addInPlace(self, value1: Told, value2: Told) -> Told:
        value1.extend(value2)
        return value1


class OnSpark:
    def __init__(self, session: SparkSession, listeners: Sequence[Listener] = ()) -> None:
        self._spark = session
        self._listeners = listeners
        self._jobs = 0
        #: (job, result) of tasks that have ended; the driver takes them out as it tells them
        self._told = session.sparkContext.accumulator([], _Telling())

    @property
    def parallelism(self) -> int:
        return max(1, self._asked(lambda: int(self._spark.sparkContext.defaultParallelism)))

    def _asked(self, question: Callable[[], T]) -> T:
        """The JVM's answer. A JVM that has ended answers in many ways, all of which mean one thing."""
        try:
            return question()
        except Exception as error:
            if self._has_ended():
                raise _ended() from error
            raise

    def _has_ended(self) -> bool:
        """Whether the JVM has; a moment is given to it, for its connections break before it is gone."""
        process = getattr(self._spark.sparkContext._gateway, "proc", None)
        if process is None:
            return False
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_MOMENT_S)
        return process.poll() is not None

    def check_tasks(self) -> None:
        """Runs a task that does nothing. NotReady where no executor takes it, TasksFailed where it cannot run there."""

        def waits() -> None:
            raise NotReady(*self._idle())

        self._watched("trial", lambda: self._spark.sparkContext.parallelize([0], 1).map(_same).collect(), waits=waits)

    def land(self, tasks: Sequence[LandingTask], done: Done) -> list[Landed]:
        if not tasks:
            # A batch of gaps only; Spark cannot cut nothing into no parts.
            return []
        number, told = self._jobs + 1, self._told

        def run(task: LandingTask) -> Landed:
            result = land(task)
            told.add([(number, result)])
            return result

        def job() -> list[Landed]:
            return self._spark.sparkContext.parallelize(tasks, len(tasks)).map(run).collect()

        def tell() -> None:
            while told.value:
                of, result = told.value.pop(0)
                if of == number:
                    done(result)

        return self._watched("landing", job, tell)

    def transformed_schema(self, transform: Transform, schema: pa.Schema) -> pa.Schema:
        # As it will read the records from files: there everything may be null.
        columns = _spark_schema(all_nullable(schema))
        return self._asked(
            lambda: _arrow_schema(self._transformed(transform, self._spark.createDataFrame([], columns)))
        )

    def transform(
        self, transform: Transform, schema: pa.Schema, staged: Sequence[str], settings: SinkSettings
    ) -> list[WrittenFile]:
        def job() -> list[WrittenFile]:
            records = self._staged(schema, staged)
            rows = self._transformed(transform, records)
            described = rows.mapInArrow(_writing(settings, _arrow_schema(rows)), "file binary").collect()
            return [file for row in described for file in pickle.loads(row["file"])]

        return self._watched("transform", job)

    def _staged(self, schema: pa.Schema, staged: Sequence[str]) -> DataFrame:
        """What is remote is read as it was written, by tasks: the JVM would want drivers and credentials of its own."""
        if all(map(storage.is_local, staged)):
            return self._spark.read.schema(_spark_schema(schema)).parquet(*staged)
        paths = self._spark.createDataFrame([(path,) for path in staged], "path string")
        return paths.repartition(min(len(staged), self.parallelism)).mapInArrow(_reading(schema), _spark_schema(schema))

    def _transformed(self, transform: Transform, records: DataFrame) -> DataFrame:
        from tidelog.pipeline.spark.transform import apply

        return apply(transform, records)

    def _idle(self) -> tuple[str, str]:
        return (
            f"Spark has had no task of this running for {IDLE_S:g} s: no executor of {self._spark.sparkContext.master} "
            "is free for it",
            "start workers, or give it the cores and the memory that it asks for ([spark.conf]); "
            "while it waits, a second Ctrl-C ends it",
        )

    def _is_idle(self, group: str) -> bool:
        """Whether jobs of the group wait, and none of their tasks runs."""
        tracker = self._spark.sparkContext.statusTracker()
        jobs = [job for number in tracker.getJobIdsForGroup(group) if (job := tracker.getJobInfo(number)) is not None]
        running = [job for job in jobs if job.status == "RUNNING"]
        stages = [tracker.getStageInfo(number) for job in running for number in job.stageIds]
        return bool(running) and not any(stage.numActiveTasks for stage in stages if stage is not None)

    def _watched(
        self,
        what: str,
        job: Callable[[], T],
        tell: Callable[[], None] = lambda: None,
        waits: Callable[[], None] | None = None,
    ) -> T:
        """Runs a job in a thread of its own; `tell` is called in this one meanwhile.

        Once, where it waits for executors for long, `waits` is called, or the listeners are told.
        """
        self._jobs += 1
        group = f"tidelog-{what}-{self._jobs}"
        outcome: list[T] = []
        failure: list[BaseException] = []

        def body() -> None:
            try:
                self._spark.sparkContext.setJobGroup(group, f"tidelog pipeline: {what}", True)
                outcome.append(job())
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=body, name=group, daemon=True)
        thread.start()
        look_at = time.monotonic() + IDLE_S
        try:
            while thread.is_alive():
                thread.join(_LOOK_EVERY_S)
                tell()
                if time.monotonic() >= look_at:
                    look_at += IDLE_S
                    if self._asked(lambda: self._is_idle(group)):
                        look_at = math.inf
                        if waits is not None:
                            waits()
                        else:
                            tell_all(self._listeners, Notice(*self._idle()))
        except BaseException:
            with suppress(Exception):
                self._spark.sparkContext.cancelJobGroup(group)
            raise
        if failure:
            if isinstance(failure[0], PipelineError):
                raise failure[0]
            if self._has_ended():
                raise _ended() from failure[0]
            raise explained(failure[0]) from failure[0]
        return outcome[0]

    def close(self) -> None:
        try:
            self._spark.stop()
        except Exception:
            if not self._has_ended():
                raise


def _ended() -> NotReady:
    return NotReady(
        "Spark's JVM has ended: it was killed, or ran out of memory",
        "start the pipeline again, it goes on from what the table has; "
        '"spark.driver.memory" under [spark.conf] gives the JVM more memory',
    )


def _same(number: int) -> int:
    return number


def _spark_schema(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _arrow_schema(rows: DataFrame) -> pa.Schema:
    """The columns of a DataFrame as tables have them: times in UTC, everything nullable."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.schema([field.with_nullable(True) for field in to_arrow_schema(rows.schema, timezone="UTC")])


def _reading(schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with the paths of staged files: it gives their rows instead."""

    def read(paths: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        for path in (path for batch in paths for path in batch.column("path").to_pylist()):
            root, _, name = path.rpartition("/")
            with pq.ParquetFile(storage.open_to_read(root, name)) as file:
                for batch in file.iter_batches():
                    yield batch.select(schema.names).cast(schema)

    return read


def _writing(
    settings: SinkSettings, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with the rows of a transform: it writes them, and gives the descriptions instead."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        own = replace(settings, prefix=f"{settings.prefix.rpartition('-t')[0]}-t{task}")
        written = write_rows(own, (batch.cast(schema) for batch in batches))
        yield pa.RecordBatch.from_pydict({"file": [pickle.dumps(written)]})

    return write


def explained(error: BaseException) -> TasksFailed:
    """What a Python worker said, without the many lines of the JVM around it."""
    lines = [line.strip() for line in str(error).splitlines()]
    # The last line of a worker's traceback names the exception; what follows is Java's.
    after = [n for n, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    told = ""
    for line in lines[after[-1] + 1 :] if after else ():
        if line.startswith(("at ", "Driver stacktrace")):
            break
        if line and not line.startswith(("File ", "^", "~")):
            told = line
    told = told or next((line for line in lines if line), type(error).__name__)
    return TasksFailed(f"tasks failed on Spark: {told}", "see with --debug what Spark says of it")
