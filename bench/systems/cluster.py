"""Three brokers of Tidelog on a ZooKeeper of their own, behind the face of one broker."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from bench.systems.process import BrokerDied, BrokerProcess
from tidelog.testing.broker import BrokerFailed, RunningBroker
from tidelog.testing.cluster import RunningCluster

#: Every topic has three replicas, unless it is created with another number; two acknowledge a write.
#: After a crash of everything, a broker waits until its earlier session has expired.
REPLICATED = {"min.insync.replicas": "2", "zookeeper.session.timeout.ms": "6000"}


class TidelogCluster(BrokerProcess):
    """`host`, `port` and `data_dir` are those of the first broker; `stop` and `kill` end all of them."""

    name = "cluster"

    def __init__(self, directory: Path, config: dict[str, str] | None = None) -> None:
        super().__init__(directory, config)
        self._cluster = RunningCluster(3, {**REPLICATED, **self.config}, data_dir=directory)
        self.data_dir = self._cluster.brokers[1].data_dir

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def data_dirs(self) -> dict[int, Path]:
        return {broker.port: broker.data_dir for broker in self._cluster.brokers.values()}

    @property
    def brokers(self) -> dict[int, RunningBroker]:
        return self._cluster.brokers

    def start(self, timeout: float = 60) -> Self:
        try:
            self._cluster.start()
        except BrokerFailed as error:
            raise BrokerDied(str(error)) from error
        self.port = self._cluster.brokers[1].port
        return self

    def stop(self, timeout: float = 30) -> None:
        self._cluster.stop()

    def kill(self) -> None:
        self._cluster.kill()

    def __enter__(self) -> Self:
        return self if self._cluster.running else self.start()
