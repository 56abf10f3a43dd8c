"""Apache Kafka, one KRaft node (broker and controller in one process) with its default settings.

Heap and collector are those that its own start scripts set. Only what a single node cannot do without differs from
the defaults: addresses on loopback, and a replication factor of 1 for the internal topics, as its sample file has it.
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from bench.systems.java import QUIET, java_command, run_tool
from bench.systems.process import BrokerProcess, free_port

HEAP = ("-Xmx1G", "-Xms1G")
COLLECTOR = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "0",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class ApacheKafka(BrokerProcess):
    name = "kafka"

    def __init__(self, directory: Path, config: dict[str, str] | None = None) -> None:
        super().__init__(directory, config)
        self._controller_port = 0
        self._properties = directory / "server.properties"

    def command(self) -> list[str]:
        return java_command("kafka.Kafka", str(self._properties), jvm_flags=(*HEAP, *COLLECTOR, *QUIET))

    def launch(self) -> None:
        self.format()
        super().launch()

    def format(self) -> None:
        """Writes the settings and formats the data directory; does nothing the second time."""
        if self._properties.exists():
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port, self._controller_port = self.port or free_port(), free_port()
        broker, controller = f"{self.host}:{self.port}", f"{self.host}:{self._controller_port}"
        settings = {
            **SINGLE_NODE,
            "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{broker}",
            "controller.quorum.bootstrap.servers": controller,
            "log.dirs": str(self.data_dir),
            **self.config,
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # One argument, since an id may begin with a dash.
        which = (f"--cluster-id={cluster_id}", f"--config={self._properties}", "--standalone")
        run_tool("kafka.tools.StorageTool", "format", *which).check()
