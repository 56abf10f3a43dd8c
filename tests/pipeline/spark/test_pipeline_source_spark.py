"""format("tidelog") beside format("kafka"): the same options, the same columns, the same rows, the same offsets."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.systems.process import BrokerProcess
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery
from source_records import EPOCH_MS, PARTITIONS, RECORDS, fill_appended, fill_mixed, fill_transactional

from tidelog.client import Client

pytestmark = pytest.mark.spark

FORMATS = ("kafka", "tidelog")


class Reading:
    """Reads one broker in one session."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap

    def batch(self, format_name: str, **options: str) -> DataFrame:
        reader = self.spark.read.format(format_name).option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(**options).load()

    def stream(self, format_name: str, **options: str) -> DataFrame:
        reader = self.spark.readStream.format(format_name).option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(**options).load()

    def rows(self, format_name: str, **options: str) -> list[Row]:
        return in_order(self.batch(format_name, **options).collect())

    def run(self, frame: DataFrame, checkpoint: Path, batches: dict[int, list[Row]], **trigger: Any) -> StreamingQuery:
        """Starts a query that keeps the rows of each batch."""

        def keep(batch: DataFrame, number: int) -> None:
            batches[number] = in_order(batch.collect())

        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
        return writer.trigger(**trigger).start()

    def run_to_the_end(self, frame: DataFrame, checkpoint: Path) -> dict[int, list[Row]]:
        batches: dict[int, list[Row]] = {}
        query = self.run(frame, checkpoint, batches, availableNow=True)
        assert query.awaitTermination(120)
        return batches


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def produce(bootstrap: str, topic: str, partition: int, values: range) -> None:
    with Client(bootstrap) as client:
        client.produce(topic, [b"%d" % n for n in values], partition=partition)


def values(batches: dict[int, list[Row]]) -> list[int]:
    return [int(row["value"]) for number in sorted(batches) for row in batches[number]]


@pytest.fixture(scope="module")
def reading(spark: SparkSession, broker: BrokerProcess) -> Reading:
    return Reading(spark, broker.bootstrap)


@pytest.fixture(scope="module")
def topics(broker: BrokerProcess) -> Iterator[None]:
    fill_mixed(broker.bootstrap, "spark-mixed")
    fill_appended(broker.bootstrap, "spark-appended")
    producer = fill_transactional(broker.bootstrap, "spark-transactional")
    yield
    producer.abort_transaction()


def at_offsets(*offsets: int) -> str:
    return json.dumps({"spark-mixed": {str(partition): offset for partition, offset in enumerate(offsets)}})


