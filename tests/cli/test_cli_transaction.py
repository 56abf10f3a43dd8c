"""`tidelog transaction` against a real broker, a stock producer, and a transaction that nobody will end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, Producer

from tidelog.client import Client
from tidelog.testing.broker import RunningBroker
from tidelog.wire.batch import iter_headers
from tidelog.wire.records import build_batch

if TYPE_CHECKING:
    from cli_shell import Shell

LOST_PRODUCER = 123_456


def transactional(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(30)
    return producer


@pytest.fixture
def ongoing(bootstrap: str, topic: str, unique: Callable[[str], str]) -> tuple[str, Producer]:
    """A transactional id with a transaction open in partition 1 of the topic."""
    name = unique("txn")
    producer = transactional(bootstrap, name)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=1)
    producer.flush(30)
    return name, producer


def test_transactions_are_listed_by_state_producer_and_age(
    run: Shell, ongoing: tuple[str, Producer], broker_ids: list[int]
) -> None:
    name, producer = ongoing
    (row,) = run.json("transaction", "list", name)
    assert (row["transactional_id"], row["state"]) == (name, "Ongoing") and row["coordinator"] in broker_ids
    assert run("transaction", "list", name, "-o", "name").stdout == f"{name}\n"
    assert "Ongoing" in run("transaction", "list", name).stdout
    assert [r["transactional_id"] for r in run.json("transaction", "list", "--state", "Ongoing", name)] == [name]
    assert run.json("transaction", "list", "--state", "CompleteCommit", name) == []
    same = run.json("transaction", "list", "--producer-id", str(row["producer_id"]))
    assert [r["transactional_id"] for r in same] == [name]
    assert run.json("transaction", "list", name, "--longer-than", "1h") == []
    assert run("transaction", "list", "nothing-*").stderr == "no transactions\n"
    assert "for example Ongoing" in run("transaction", "list", "--state", "Sleeping", code=2).stderr
    run("transaction", "list", "--longer-than", "soon", code=2)
    producer.abort_transaction(30)


def test_a_transaction_tells_its_producer_and_partitions(run: Shell, ongoing: tuple[str, Producer], topic: str) -> None:
    name, producer = ongoing
    described = run.json("transaction", "describe", name)
    assert (described["state"], described["timeout_ms"]) == ("Ongoing", 60_000)
    assert described["partitions"] == [{"topic": topic, "partition": 1}]
    assert 0 <= described["open_for_ms"] < 60_000
    shown = run("transaction", "describe", name).stdout
    assert "Timeout           1m" in shown and topic in shown
    producer.commit_transaction(30)
    # Its end is answered before its markers are written.
    while (described := run.json("transaction", "describe", name))["state"] == "PrepareCommit":
        time.sleep(0.02)
    assert (described["state"], described["partitions"], described["open_for_ms"]) == ("CompleteCommit", [], None)
    assert f"did you mean {name}?" in run("transaction", "describe", name + "x", code=4).stderr


def test_an_open_transaction_is_aborted_by_its_id_and_its_producer_fenced(
    run: Shell, client: Client, ongoing: tuple[str, Producer], topic: str
) -> None:
    name, producer = ongoing
    assert "Use --yes" in run("transaction", "abort", name, code=2).stderr
    run("transaction", "abort", name, "--dry-run")
    assert run.json("transaction", "describe", name)["state"] == "Ongoing"
    run("transaction", "abort", name, "--yes")
    assert list(client.read(topic, 1, isolation="read_committed")) == []
    with pytest.raises(KafkaException, match="fence"):
        producer.commit_transaction(30)
    assert "no open transaction" in run("transaction", "abort", name, "--yes").stderr
    run("transaction", "abort", "no-such-id", "--yes", code=4)


def test_what_a_coordinator_will_end_is_not_hanging_and_not_torn(
    run: Shell, ongoing: tuple[str, Producer], topic: str
) -> None:
    _, producer = ongoing
    time.sleep(0.002)  # older than a millisecond
    assert run.json("transaction", "find-hanging", "--topic", topic, "--older-than", "1ms") == []
    told = run("transaction", "abort", "-t", topic, "-p", "1", "--start-offset", "0", "--yes", code=1).stderr
    assert "is not hanging" in told and "transaction list --producer-id" in told
    producer.commit_transaction(30)


@pytest.fixture
def hanging(alone: Shell) -> Iterator[Shell]:
    """A broker whose topic `t` has a transaction in partition 1, from offset 1, that no coordinator knows."""
    with RunningBroker() as broker, Client(broker.bootstrap) as client:
        client.admin.create_topic("t", 2)
        client.produce("t", [b"before"], partition=1)
        broker.kill()
        path = broker.data_dir / "t-1" / "00000000000000000000.log"
        data = path.read_bytes()
        _, header = list(iter_headers(data))[-1]
        an_hour_ago = round(time.time() * 1000) - 3_600_000
        lost = build_batch(
            [(an_hour_ago, None, b"lost", None)],
            base_offset=header.next_offset,
            leader_epoch=header.leader_epoch,
            producer_id=LOST_PRODUCER,
            producer_epoch=3,
            base_sequence=0,
            transactional=True,
        )
        path.write_bytes(data + lost)
        broker.start()
        client.produce("t", [b"after"], partition=1)
        yield type(alone)(broker.bootstrap)


def committed(run: Shell) -> list[str]:
    """What a reader of committed records can read."""
    return [row["value"] for row in run.lines("consume", "t", "-p", "1", "--isolation", "read_committed")]


def test_a_hanging_transaction_is_found_and_aborted(hanging: Shell) -> None:
    run = hanging
    assert committed(run) == ["before"]
    assert run("transaction", "find-hanging", "--older-than", "2h").stderr == "no hanging transactions\n"
    (row,) = run.json("transaction", "find-hanging")
    assert (row["topic"], row["partition"], row["start_offset"]) == ("t", 1, 1)
    assert (row["producer_id"], row["producer_epoch"], row["coordinator_epoch"]) == (LOST_PRODUCER, 3, -1)
    assert "1h" in run("transaction", "find-hanging", "-t", "t", "-p", "1").stdout
    assert run.json("transaction", "find-hanging", "-t", "t", "-p", "0") == []
    place = ["-t", "t", "-p", "1", "--start-offset", "1"]
    run("transaction", "abort", *place, "--dry-run")
    assert "Use --yes" in run("transaction", "abort", *place, code=2).stderr
    assert committed(run) == ["before"]
    run("transaction", "abort", *place, "--yes")
    assert committed(run) == ["before", "after"]
    assert run.json("transaction", "find-hanging") == []
    assert "no open transaction starts" in run("transaction", "abort", *place, "--yes", code=4).stderr


def test_what_to_abort_must_be_said_in_full(alone: Shell) -> None:
    for arguments in ([], ["x", "-t", "t"], ["-t", "t"], ["-t", "t", "-p", "0"], ["--start-offset", "7"]):
        assert alone("transaction", "abort", *arguments, code=2).stdout == ""
    alone("transaction", "find-hanging", "-p", "0", code=2)
    alone("transaction", "list", code=3)
