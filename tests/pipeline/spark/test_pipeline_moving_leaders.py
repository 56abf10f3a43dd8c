"""Pipelines and Spark's own connector on three brokers that are restarted one after another: leaders move."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.systems.cluster import TidelogCluster
from pipeline_site import Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.slow, pytest.mark.zookeeper]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TidelogCluster]:
    with TidelogCluster(tmp_path / "brokers") as running:
        yield running


def test_every_record_lands_once_and_spark_reads_it_once_while_leaders_move(
    cluster: TidelogCluster, spark: SparkSession, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    site = Site(cluster.bootstrap, tmp_path, unique("p"), partitions=3)

    def roll() -> None:
        for broker in cluster.brokers.values():
            broker.restart()

    rolling = threading.Thread(target=roll)
    rolling.start()
    rounds = 0
    read = spark.read.format("kafka").option("kafka.bootstrap.servers", cluster.bootstrap)
    while rolling.is_alive() or not rounds:
        site.produce(200)
        site.run()
        frame = read.option("subscribe", site.topic).option("startingOffsets", "earliest").load()
        found = sorted((row.topic, row.partition, row.offset) for row in frame.collect())
        assert found == sorted(site.acknowledged)
        rounds += 1
    rolling.join()
    site.check_exactly_once()
