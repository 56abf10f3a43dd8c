"""Three brokers on one machine: Apache Kafka as three KRaft nodes, each broker and controller in one process, and
Tidelog on a ZooKeeper of its own.

All settings are the defaults. Only addresses, ids and what a cluster cannot do without are set.
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from confluent_kafka.admin import AdminClient

from bench.systems.java import run_tool
from bench.systems.kafka import ApacheKafka
from bench.systems.process import BrokerProcess, cpu_seconds_of, free_port
from bench.systems.tidelog import EarlierTidelog, Tidelog
from tidelog.metadata.zookeeper_server import ZooKeeperServer

START_TIMEOUT_S = 120


class Cluster:
    """Its nodes by broker id; `start` returns when all of them serve."""

    name = "cluster"
    nodes: Sequence[BrokerProcess]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    def start(self) -> Self:
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.await_serving(START_TIMEOUT_S, brokers=len(self.nodes))
        return self

    def controller(self) -> int:
        """The id of the node that is the active controller."""
        raise NotImplementedError

    def cpu_seconds(self) -> float:
        """What its processes have used until now."""
        return sum(node.cpu_seconds() for node in self.nodes)

    def rss_bytes(self) -> int:
        return sum(node.rss_bytes() for node in self.nodes)

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def log_tail(self) -> str:
        return "".join(f"--- {self.name} {number}\n{node.log_tail(2000)}\n" for number, node in enumerate(self.nodes))

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException as error:
            self.__exit__(type(error), error)
            raise

    def __exit__(self, kind: object = None, error: BaseException | None = None, *traceback: object) -> None:
        if error is not None:
            error.add_note(self.log_tail())
        self.kill()


def _uuid() -> str:
    """As Kafka writes one; it takes none that begins with a dash."""
    while (made := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return made


class KafkaNode(ApacheKafka):
    """One of several nodes; `voters` is what StorageTool calls the initial controllers."""

    def __init__(self, directory: Path, node_id: int, cluster_id: str) -> None:
        super().__init__(directory)
        self.node_id = node_id
        self.port = free_port()
        self.voters = ""
        self._controller_port = free_port()
        self._cluster_id = cluster_id
        self._directory_id = _uuid()

    @property
    def controller_address(self) -> str:
        return f"{self.host}:{self._controller_port}"

    @property
    def voter(self) -> str:
        return f"{self.node_id}@{self.controller_address}:{self._directory_id}"

    def format(self) -> None:
        if self._properties.exists():
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        addresses = [voter.split("@")[1].rpartition(":")[0] for voter in self.voters.split(",")]
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{self.controller_address}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.bootstrap.servers": ",".join(addresses),
            "log.dirs": str(self.data_dir),
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        which = (f"--cluster-id={self._cluster_id}", f"--config={self._properties}")
        run_tool("kafka.tools.StorageTool", "format", *which, f"--initial-controllers={self.voters}").check()


class KafkaCluster(Cluster):
    name = "kafka"

    def __init__(self, directory: Path, size: int = 3) -> None:
        cluster_id = _uuid()
        self.nodes: list[KafkaNode] = [KafkaNode(directory / f"node-{n}", n, cluster_id) for n in range(size)]
        voters = ",".join(node.voter for node in self.nodes)
        for node in self.nodes:
            node.voters = voters

    def start(self) -> Self:
        for node in self.nodes:
            node.format()
        return super().start()

    def controller(self) -> int:
        told = run_tool(
            "org.apache.kafka.tools.MetadataQuorumCommand",
            *("--bootstrap-server", self.bootstrap, "describe", "--status"),
        ).check()
        (line,) = (line for line in told.lines if line.startswith("LeaderId:"))
        return int(line.split()[1])


class TidelogCluster(Cluster):
    name = "tidelog"
    node_type: type[Tidelog] = Tidelog

    def __init__(self, directory: Path, size: int = 3) -> None:
        self.zookeeper = ZooKeeperServer(directory / "zookeeper")
        settings = {"zookeeper.connect": self.zookeeper.connect}
        self.nodes: list[Tidelog] = [
            self.node_type(directory / f"node-{n}", {**settings, "broker.id": str(n)}) for n in range(size)
        ]

    def start(self) -> Self:
        self.zookeeper.start()
        return super().start()

    def controller(self) -> int:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 4})
        return int(admin.describe_cluster().result(30).controller.id)

    def cpu_seconds(self) -> float:
        return super().cpu_seconds() + cpu_seconds_of(self.zookeeper.pid)

    def kill(self) -> None:
        super().kill()
        self.zookeeper.kill()


class EarlierTidelogCluster(TidelogCluster):
    name = "before"
    node_type = EarlierTidelog


_CLUSTERS: dict[str, type[KafkaCluster | TidelogCluster]] = {
    kind.name: kind for kind in (KafkaCluster, TidelogCluster, EarlierTidelogCluster)
}


def cluster_of(system: str, directory: Path) -> Cluster:
    """Three brokers of a system that a single broker is named by, too."""
    return _CLUSTERS[system](directory)
