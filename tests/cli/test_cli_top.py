"""`tidelog top`: what it shows of a cluster, from the protocol alone and with the metrics of a broker."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from cli_shell import Shell

from tidelog.client import Client
from tidelog.testing.broker import RunningBroker
from tidelog.wire.partitions import TopicPartition

ONCE = ("top", "--once", "--interval", "0.1")


def test_it_shows_brokers_topics_and_groups_of_any_cluster(
    run: Shell, client: Client, topic: str, unique: Callable[[str], str], broker_ids: list[int]
) -> None:
    group = unique("group")
    client.produce(topic, [b"x"] * 10, partition=0)
    client.groups.commit(group, {TopicPartition(topic, 0): 4})
    shown = run.json(*ONCE)
    assert [broker["broker"] for broker in shown["brokers"]] == broker_ids
    assert sum(broker["controller"] for broker in shown["brokers"]) == 1
    assert sum(broker["leaders"] for broker in shown["brokers"]) == shown["partitions"]
    partitions = [p for described in client.describe().topics.values() for p in described.partitions.values()]
    assert sum(broker["replicas"] for broker in shown["brokers"]) == sum(len(p.replicas) for p in partitions)
    (row,) = [row for row in shown["topics"] if row["topic"] == topic]
    assert row["partitions"] == 3 and row["size_bytes"] > 0 and not row["offline"]
    (row,) = [row for row in shown["groups"] if row["group"] == group]
    assert (row["lag"], row["topics"]) == (6, [topic])
    assert not shown["under_replicated"] and not shown["offline"]
    lags = [row["lag"] for row in shown["groups"]]
    assert lags == sorted(lags, reverse=True)


def test_it_is_a_table_for_people(run: Shell, topic: str) -> None:
    text = run(*ONCE, "--rows", "1").stdout
    assert "all partitions are online and fully replicated" in text
    assert "BROKER  ADDRESS" in text and "TOPIC  " in text and "REQ/S" not in text


def test_it_shows_requests_of_brokers_whose_metrics_it_is_given() -> None:
    with RunningBroker({"tidelog.http.port": "0"}) as broker:
        assert broker.http is not None
        shown = Shell(broker.bootstrap).json(*ONCE, "--metrics", broker.http)
        asked = {row["request"]: row for row in shown["requests"]}
        assert asked["Metadata"]["per_s"] > 0 and asked["Metadata"]["p99_ms"] > 0
        (used,) = shown["brokers"]
        assert used["memory_bytes"] > 1_000_000 and used["connections"] == 1 and used["requests_per_s"] > 0
        assert "REQ/S" in Shell(broker.bootstrap)(*ONCE, "-m", broker.http).stdout


def test_a_broker_whose_metrics_are_away_is_named_and_the_others_are_shown() -> None:
    with RunningBroker({"tidelog.http.port": "0"}) as broker:
        run = Shell(broker.bootstrap)
        shown = run.json(*ONCE, "-m", f"{broker.http},127.0.0.1:1")
        (silent,) = shown["without_metrics"]
        assert "no metrics from 127.0.0.1:1: " in silent and shown["brokers"][0]["memory_bytes"] > 1_000_000
        assert f"fully replicated; {silent}\n" in run(*ONCE, "-m", f"127.0.0.1:1,{broker.http}").stdout


def test_on_a_terminal_it_goes_on_until_ctrl_c_and_gives_the_screen_back(bootstrap: str) -> None:
    terminal, inner = pty.openpty()
    command = [sys.executable, "-m", "tidelog.cli.main", "top", "--interval", "0.1", "-b", bootstrap]
    process = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=subprocess.DEVNULL)
    os.close(inner)
    try:
        shown = b""
        while shown.count(b"BROKER") < 2:
            shown += os.read(terminal, 65536)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the terminal is gone once the process is
            while data := os.read(terminal, 65536):
                shown += data
        assert process.wait(timeout=30) == 130
        assert shown.startswith(b"\x1b[?1049h") and shown.endswith(b"\x1b[?25h\x1b[?1049l")
    finally:
        process.kill()
        os.close(terminal)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "bootstrap"])
def test_an_address_without_metrics_is_said_to_have_none(run: Shell, bootstrap: str, address: str) -> None:
    said = run(*ONCE, "-m", bootstrap if address == "bootstrap" else address, code=3).stderr
    assert "no metrics from" in said and "--http-port" in said


def test_no_broker_is_said_to_be_none(alone: Shell) -> None:
    alone(*ONCE, "--timeout", "1", code=3)
