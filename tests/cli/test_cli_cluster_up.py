"""`tidelog cluster up`: a cluster of processes that starts, is watched over, stops, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from cli_shell import Shell

from tidelog.cli.supervision import RestartPolicy, StopAsked, Supervisor
from tidelog.client import Client
from tidelog.testing.cluster import RunningCluster

UP = (sys.executable, "-m", "tidelog.cli.main", "cluster", "up")
STAND_IN = (sys.executable, str(Path(__file__).parents[1] / "testing" / "stand_in.py"))


@contextlib.contextmanager
def running(data_dir: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """`tidelog cluster up` and what its line says."""
    command = [*UP, "--data-dir", str(data_dir), "--port", "0", "-o", "json", *arguments]
    with open(data_dir / "up.log", "a") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, (data_dir / "up.log").read_text()
        yield process, json.loads(line)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """A process whose parent is gone may be dead and not yet taken note of."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def processes_of(data_dir: Path) -> list[int]:
    """Those that name the directory on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(data_dir).encode() in path.read_bytes() and is_alive(int(path.parent.name)):
                found.append(int(path.parent.name))
    return found


@pytest.mark.zookeeper
def test_a_cluster_starts_mends_itself_stops_and_starts_again_on_its_data(tmp_path: Path) -> None:
    settings = (
        "--brokers",
        "2",
        "--rack",
        "a,b",
        "--restart",
        "now",
        "-X",
        "num.partitions=4",
        "-X",
        "tidelog.http.port=0",
    )
    with running(tmp_path, *settings) as (process, told):
        assert told["ready"] and [broker["rack"] for broker in told["brokers"]] == ["a", "b"]
        for broker in told["brokers"]:
            version = json.loads(urlopen(f"http://{broker['http']}/version").read())
            assert version["broker"] == broker["id"] and version["cluster"] == told["cluster"]
        assert told["bootstrap"] == ",".join(f"{broker['host']}:{broker['port']}" for broker in told["brokers"])
        with Client(told["bootstrap"]) as client:
            created = client.admin.create_topic("kept")
            assert (created.partitions, created.replication_factor) == (4, 2)
        os.kill(told["brokers"][0]["pid"], signal.SIGKILL)
        until(lambda: "broker 1 runs again" in (tmp_path / "up.log").read_text())
        process.terminate()
        assert process.wait(60) == 0 and process.stdout is not None and process.stdout.read() == ""
        assert not processes_of(tmp_path)
    with running(tmp_path, *settings) as (process, again), Client(again["bootstrap"]) as client:
        assert again["cluster"] == told["cluster"]
        until(lambda: all(len(p.isr) == 2 for p in client.describe(["kept"]).topics["kept"].partitions.values()))
        led = {p.replicas[0]: p.leader for p in client.describe(["kept"]).topics["kept"].partitions.values()}
        assert led == {1: 1, 2: 2}, "the first to start does not lead everything"


@pytest.mark.zookeeper
def test_nothing_is_left_when_it_is_killed_itself_and_one_directory_serves_one_cluster(tmp_path: Path) -> None:
    with running(tmp_path, "--brokers", "1") as (process, told):
        # Itself, ZooKeeper and the broker.
        assert len(processes_of(tmp_path)) == 3
        again = subprocess.run([*UP, "--data-dir", str(tmp_path)], capture_output=True, text=True, timeout=60)
        assert again.returncode == 1 and f"another `tidelog cluster up` uses {tmp_path}" in again.stderr
        process.kill()
        # A process that is going has no command line any more before it is gone.
        until(lambda: not processes_of(tmp_path) and not is_alive(told["brokers"][0]["pid"]))


def test_a_port_that_is_taken_is_told_with_the_broker_that_wanted_it(tmp_path: Path, zookeeper_connect: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ("--brokers", "1", "--port", str(port), "--zookeeper", zookeeper_connect)
        done = subprocess.run(
            [*UP, "--data-dir", str(tmp_path), *arguments], capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 1 and done.stdout == ""
    assert f"starting 1 broker with ZooKeeper at {zookeeper_connect}\n" in done.stderr
    assert "broker 1: the broker did not start" in done.stderr and "PR_SET_PDEATHSIG" not in done.stderr
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr
    assert not processes_of(tmp_path)


def test_without_java_it_says_what_to_install(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": ""}
    done = subprocess.run(
        [*UP, "--data-dir", str(tmp_path)], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 1 and "install a Java runtime" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-X", "broker.id=4"), "broker.id differs from broker to broker. Use --first-id instead"),
        (("-X", "listeners=PLAINTEXT://:1"), "listeners differs from broker to broker"),
        (("--restart", "sometimes"), "use now, never, or after:10s"),
        (("--restart", "after:soon"), "'soon' is not a duration"),
        (("--brokers", "0"), "0 is not in the range"),
        (("--port", "65534"), "There are no 3 ports from 65534 on"),
        (("-X", "num.partitons=3"), "num.partitions"),
        (("--zookeeper", "nowhere:x"), "'nowhere:x' is not host:port"),
    ],
)
def test_what_is_asked_wrongly_is_refused_before_anything_starts(
    arguments: tuple[str, ...], told: str, tmp_path: Path, alone: Shell
) -> None:
    data_dir = tmp_path / "data"
    assert told in alone("cluster", "up", "--data-dir", str(data_dir), *arguments, code=2).stderr
    assert not data_dir.exists()


def test_a_restart_policy_waits_longer_for_what_does_not_start() -> None:
    assert RestartPolicy.parse("now") == RestartPolicy(0.0) and RestartPolicy.parse("never") == RestartPolicy(None)
    after = RestartPolicy.parse("after:1m30s")
    assert after.wait_after(0) == 90 and after.wait_after(9) == 90
    assert [RestartPolicy(0.0).wait_after(n) for n in (0, 1, 2, 3, 50)] == [0, 1, 2, 4, 60]
    assert RestartPolicy(None).wait_after(3) is None


class Watch:
    """A supervisor of stand-ins, and what it says; it is stopped by the first message with a given text."""

    def __init__(self, cluster: RunningCluster, policy: str) -> None:
        self.said: list[str] = []
        self._last = ""
        self._supervisor = Supervisor(cluster, RestartPolicy.parse(policy), self._hear, lambda broker: "tidelog serve")

    def until(self, last: str) -> None:
        self._last = last
        with pytest.raises(StopAsked):
            self._supervisor.run()

    def _hear(self, message: str) -> None:
        self.said.append(message)
        if self._last in message:
            raise StopAsked


@pytest.fixture
def stand_ins() -> Iterator[RunningCluster]:
    with RunningCluster(2, command=STAND_IN, zookeeper="127.0.0.1:1") as cluster:
        yield cluster
        cluster.kill()


def test_a_broker_that_failed_is_started_again_at_once(stand_ins: RunningCluster) -> None:
    before = stand_ins.brokers[2].pid
    os.kill(before, signal.SIGKILL)
    watch = Watch(stand_ins, "now")
    watch.until("runs again")
    assert watch.said[0] == "broker 2 was ended by SIGKILL; it is started again now"
    assert stand_ins.running and stand_ins.brokers[2].pid != before


def test_a_broker_that_failed_waits_to_be_started_by_hand(stand_ins: RunningCluster) -> None:
    os.kill(stand_ins.brokers[1].pid, signal.SIGKILL)
    watch = Watch(stand_ins, "never")
    watch.until("by hand")
    assert watch.said == ["broker 1 was ended by SIGKILL. To start it by hand: tidelog serve"]


def test_a_broker_that_was_stopped_in_order_stays_down(stand_ins: RunningCluster) -> None:
    os.kill(stand_ins.brokers[1].pid, signal.SIGTERM)
    watch = Watch(stand_ins, "now")
    watch.until("by hand")
    assert watch.said[0].startswith("broker 1 was stopped.")


def test_a_broker_that_fails_to_start_is_tried_again_and_its_last_words_are_told(stand_ins: RunningCluster) -> None:
    stand_ins.brokers[1].config["stand.in"] = "fail"
    os.kill(stand_ins.brokers[1].pid, signal.SIGKILL)
    watch = Watch(stand_ins, "now")
    watch.until("did not start; it is started again in 1 s")
    assert "the disk is on fire" in watch.said[1]
    del stand_ins.brokers[1].config["stand.in"]
    watch.until("broker 1 runs again")
    assert stand_ins.running
