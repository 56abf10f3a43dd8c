"""The command line, called in this process, against a real broker: ours, three of them with `--broker=cluster`, or
Apache Kafka with `--broker=kafka`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from bench.systems.judged import JUDGED
from cli_shell import Shell

from tidelog.client import Client
from tidelog.testing.broker import RunningBroker

_numbers = itertools.count()


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    chosen = request.config.getoption("--broker")
    if chosen != "tidelog":
        settings = {"group.initial.rebalance.delay.ms": "0"}
        with JUDGED[chosen](tmp_path_factory.mktemp("broker"), settings) as running:
            yield running.bootstrap
    else:
        broker: RunningBroker = request.getfixturevalue("tidelog_broker_session")
        yield broker.bootstrap


@pytest.fixture
def run(bootstrap: str) -> Shell:
    return Shell(bootstrap)


@pytest.fixture
def alone() -> Shell:
    """No broker listens where this one looks."""
    return Shell("127.0.0.1:1")


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap) as client:
        yield client


@pytest.fixture
def broker_ids(client: Client) -> list[int]:
    """The ids of all brokers; a topic has as many replicas as these, unless it is created with another number."""
    return sorted(client.describe([]).nodes)


@pytest.fixture
def unique() -> Callable[[str], str]:
    return lambda kind: f"{kind}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(client: Client, unique: Callable[[str], str]) -> str:
    name = unique("topic")
    client.admin.create_topic(name, 3)
    return name
