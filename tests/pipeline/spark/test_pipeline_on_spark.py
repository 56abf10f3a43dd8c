"""Pipelines on a real Spark: the same oracle, transforms, failing tasks, and runners that are killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.systems.process import BrokerProcess
from pipeline_site import JSON, Site
from spark_lives import Feeder, Lives

from tidelog.client import Client, Message
from tidelog.pipeline.errors import BadRecord, NotReady, PipelineError, TasksFailed
from tidelog.pipeline.land.executor import Executor
from tidelog.pipeline.land.landing import Landed, LandingTask, land
from tidelog.pipeline.land.progress_events import Event, Notice, RunProgress
from tidelog.pipeline.run.checking import Finding, findings
from tidelog.pipeline.run.table_replay import Replay
from tidelog.testing.broker import RunningBroker

if TYPE_CHECKING:
    from bench.systems.spark import SparkCluster
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
DAYS = '''
[transform]
sql = """SELECT id, id * 2 AS twice, CAST(_timestamp AS DATE) AS day, _topic, _partition, _offset
         FROM records WHERE id >= 0"""
'''
SMALL = """
[spark.conf]
spark.executor.memory = "512m"
spark.driver.memory = "600m"
spark.driver.host = "127.0.0.1"
spark.driver.bindAddress = "127.0.0.1"
"""
FUNCTION = """
from pyspark.sql.functions import col, udf

def shout(text):
    return text.upper()

def clean(records):
    return records.withColumn("name", udf(shout)(col("name"))).drop("_key")
