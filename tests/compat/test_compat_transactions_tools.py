"""Transactions through the Java client and Apache Kafka's own tools for looking at them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from bench.systems.java import ToolResult, run_tool
from bench.systems.process import BrokerProcess
from stock import Message, eventually
from stock_python import ConfluentClient

pytestmark = pytest.mark.java

Java = Callable[..., ToolResult]
COMMAND = "org.apache.kafka.tools.TransactionsCommand"
TRANSACT = "tidelog.judge.Transact"


@pytest.fixture
def transactional_id(unique: Callable[[str], str]) -> str:
    return unique("transaction")


def test_a_java_producer_transacts(
    java: Java, broker: BrokerProcess, confluent: ConfluentClient, new_topic: Callable[..., str], transactional_id: str
) -> None:
    topic = new_topic(partitions=3)
    ends = ("commit", "abort", "commit", "abort")
    java(TRANSACT, broker.bootstrap, transactional_id, topic, "3", "30", *ends).check()
    records = confluent.read(topic, 60, isolation="read_committed", partitions=range(3))
    assert sorted(record.value for record in records) == sorted(b"%d-%d" % (n, m) for n in (0, 2) for m in range(30))
    assert len(confluent.read(topic, 120, partitions=range(3))) == 120


def test_the_transactions_tool_lists_and_describes(
    java: Java, broker: BrokerProcess, topic: str, transactional_id: str, broker_ids: list[int]
) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    java(TRANSACT, broker.bootstrap, transactional_id, topic, "1", "5", "commit").check()
    row = rf"{transactional_id}\s+(\d+)\s+(\d+)\s+CompleteCommit"
    listed = eventually(lambda: re.search(row, java(COMMAND, *at, "list").check().out))
    coordinator, producer_id = listed.groups()
    assert int(coordinator) in broker_ids
    described = java(COMMAND, *at, "describe", "--transactional-id", transactional_id).check().out
    assert re.search(rf"{coordinator}\s+{transactional_id}\s+{producer_id}\s+\d+\s+CompleteCommit\s+60000", described)
    producers = java(COMMAND, *at, "describe-producers", "--topic", topic, "--partition", "0").check().out
    assert re.search(rf"{producer_id}\s+\d+\s+\d+\s+(-?\d+)\s+\d+\s+None", producers), producers


def test_the_transactions_tool_aborts_what_hangs(
    java: Java, broker: BrokerProcess, confluent: ConfluentClient, topic: str, transactional_id: str
) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    confluent.produce(topic, [Message(b"first")])
    java(TRANSACT, broker.bootstrap, transactional_id, topic, "1", "5", "open").check()
    listed = java(COMMAND, *at, "list").check().out
    assert re.search(rf"{transactional_id}\s+\d+\s+\d+\s+Ongoing", listed)
    producers = java(COMMAND, *at, "describe-producers", "--topic", topic, "--partition", "0").check().out
    assert re.search(r"\d+\s+0\s+-1\s+4\s+\d+\s+1\s*$", producers, re.MULTILINE), producers
    where = ("--topic", topic, "--partition", "0", "--start-offset", "1")
    java(COMMAND, *at, "abort", *where).check()
    records = confluent.read(topic, 1, isolation="read_committed")
    assert [record.value for record in records] == [b"first"]
    confluent.produce(topic, [Message(b"last")])
    records = confluent.read(topic, 2, isolation="read_committed")
    assert [record.value for record in records] == [b"first", b"last"]


@pytest.mark.slow
def test_the_message_copier_copies_exactly_once_with_random_aborts(
    broker: BrokerProcess, confluent: ConfluentClient, new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    source, target = new_topic(), new_topic()
    confluent.produce(source, [Message(b"%d" % n) for n in range(500)])
    done = run_tool(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", broker.bootstrap, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", target, "--consumer-group", unique("group"), "--transactional-id", unique("copier")),
        *("--transaction-size", "30", "--max-messages", "500", "--enable-random-aborts", "--use-group-metadata"),
        timeout=90,
    ).check()
    assert json.loads(done.lines[-1])["remaining"] == 0
    records = confluent.read(target, 500, isolation="read_committed")
    assert [record.value for record in records] == [b"%d" % n for n in range(500)]
