"""Pytest fixtures: a real broker, started in well under a second.

    def test_orders(tidelog_broker):
        producer = Producer({"bootstrap.servers": tidelog_broker.bootstrap})

- `tidelog_broker`: a fresh broker for each test.
- `tidelog_broker_session`: one broker for the whole run; tests share its topics. If it dies, the test in which it died
  fails with its last words, and it is started again.
- `tidelog_broker_factory(config=None, data_dir=None)`: as many as a test likes, each with its own configuration.
- `tidelog_broker_config`: override it to configure the first two; by default a broker that does not wait for further
  members before it balances a new group, which is right for tests and wrong for production.

pytest loads this module in every run of every project that has tidelog installed, so it imports next to nothing until a
fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import os

    from tidelog.testing.broker import RunningBroker

TEST_DEFAULTS: Mapping[str, str] = {"group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="session")
def tidelog_broker_config() -> Mapping[str, str]:
    """Configuration of the fixtures' brokers, by Kafka's names."""
    return {}


@pytest.fixture
def tidelog_broker(tidelog_broker_config: Mapping[str, str]) -> Iterator[RunningBroker]:
    """A broker for one test."""
    from tidelog.testing.broker import RunningBroker

    with RunningBroker({**TEST_DEFAULTS, **tidelog_broker_config}) as broker:
        yield broker


@pytest.fixture(scope="session")
def tidelog_broker_session(tidelog_broker_config: Mapping[str, str]) -> Iterator[RunningBroker]:
    """A broker for all tests of the run."""
    from tidelog.testing.broker import RunningBroker

    with RunningBroker({**TEST_DEFAULTS, **tidelog_broker_config}) as broker:
        _shared.append(broker)
        yield broker
        _shared.remove(broker)


#: the session's broker, while there is one
_shared: list[RunningBroker] = []


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """The death of the session's broker is told by the test in which it died, and the next one finds it alive."""
    for broker in _shared:
        if broker.running:
            continue
        failure = broker.failure()
        broker.start()
        if failure is not None:
            pytest.fail(f"{failure}\nIt was restarted on its data for the following tests.", pytrace=False)


@pytest.fixture
def tidelog_broker_factory() -> Iterator[Callable[..., RunningBroker]]:
    """Starts brokers on demand; they are all gone when the test is over."""
    import contextlib

    from tidelog.testing.broker import RunningBroker

    with contextlib.ExitStack() as brokers:

        def start(
            config: Mapping[str, str] | None = None, data_dir: str | os.PathLike[str] | None = None
        ) -> RunningBroker:
            broker = RunningBroker({**TEST_DEFAULTS, **(config or {})}, data_dir=data_dir)
            return brokers.enter_context(broker)

        yield start
