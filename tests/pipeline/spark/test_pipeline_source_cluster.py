"""format("tidelog") on a standalone Spark cluster: a master and two workers, each a process of its own."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.systems.process import BrokerProcess
from bench.systems.spark import SparkCluster
from bench.systems.tidelog import Tidelog

from tidelog.client import Client

PARTITIONS = 24
PER_PARTITION = 100


@pytest.fixture
def second_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with Tidelog(tmp_path / "second") as running:
        yield running


@pytest.mark.spark
@pytest.mark.long
def test_a_cluster_reads_two_brokers_in_one_job_and_a_stream_with_every_executor(
    spark_cluster: SparkCluster, broker: BrokerProcess, second_broker: BrokerProcess, unique: Callable[[str], str]
) -> None:
    topic = unique("wide")
    of_one = PARTITIONS * PER_PARTITION
    for number, one in enumerate((broker, second_broker)):
        with Client(one.bootstrap) as client:
            client.admin.create_topic(topic, partitions=PARTITIONS)
            for partition in range(PARTITIONS):
                first = number * of_one + partition * PER_PARTITION
                client.produce(topic, [b"%d" % n for n in range(first, first + PER_PARTITION)], partition=partition)
    driver = Path(__file__).parents[1] / "cluster_driver.py"
    done = subprocess.run(
        [sys.executable, str(driver), spark_cluster.master, topic, broker.bootstrap, second_broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["batch"] == {"values": list(range(2 * of_one)), "executors": 2, "tasks": 2 * PARTITIONS}
    assert [len(batch) for batch in found["stream"]] == [1500, 900]
    assert sorted(value for batch in found["stream"] for value in batch) == list(range(of_one))


def test_the_page_starts_a_cluster_as_the_tests_do() -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
    kit = inspect.getsource(SparkCluster)
    commands = re.findall(r"^spark-class org\.apache\.spark\.deploy\.(.*)", page, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["master.Master", "worker.Worker"]
    for word in (word for command in commands for word in command.split()):
        if word.startswith("--") or (word[0].isalpha() and "." in word):
            assert word.startswith("spark://") or f'"{word}"' in kit, word
