"""Three brokers and a ZooKeeper, each a process of its own, to be killed and started again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tidelog.metadata.zookeeper_server import ZooKeeperServer
from tidelog.testing.broker import RunningBroker

IDS = (1, 2, 3)
SETTINGS = {
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "0",
}


class RealCluster:
    def __init__(self, brokers: dict[int, RunningBroker]) -> None:
        self.brokers = brokers

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def data_dirs(self) -> list[Path]:
        return [broker.data_dir for broker in self.brokers.values()]


@contextmanager
def real_cluster(directory: Path) -> Iterator[RealCluster]:
    with ExitStack() as running:
        zookeeper = running.enter_context(ZooKeeperServer(directory / "zookeeper", tick_ms=1_000))
        brokers = {}
        for broker_id in IDS:
            settings = {"broker.id": str(broker_id), "zookeeper.connect": f"{zookeeper.connect}/tide", **SETTINGS}
            data_dir = directory / f"broker-{broker_id}"
            brokers[broker_id] = running.enter_context(RunningBroker(settings, data_dir=data_dir))
        yield RealCluster(brokers)
