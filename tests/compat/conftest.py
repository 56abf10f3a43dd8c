"""A broker to judge, and what every compatibility test needs around it.

The broker is Tidelog, with `--broker=cluster` three of them that replicate every topic, or with `--broker=kafka` an
Apache Kafka 4.3.0: a test that the real one does not pass is wrong.
One broker serves all tests of a worker, so each test works on topics of its own.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.systems.cluster import TidelogCluster
from bench.systems.java import ToolResult
from bench.systems.judged import JUDGED
from bench.systems.process import BrokerProcess
from confluent_kafka.admin import AdminClient
from stock import StockClient, create_topic
from stock_all import CLIENTS
from stock_java import JavaClient
from stock_python import ConfluentClient

#: A new group waits three seconds for more members by default, and members of the broker-side protocol beat every five.
FAST_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
}

_topic_numbers = itertools.count()


@pytest.fixture(scope="session")
def system(request: pytest.FixtureRequest) -> type[BrokerProcess]:
    return JUDGED[request.config.getoption("--broker")]


@pytest.fixture(scope="session")
def broker(system: type[BrokerProcess], tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with system(tmp_path_factory.mktemp("broker"), FAST_GROUPS) as running:
        yield running


@pytest.fixture(scope="session")
def cluster(
    request: pytest.FixtureRequest, system: type[BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TidelogCluster]:
    """Three brokers, for what one alone cannot show: the judged ones where there are three, else some of their own."""
    if system is TidelogCluster:
        yield request.getfixturevalue("broker")
    else:
        with TidelogCluster(tmp_path_factory.mktemp("cluster"), FAST_GROUPS) as running:
            yield running


@pytest.fixture
def start_broker(system: type[BrokerProcess], tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts brokers with settings of their own: `start_broker({"message.max.bytes": "…"})`."""
    started: list[BrokerProcess] = []

    def start(config: dict[str, str] | None = None) -> BrokerProcess:
        one = system(tmp_path / f"broker-{len(started)}", {**FAST_GROUPS, **(config or {})})
        started.append(one)
        return one.start()

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names for topics, groups and transactional ids that no other test has."""
    return lambda kind: f"{kind}-{os.getpid()}-{next(_topic_numbers)}"


@pytest.fixture
def new_topic(broker: BrokerProcess, unique: Callable[[str], str]) -> Callable[..., str]:
    """Creates a topic on the shared broker: `new_topic(partitions=3, **{"cleanup.policy": "compact"})`."""

    def create(partitions: int = 1, **config: str) -> str:
        name = unique("topic")
        create_topic(broker.bootstrap, name, partitions, config)
        return name

    return create


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic()


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def broker_ids(admin: AdminClient) -> list[int]:
    """The ids of all brokers; a topic has as many replicas as these, unless it is created with another number."""
    return sorted(admin.list_topics(timeout=30).brokers)


@pytest.fixture
def broker_id(broker_ids: list[int]) -> str:
    """The id of the broker whose address and data directory `broker` has."""
    return str(broker_ids[0])


def marked(client: type[StockClient]) -> Any:
    return pytest.param(client, id=client.name, marks=[pytest.mark.java] if client is JavaClient else [])


@pytest.fixture(params=map(marked, CLIENTS))
def client(request: pytest.FixtureRequest, broker: BrokerProcess) -> StockClient:
    """Each stock client in turn, bound to the shared broker."""
    made: StockClient = request.param(broker.bootstrap)
    return made


@pytest.fixture
def confluent(broker: BrokerProcess) -> ConfluentClient:
    return ConfluentClient(broker.bootstrap)


@pytest.fixture(scope="session", autouse=True)
def end_of_the_shared_jvm() -> Iterator[None]:
    yield
    JavaClient.shell.close()


@pytest.fixture
def java() -> Callable[..., ToolResult]:
    """`java("TopicCommand", "--bootstrap-server", …)` runs one of Apache Kafka's tools and gives its result."""

    def run(tool: str, *args: str, stdin: str | None = None, timeout: float = 60) -> ToolResult:
        package = "" if "." in tool else "org.apache.kafka.tools."
        return JavaClient.shell.run(package + tool, *args, stdin=stdin, timeout=timeout)

    return run
