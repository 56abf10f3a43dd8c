"""A Spark session for a pipeline, or a clear word on why there is none.

What can be missing is looked for first, because Spark's own answers are long and late: PySpark itself, Java, a master
that listens. In `local` mode everything stays on loopback and a failed task is tried again, as on a cluster.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tidelog import how_to_install
from tidelog.pipeline.errors import NotReady

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.pipeline.spec import Spark

NONE: Final = "none"
LOOPBACK: Final = "127.0.0.1"
OLDEST_JAVA: Final = 17
TASK_FAILURES: Final = 4
_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\s*(\d+))?\])?")
_STANDALONE: Final = re.compile(r"spark://(.+)")
_MASTERS: Final = 'write for example "local[*]", "local[4]", "spark://host:7077", "yarn", "k8s://…", or "none"'

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
#: Spark says at its start what nobody asked; errors still come through
_QUIET_LOG: Final = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


def leave_errors_to_callers() -> None:
    """Whoever catches an error tells it; PySpark would print it as JSON before, with all of its trace."""
    from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    # A JVM that has ended is told by whoever notices it first, once.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)
    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        server.handle_error = _leave_it  # type: ignore[method-assign, assignment]


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Some of it goes past its own logger, to the root."""
    return os.path.basename(os.path.dirname(record.pathname)) != "py4j"


def _leave_it(server: object, request: object, client_address: object) -> None:
    """The thread that hears of tasks: where the JVM has ended there is nothing to hear."""


def spark_session(spark: Spark, name: str) -> SparkSession:
    check_pyspark()
    check_java()
    leave_errors_to_callers()
    master = check_master(spark.master)
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {**DEFAULTS, **_local_settings(master), **spark.conf}
    builder = SparkSession.builder.master(master).appName(f"tidelog pipeline {name}")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with tempfile.NamedTemporaryFile("w", prefix="tidelog-log4j2-", suffix=".properties") as log:
        log.write(_QUIET_LOG)
        log.flush()
        own = settings.get("spark.driver.extraJavaOptions", "")
        if "log4j" not in own:
            options = f"{own} -Dlog4j2.configurationFile=file:{log.name}".strip()
            builder = builder.config("spark.driver.extraJavaOptions", options)
        try:
            with _no_jvm_left_behind():
                session: SparkSession = builder.getOrCreate()
        except Exception as error:
            # PySpark raises its own errors, the JVM's and the operating system's.
            raise _explained(error, master) from error
    return session


@contextmanager
def _no_jvm_left_behind() -> Iterator[None]:
    """Ends the JVM where its start is broken off, by a signal for example. By itself it would go on for ever: PySpark
    removes the directory in which it is to say where it listens, and the thread that would end it fails at that."""
    from pyspark import java_gateway

    started: list[subprocess.Popen[bytes]] = []
    names = vars(java_gateway)
    popen = names["Popen"]

    def remembered(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))
        return started[-1]

    names["Popen"] = remembered
    try:
        yield
    except BaseException:
        for process in started:
            process.kill()
        raise
    finally:
        names["Popen"] = popen


def expected_parallelism(master: str) -> int:
    """How many tasks such a master runs at a time, as far as that is known before it is asked."""
    local = _LOCAL.fullmatch(master)
    if local is None:
        return 1 if master == NONE else 2
    return os.cpu_count() or 1 if local[1] == "*" else int(local[1] or 1)


def check_pyspark() -> None:
    from importlib.util import find_spec

    missing = [name for name in ("pyspark", "pyarrow", "deltalake") if find_spec(name) is None]
    if missing:
        raise NotReady(f"{', '.join(missing)} is not installed", how_to_install("spark"))


def check_java() -> str:
    """The path of a Java that Spark can run on."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    hint = (
        f"install Java {OLDEST_JAVA} or later (for example openjdk-{OLDEST_JAVA}-jre-headless), or set JAVA_HOME; "
        'without a [transform], master = "none" under [spark] needs no Java'
    )
    if java is None:
        raise NotReady("Spark needs Java, and there is no java on the PATH", hint)
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotReady(f"Spark needs Java, and {java} cannot be run: {error}", hint) from error
    version = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if said.returncode or version is None:
        raise NotReady(
            f"Spark needs Java, and {java} does not work: {(said.stderr or said.stdout).strip()[:200]}", hint
        )
    if int(version[1]) < OLDEST_JAVA:
        raise NotReady(f"Spark needs Java {OLDEST_JAVA}, and {java} is Java {version[1]}", hint)
    return java


def check_master(master: str) -> str:
    """The master as Spark is given it; NotReady where it is none, or does not listen."""
    if local := _LOCAL.fullmatch(master):
        # Locally Spark gives up at the first failure, unless it is told a number.
        return f"local[{local[1] or 1},{local[2] or TASK_FAILURES}]"
    if standalone := _STANDALONE.fullmatch(master):
        _check_listening(standalone[1], master)
        return master
    if master == "yarn" or master.startswith(("k8s://", "local-cluster[")):
        return master
    raise NotReady(f"{master!r} is not a Spark master", f"{_MASTERS} under [spark]")


def _check_listening(addresses: str, master: str) -> None:
    failures = []
    for address in addresses.split(","):
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit():
            raise NotReady(f"{master!r} names no port", 'write for example "spark://host:7077" under [spark]')
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
            return
        except OSError as error:
            failures.append(f"{address}: {error.strerror or error}")
    raise NotReady(
        f"no Spark master listens at {master} ({'; '.join(failures)})",
        'start it, or correct master under [spark]; "local[*]" runs Spark in this process',
    )


def _local_settings(master: str) -> dict[str, str]:
    if not master.startswith("local"):
        return {}
    return {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK, "spark.sql.shuffle.partitions": "4"}


def _explained(error: Exception, master: str) -> NotReady:
    said = str(error).strip().splitlines()
    told = next((line.strip() for line in said if "Exception" in line or "Error" in line), said[0] if said else "")
    return NotReady(
        f"Spark did not start on {master}: {told or type(error).__name__}",
        "see what it printed above; [spark] in the pipeline file has its master and settings",
    )
