"""DataFrames into topics by real Spark jobs: as the stock connector would, and each row once whatever dies."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import writer_chaos
from bench.systems.process import BrokerProcess
from bench.systems.spark import prepare_environment
from pyspark import cloudpickle
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from stable_topics import await_stable

from tidelog.client import Client
from tidelog.client.errors import Fenced
from tidelog.pipeline.options.sink_options import DEFAULT_PREFIX
from tidelog.pipeline.write.committing import Committer, Family

pytestmark = pytest.mark.spark

HERE = Path(__file__).resolve().parents[1]
PARTITIONS = 3


class Topics:
    """The topics of a test, and what readers of committed records find there."""

    def __init__(self, bootstrap: str, unique: Callable[[str], str]) -> None:
        self.bootstrap = bootstrap
        self._unique = unique

    def new(self) -> str:
        name = self._unique("sink")
        with Client(self.bootstrap) as client:
            client.admin.create_topic(name, PARTITIONS)
        return name

    def records(self, topic: str) -> list[tuple[Any, ...]]:
        with Client(self.bootstrap) as client:
            await_stable(client, topic)
            return sorted(
                (partition, record.key or b"", record.value or b"", record.headers)
                for partition in range(PARTITIONS)
                for record in client.read(topic, partition, isolation="read_committed")
            )

    def values(self, topic: str) -> list[int]:
        return sorted(int(value) for _, _, value, _ in self.records(topic))

    def write(self, frame: DataFrame, format_name: str = "tidelog", **options: str) -> None:
        options = {"kafka.bootstrap.servers": self.bootstrap, **options}
        frame.write.format(format_name).options(**options).mode("append").save()

    def fill(self, topic: str, numbers: range) -> None:
        with Client(self.bootstrap) as client:
            producer = client.producer(max_batch_bytes=1000)
            for number in numbers:
                producer.send(topic, b"%d" % number, key=b"k%d" % (number % 50))
            producer.flush()


@pytest.fixture
def topics(broker: BrokerProcess, unique: Callable[[str], str]) -> Topics:
    return Topics(broker.bootstrap, unique)


@pytest.fixture(scope="module")
def chaos(spark: SparkSession) -> SparkSession:
    cloudpickle.register_pickle_by_value(writer_chaos)
    spark.dataSource.register(writer_chaos.Chaos)
    return spark


def test_rows_land_where_the_stock_connector_would_have_put_them(spark: SparkSession, topics: Topics) -> None:
    frame = spark.range(0, 5000, 1, 4).selectExpr(
        "IF(id % 10 = 0, NULL, CAST(id AS STRING)) AS value",
        "CAST(CONCAT('key-', id % 700) AS BINARY) AS key",
        "IF(id % 3 = 0, NULL, ARRAY(NAMED_STRUCT('key', 'h', 'value', CAST(CAST(id AS STRING) AS BINARY)))) AS headers",
        "IF(id % 100 = 0, CAST(1 AS INT), NULL) AS partition",
        "CAST(id AS DOUBLE) AS something_else",
    )
    by_format = {name: topics.new() for name in ("kafka", "tidelog")}
    for name, topic in by_format.items():
        topics.write(frame, name, topic=topic)
    found = {name: topics.records(topic) for name, topic in by_format.items()}
    assert len(found["tidelog"]) == 5000 and found["tidelog"] == found["kafka"]

    # Topics by column, times from a column, compressed, without keys, and without transactions.
    here, there = topics.new(), topics.new()
    frame = spark.range(0, 3000, 1, 2).selectExpr(
        "CAST(id AS STRING) AS value",
        f"IF(id % 2 = 0, '{here}', '{there}') AS topic",
        "TIMESTAMP_MILLIS(1700000000000 + id) AS at",
    )
    options = {"kafka.compression.type": "zstd", "tidelog.timestamp.column": "at", "kafka.batch.size": "2000"}
    topics.write(frame, **options)
    topics.write(frame, **options, **{"tidelog.exactly.once": "false", "kafka.acks": "1"})
    with Client(topics.bootstrap) as client:
        for topic, odd in ((here, 0), (there, 1)):
            expected = sorted(2 * list(range(odd, 3000, 2)))
            deadline = time.monotonic() + 30
            # What the leader alone has acknowledged can be read when the others have it as well.
            while topics.values(topic) != expected and time.monotonic() < deadline:
                time.sleep(0.05)
            assert topics.values(topic) == expected
            read = [r for p in range(PARTITIONS) for r in client.read(topic, p, isolation="read_committed")]
            assert all(record.timestamp == 1700000000000 + int(record.value or b"") for record in read)
            assert len({tuple(client.offsets(topic, [p])) for p in range(PARTITIONS)}) == PARTITIONS


def test_a_write_that_cannot_work_says_so_before_anything_is_written(spark: SparkSession, topics: Topics) -> None:
    topic = topics.new()
    frame = spark.range(10).selectExpr("CAST(id AS STRING) AS value", "id AS number")
    nobody = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.delivery.timeout.ms": "200"}
    for wrong, options, message in (
        (frame, {}, "topic option required when no 'topic' attribute is present"),
        (frame.selectExpr("number AS value"), {"topic": topic}, "value attribute unsupported type bigint"),
        (frame.selectExpr("value AS key"), {"topic": topic}, "Required attribute 'value' not found"),
        (frame, {"topic": topic, "tidelog.exactly.one": "true"}, "there is no option tidelog.exactly.one"),
        (frame, {"topic": topic, "kafka.acks": "1"}, "exactly-once writes need acks=all"),
        (frame, {"topic": topic, **nobody}, "cannot reach a broker at 127.0.0.1:1"),
        (frame, {"topic": topic, "kafka.transaction.timeout.ms": "999999999"}, "transaction.max.timeout.ms"),
        (frame.selectExpr("value", "CAST(7 AS INT) AS partition"), {"topic": topic}, "Invalid partition .* 7"),
        (frame.selectExpr("REPEAT('x', 2000000) AS value"), {"topic": topic}, "kafka.max.request.size"),
    ):
        with pytest.raises(Exception, match=message):
            topics.write(wrong, **options)
    with pytest.raises(Exception, match="Overwrite is not allowed"):
        frame.write.format("tidelog").options(**{"kafka.bootstrap.servers": topics.bootstrap, "topic": topic}).mode(
            "overwrite"
        ).save()
    # What some tasks had written when another failed is aborted.
    assert topics.records(topic) == []


def test_a_named_write_happens_once_however_often_it_is_run(
    chaos: SparkSession, topics: Topics, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, name = topics.new(), unique("write")
    frame = chaos.range(0, 900, 1, 4).selectExpr("CAST(id AS STRING) AS value", "CAST(id AS STRING) AS key")
    options = {"topic": topic, "tidelog.write.id": name, "plan": str(tmp_path)}
    for step in ("before-decision", "among-commits"):
        (tmp_path / step).touch()
        with pytest.raises(Exception, match="Python worker exited unexpectedly"):
            topics.write(frame, "chaos", **options)
        assert not (tmp_path / step).exists()
    topics.write(frame, "chaos", **options)
    topics.write(frame, "chaos", **options)
    assert topics.values(topic) == list(range(900))
    topics.write(frame, "chaos", **options, **{"tidelog.write.version": "1"})
    assert topics.values(topic) == sorted(2 * list(range(900)))
    with pytest.raises(Exception, match="about to write batch 0, and has written batch 1"):
        topics.write(frame, "chaos", **options)
    assert topics.values(topic) == sorted(2 * list(range(900)))


def test_a_stream_writes_each_row_once_whichever_step_of_its_commits_is_killed(
    chaos: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Each start of the query meets one death: in a task that has written, or in the process that commits."""
    source, target = topics.new(), topics.new()
    topics.fill(source, range(3000))
    plan = tmp_path / "plan"
    plan.mkdir()

    def start() -> Any:
        reading = chaos.readStream.format("tidelog").options(
            **{"kafka.bootstrap.servers": topics.bootstrap, "subscribe": source, "startingOffsets": "earliest"},
            maxOffsetsPerTrigger="1000",
        )
        writing = reading.load().select("key", "value").writeStream.format("chaos").option("topic", target)
        writing = writing.options(**{"kafka.bootstrap.servers": topics.bootstrap, "plan": str(plan)})
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writing.trigger(availableNow=True).start()

    for step in ("raise-1", "kill-0", "after-decision", "among-commits", "after-done"):
        (plan / step).write_text("")
        with pytest.raises(StreamingQueryException):
            start().awaitTermination(60)
        assert not (plan / step).exists()
    assert start().awaitTermination(60)
    assert topics.values(target) == list(range(3000))

    # Spark forgets that it has committed the last batch, and writes it again.
    commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    topics.fill(source, range(3000, 3100))
    assert start().awaitTermination(60)
    assert topics.values(target) == list(range(3100))


