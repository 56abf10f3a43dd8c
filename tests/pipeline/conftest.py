"""Brokers and a Spark session for the pipeline's tests.

The broker is Tidelog, with `--broker=cluster` three of them, or with `--broker=kafka` an Apache Kafka 4.3.0: what the
pipeline does it does on all.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from bench.systems.judged import JUDGED
from bench.systems.kafka import ApacheKafka
from bench.systems.process import BrokerProcess

from tidelog.client import Client

if TYPE_CHECKING:
    from bench.systems.spark import SparkCluster
    from pyspark.sql import SparkSession

    from tidelog.testing.broker import RunningBroker

FAST_GROUPS = {"group.initial.rebalance.delay.ms": "0"}

_numbers = itertools.count()


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of a worker; each works on topics of its own."""
    system = JUDGED[request.config.getoption("--broker")]
    with system(tmp_path_factory.mktemp("broker"), FAST_GROUPS) as running:
        yield running


@pytest.fixture(scope="session")
def kafka_broker(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """An Apache Kafka, whatever the other tests run against."""
    if isinstance(broker, ApacheKafka):
        yield broker
    else:
        with ApacheKafka(tmp_path_factory.mktemp("kafka"), FAST_GROUPS) as running:
            yield running


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session in this process that knows `format("tidelog")` and Spark's own `format("kafka")`."""
    from bench.systems.spark import QUICK_TO_START, spark_session

    from tidelog.pipeline.spark.source import register

    session = spark_session(connector=True, conf={"spark.driver.extraJavaOptions": QUICK_TO_START})
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers. A process has one JVM, so whoever uses it starts a driver process of its own."""
    from bench.systems.spark import SparkCluster

    with SparkCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def restarting_broker(tidelog_broker: RunningBroker) -> Iterator[RunningBroker]:
    """A broker with two records in `t` that is away at the moment, and will be back in another."""
    with Client(tidelog_broker.bootstrap) as client:
        client.admin.create_topic("t", 1)
        client.produce("t", [b"one", b"two"], partition=0)
    tidelog_broker.stop()
    start = threading.Timer(1.0, tidelog_broker.start)
    start.start()
    yield tidelog_broker
    start.join()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names that no other test has."""
    return lambda kind: f"{kind}-{os.getpid()}-{next(_numbers)}"
