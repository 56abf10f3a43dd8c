"""A real cluster: ZooKeeper and several brokers, each in its own process, for tests and programs.

    with RunningCluster(3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.brokers[1].kill()                       # the other two go on
        cluster.brokers[1].start()

ZooKeeper is the server among PySpark's jars (it needs Java), or one that runs already: `zookeeper="host:port/chroot"`.
The brokers are `RunningBroker`s with the ids 1, 2, 3 … Each can be stopped, killed, paused, resumed and started again;
`start` starts whatever does not run. Below the data directory there are `broker-1`, `broker-1.log` … and `zookeeper`.
Unless it was given, it is removed when the cluster is closed.

Topics get as many replicas as there are brokers, but at most three, unless `config` says otherwise; the internal ones
as well.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from tidelog.metadata.zookeeper_server import ZooKeeperServer
from tidelog.testing.broker import SERVE, BrokerFailed, Running, RunningBroker

MOST_REPLICAS: Final = 3
#: sessions may last as little as twice this
TICK_MS: Final = 200
#: where the cluster's tree stands in a ZooKeeper of its own
CHROOT: Final = "/tidelog"

_made: weakref.WeakSet[RunningCluster] = weakref.WeakSet()


def cluster_defaults(brokers: int) -> dict[str, str]:
    """What a cluster of so many brokers needs that Kafka's defaults do not give it."""
    replicas = str(min(MOST_REPLICAS, brokers))
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, brokers)),
        # The last of them to stop has nobody to hand its leaders to, and need not try for long.
        "controlled.shutdown.retry.backoff.ms": "200",
    }


class RunningCluster(Running):
    """`configs` are settings of single brokers, by their ids. `ports` are the brokers' ports; without them, free ones.

    `runner` is a command that runs the command line which follows it, for brokers and ZooKeeper alike.
    """

    def __init__(
        self,
        brokers: int = 3,
        config: Mapping[str, str] | None = None,
        *,
        configs: Mapping[int, Mapping[str, str]] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        zookeeper: str | None = None,
        zookeeper_port: int = 0,
        host: str = "127.0.0.1",
        ports: Sequence[int] = (),
        first_id: int = 1,
        command: Sequence[str] = SERVE,
        environment: Mapping[str, str] | None = None,
        runner: Sequence[str] = (),
        timeout_s: float = 60.0,
    ) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix="tidelog-cluster-")) if data_dir is None else None
        self.data_dir = Path(data_dir) if data_dir is not None else Path(f"{self._scratch}")
        #: None where it is somebody else's
        self.zookeeper: ZooKeeperServer | None = None
        if zookeeper is None:
            self.zookeeper = ZooKeeperServer(
                self.data_dir / "zookeeper", zookeeper_port, tick_ms=TICK_MS, runner=runner, timeout_s=timeout_s
            )
        #: what is called zookeeper.connect
        self.connect = zookeeper if self.zookeeper is None else self.zookeeper.connect + CHROOT
        self.brokers: dict[int, RunningBroker] = {}
        for index in range(brokers):
            broker_id = first_id + index
            self.brokers[broker_id] = RunningBroker(
                {
                    **cluster_defaults(brokers),
                    **(config or {}),
                    **(configs or {}).get(broker_id, {}),
                    "broker.id": str(broker_id),
                    "zookeeper.connect": str(self.connect),
                },
                data_dir=self.data_dir / f"broker-{broker_id}",
                log=self.data_dir / f"broker-{broker_id}.log",
                port=ports[index] if ports else 0,
                host=host,
                command=command,
                runner=runner,
                environment=environment,
                timeout_s=timeout_s,
            )

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, as a client calls bootstrap.servers."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def cluster_id(self) -> str:
        return next(iter(self.brokers.values())).cluster_id

    @property
    def running(self) -> bool:
        """Whether all of it runs."""
        return all(broker.running for broker in self.brokers.values()) and (
            self.zookeeper is None or self.zookeeper.running
        )

    def start(self) -> Self:
        """Starts whatever does not run, and returns when all brokers are ready."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        _made.add(self)
        if self.zookeeper is not None and not self.zookeeper.running:
            self.zookeeper.start()
        down = {broker_id: broker for broker_id, broker in self.brokers.items() if not broker.running}
        try:
            for broker in down.values():
                broker.launch()
            for broker_id, broker in down.items():
                _as_broker(broker_id, broker.await_ready)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Stops the brokers one after another, so that each hands its leaders over, and ZooKeeper last."""
        failures: list[BrokerFailed] = []
        for broker_id, broker in reversed(self.brokers.items()):
            try:
                _as_broker(broker_id, broker.stop)
            except BrokerFailed as failure:
                failures.append(failure)
        if self.zookeeper is not None:
            self.zookeeper.stop()
        if failures:
            raise failures[0]

    def kill(self) -> None:
        """Ends everything at once, as a power failure would."""
        for broker in self.brokers.values():
            broker.kill()
        if self.zookeeper is not None:
            self.zookeeper.kill()

    def resume(self) -> None:
        """Lets all processes go on that were paused."""
        for broker in self.brokers.values():
            broker.resume()
        if self.zookeeper is not None and self.zookeeper.running:
            self.zookeeper.resume()

    def restart(self) -> Self:
        """Stops all of it and starts it again, with the same data on the same ports."""
        self.stop()
        return self.start()

    def failure(self) -> str | None:
        """How brokers ended by themselves, and their last words; None if all run or were stopped."""
        told = {broker_id: broker.failure() for broker_id, broker in self.brokers.items()}
        return "\n".join(f"broker {broker_id}: {text}" for broker_id, text in told.items() if text) or None

    def close(self) -> None:
        """Stops the cluster and removes its data, unless the data directory was given."""
        try:
            failure = self.failure()
            if failure is not None:
                raise BrokerFailed(failure)
            self.stop()
        finally:
            self.kill()
            _made.discard(self)
            self._clear()

    def __repr__(self) -> str:
        return f"RunningCluster({self.bootstrap}, {'running' if self.running else 'not all running'})"


def _as_broker(broker_id: int, work: Callable[[], object]) -> None:
    try:
        work()
    except BrokerFailed as error:
        raise BrokerFailed(f"broker {broker_id}: {error}") from None


@atexit.register
def _leave_nothing_behind() -> None:
    for cluster in list(_made):
        cluster.kill()
        cluster._clear()
