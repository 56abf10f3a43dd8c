"""A broker for the client's tests: ours, with `--broker=cluster` three of them that replicate every topic, or with
`--broker=kafka` an Apache Kafka, which proves the client right."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from bench.systems.judged import JUDGED
from bench.systems.process import BrokerProcess

from tidelog.client import Client

_numbers = itertools.count()


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    system = JUDGED[request.config.getoption("--broker")]
    with system(tmp_path_factory.mktemp("broker"), {"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker.bootstrap, timeout_s=20) as client:
        yield client


@pytest.fixture
def broker_ids(client: Client) -> list[int]:
    """The ids of all brokers; a topic has as many replicas as these, unless it is created with another number."""
    return sorted(client.describe([]).nodes)


@pytest.fixture
def unique() -> Callable[[str], str]:
    return lambda kind: f"{kind}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def new_topic(client: Client, unique: Callable[[str], str]) -> Callable[..., str]:
    """Creates a topic: `new_topic(partitions=3, **{"cleanup.policy": "compact"})`."""

    def create(partitions: int = 1, **configs: str) -> str:
        name = unique("topic")
        client.admin.create_topic(name, partitions, configs=configs)
        return name

    return create


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic()