SECONDS = EPOCH_MS + 1000 * 20, EPOCH_MS + 1000 * 40
#: what is read, and how many rows that must give
READS: dict[str, tuple[int, dict[str, str]]] = {
    "by name": (180, {"subscribe": "spark-mixed", "includeHeaders": "true"}),
    "by pattern": (240, {"subscribePattern": "spark-(mixed|app)", "minPartitions": "9", "includeHeaders": "true"}),
    "by partition": (
        79,
        {
            "assign": '{"spark-mixed":[0,2]}',
            "startingOffsets": '{"spark-mixed":{"0":-2,"2":31}}',
            "endingOffsets": '{"spark-mixed":{"0":50,"2":-1}}',
        },
    ),
    "by offsets": (
        33,
        {
            "subscribe": "spark-mixed",
            "startingOffsets": at_offsets(10, -2, 59),
            "endingOffsets": at_offsets(11, 31, -1),
        },
    ),
    "in small tasks": (180, {"subscribe": "spark-mixed", "maxRecordsPerPartition": "25", "minPartitions": "11"}),
    "from a time to another": (
        60,
        {"subscribe": "spark-mixed", "startingTimestamp": str(SECONDS[0]), "endingTimestamp": str(SECONDS[1])},
    ),
    "times per partition": (
        58 + 20 + 2,
        {
            "subscribe": "spark-mixed",
            "startingOffsetsByTimestamp": at_offsets(EPOCH_MS, SECONDS[0], SECONDS[0]),
            "endingOffsetsByTimestamp": at_offsets(EPOCH_MS + 59_000, SECONDS[1], SECONDS[0] + 2000),
        },
    ),
    "from a time that is to come": (
        0,
        {
            "subscribe": "spark-mixed",
            "startingTimestamp": str(EPOCH_MS * 2),
            "startingOffsetsByTimestampStrategy": "latest",
        },
    ),
    "with the broker's times": (60, {"subscribe": "spark-appended"}),
    "uncommitted": (31, {"subscribe": "spark-transactional"}),
    "committed": (20, {"subscribe": "spark-transactional", "kafka.isolation.level": "read_committed"}),
}


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("what", READS)
def test_both_sources_give_the_same_rows(reading: Reading, what: str) -> None:
    count, options = READS[what]
    stock, ours = reading.batch("kafka", **options), reading.batch("tidelog", **options)
    assert ours.schema == stock.schema
    rows = in_order(ours.collect())
    assert rows == in_order(stock.collect())
    assert len(rows) == count
    if "minPartitions" in options:
        assert ours.rdd.getNumPartitions() >= int(options["minPartitions"])


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "spark-mixed", "assign": '{"spark-mixed":[0]}'},
        {"subscribe": "spark-mixed", "startingOffsets": "latest"},
        {"subscribe": "spark-mixed", "endingOffsets": "earliest"},
        {"subscribe": "spark-mixed", "startingOffsets": at_offsets(1, 1), "fetchOffset.numRetries": "1"},
        {"subscribe": "nobodys-topic", "fetchOffset.numRetries": "1"},
        {"subscribe": "spark-mixed", "startingTimestamp": str(EPOCH_MS * 2), "fetchOffset.numRetries": "1"},
    ],
    ids=["two ways", "starts at the end", "ends at the start", "not all partitions", "no topic", "no such time"],
)
@pytest.mark.usefixtures("topics")
def test_what_one_source_refuses_the_other_refuses_too(reading: Reading, options: dict[str, str]) -> None:
    for format_name in FORMATS:
        with pytest.raises(Exception):  # noqa: B017  (Java's and Python's have nothing in common)
            reading.batch(format_name, **options).collect()


