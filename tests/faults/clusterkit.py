"""A cluster of real processes under load, for one fault: what a row of the table of faults works with.

    with Stage(wired=True) as stage:
        stage.load()
        stage.cluster.brokers[stage.leader()].kill()
        verdict = stage.judge()

What the brokers know is looked up in ZooKeeper, by its own client: nothing here reads the broker's code.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.retry import KazooRetry
from tests.faults.cluster_judge import Verdict
from tests.faults.cluster_oracle import ClusterOracle
from tests.faults.wires import Wires

from tidelog.testing.cluster import CHROOT, RunningCluster

SESSION_MS = 6_000
LAG_MS = 4_000
CONFIG = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": str(LAG_MS),
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


class FaultFailed(AssertionError):
    """The cluster did not do what the row asks for."""


def until(condition: Callable[[], object], what: str, seconds: float = 30) -> float:
    """How long it took until the condition held."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > seconds:
            raise FaultFailed(f"{what}: not within {seconds:g} s")
        time.sleep(0.05)
    return time.monotonic() - start


class Stage:
    """`wired`: all that brokers say to each other and to ZooKeeper goes over wires that can be cut."""

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        wired: bool = False,
        zookeeper: str | None = None,
        configs: Mapping[int, Mapping[str, str]] | None = None,
        brokers: int = 3,
    ) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="faults-", dir=os.environ.get("FAULTS_DIR")))
        self.wires = Wires() if wired else None
        self.oracle: ClusterOracle | None = None
        self.violations: list[str] = []
        self.figures: dict[str, float] = {}
        self.cluster = RunningCluster(
            brokers, {**CONFIG, **(config or {})}, configs=configs, data_dir=self.root, zookeeper=zookeeper
        )
        self._kazoo: KazooClient | None = None
        if self.wires is not None:
            self._wire(self.wires)

    def _wire(self, wires: Wires) -> None:
        from tests.faults.wires import free_port

        assert self.cluster.zookeeper is not None
        for broker_id, broker in self.cluster.brokers.items():
            broker.port = free_port()
            near = wires.to_broker(broker_id, broker.port)
            broker.config["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{near}"
            session = wires.to_zookeeper(broker_id, self.cluster.zookeeper.port)
            broker.config["zookeeper.connect"] = f"127.0.0.1:{session}{CHROOT}"

    def __enter__(self) -> Self:
        try:
            self.cluster.start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            for broker in self.cluster.brokers.values():
                broker.resume()
            if kind is None and (failure := self.cluster.failure()):
                raise FaultFailed(failure)
        finally:
            self._close()

    def _close(self) -> None:
        if self._kazoo is not None:
            self._kazoo.stop()
            self._kazoo.close()
        if self.wires is not None:
            self.wires.mend()
        self.cluster.kill()
        if self.wires is not None:
            self.wires.close()
        if os.environ.get("FAULTS_KEEP") is None:
            shutil.rmtree(self.root, ignore_errors=True)

    # --- load and its judge ---------------------------------------------------------------------------

    def load(self, *, rate: int = 200, seconds: float = 2.0, **options: Any) -> ClusterOracle:
        """Load on the cluster from now on; returns when it has run for a moment."""
        self.oracle = ClusterOracle(self.cluster.bootstrap, rate=rate, **options)
        self.oracle.start()
        self.flow(seconds=seconds)
        return self.oracle

    def flow(self, records: int = 100, seconds: float = 1.0, within: float = 60) -> float:
        """Lets the load go on; how long it took until so many records more were acknowledged."""
        assert self.oracle is not None
        start = time.monotonic()
        if not self.oracle.wait_for_acknowledgements(records, within):
            raise FaultFailed(f"fewer than {records} records were acknowledged within {within:g} s")
        took = time.monotonic() - start
        time.sleep(max(0.0, seconds - took))
        return took

    def judge(self, *, errors_allowed: bool = True) -> Verdict:
        """Waits until every replica is in sync, ends the load, and judges; also what clients could not handle."""
        assert self.oracle is not None
        for topic in (self.oracle.plain, self.oracle.transacted):
            try:
                self.await_in_sync(topic)
            except FaultFailed as failure:
                self.broken("whole", str(failure))
        directories = [d for broker in self.cluster.brokers.values() for d in str(broker.data_dir).split(",")]
        verdict = self.oracle.finish(directories)
        if not errors_allowed:
            for error in self.oracle.client_errors:
                self.broken("retriable", error)
        verdict.violations[:0] = self.violations
        verdict.figures.update(self.figures)
        return verdict

    def broken(self, claim: str, detail: str) -> None:
        self.violations.append(f"{claim}: {detail}")

    def claim(self, holds: bool, claim: str, detail: str) -> None:
        if not holds:
            self.broken(claim, detail)

    @property
    def topic(self) -> str:
        assert self.oracle is not None
        return self.oracle.plain

    # --- what ZooKeeper knows -------------------------------------------------------------------------

    @property
    def zookeeper(self) -> KazooClient:
        if self._kazoo is None:
            server = self.cluster.connect if self.cluster.zookeeper is None else self.cluster.zookeeper.connect + CHROOT
            self._kazoo = KazooClient(server, timeout=30, command_retry=KazooRetry(max_tries=-1, deadline=60))
            self._kazoo.start(30)
        return self._kazoo

    def read(self, path: str) -> tuple[bytes, Any]:
        """The data of a node, and what ZooKeeper says of it; as soon as there is a session."""
        found: tuple[bytes, Any] = self.zookeeper.retry(self.zookeeper.get, path)
        return found

    def node(self, path: str) -> dict[str, Any] | None:
        try:
            return dict(json.loads(self.read(path)[0]))
        except NoNodeError:
            return None

    def controller(self) -> int | None:
        node = self.node("/controller")
        return None if node is None else int(node["brokerid"])

    def controller_epoch(self) -> int:
        return int(self.read("/controller_epoch")[0])

    def state(self, topic: str | None = None, partition: int = 0) -> dict[str, Any]:
        """`leader`, `isr`, `leader_epoch` of a partition."""
        return self.node(f"/brokers/topics/{topic or self.topic}/partitions/{partition}/state") or {}

    def leader(self, topic: str | None = None, partition: int = 0) -> int:
        return int(self.state(topic, partition)["leader"])

    def isr(self, topic: str | None = None, partition: int = 0) -> list[int]:
        return sorted(self.state(topic, partition)["isr"])

    def replicas(self, topic: str) -> dict[int, list[int]]:
        node = self.node(f"/brokers/topics/{topic}") or {}
        return {int(partition): list(replicas) for partition, replicas in node.get("partitions", {}).items()}

    def registered(self) -> list[int]:
        return sorted(map(int, self.zookeeper.retry(self.zookeeper.get_children, "/brokers/ids")))

    def await_in_sync(self, topic: str, seconds: float = 60) -> float:
        """Waits until all replicas of a topic are in sync; how long it took."""
        wanted = {partition: sorted(replicas) for partition, replicas in self.replicas(topic).items()}

        def whole() -> bool:
            return all(self.isr(topic, partition) == replicas for partition, replicas in wanted.items())

        try:
            return until(whole, f"{topic} in sync", seconds)
        except FaultFailed:
            found = {partition: self.state(topic, partition) for partition in wanted}
            raise FaultFailed(f"{topic} is not in sync after {seconds:g} s: {found}") from None

    def log(self, broker_id: int) -> str:
        return self.cluster.brokers[broker_id].log.read_text(errors="replace")