"""


@pytest.fixture
def on_spark(spark: SparkSession) -> Executor:
    from tidelog.pipeline.spark.on_spark import OnSpark

    return OnSpark(spark)


@pytest.fixture
def site(broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]) -> Site:
    return Site(broker.bootstrap, tmp_path, unique("p"), partitions=3)


def tasks(number: int) -> str:
    return f"max_records_per_batch = 400\ntasks = {number}"


def test_a_struct_that_a_transform_makes_of_a_not_null_field_fits_its_table(site: Site, on_spark: Executor) -> None:
    site.produce(30)
    decode = JSON.replace("BIGINT", "BIGINT NOT NULL")
    inner = '[transform]\nsql = "SELECT struct(id, 1 AS one) AS inner, _topic, _partition, _offset FROM records"'
    outcome = site.run(on_spark, pipeline=site.pipeline(decode=decode, master="local[2]", more=inner))
    assert outcome.rows == len(site.rows()) > 0


def test_every_record_lands_once_through_spark_and_progress_is_told_meanwhile(site: Site, on_spark: Executor) -> None:
    site.produce(900)
    seen: list[Event] = []
    site.run(on_spark, [seen.append], site.pipeline(limits=tasks(4), master="local[2]"))
    site.check_exactly_once()
    told = [event for event in seen if isinstance(event, RunProgress)]
    assert any(p.read > p.committed for progress in told for p in progress.partitions)


def test_sql_makes_the_rows_and_a_column_to_partition_by(site: Site, on_spark: Executor) -> None:
    pipeline = site.pipeline(limits=tasks(3), table='partition_by = ["day"]', more=DAYS)
    site.produce(500)
    site.run(on_spark, pipeline=pipeline)
    site.check_exactly_once()
    assert all(row["twice"] == 2 * row["id"] for row in site.rows())
    assert {uri.split("/")[-2][:4] for uri in site.table.file_uris()} == {"day="}
    assert not list(Path(pipeline.table.path).glob("_tidelog/staging/*")), "nothing is left of the staging"
    # A part of it is built again through the same transform.
    Replay(pipeline, on_spark).run({(site.topic, 1): (20, 60)})
    site.check_exactly_once()
    site.produce(40)
    site.run(on_spark, pipeline=pipeline)
    site.check_exactly_once()


def test_a_topic_of_changes_becomes_its_latest_state_through_spark_and_a_transform(
    site: Site, on_spark: Executor
) -> None:
    pipeline = site.pipeline(
        decode='format = "json"\nschema = "n BIGINT"\nkey_format = "text"',
        limits=tasks(3),
        table='keys = ["name"]\npartition_by = ["even"]',
        more='[transform]\nsql = "SELECT upper(_key) AS name, n, n % 2 = 0 AS even, '
        '_topic, _partition, _offset, _deleted FROM records"\n',
    )

    def send(*changes: tuple[bytes, int | None]) -> None:
        with Client(site.bootstrap) as client:
            for key, number in changes:
                value = None if number is None else b'{"n": %d}' % number
                client.produce(site.topic, [Message(value, key=key)], partition=key[0] % 3)

    def found() -> set[tuple[str, int, bool]]:
        return {(row["name"], row["n"], row["even"]) for row in site.rows()}

    send((b"a", 1), (b"b", 2), (b"a", 3), (b"c", 4), (b"c", None))
    site.run(on_spark, pipeline=pipeline)
    assert found() == {("A", 3, False), ("B", 2, True)} and len(site.rows()) == 2
    send((b"b", None), (b"a", 4), (b"c", 5))
    site.run(on_spark, pipeline=pipeline)
    assert found() == {("A", 4, True), ("C", 5, False)} and len(site.rows()) == 2
    Replay(pipeline, on_spark).run()
    assert found() == {("A", 4, True), ("C", 5, False)} and len(site.rows()) == 2


def test_a_function_transforms_and_new_fields_pass_through_it(site: Site, on_spark: Executor) -> None:
    (site.directory / "cleaning.py").write_text(FUNCTION)
    pipeline = site.pipeline(
        decode='format = "json"\nschema = "id BIGINT, name STRING"', more='[transform]\npython = "cleaning:clean"\n'
    )
    site.produce_values(site.topic, [b'{"id": 1, "name": "a"}', b'{"id": 2, "name": "b"}'])
    site.run(on_spark, pipeline=pipeline)
    site.produce_values(site.topic, [b'{"id": 3, "name": "c", "more": {"x": 1}}', b"{"])
    site.run(on_spark, pipeline=pipeline)
    found = sorted(((r["id"], r["name"], r["more"]) for r in site.rows()), key=lambda r: r[0])
    assert found == [(1, "A", None), (2, "B", None), (3, "C", {"x": 1})]
    assert len(site.dead()) == 1 and "_key" not in site.rows()[0]


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        ('sql = "SELECT nothing FROM records"', "nothing"),
        ('sql = "SELECT id / (id - id) AS x FROM records"', "DIVIDE_BY_ZERO"),
        ('python = "absent:clean"', "there is no module absent"),
    ],
)
def test_a_transform_that_does_not_work_is_told_in_a_sentence_and_commits_nothing(
    site: Site, on_spark: Executor, transform: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.pipeline.run.runner.FIRST_PAUSE_S", 0.01)
    site.produce(30)
    with pytest.raises(PipelineError, match=said) as error:
        site.run(on_spark, pipeline=site.pipeline(more=f"[transform]\n{transform}\n"))
    assert "\n" not in error.value.message and error.value.hint


def test_tasks_that_fail_are_run_again(site: Site, on_spark: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = site.directory / "failed"

    def land_clumsily(task: LandingTask) -> Landed:
        """Its first attempt in the batch writes its files, and then fails."""
        result = land(task)
        if task.number == 1 and not marker.exists():
            marker.touch()
            raise OSError("the disk is full, for a moment")
        return result

    monkeypatch.setattr("tidelog.pipeline.run.runner.FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("tidelog.pipeline.spark.on_spark.land", land_clumsily)
    site.produce(600)
    seen: list[Event] = []
    site.run(on_spark, [seen.append], site.pipeline(limits=tasks(2)))
    assert any(isinstance(event, Notice) and "the disk is full" in event.message for event in seen)
    site.check_exactly_once()


def test_a_batch_of_gaps_only_moves_the_offsets_and_the_pipeline_goes_on(site: Site, on_spark: Executor) -> None:
    tolerant = site.pipeline(source=f'topics = ["{site.topic}"]\nfail_on_data_loss = false', limits=tasks(2))
    site.produce(30)
    site.run(on_spark, pipeline=tolerant)
    kept = dict(site.acknowledged)
    site.produce(30)
    with Client(site.bootstrap) as client:
        client.admin.delete_records(site.topic, dict.fromkeys(range(3), 20))
    assert site.run(on_spark, pipeline=tolerant).batches == 1
    site.acknowledged = kept
    site.produce(30)
    site.run(on_spark, pipeline=tolerant)
    site.check_exactly_once()


def test_check_starts_spark_and_tells_which_columns_a_transform_makes(
    site: Site, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.pipeline.spark.session.spark_session", lambda *_: spark)
    monkeypatch.setattr("tidelog.pipeline.spark.on_spark.OnSpark.close", lambda _: None)

    def found(transform: str) -> dict[str, Finding]:
        pipeline = site.pipeline(master="local[2]", more=transform)
        return {finding.what: finding for finding in findings(pipeline, 20, with_spark=True)}

    good = found(DAYS)
    assert all(finding.ok for finding in good.values())
    assert good["rows"].message.startswith("id int64, twice int64, day date32[day], _topic string")
    bad = found('[transform]\nsql = "SELECT idd FROM records"\n')
    assert not bad["rows"].ok and "idd" in bad["rows"].message and "id" in (bad["rows"].hint or "")


def test_tasks_that_no_executor_takes_are_told(
    site: Site, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.pipeline.spark.on_spark import OnSpark

    monkeypatch.setattr("tidelog.pipeline.spark.on_spark.IDLE_S", 0.5)
    cores, free = spark.sparkContext.defaultParallelism, tmp_path / "free"

    def busy(number: int) -> None:
        (tmp_path / f"busy-{number}").touch()
        while not free.exists():
            time.sleep(0.05)

    other = threading.Thread(target=lambda: spark.sparkContext.parallelize(range(cores), cores).foreach(busy))
    other.start()
    try:
        while len(list(tmp_path.glob("busy-*"))) < cores:
            time.sleep(0.05)
        seen: list[Event] = []

        def listen(event: Event) -> None:
            seen.append(event)
            free.touch()

        with pytest.raises(NotReady, match="no executor"):
            OnSpark(spark).check_tasks()
        site.produce(30)
        site.run(OnSpark(spark, [listen]), pipeline=site.pipeline(limits=tasks(2)))
    finally:
        free.touch()
        other.join()
    assert len(seen) == 1 and isinstance(seen[0], Notice) and "no executor" in seen[0].message and seen[0].hint
    site.check_exactly_once()
    OnSpark(spark).check_tasks()


def test_what_tasks_say_reaches_the_driver_in_words(site: Site, on_spark: Executor) -> None:
    site.produce(20)
    pipeline = site.pipeline(decode='format = "json"\nschema = "id BIGINT"\non_error = "stop"')
    with pytest.raises(BadRecord, match="offset 1: "):
        site.run(on_spark, pipeline=pipeline)


def test_a_task_that_always_fails_is_told_with_its_last_word(spark: SparkSession) -> None:
    from tidelog.pipeline.spark.on_spark import explained

    with pytest.raises(Exception) as error:
        spark.sparkContext.parallelize([1], 1).map(lambda _: 1 // 0).collect()
    told = explained(error.value)
    assert isinstance(told, TasksFailed) and "ZeroDivisionError: " in told.message


@pytest.mark.long
def test_runners_on_spark_and_their_workers_are_killed_and_each_record_is_there_once(
    tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """A few lives; `python -m tests.pipeline.exactly_once_soak` has as many as one likes."""
    with RunningBroker() as broker:
        site = Site(broker.bootstrap, tmp_path, unique("p"), partitions=3, growing=True)
        lives = Lives(site, lambda: broker.restart() and None, seed=5)  # type: ignore[func-returns-value]
        with Feeder(site, per_s=400):
            for _ in range(3):
                lives.live()
        lives.finish()
        site.check_exactly_once()
        assert lives.faults["killed while running"] >= 2 and lives.faults["Python workers killed"]


def test_the_same_file_runs_on_a_cluster_of_two_workers(
    site: Site, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """A driver process of its own: this one has a JVM already."""
    site.produce(1000)
    file = tmp_path / "p.toml"
    file.write_text(site.text(JSON, None, "", "once = true", tasks(6), "local[2]") + DAYS + SMALL)
    command = [sys.executable, "-m", "tidelog.cli.main", "pipeline", "run", str(file), "--master", spark_cluster.master]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    site.check_exactly_once()
    assert {json.loads(line)["event"] for line in done.stdout.splitlines()} == {"batch", "end"}
