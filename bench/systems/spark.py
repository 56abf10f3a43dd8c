"""Spark through PySpark: a session small enough for this machine, and Spark's own Kafka connector beside ours.

The connector's jars are named by `tests/java/connector/pom.xml` and fetched once into `.cache`. They are a plain list
of files for `spark.jars`: with `spark.jars.packages` Spark would resolve versions that were never published together.

`SparkCluster` is a standalone cluster as one would start it on several machines, a master and workers as processes of
their own, all on this one.

Everything listens on loopback only, and no session starts the web interface.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bench.systems.java import JAVA_SOURCES, REPOSITORY, jars
from bench.systems.process import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR = REPOSITORY / ".cache" / "spark-connector-4.2.0"
LOOPBACK = "127.0.0.1"
SMALL: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
#: A JVM that lives for a minute is over before the second tier of the compiler pays.
QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def stock_connector_jars() -> list[Path]:
    """Spark's Kafka connector and what it needs besides PySpark's own jars."""
    libs = jars(JAVA_SOURCES / "connector" / "pom.xml", CONNECTOR / "libs", "Spark's Kafka connector")
    return sorted(libs.glob("*.jar"))


def prepare_environment() -> None:
    """Spark's processes import this checkout, installed or not, run this Python, and stay on loopback."""
    paths = [str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = LOOPBACK


def spark_session(
    master: str = "local[2]", *, connector: bool = False, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A session; with `connector`, `format("kafka")` works in it.

    A process has one JVM for all its sessions, and that JVM's class path is the first session's: whoever wants the
    connector asks for it there.
    """
    from pyspark.sql import SparkSession

    prepare_environment()
    builder = SparkSession.builder.master(master).appName("tidelog")
    settings = {**SMALL, **(conf or {})}
    if connector:
        settings["spark.jars"] = ",".join(map(str, stock_connector_jars()))
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class SparkCluster:
    """A master and workers with one core each; `master` is its address."""

    def __init__(self, directory: Path, workers: int = 2, worker_memory: str = "768m") -> None:
        self.directory = directory
        self.master = f"spark://{LOOPBACK}:{free_port()}"
        self._workers = workers
        self._worker_memory = worker_memory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, timeout: float = 120) -> Self:
        prepare_environment()
        self.directory.mkdir(parents=True, exist_ok=True)
        port = self.master.rpartition(":")[2]
        self._launch("master", "master.Master", "--host", LOOPBACK, "--port", port, "--webui-port", "0")
        for number in range(self._workers):
            size = ("--cores", "1", "--memory", self._worker_memory)
            where = ("--host", LOOPBACK, "--webui-port", "0", "--work-dir", str(self.directory / f"work-{number}"))
            self._launch(f"worker-{number}", "worker.Worker", *size, *where, self.master)
        deadline = time.monotonic() + timeout
        for number in range(self._workers):
            name = f"worker-{number}"
            while "Successfully registered with master" not in self.log(name):
                if self._processes[name].poll() is not None or time.monotonic() > deadline:
                    said = self.log("master")[-2000:] + self.log(name)[-2000:]
                    self.stop()
                    raise RuntimeError(f"the Spark cluster did not become ready:\n{said}")
                time.sleep(0.1)
        return self

    def log(self, name: str) -> str:
        """What "master" or "worker-0" said."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def stop(self) -> None:
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes = {}

    def _launch(self, name: str, what: str, *args: str) -> None:
        home = Path(next(iter(find_spec("pyspark").submodule_search_locations)))  # type: ignore[union-attr, arg-type]
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_TO_START,
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", *args]
        with (self.directory / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
            )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()