def test_a_checkpoint_is_continued_by_either_source(
    reading: Reading, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique("checkpoint")
    with Client(reading.bootstrap) as client:
        client.admin.create_topic(topic, partitions=2)
        produce(reading.bootstrap, topic, 0, range(90))
        produce(reading.bootstrap, topic, 1, range(90, 100))
        options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}

        first = reading.run_to_the_end(reading.stream("tidelog", **options), tmp_path)
        assert [len(rows) for rows in first.values()] == [40, 40, 20]
        # Fair: a partition with a tenth of the lag has a tenth of each batch.
        assert [sum(row["partition"] == 1 for row in rows) for rows in first.values()] == [4, 4, 2]
        assert sorted(values(first)) == list(range(100))

        expected = 100
        client.admin.create_partitions(topic, 3)
        for turn, format_name in enumerate(("tidelog", "kafka", "tidelog")):
            produce(reading.bootstrap, topic, turn, range(expected, expected + 30))
            again = reading.run_to_the_end(reading.stream(format_name, **options), tmp_path)
            assert sorted(values(again)) == list(range(expected, expected + 30)), format_name
            expected += 30
    newest = max((tmp_path / "offsets").iterdir(), key=lambda path: int(path.name) if path.name.isdigit() else -1)
    assert json.loads(newest.read_text().splitlines()[-1]) == {topic: {"0": 120, "1": 40, "2": 30}}


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_running_stream_starts_at_the_end_and_finds_new_topics_and_partitions(
    reading: Reading, unique: Callable[[str], str], tmp_path: Path, format_name: str
) -> None:
    topic = unique("running")
    with Client(reading.bootstrap) as client:
        client.admin.create_topic(topic, partitions=1)
        produce(reading.bootstrap, topic, 0, range(10))
        # No batch waits: each time there are as many records as it takes.
        frame = reading.stream(format_name, subscribePattern=topic, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
        batches: dict[int, list[Row]] = {}
        query = reading.run(frame, tmp_path, batches, processingTime="100 milliseconds")
        with contextlib.closing(_Stopping(query)):
            query.processAllAvailable()
            assert values(batches) == []
            # Where it began is written down before anything is read.
            assert json.loads((tmp_path / "offsets" / "0").read_text().splitlines()[-1]) == {topic: {"0": 10}}
            produce(reading.bootstrap, topic, 0, range(10, 20))
            query.processAllAvailable()
            client.admin.create_partitions(topic, 2)
            client.admin.create_topic(f"{topic}-too", partitions=1)
            produce(reading.bootstrap, topic, 1, range(20, 30))
            produce(reading.bootstrap, f"{topic}-too", 0, range(30, 40))
            query.processAllAvailable()
            assert sorted(values(batches)) == list(range(10, 40))
            source = json.loads(query.lastProgress.json)["sources"][0]
    at_the_end = {topic: {"0": 20, "1": 10}, f"{topic}-too": {"0": 10}}
    assert source["endOffset"] == source["latestOffset"] == at_the_end


class _Stopping:
    def __init__(self, query: StreamingQuery) -> None:
        self.close = query.stop


def test_lost_records_stop_a_stream_unless_it_may_go_on(
    reading: Reading, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique("lost")
    with Client(reading.bootstrap) as client:
        client.admin.create_topic(topic, partitions=1)
        options = {"subscribe": topic, "startingOffsets": "earliest"}
        produce(reading.bootstrap, topic, 0, range(10))
        reading.run_to_the_end(reading.stream("tidelog", **options), tmp_path)
        produce(reading.bootstrap, topic, 0, range(10, 20))
        client.admin.delete_records(topic, {0: 15})
    with pytest.raises(StreamingQueryException, match=r"offsets 10 to 14 are lost.*failOnDataLoss"):
        reading.run_to_the_end(reading.stream("tidelog", **options), tmp_path)
    left = reading.run_to_the_end(reading.stream("tidelog", **options, failOnDataLoss="false"), tmp_path)
    assert values(left) == list(range(15, 20))


def test_the_stock_connector_writes_what_both_sources_read(
    reading: Reading, unique: Callable[[str], str], tmp_path: Path
) -> None:
    once, streamed = unique("written"), unique("streamed")
    with Client(reading.bootstrap) as client:
        client.admin.create_topic(once, partitions=2)
        client.admin.create_topic(streamed, partitions=2)
    frame = reading.spark.range(200).selectExpr("cast(id % 7 as string) key", "cast(id as string) value")
    write = {"kafka.bootstrap.servers": reading.bootstrap}
    frame.write.format("kafka").options(**write, topic=once).save()
    rows = reading.rows("tidelog", subscribe=once)
    assert sorted(int(row["value"]) for row in rows) == list(range(200))
    assert rows == reading.rows("kafka", subscribe=once)

    copied = reading.stream("tidelog", subscribe=once, startingOffsets="earliest").select("key", "value")
    sink = copied.writeStream.format("kafka").options(**write, topic=streamed, checkpointLocation=str(tmp_path))
    assert sink.trigger(availableNow=True).start().awaitTermination(120)
    assert sorted(int(row["value"]) for row in reading.rows("tidelog", subscribe=streamed)) == list(range(200))


def test_apache_kafka_is_read_as_well(spark: SparkSession, kafka_broker: BrokerProcess, tmp_path: Path) -> None:
    reading = Reading(spark, kafka_broker.bootstrap)
    fill_mixed(reading.bootstrap, "kafka-mixed")
    rows = reading.rows("tidelog", subscribe="kafka-mixed", includeHeaders="true", minPartitions="5")
    assert rows == reading.rows("kafka", subscribe="kafka-mixed", includeHeaders="true")
    assert len(rows) == PARTITIONS * RECORDS
    streamed = reading.run_to_the_end(
        reading.stream("tidelog", subscribe="kafka-mixed", startingOffsets="earliest", maxOffsetsPerTrigger="100"),
        tmp_path,
    )
    assert [len(batch) for batch in streamed.values()] == [100, 80]
    all_of_them = in_order([row for batch in streamed.values() for row in batch])
    assert [tuple(row) for row in all_of_them] == [tuple(row)[:-1] for row in rows]
