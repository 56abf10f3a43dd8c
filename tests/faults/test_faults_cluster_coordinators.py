"""Coordinators of a real cluster are killed at the worst moment, under load; the others go on where they were."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster_oracle import ClusterOracle
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from real_cluster import RealCluster, real_cluster

from tidelog.client import Client
from tidelog.client.cluster import GROUP, TRANSACTION
from tidelog.client.errors import ClientError

SESSION_MS = 6_000
STABLE_S = SESSION_MS / 1_000 + 10


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RealCluster]:
    with real_cluster(tmp_path) as running:
        yield running


def eventually(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_a_transaction_coordinator_that_is_killed_between_prepare_and_complete_leaves_all_or_nothing(
    cluster: RealCluster,
) -> None:
    oracle = ClusterOracle(cluster.bootstrap, transactional=1, writers=1, rate=100)
    oracle.start()
    (transactor,) = oracle.transactors
    eventually(lambda: len(transactor.committed) > 3, "no transaction was committed")
    coordinator = cluster.coordinator(transactor.name, TRANSACTION)
    # One that does not answer keeps the markers from their partitions.
    silent = next(broker_id for broker_id in cluster.brokers if broker_id != coordinator)
    cluster.brokers[silent].pause()
    try:
        eventually(lambda: state(cluster.brokers[coordinator].bootstrap, transactor.name).startswith("Prepare"), "…")
        cluster.brokers[coordinator].kill()
    finally:
        cluster.brokers[silent].resume()
    done = len(transactor.committed)
    eventually(lambda: len(transactor.committed) > done + 3, "transactions do not go on")
    cluster.brokers[coordinator].start()
    verdict = oracle.finish(cluster.data_dirs)
    assert not verdict.violations, verdict
    assert not transactor.fatal


def state(bootstrap: str, transactional_id: str) -> str:
    try:
        with Client(bootstrap) as client:
            return client.transactions.describe(transactional_id).state
    except ClientError:
        return ""


class Member(threading.Thread):
    """Reads along until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "members",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 300,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 2,
            }
        )
        self._stopping = threading.Event()

    def run(self) -> None:
        self.consumer.subscribe(["t"])
        while not self._stopping.is_set():
            self.consumer.poll(0.05)
        self.consumer.close()

    def stop(self) -> None:
        self._stopping.set()


def test_a_group_is_stable_again_soon_after_its_coordinator_was_killed_in_a_rebalance(cluster: RealCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for created in admin.create_topics([NewTopic("t", 6, 3)]).values():
        created.result(30)
    members = [Member(cluster.bootstrap), Member(cluster.bootstrap)]
    members[0].start()
    eventually(lambda: is_stable(cluster, 1), "the group does not form")
    places = [TopicPartition("t", partition, 40 + partition) for partition in range(6)]
    members[0].consumer.commit(offsets=places, asynchronous=False)
    coordinator = cluster.coordinator("members", GROUP)
    members[1].start()
    eventually(lambda: described(cluster)[0] == "PreparingRebalance", "no rebalance is seen")
    cluster.brokers[coordinator].kill()
    eventually(lambda: is_stable(cluster, 2), "the group is not stable again", STABLE_S)
    found = members[0].consumer.committed(places, timeout=30)
    assert [place.offset for place in found] == [place.offset for place in places]
    for member in members:
        member.stop()
    for member in members:
        member.join(30)


def described(cluster: RealCluster) -> tuple[str, int]:
    try:
        with Client(cluster.bootstrap) as client:
            group = client.groups.describe("members")
            return group.state, len(group.members)
    except ClientError:
        return "", 0


def is_stable(cluster: RealCluster, members: int) -> bool:
    return described(cluster) == ("Stable", members)
