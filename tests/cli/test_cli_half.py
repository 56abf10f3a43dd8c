"""`tidelog half` and `tidelog delay` against a real broker: what is listed, ended and cancelled."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from cli_shell import Shell

from tidelog.client import Client
from tidelog.client.producer import Message


@pytest.fixture(autouse=True)
def only_here(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--broker") == "kafka":
        pytest.skip("Apache Kafka has neither half nor delayed messages")


@pytest.fixture
def half(client: Client, unique: Callable[[str], str]) -> str:
    """A half topic of two partitions, whose target takes only small records."""
    target, name = unique("target"), unique("half")
    client.admin.create_topic(target, 2, configs={"max.message.bytes": "1000"})
    client.admin.create_topic(name, 2, configs={"tidelog.half.target": target})
    return name


def prepare(client: Client, topic: str, half_id: str, partition: int = 0, value: bytes = b"v") -> None:
    client.produce(topic, [Message(value, None, [("tidelog-half-id", half_id.encode())])], partition=partition)


def listed(run: Shell, topic: str, count: int) -> list[Any]:
    """What is listed, when it is so many."""
    until = time.monotonic() + 30
    while len(found := run.json("half", "list", topic)) != count:
        assert time.monotonic() < until, found
        time.sleep(0.02)
    rows: list[Any] = found
    return rows


def test_an_id_that_is_prepared_in_two_partitions_is_ended_only_where_it_is_told(
    run: Shell, client: Client, half: str
) -> None:
    for partition in (0, 1):
        prepare(client, half, "pay", partition)
    listed(run, half, 2)
    refused = run("half", "commit", half, "pay", code=2)
    assert "2 partitions" in refused.stderr and "--partition" in refused.stderr
    run("half", "rollback", half, "pay", "--partition", "1")
    assert [row["partition"] for row in listed(run, half, 1)] == [0]
    run("half", "commit", half, "pay")
    listed(run, half, 0)


def test_a_committed_message_that_is_stopped_is_listed_with_its_reason_and_taken_back_as_the_hint_says(
    run: Shell, client: Client, half: str
) -> None:
    prepare(client, half, "large", value=b"x" * 2000)
    listed(run, half, 1)
    run("half", "commit", half, "large")
    while (row := listed(run, half, 1)[0])["state"] != "stopped":
        time.sleep(0.02)
    assert row["id"] == "large" and "max.message.bytes" in row["reason"]
    assert not row["prepared"].startswith("1970")
    cancel = f"delay cancel {half} 0 {row['offset']}"
    assert f"tidelog {cancel}" in run("half", "rollback", half, "large", code=4).stderr
    run(*cancel.split())
    listed(run, half, 0)


def test_a_record_that_means_nothing_to_a_half_topic_is_shown_with_its_reason(
    run: Shell, client: Client, half: str
) -> None:
    client.produce(half, [Message(b"plain")], partition=0)
    (row,) = listed(run, half, 1)
    assert (row["state"], row["id"], row["reason"]) == ("malformed", None, "it has no tidelog-half-id")
    told = run("delay", "list", half).stderr
    assert "1 record neither a half message nor its end" in told and "name no time" not in told
    assert "listed" not in told
    client.produce(half, [Message(b"another")], partition=0)
    listed(run, half, 2)
    told = run("delay", "list", half, "--max-records", "1").stderr
    assert "2 records neither a half message nor its end, 1 of them listed" in told
    assert client.halves.prepared(half) == []


def test_ending_a_half_message_of_a_delay_topic_says_that_it_is_none(
    run: Shell, client: Client, topic: str, unique: Callable[[str], str]
) -> None:
    later = unique("later")
    client.admin.create_topic(later, 1, configs={"tidelog.delay.target": topic})
    assert "is not a half topic" in run("half", "commit", later, "pay", code=2).stderr
