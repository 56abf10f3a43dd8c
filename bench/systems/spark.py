"""Spark through PySpark: a session small enough for this machine, and Spark's own Kafka connector beside ours.

The connector's jars are named by `tests/java/connector/pom.xml` and fetched once into `.cache`. They are a plain list
of files for `spark.jars`: with `spark.jars.packages` Spark would resolve versions that were never published together.

Everything listens on loopback only, and no session starts the web interface.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bench.systems.java import JAVA_SOURCES, REPOSITORY, jars

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
