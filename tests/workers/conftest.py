"""A broker for the workers' tests: ours, three with `--broker=cluster`, or Apache Kafka with `--broker=kafka`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench.systems.judged import JUDGED
from bench.systems.process import BrokerProcess
from workers_bench import Bench


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    system = JUDGED[request.config.getoption("--broker")]
    with system(tmp_path_factory.mktemp("broker"), {"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture
def bench(broker: BrokerProcess) -> Iterator[Bench]:
    bench = Bench(broker.bootstrap)
    bench.create()
    yield bench
    bench.stop()
