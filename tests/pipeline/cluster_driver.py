"""A driver on a Spark cluster: reads a topic of two brokers in one job, then as a stream; prints what it found as JSON.

python cluster_driver.py spark://… topic broker-a:port broker-b:port
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.systems.spark import QUICK_TO_START, spark_session
from pyspark.sql import DataFrame, SparkSession

PER_BATCH = 1500


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Beside each value the directory of the executor that had it: every executor works in its own."""
    for batch in batches:
        here = pa.array([os.getcwd()] * batch.num_rows)
        yield pa.RecordBatch.from_arrays([batch.column("value"), here], names=["value", "executor"])


def source(reader: Any, bootstrap: str, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    frame: DataFrame = reader.format("tidelog").options(**given, **options).load()
    return frame


def batch(spark: SparkSession, topic: str, brokers: list[str]) -> dict[str, Any]:
    first, *others = (source(spark.read, bootstrap, topic) for bootstrap in brokers)
    for other in others:
        first = first.union(other)
    rows = first.mapInArrow(where, "value binary, executor string").collect()
    return {
        "values": sorted(int(row["value"]) for row in rows),
        "executors": len({row["executor"] for row in rows}),
        "tasks": first.rdd.getNumPartitions(),
    }


def stream(spark: SparkSession, topic: str, bootstrap: str) -> list[list[int]]:
    batches: dict[int, list[int]] = {}

    def keep(frame: DataFrame, number: int) -> None:
        batches[number] = [int(row["value"]) for row in frame.collect()]

    frame = source(spark.readStream, bootstrap, topic, maxOffsetsPerTrigger=str(PER_BATCH))
    with tempfile.TemporaryDirectory() as checkpoint:
        query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()
    return [batches[number] for number in sorted(batches)]


def main(master: str, topic: str, *brokers: str) -> None:
    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK_TO_START,
        "spark.executor.extraJavaOptions": QUICK_TO_START,
        # Tasks of this size would all be taken by the executor that is there first.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }
    spark = spark_session(master, conf=conf)
    found = {"batch": batch(spark, topic, list(brokers)), "stream": stream(spark, topic, brokers[0])}
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
