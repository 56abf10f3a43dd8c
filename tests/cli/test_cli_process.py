"""`tidelog` as a process: pipes, signals, and brokers that start and stop."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tidelog.client import Client
from tidelog.testing.broker import RunningBroker

# What Apache Kafka 4 brings as config/server.properties, without the comments.
KAFKA_4 = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
COMMAND = [sys.executable, "-m", "tidelog.cli.main"]


def environment(bootstrap: str = "127.0.0.1:1") -> dict[str, str]:
    source = str(Path(__file__).resolve().parents[2] / "src")
    # Buffered, as in any shell: what is printed is seen when a chunk of records is done with.
    return {**os.environ, "PYTHONPATH": source, "TIDELOG_BOOTSTRAP": bootstrap, "PYTHONUNBUFFERED": ""}


def hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def started(
    *arguments: str, bootstrap: str, stdin: int | IO[bytes] | None = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(bootstrap),
        # A test run in the background ignores Ctrl-C, and its children would inherit that.
        preexec_fn=hear_interrupts,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def fill(bootstrap: str, topic: str, count: int) -> None:
    with Client(bootstrap) as client:
        client.produce(topic, [b"%d" % number for number in range(count)])


def test_following_prints_what_comes_and_ends_with_ctrl_c(bootstrap: str) -> None:
    fill(bootstrap, "followed", 1)
    with started("consume", "followed", "--follow", "--from", "earliest", bootstrap=bootstrap) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        fill(bootstrap, "followed", 1)
        assert process.stdout.readline() == b"0\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
        assert process.returncode == 130
        assert b"Traceback" not in told


def test_a_member_of_a_group_commits_and_leaves_on_ctrl_c(bootstrap: str) -> None:
    fill(bootstrap, "grouped", 3)
    with started("consume", "grouped", "--group", "interrupted", "--follow", bootstrap=bootstrap) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == [b"0\n", b"1\n", b"2\n"]
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
        assert (process.returncode, b"Traceback" in told) == (130, False)
    with Client(bootstrap) as client:
        assert client.groups.offsets("interrupted")["grouped", 0].offset == 3
        assert client.groups.describe("interrupted").members == []


def test_a_reader_that_has_enough_is_no_failure(bootstrap: str) -> None:
    fill(bootstrap, "long", 50_000)
    with started("consume", "long", bootstrap=bootstrap) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        told = process.stderr.read()
        assert (process.wait(timeout=30), told) == (0, b"")


def test_what_comes_through_a_pipe_is_written_before_the_pipe_ends(bootstrap: str) -> None:
    with started("produce", "piped", bootstrap=bootstrap, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        with Client(bootstrap) as client:
            process.stdin.write(b"first\n")
            process.stdin.flush()
            client.cluster.topic("piped", auto_create=True)
            (record,) = client.read("piped", 0, from_offset=0, until_offset=1)
            assert record.value == b"first"
            process.stdin.write(b"second")
            process.stdin.close()
            assert process.wait(timeout=30) == 0
            assert [record.value for record in client.read("piped", 0)] == [b"first", b"second"]


def test_producing_on_a_terminal_shows_progress_while_it_goes_on(bootstrap: str) -> None:
    leader, follower = os.openpty()
    process = subprocess.Popen(
        [*COMMAND, "produce", "progressing"], stdin=subprocess.PIPE, stderr=follower, env=environment(bootstrap)
    )
    os.close(follower)
    try:
        assert process.stdin is not None
        told = b""
        while b"records sent: " not in told:
            process.stdin.write(b"line\n" * 1000)
            process.stdin.flush()
            while select.select([leader], [], [], 0)[0]:
                told += os.read(leader, 4096)
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(leader)


def test_colour_is_for_terminals_that_were_not_told_otherwise(bootstrap: str) -> None:
    def on_terminal(**extra: str) -> bytes:
        leader, follower = os.openpty()
        done = subprocess.run(
            [*COMMAND, "cluster", "describe"],
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=subprocess.PIPE,
            env={**environment(bootstrap), "TERM": "xterm", **extra},
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        os.close(follower)
        printed = os.read(leader, 65536)
        os.close(leader)
        return printed

    assert b"\x1b[" in on_terminal()
    assert b"\x1b[" not in on_terminal(NO_COLOR="1")
    piped = subprocess.run(
        [*COMMAND, "cluster", "describe"], capture_output=True, env=environment(bootstrap), timeout=60
    )
    assert b"\x1b[" not in piped.stdout


def test_a_broker_that_cannot_start_says_why_and_what_to_do(
    tmp_path: Path, tidelog_broker_session: RunningBroker
) -> None:
    def serve(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [*COMMAND, "serve", *arguments], capture_output=True, text=True, env=environment(), timeout=60, cwd=tmp_path
        )
        assert "Traceback" not in done.stderr and done.stdout == ""
        return done.returncode, done.stderr

    code, told = serve("--data-dir", "data", "--port", str(tidelog_broker_session.port))
    assert code == 1 and "--port" in told and "in use" in told
    code, told = serve("--data-dir", str(tidelog_broker_session.data_dir), "--port", "0")
    assert code == 1 and "another broker uses the data directory" in told
    code, told = serve("-X", "num.partition=3")
    assert code == 2 and "did you mean num.partitions?" in told
    code, told = serve("--config", "missing.properties")
    assert code == 2 and "missing.properties" in told
    (tmp_path / "file").touch()
    code, told = serve("--data-dir", "file/data", "--port", "0")
    assert code == 1 and "file/data" in told


def test_a_broker_that_is_asked_for_json_is_ready_in_json(tmp_path: Path) -> None:
    arguments = ["serve", "--data-dir", str(tmp_path), "--port", "0", "-o", "json"]
    with started(*arguments, bootstrap="") as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["ready"] and ready["broker"] == 0 and ready["data"] == [str(tmp_path)]
        fill(f"{ready['host']}:{ready['port']}", "t", 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def test_a_broker_that_cannot_protect_as_it_is_told_exits_with_code_2(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=SASL_SSL://0.0.0.0:9093\nssl.keystore.location=/k\nsuper.users=User:a\n")
    for more in ([], ["--port", "0"]):
        done = subprocess.run(
            [*COMMAND, "serve", "--data-dir", str(tmp_path / "data"), "--config", str(file), *more],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=60,
        )
        assert (done.returncode, done.stdout) == (2, "")
        for named in ("listeners=SASL_SSL://0.0.0.0:9093", "ssl.keystore.location", "super.users", "Remove"):
            assert named in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_broker_starts_with_the_file_that_comes_with_kafka_4(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(KAFKA_4.replace(":9092", ":0").replace("/tmp/kraft-combined-logs", str(tmp_path / "data")))
    process = subprocess.Popen(
        [*COMMAND, "serve", "--config", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert "(broker 1, " in ready
        with Client(ready.split()[3].replace("0.0.0.0", "127.0.0.1").replace("[::]", "127.0.0.1")) as client:
            client.produce("t", [b"x"])
    finally:
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 0 and "accepted without effect: num." in told


@pytest.mark.parametrize(
    ("umask", "modes"), [(0o002, {0o750, 0o640}), (0o077, {0o700, 0o600})], ids=["usual umask", "strict umask"]
)
def test_data_is_kept_to_the_brokers_user_and_group(tmp_path: Path, umask: int, modes: set[int]) -> None:
    data = tmp_path / "data"
    earlier = os.umask(umask)
    try:
        with RunningBroker({"offsets.topic.num.partitions": "1"}, data_dir=data) as broker:
            fill(broker.bootstrap, "orders", 10)
            with Client(broker.bootstrap) as client:
                client.groups.commit("billing", {("orders", 0): 1})
            broker.restart()
    finally:
        os.umask(earlier)
    found = {path: path.stat().st_mode & 0o777 for path in (data, *data.rglob("*"))}
    assert {".log", ".index", ".timeindex", ".snapshot", ".journal", ".properties", ""} <= {p.suffix for p in found}
    assert set(found.values()) == modes, found


def test_a_broker_that_listens_everywhere_names_the_address_it_was_reached_at() -> None:
    with RunningBroker(host="0.0.0.0") as broker:
        for host in {"127.0.0.1", "127.0.0.2", _own_address()}:
            with Client(f"{host}:{broker.port}") as client:
                (node,) = client.describe([]).nodes.values()
                assert (node.host, node.port) == (host, broker.port)
                client.produce("t", [b"x"])


def _own_address() -> str:
    """An address of this machine on its network, loopback where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def test_an_interrupt_while_the_command_is_imported_shows_no_traceback(tmp_path: Path) -> None:
    # Stands where an import of the command's is still under way.
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    told = subprocess.run(
        [sys.executable, "-m", "tidelog", "serve"],
        env={**environment(), "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert (told.returncode, told.stdout, told.stderr) == (130, "", "")


def test_the_command_begins_where_an_interrupt_is_heard() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"]["tidelog"] == "tidelog.cli.entry:main"
    told = subprocess.run([sys.executable, "-m", "tidelog", "--version"], env=environment(), check=True)
    assert told.returncode == 0


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_a_host_that_is_not_this_machine_is_told_as_such(tmp_path: Path, host: str) -> None:
    arguments = ["serve", "--data-dir", str(tmp_path / "data"), "--host", host, "--port", "0"]
    told = subprocess.run([*COMMAND, *arguments], env=environment(), capture_output=True, text=True)
    assert told.returncode == 1
    assert f"cannot listen on {host}:0" in told.stderr and "Set --host to an address of this machine" in told.stderr
    assert "--port" not in told.stderr
