"""A broker as a child process: what the two systems under test have in common."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

#: Metadata v0 about all topics, as a whole frame: every broker ever released answers it once it serves.
_METADATA_V0 = struct.pack(">ihhihi", 14, 3, 0, 1, -1, 0)


class BrokerDied(RuntimeError):
    """The broker's process ended, or never became ready; the message carries the tail of its log."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _receive(connection: socket.socket, size: int) -> bytes:
    chunks = b""
    while len(chunks) < size:
        chunk = connection.recv(size - len(chunks))
        if not chunk:
            raise ConnectionError("closed by the broker")
        chunks += chunk
    return chunks


def brokers_known_to(host: str, port: int, timeout: float = 5) -> int:
    """How many brokers the one at this address counts when it is asked for Metadata; 0 where it does not answer."""
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.sendall(_METADATA_V0)
            (size,) = struct.unpack(">i", _receive(connection, 4))
            _, brokers = struct.unpack_from(">ii", _receive(connection, size))
            return int(brokers)
    except OSError:
        return 0


def cpu_seconds_of(pid: int) -> float:
    """User and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class BrokerProcess:
    """One broker; `start` returns when it serves. A stopped one can be started again on the same data and port."""

    name = "broker"

    def __init__(self, directory: Path, config: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.config = dict(config or {})
        self.data_dir = directory / "data"
        self.log_path = directory / "broker.log"
        self.host = "127.0.0.1"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def data_dirs(self) -> dict[int, Path]:
        """The data directory of each broker that belongs to it, by its port."""
        return {self.port: self.data_dir}

    @property
    def pid(self) -> int:
        assert self._process is not None, "not running"
        return self._process.pid

    def command(self) -> list[str]:
        raise NotImplementedError

    def launch(self) -> None:
        """Starts the process and returns at once."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.port == 0:
            self.port = free_port()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self.directory
            )

    def launch_until(self, done: Callable[[], object], timeout_s: float) -> float:
        """Seconds from the process's start until `done` meets no OSError; it is tried every two milliseconds."""
        began = time.perf_counter()
        self.launch()
        while True:
            try:
                done()
                return time.perf_counter() - began
            except OSError as error:
                if time.perf_counter() - began > timeout_s:
                    raise TimeoutError(f"{self.name} took no record:\n{self.log_tail()}") from error
                time.sleep(0.002)

    def start(self, timeout: float = 60) -> Self:
        self.launch()
        self.await_serving(timeout)
        return self

    def await_serving(self, timeout: float = 60, brokers: int = 1) -> None:
        """Waits until it answers, and counts so many brokers in its cluster."""
        assert self._process is not None
        deadline = time.monotonic() + timeout
        while brokers_known_to(self.host, self.port) < brokers:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise BrokerDied(f"{self.name} did not become ready:\n{self.log_tail()}")
            time.sleep(0.02)

    def stop(self, timeout: float = 30) -> None:
        """A clean stop; SIGKILL where that does not end the process in time."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def log_tail(self, size_bytes: int = 4000) -> str:
        return self.log_path.read_bytes()[-size_bytes:].decode(errors="replace") if self.log_path.exists() else ""

    def rss_bytes(self) -> int:
        """Resident memory of the broker's process."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def cpu_seconds(self) -> float:
        return cpu_seconds_of(self.pid)

    def __enter__(self) -> Self:
        return self.start() if self._process is None else self

    def __exit__(self, *exc: object) -> None:
        self.kill()
