"""Groups through the other clients: kafka-python, aiokafka, the Java client and its tools."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import aiokafka
import kafka
import pytest
from bench.systems.java import ToolResult, run_tool
from bench.systems.process import BrokerProcess
from stock import Message
from stock_python import ConfluentClient

Java = Callable[..., ToolResult]
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


@pytest.fixture
def filled(new_topic: Callable[..., str], confluent: ConfluentClient) -> str:
    """A topic of four partitions with the records 0000 to 0399."""
    topic = new_topic(partitions=4)
    confluent.produce(topic, [Message(b"%04d" % n, partition=n % 4) for n in range(400)])
    return topic


EXPECTED = [b"%04d" % n for n in range(400)]


def kafka_python_member(topic: str, settings: dict[str, object]) -> kafka.KafkaConsumer:
    """A member that knows its topic before it joins.

    kafka-python 3.0 joins without waiting for metadata. A leader elected in that moment assigns nothing, and in the
    rebalance that follows a follower may wait for its assignment for ever: 8 of 60 groups against Apache Kafka 4.3.
    """
    member = kafka.KafkaConsumer(topic, **settings)
    assert member.partitions_for_topic(topic)
    return member


@pytest.mark.replicated
def test_kafka_python_members_share_commit_and_resume(
    broker: BrokerProcess, group: str, filled: str, confluent: ConfluentClient
) -> None:
    settings: dict[str, object] = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 300,
    }
    members = [kafka_python_member(filled, settings) for _ in range(2)]
    read: list[bytes] = []

    def poll(member: kafka.KafkaConsumer) -> None:
        for _ in range(200):
            for records in member.poll(timeout_ms=100).values():
                read.extend(record.value for record in records)
                member.commit()
            if len(read) >= 400 and len(member.assignment()) == 2:
                return

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(poll, members))
    assert sorted(at.partition for member in members for at in member.assignment()) == [0, 1, 2, 3]
    assert set(read) == set(EXPECTED)
    for member in members:
        member.close()
    again = kafka_python_member(filled, settings)
    confluent.produce(filled, [Message(b"new", partition=3)])
    new: list[bytes] = []
    for _ in range(100):
        new += [record.value for records in again.poll(timeout_ms=100).values() for record in records]
        if new:
            break
    committed = [again.committed(kafka.TopicPartition(filled, partition)) for partition in range(4)]
    again.close()
    assert new == [b"new"]
    assert committed == [100, 100, 100, 100]


@pytest.mark.replicated
def test_aiokafka_members_share_commit_and_resume(broker: BrokerProcess, group: str, filled: str) -> None:
    settings = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 300,
    }

    async def work() -> tuple[list[bytes], list[int], list[int | None]]:
        members = [aiokafka.AIOKafkaConsumer(filled, **settings) for _ in range(2)]
        await asyncio.gather(*(member.start() for member in members))
        read: list[bytes] = []
        for _ in range(300):
            for member in members:
                for records in (await member.getmany(timeout_ms=50)).values():
                    read += [record.value for record in records]
                    await member.commit()
            if len(read) >= 400 and all(len(member.assignment()) == 2 for member in members):
                break
        held = sorted(at.partition for member in members for at in member.assignment())
        committed = [await members[0].committed(aiokafka.TopicPartition(filled, partition)) for partition in range(4)]
        for member in members:
            await member.stop()
        return read, held, committed

    read, held, committed = asyncio.run(asyncio.wait_for(work(), 60))
    assert set(read) == set(EXPECTED)
    assert held == [0, 1, 2, 3]
    assert committed == [100, 100, 100, 100]


@pytest.mark.replicated
@pytest.mark.parametrize(
    "settings",
    [
        ("group.protocol=classic",),
        (
            "group.protocol=classic",
            "partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        ),
        ("group.protocol=consumer",),
        ("group.protocol=consumer", "group.remote.assignor=range"),
    ],
    ids=["classic", "cooperative", "consumer", "consumer-range"],
)
def test_java_members_share_commit_and_resume(
    java: Java, broker: BrokerProcess, group: str, filled: str, confluent: ConfluentClient, settings: tuple[str, ...]
) -> None:
    done = java("tidelog.judge.GroupRun", broker.bootstrap, group, filled, "2", "400", *settings, timeout=90)
    members = done.check().json()
    assert sorted(value for member in members for value in member["values"]) == [one.decode() for one in EXPECTED]
    assert sorted(partition for member in members for partition in member["partitions"]) == [0, 1, 2, 3]
    confluent.produce(filled, [Message(b"new", partition=2)])
    (member,) = java("tidelog.judge.GroupRun", broker.bootstrap, group, filled, "1", "1", *settings).check().json()
    assert member["values"] == ["new"]
    assert member["partitions"] == [0, 1, 2, 3]


@pytest.mark.java
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_console_consumer_reads_in_a_group_and_resumes(
    java: Java, broker: BrokerProcess, group: str, filled: str, protocol: str
) -> None:
    where = ("--bootstrap-server", broker.bootstrap, "--topic", filled, "--group", group)
    where += ("--command-property", f"group.protocol={protocol}", "--timeout-ms", "20000")
    first = java(CONSOLE_CONSUMER, *where, "--from-beginning", "--max-messages", "250", timeout=90).check().lines
    # What is left comes to the next one; what the first had fetched but not shown is shown again, never lost.
    rest = java(CONSOLE_CONSUMER, *where, "--max-messages", "150", timeout=90).check().lines
    assert len(first) == 250
    assert sorted(set(first) | set(rest)) == [one.decode() for one in EXPECTED]


def test_the_performance_consumer_reads_what_it_is_told(
    java: Java, broker: BrokerProcess, filled: str, group: str
) -> None:
    load = ("--topic", filled, "--num-records", "400", "--group", group, "--timeout", "20000", "--hide-header")
    shown = java("ConsumerPerformance", "--bootstrap-server", broker.bootstrap, *load, timeout=90).check()
    fields = shown.lines[-1].split(", ")
    assert fields[4] == "400"


@pytest.mark.java
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_verifiable_consumer_counts_and_commits(
    broker: BrokerProcess, filled: str, group: str, protocol: str
) -> None:
    which = ("--topic", filled, "--group-id", group, "--group-protocol", protocol, "--max-messages", "400")
    done = run_tool(
        "org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server", broker.bootstrap, *which, "--verbose"
    ).check()
    events = [json.loads(line) for line in done.lines]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 400
    committed: dict[int, int] = {}
    for event in events:
        if event["name"] == "offsets_committed":
            assert event["success"], event
            committed |= {one["partition"]: one["offset"] for one in event["offsets"]}
    assert committed == {0: 100, 1: 100, 2: 100, 3: 100}
    held = [event for event in events if event["name"] == "partitions_assigned"]
    assert {one["partition"] for one in held[-1]["partitions"]} == {0, 1, 2, 3}


def test_the_groups_tool_lists_groups_of_both_kinds(java: Java, broker: BrokerProcess, group: str, filled: str) -> None:
    for protocol in ("classic", "consumer"):
        name = f"{group}-{protocol}"
        java("tidelog.judge.GroupRun", broker.bootstrap, name, filled, "1", "400", f"group.protocol={protocol}").check()
    shown = java("GroupsCommand", "--bootstrap-server", broker.bootstrap, "--list").check().out
    assert re.search(rf"{group}-classic\s+Classic\s+consumer", shown)
    assert re.search(rf"{group}-consumer\s+Consumer\s+consumer", shown)
