"""Brokers in processes of their own, to be mistreated."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from bench import raw

from tidelog.testing.broker import RunningBroker


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        yield running


@pytest.fixture
def connect(broker: RunningBroker) -> Iterator[Callable[[], raw.Connection]]:
    """Raw connections to the broker, closed at the end."""
    opened: list[raw.Connection] = []

    def open_one() -> raw.Connection:
        connection = raw.Connection(broker.host, broker.port, timeout=60)
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        connection.close()
