"""Pytest fixtures: a real broker, started in well under a second, and real clusters.

    def test_orders(tidelog_broker):
        producer = Producer({"bootstrap.servers": tidelog_broker.bootstrap})

- `tidelog_broker`: a fresh broker for each test.
- `tidelog_broker_session`: one broker for the whole run; tests share its topics. If it dies, the test in which it died
  fails with its last words, and it is started again.
- `tidelog_broker_factory(config=None, data_dir=None)`: as many as a test likes, each with its own configuration.
- `tidelog_cluster`: three brokers and a ZooKeeper for each test; this needs Java and PySpark, and a few seconds.
- `tidelog_cluster_session`: one cluster for the whole run. Whatever a test leaves dead is started again after it.
- `tidelog_cluster_factory(brokers=3, config=None, **options)`: as many as a test likes; see `RunningCluster`.
- `tidelog_broker_config`: override it to configure all but the factories' brokers; by default a broker that does not
  wait for further members before it balances a new group, which is right for tests and wrong for production.

pytest loads this module in every run of every project that has tidelog installed, so it imports next to nothing until a
fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import os

    from tidelog.testing.broker import RunningBroker
    from tidelog.testing.cluster import RunningCluster

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


@pytest.fixture
def tidelog_cluster(tidelog_broker_config: Mapping[str, str]) -> Iterator[RunningCluster]:
    """A cluster of three brokers for one test."""
    from tidelog.testing.cluster import RunningCluster

    with RunningCluster(3, {**TEST_DEFAULTS, **tidelog_broker_config}) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def tidelog_cluster_session(tidelog_broker_config: Mapping[str, str]) -> Iterator[RunningCluster]:
    """A cluster of three brokers for all tests of the run."""
    from tidelog.testing.cluster import RunningCluster

    with RunningCluster(3, {**TEST_DEFAULTS, **tidelog_broker_config}) as cluster:
        _shared.append(cluster)
        yield cluster
        _shared.remove(cluster)


#: the session's broker and cluster, while there are any
_shared: list[RunningBroker | RunningCluster] = []


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """The death of the session's broker is told by the test in which it died, and the next one finds it alive, and not
    frozen either."""
    for broker_or_cluster in _shared:
        broker_or_cluster.resume()
        if broker_or_cluster.running:
            continue
        failure = broker_or_cluster.failure()
        broker_or_cluster.start()
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


@pytest.fixture
def tidelog_cluster_factory() -> Iterator[Callable[..., RunningCluster]]:
    """Starts clusters on demand; they are all gone when the test is over."""
    import contextlib

    from tidelog.testing.cluster import RunningCluster

    with contextlib.ExitStack() as clusters:

        def start(brokers: int = 3, config: Mapping[str, str] | None = None, **options: Any) -> RunningCluster:
            return clusters.enter_context(RunningCluster(brokers, {**TEST_DEFAULTS, **(config or {})}, **options))

        yield start
