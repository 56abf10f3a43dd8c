"""Storage that is not a directory: an S3 (moto's server) and an HDFS (Hadoop's own small cluster), as child processes.

Neither runs in this process: whoever waits for an answer of S3 may hold the lock that its server would need.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.systems.java import FAST_START, JAVA_SOURCES, REPOSITORY, jars
from bench.systems.process import free_port

LOOPBACK = "127.0.0.1"
BUCKET = "lake"


@contextmanager
def s3_server(log: Path) -> Iterator[str]:
    """Where an S3 listens that has a bucket `lake`."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as server:
        try:
            _make_bucket(port, server)
            yield f"http://{LOOPBACK}:{port}"
        finally:
            server.terminate()


def _make_bucket(port: int, server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=10)
        try:
            connection.request("PUT", f"/{BUCKET}")
            assert connection.getresponse().status == 200
            return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    raise RuntimeError(f"moto's server ended with {server.returncode}")


def s3_environment(endpoint: str) -> dict[str, str]:
    """What `docs/pipelines.md` tells people to set for an S3 of their own."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "a-key",
        "AWS_SECRET_ACCESS_KEY": "a-secret",
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def small_hdfs(directory: Path) -> Iterator[str]:
    """The address of an HDFS: a name node and a data node in one JVM."""
    source = JAVA_SOURCES / "hdfs"
    libs = jars(source / "pom.xml", REPOSITORY / ".cache" / "hdfs-3.4.1" / "libs", "Hadoop's small cluster")
    command = ["java", *FAST_START, "-cp", f"{libs}/*", str(source / "SmallHdfs.java"), str(directory)]
    with (directory / "hdfs.log").open("wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        with server:
            try:
                assert server.stdout is not None
                ready = next((line for line in server.stdout if line.startswith("ready ")), None)
                assert ready is not None, (directory / "hdfs.log").read_text()
                yield f"hdfs://{LOOPBACK}:{int(ready.split()[1])}"
            finally:
                server.kill()
