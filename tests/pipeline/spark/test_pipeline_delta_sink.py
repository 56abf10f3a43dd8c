"""Windows and aggregates over `format("tidelog")` into `format("tidelog-delta")`, however often the query dies."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from bench.systems.java import REPOSITORY
from bench.systems.process import BrokerProcess
from bench.systems.spark import QUICK_TO_START
from deltalake import DeltaTable
from examples.windows import orders, windows
from pyspark import TaskContext, cloudpickle
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import IntegerType, StringType, StructType
from sink_orders import CUSTOMERS, fill, fold, moment

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.spark.delta_sink import DeltaSink, DeltaStreamWriter, TableOptions, upsert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS = 400


class Died(Exception):
    pass


class ShakyWriter(DeltaStreamWriter):
    """Dies before or after the commit of a batch where a file says so, once."""

    def __init__(self, *given: Any, marks: str) -> None:
        super().__init__(*given)
        self._marks = marks

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._die("before", batchId)
        super().commit(messages, batchId)
        self._die("after", batchId)

    def _die(self, when: str, batch: int) -> None:
        mark = Path(self._marks) / f"{when}-{batch}"
        if mark.exists():
            mark.unlink()
            raise Died(when)


class ShakySink(DeltaSink):
    @classmethod
    def name(cls) -> str:
        return "shaky-delta"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DeltaStreamWriter:
        given = {name: value for name, value in self.options.items() if name != "marks"}
        return ShakyWriter(TableOptions.of(given, overwrite), schema, overwrite, marks=self.options["marks"])


@pytest.fixture(scope="module")
def shaky(spark: SparkSession) -> Iterator[SparkSession]:
    # Spark's workers cannot import this file.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(ShakySink)
    yield spark
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def settings(broker: BrokerProcess, topic: str, batch: int) -> argparse.Namespace:
    return argparse.Namespace(
        bootstrap=broker.bootstrap, source=topic, batch=batch, late="30 seconds", window="10 seconds"
    )


def rows(table: Path) -> list[dict[str, Any]]:
    return DeltaTable(table).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(str(table)) else []


def by_window(table: Path) -> dict[tuple[datetime, str], tuple[int, float]]:
    found = rows(table)
    counted = {(row["start"].astimezone(UTC), row["customer"]): (row["orders"], row["amount"]) for row in found}
    assert len(counted) == len(found), "a window is in the table twice"
    return counted


def staged(table: Path) -> list[str]:
    return sorted(path.name for path in table.glob("_tidelog/staging/**/*.parquet"))


def deaths(directory: Path, *marks: str) -> str:
    directory.mkdir()
    for mark in marks:
        (directory / mark).touch()
    return str(directory)


def run_until_done(start: Callable[[], Any]) -> int:
    """Starts the query again whenever it dies; how often it died."""
    died = 0
    while True:
        query = start()
        try:
            query.awaitTermination()
            return died
        except Exception as error:
            assert "Died" in str(error), error
            died += 1


@pytest.mark.spark
def test_windows_equal_the_fold_of_the_topic_though_commits_die_before_and_after(
    shaky: SparkSession, broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    topic = unique("windows")
    fill(broker.bootstrap, topic, ORDERS)
    marks = deaths(tmp_path / "marks", "before-0", "after-0", "after-1", "before-2", "after-2")
    options = settings(broker, topic, batch=210)

    def start() -> Any:
        found = windows(orders(shaky, options), options).writeStream.format("shaky-delta").outputMode("append")
        found = found.option("checkpointLocation", str(tmp_path / "checkpoint")).option("marks", marks)
        return found.trigger(availableNow=True).start(str(tmp_path / "table"))

    assert run_until_done(start) == 5
    assert by_window(tmp_path / "table") == fold(ORDERS)


@pytest.mark.spark
def test_complete_mode_replaces_and_upserts_update_each_batch_once(
    shaky: SparkSession, broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    topic = unique("totals")
    fill(broker.bootstrap, topic, ORDERS)
    marks = deaths(tmp_path / "marks", "after-0")
    found = orders(shaky, settings(broker, topic, batch=210))
    totals = found.where("customer != 'nobody'").groupBy("customer").count()

    def complete() -> Any:
        writer = totals.writeStream.format("shaky-delta").outputMode("complete").option("marks", marks)
        writer = writer.option("checkpointLocation", str(tmp_path / "ck-complete"))
        return writer.trigger(availableNow=True).start(str(tmp_path / "complete"))

    died: list[int] = []

    def update() -> Any:
        into = upsert(str(tmp_path / "updated"), ["customer"])

        def then_die(batch: DataFrame, number: int) -> None:
            into(batch, number)
            if not died:
                died.append(number)
                raise Died(number)

        writer = totals.writeStream.foreachBatch(then_die).outputMode("update")
        return writer.option("checkpointLocation", str(tmp_path / "ck-update")).trigger(availableNow=True).start()

    expected = {
        customer: sum(number % 3 == place for number in range(ORDERS)) for place, customer in enumerate(CUSTOMERS)
    }
    assert run_until_done(complete) == 1 and run_until_done(update) == 1
    for table in ("complete", "updated"):
        assert sorted((row["customer"], row["count"]) for row in rows(tmp_path / table)) == sorted(expected.items())
        assert len(DeltaTable(tmp_path / table).history()) == 3, "one commit makes the table, and one comes per batch"


@pytest.mark.spark
def test_rows_of_a_topic_are_upserted_by_key_in_append_mode_and_written_by_a_batch_job(
    shaky: SparkSession, broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    topic = unique("latest")
    fill(broker.bootstrap, topic, ORDERS)
    marks = deaths(tmp_path / "marks", "before-0", "after-1")
    found = orders(shaky, settings(broker, topic, batch=250)).where("customer != 'nobody'")

    def start() -> Any:
        writer = found.writeStream.format("shaky-delta").option("mode", "upsert").option("keys", "customer")
        writer = writer.option("orderBy", "at").option("marks", marks)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        return writer.start(str(tmp_path / "table"))

    assert run_until_done(start) == 2
    newest = {customer: max(moment(n) for n in range(i, ORDERS, 3)) for i, customer in enumerate(CUSTOMERS)}
    assert {row["customer"]: row["at"].astimezone(UTC) for row in rows(tmp_path / "table")} == newest
    assert len(rows(tmp_path / "table")) == 3 and staged(tmp_path / "table") == []

    job = shaky.createDataFrame([(1, "a"), (2, "b")], "n INT, p STRING").write.format("tidelog-delta")
    job.option("partitionBy", "p").mode("append").save(str(tmp_path / "job"))
    job.option("partitionBy", "p").mode("append").save(str(tmp_path / "job"))
    assert len(rows(tmp_path / "job")) == 4 and (tmp_path / "job" / "p=a").is_dir()
    job.mode("overwrite").save(str(tmp_path / "job"))
    assert sorted(row["n"] for row in rows(tmp_path / "job")) == [1, 2]


@pytest.mark.spark
@pytest.mark.long
def test_the_windows_example_is_killed_in_the_middle_and_counts_every_order_once(
    broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    topic = unique("example")
    fill(broker.bootstrap, topic, ORDERS)
    table = tmp_path / "table"
    command = [sys.executable, "-m", "examples.windows", "--bootstrap", broker.bootstrap, "--from", topic]
    command += ["--table", str(table), "--batch", "100", "--once"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])}
    environment["JDK_JAVA_OPTIONS"] = QUICK_TO_START

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)

    process = start()
    while process.poll() is None and not (table / "_delta_log" / f"{2:020}.json").exists():
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert 0 < len(rows(table)) < len(fold(ORDERS))
    process = start()
    assert process.wait(120) == 0
    assert by_window(table) == fold(ORDERS)


class Upserts:
    """A writer of upserts without Spark: what tasks and drivers of one query do, in any order."""

    def __init__(self, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        options = TableOptions.of({"path": str(table), "mode": "upsert", "keys": "n"}, overwrite=False)
        self.writer = DeltaStreamWriter(options, StructType().add("n", IntegerType()).add("v", StringType()), False)
        self._monkeypatch = monkeypatch

    def task(self, batch: int, task: int, value: str) -> WriterCommitMessage:
        properties = {"sql.streaming.queryId": "query", "streaming.sql.batchId": str(batch)}
        context = SimpleNamespace(partitionId=lambda: task, getLocalProperty=properties.get)
        self._monkeypatch.setattr(TaskContext, "get", lambda: context)
        columns = {"n": pa.array([task], pa.int32()), "v": pa.array([value])}
        return self.writer.write(iter([pa.record_batch(columns)]))


def test_a_batch_of_which_a_staged_file_is_missing_is_not_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upserts = Upserts(tmp_path, monkeypatch)
    messages = [upserts.task(0, task, "a") for task in range(2)]
    lost = next(tmp_path.glob("_tidelog/staging/query/*-t1-*.parquet"))
    lost.unlink()
    with pytest.raises(PipelineError, match=f"{lost.name}.* is gone"):
        upserts.writer.commit(list(messages), 0)
    assert rows(tmp_path) == []
    upserts.writer.commit([upserts.task(0, task, "b") for task in range(2)], 0)
    assert sorted((row["n"], row["v"]) for row in rows(tmp_path)) == [(0, "b"), (1, "b")]


def test_a_commit_leaves_alone_what_another_driver_has_staged_for_this_batch_or_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upserts = Upserts(tmp_path, monkeypatch)
    upserts.task(0, 0, "of an attempt that failed")
    upserts.writer.commit([upserts.task(0, 0, "a")], 0)
    assert len(staged(tmp_path)) == 1
    ours, theirs, later = upserts.task(1, 0, "ours"), upserts.task(1, 0, "theirs"), upserts.task(2, 0, "later")
    upserts.writer.commit([ours], 1)
    assert [re.search("-b([0-9]+)-", name)[1] for name in staged(tmp_path)] == ["1", "2"]  # type: ignore[index]
    # A driver that was thought dead repeats its batch.
    upserts.writer.commit([theirs], 1)
    upserts.writer.commit([later], 2)
    assert [row["v"] for row in rows(tmp_path)] == ["later"] and staged(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs the path"),
        ({"path": "x", "partitonBy": "a"}, "has no option partitonby"),
        ({"path": "x", "mode": "upsert"}, "do not go together"),
        ({"path": "x", "keys": "a"}, "do not go together"),
        ({"path": "x", "mode": "overwrite"}, "do not go together"),
        ({"path": "x", "targetFileSize": "big"}, "targetFileSize: 'big' is not a size"),
        ({"path": "x", "mode": "upsert", "keys": "a", "keepDeleted": "soon"}, "keepDeleted: 'soon' is not a duration"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        TableOptions.of(options, overwrite=False)


def test_complete_mode_knows_no_keys() -> None:
    with pytest.raises(PipelineError, match="every batch is the whole table"):
        TableOptions.of({"path": "x", "mode": "upsert", "keys": "a"}, overwrite=True)


@pytest.mark.spark
def test_the_page_about_windows_does_what_it_says(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    topic = unique("page")
    fill(broker.bootstrap, topic, 60)
    page = (REPOSITORY / "docs" / "streaming-aggregates.md").read_text()
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        code = block.replace("localhost:9092", broker.bootstrap).replace('"lake/', f'"{tmp_path}/lake/')
        code = code.replace('"subscribe", "orders"', f'"subscribe", "{topic}"')
        exec(compile(code, "streaming-aggregates.md", "exec"), names)
    assert by_window(tmp_path / "lake" / "windows") == fold(60)
    totals = {row["customer"]: row["amount"] for row in rows(tmp_path / "lake" / "totals")}
    assert totals == {"nobody": 0.0} | {c: sum(n % 7 + 0.5 for n in range(i, 60, 3)) for i, c in enumerate(CUSTOMERS)}
    assert {row["customer"] for row in rows(tmp_path / "lake" / "latest")} == {*CUSTOMERS, "nobody"}