def test_queries_of_one_driver_do_not_fence_each_other_and_a_rival_does(
    chaos: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Each query needs a Python worker for its first commit. They take turns from then on, and one query ends early."""
    source, targets = topics.new(), [topics.new() for _ in range(3)]
    topics.fill(source, range(240))
    plan = tmp_path / "plan"
    plan.mkdir()
    (plan / "gather").write_text("3")

    def start(number: int) -> Any:
        options = {"kafka.bootstrap.servers": topics.bootstrap}
        reading = chaos.readStream.format("tidelog").options(**options, subscribe=source, startingOffsets="earliest")
        reading = reading.option("maxOffsetsPerTrigger", "300" if number == 2 else "30")
        writing = reading.load().select("key", "value").writeStream
        writing = writing.format("chaos").options(**options, topic=targets[number], plan=str(plan))
        return writing.option("checkpointLocation", str(tmp_path / f"{number}")).trigger(availableNow=True).start()

    def await_end(number: int, query: Any) -> None:
        try:
            assert query.awaitTermination(120)
        except StreamingQueryException as error:
            # Spark gives a Python worker ten seconds to come up. The query goes on from its checkpoint.
            if "failed to connect back" not in str(error):
                raise
            assert start(number).awaitTermination(120)

    queries = [start(number) for number in range(3)]
    for number, query in enumerate(queries):
        await_end(number, query)
    assert len(list(plan.glob("gathered-*"))) >= 3
    for target in targets:
        assert topics.values(target) == list(range(240))

    # Somebody else goes on from a copy of the first one's checkpoint.
    with Client(topics.bootstrap) as client:
        rival = Committer(client, Family(DEFAULT_PREFIX, queries[0].id), run="rival")
        latest = rival.recover()
        assert latest is not None and rival.commit(latest.batch + 1, [])
        topics.fill(source, range(240, 250))
        assert start(0).awaitTermination(60), "a new run takes over from the rival, and finds its batch written"
        assert topics.values(targets[0]) == list(range(240))
        with pytest.raises(Fenced, match="another driver writes as"):
            rival.commit(latest.batch + 2, [])


@pytest.mark.long
def test_queries_whose_driver_is_killed_go_on_where_they_were(topics: Topics, tmp_path: Path) -> None:
    """A process of its own: tasks fail and are run again, and the driver is killed among the commits of a batch."""
    source, targets = topics.new(), [topics.new() for _ in range(2)]
    topics.fill(source, range(1500))
    plan = tmp_path / "plan"
    plan.mkdir()
    for death in ("kill-0", "raise-2", "driver-among-commits"):
        (plan / death).write_text("")
    prepare_environment()
    command = [sys.executable, str(HERE / "writer_query.py"), topics.bootstrap, source, ",".join(targets)]
    command += [str(tmp_path), "800"]
    first = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert first.returncode == -9, first.stderr[-3000:]
    assert list(plan.iterdir()) == []
    second = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert second.returncode == 0, second.stderr[-3000:]
    for target in targets:
        assert topics.values(target) == list(range(1500))
