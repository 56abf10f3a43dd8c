"""The command line against one real broker, called in this process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from cli_shell import Shell

from tidelog.client import Client
from tidelog.testing.broker import RunningBroker

_numbers = itertools.count()


@pytest.fixture
def run(tidelog_broker_session: RunningBroker) -> Shell:
    return Shell(tidelog_broker_session.bootstrap)


@pytest.fixture
def alone() -> Shell:
    """No broker listens where this one looks."""
    return Shell("127.0.0.1:1")


@pytest.fixture
def client(tidelog_broker_session: RunningBroker) -> Iterator[Client]:
    with Client(tidelog_broker_session.bootstrap) as client:
        yield client


@pytest.fixture
def unique() -> Callable[[str], str]:
    return lambda kind: f"{kind}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(client: Client, unique: Callable[[str], str]) -> str:
    name = unique("topic")
    client.admin.create_topic(name, 3, 1)
    return name
