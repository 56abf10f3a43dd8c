"""The transaction coordinator of a real cluster is killed at the worst moment, under load; the others go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from cluster_oracle import ClusterOracle

from tidelog.client import Client
from tidelog.client.cluster import TRANSACTION
from tidelog.testing.cluster import RunningCluster


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with RunningCluster(3, {"transaction.state.log.num.partitions": "6"}) as running:
        yield running


def coordinator_of(cluster: RunningCluster, transactional_id: str) -> int:
    with Client(cluster.bootstrap) as client:
        address = client.cluster.coordinator(transactional_id, TRANSACTION).address
    return next(broker_id for broker_id, broker in cluster.brokers.items() if broker.bootstrap == address)


def eventually(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_a_transaction_coordinator_that_is_killed_between_prepare_and_complete_leaves_all_or_nothing(
    cluster: RunningCluster,
) -> None:
    oracle = ClusterOracle(cluster.bootstrap, transactional=1, writers=1, rate=100)
    oracle.start()
    (transactor,) = oracle.transactors
    eventually(lambda: len(transactor.outcomes.committed) > 3, "no transaction was committed")
    coordinator = coordinator_of(cluster, transactor.name)
    with Client(cluster.brokers[coordinator].bootstrap) as client:
        while not client.transactions.describe(transactor.name).state.startswith("Prepare"):
            pass
        cluster.brokers[coordinator].kill()
    done = len(transactor.outcomes.committed)
    eventually(lambda: len(transactor.outcomes.committed) > done + 3, "transactions do not go on")
    cluster.brokers[coordinator].start()
    verdict = oracle.finish([broker.data_dir for broker in cluster.brokers.values()])
    assert not verdict.violations, verdict
    assert not transactor.fatal
