"""Real ZooKeeper servers as child processes, for tests and for clusters on one machine.

    with ZooKeeperServer(data_dir) as server:
        connect(server.connect)                 # 127.0.0.1:41837

    with ZooKeeperEnsemble(data_dir, size=3) as ensemble:
        ensemble.servers[0].kill()              # the other two go on

The server is the one among PySpark's own jars, so that nothing need be installed besides Java. It listens on the
loopback interface. `start` returns when it serves clients, which for an ensemble takes a majority. `stop` ends it in
order, `kill` as a crash does; started again, it has its data and its port. What it says is in `server.log` in its data
directory, and the end of it is part of the message if it fails.

Without a port the server gets one that is free at that moment. Should somebody else take it before the server does, the
start fails, and says so.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
import weakref
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
#: what the server needs of PySpark's jars, and what it takes to say why it fails
_JARS: Final = (
    "zookeeper-[0-9]*.jar",
    "zookeeper-jute-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "slf4j-api-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
)
_JVM_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
#: Unless it is told, a session lasts 20 ticks at the most: with short ticks less than Kafka's default of 18 s.
_LONGEST_SESSION_MS: Final = 60_000
_HOST: Final = "127.0.0.1"
_TAIL_BYTES: Final = 4000

_started: weakref.WeakSet[ZooKeeperServer] = weakref.WeakSet()


class ZooKeeperFailed(RuntimeError):
    """The server is missing, or did not start or stop."""


class ZooKeeperServer:
    """`tick_ms` is ZooKeeper's unit of time: a session lasts two ticks at the least. `peers` are the lines that make
    it one of an ensemble. `runner` is a command that runs Java's command line, which follows it."""

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        port: int = 0,
        *,
        tick_ms: int = 2000,
        server_id: int = 1,
        peers: Sequence[str] = (),
        runner: Sequence[str] = (),
        timeout_s: float = 30.0,
    ) -> None:
        self.data_dir = Path(data_dir)
        self.port = port or free_ports(1)[0]
        self._tick_ms = tick_ms
        self._server_id = server_id
        self._peers = tuple(peers)
        self._runner = tuple(runner)
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        """What is called zookeeper.connect."""
        return f"{_HOST}:{self.port}"

    @property
    def mode(self) -> str | None:
        return mode_of(_HOST, self.port)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How the process ended, negative for a signal; None while it runs, and before it was started."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ZooKeeperFailed("ZooKeeper was not started")
        return self._process.pid

    def start(self) -> Self:
        """Starts the server and waits until it serves."""
        self.launch()
        try:
            self.await_serving()
        except BaseException:
            self.kill()
            raise
        return self

    def launch(self) -> None:
        """Starts the server and does not wait."""
        if self.running:
            raise ZooKeeperFailed(f"ZooKeeper is already running on {self.connect}")
        self._claim_port()
        command = [
            *self._runner,
            find_java(),
            *_JVM_OPTIONS,
            "-cp",
            class_path(),
            MAIN_CLASS,
            str(self._write_config()),
        ]
        with open(self.log, "ab") as log:
            # A group of its own: Ctrl-C on the terminal reaches whoever started it, who then stops it.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.data_dir, process_group=0
            )
        _started.add(self)

    def await_serving(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        while self.mode is None:
            if not self.running:
                raise ZooKeeperFailed(self._told(f"ZooKeeper on {self.connect} ended while it started"))
            if time.monotonic() > deadline:
                raise ZooKeeperFailed(self._told(f"ZooKeeper on {self.connect} did not serve in {self._timeout_s:g} s"))
            time.sleep(0.02)

    def stop(self) -> None:
        """In order: what was acknowledged is on disk in any case, but clients see the connection closed at once."""
        if not self.running:
            return
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a paused process hears nothing else
        assert self._process is not None
        try:
            self._process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ZooKeeperFailed(self._told(f"ZooKeeper did not stop within {self._timeout_s:g} s")) from None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Freezes the process: its sockets stay open, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def log(self) -> Path:
        return self.data_dir / "server.log"

    def _claim_port(self) -> None:
        """Whoever is there already would be taken for our server."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, self.port))
            except OSError as error:
                raise ZooKeeperFailed(f"ZooKeeper cannot listen on {self.connect}: {error.strerror}") from None

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def _write_config(self) -> Path:
        data = self.data_dir / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{self._server_id}\n")
        config = self.data_dir / "zoo.cfg"
        lines = [
            f"dataDir={data}",
            f"clientPort={self.port}",
            f"clientPortAddress={_HOST}",
            f"tickTime={self._tick_ms}",
            f"maxSessionTimeout={max(_LONGEST_SESSION_MS, 20 * self._tick_ms)}",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            "autopurge.purgeInterval=1",
            *self._peers,
        ]
        config.write_text("".join(f"{line}\n" for line in lines))
        return config

    def _told(self, what: str) -> str:
        said = self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace") if self.log.exists() else ""
        return f"{what}; {self.log} ends with:\n{said}"


class ZooKeeperEnsemble:
    """Several servers, of which a majority must run."""

    def __init__(
        self, data_dir: str | os.PathLike[str], size: int = 3, ports: Sequence[int] = (), *, tick_ms: int = 2000
    ) -> None:
        """`ports` are those for clients, and after them two for each server to reach the others; without them, free
        ones."""
        chosen = list(ports) or free_ports(3 * size)
        peers = [
            "initLimit=10",
            "syncLimit=5",
            *(f"server.{n + 1}={_HOST}:{chosen[size + 2 * n]}:{chosen[size + 2 * n + 1]}" for n in range(size)),
        ]
        self.servers = [
            ZooKeeperServer(
                Path(data_dir) / f"zookeeper-{n + 1}", chosen[n], tick_ms=tick_ms, server_id=n + 1, peers=peers
            )
            for n in range(size)
        ]

    @property
    def connect(self) -> str:
        return ",".join(server.connect for server in self.servers)

    def start(self) -> Self:
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.await_serving()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else None
    found = java or shutil.which("java")
    if found is None:
        raise ZooKeeperFailed(
            "ZooKeeper needs Java, and no `java` was found in JAVA_HOME or PATH: install a Java runtime 11 or later "
            "(on Debian: apt install openjdk-17-jre-headless), or use a ZooKeeper that runs elsewhere"
        )
    return found


def class_path() -> str:
    """The jars of the server."""
    spec = find_spec("pyspark")
    home = os.path.dirname(spec.origin) if spec is not None and spec.origin else None
    found = [next(iter(sorted(Path(home, "jars").glob(pattern))), None) for pattern in _JARS] if home else [None]
    jars = [str(jar) for jar in found if jar is not None]
    if len(jars) < len(found):
        raise ZooKeeperFailed(
            "the ZooKeeper server is taken from PySpark's jars, and "
            f"{'they are not all in ' + home if home else 'PySpark is not installed'}: "
            "install PySpark 4.3 (the extra `spark` brings it), or use a ZooKeeper that runs elsewhere"
        )
    return os.pathsep.join(jars)


def mode_of(host: str, port: int) -> str | None:
    """What a ZooKeeper that serves there calls itself: standalone, leader or follower. None where there is none, or
    where it takes no requests, as a server without a majority."""
    try:
        with socket.create_connection((host, port), 1) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return None
    _, found, rest = answer.partition(b"Mode: ")
    return rest.split()[0].decode() if found else None


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((_HOST, 0))
        return [one.getsockname()[1] for one in sockets]


@atexit.register
def _end_what_is_left() -> None:
    for server in list(_started):
        if server.running:
            server.kill()
