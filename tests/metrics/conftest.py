from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tidelog.testing.broker import RunningBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker({"tidelog.http.port": "0"}) as running:
        yield running


@pytest.fixture
def http_port(broker: RunningBroker) -> int:
    assert broker.http is not None and re.fullmatch(r"127\.0\.0\.1:\d+", broker.http)
    return int(broker.http.rpartition(":")[2])
