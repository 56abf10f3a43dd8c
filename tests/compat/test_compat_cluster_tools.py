"""Apache Kafka's own tools for clusters against three brokers: replicas move, leaders change, copies agree."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.systems.cluster import TidelogCluster
from bench.systems.java import ToolResult, run_tool
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from stock import Message, eventually, first_lag_report
from stock_python import ConfluentClient

pytestmark = [pytest.mark.java, pytest.mark.zookeeper]

Java = Callable[..., ToolResult]
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture
def at(cluster: TidelogCluster) -> tuple[str, str]:
    return ("--bootstrap-server", cluster.bootstrap)


@pytest.fixture
def admin(cluster: TidelogCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def client(cluster: TidelogCluster) -> ConfluentClient:
    return ConfluentClient(cluster.bootstrap)


@pytest.fixture
def placed(admin: AdminClient, unique: Callable[[str], str]) -> Callable[..., str]:
    """Creates a topic with its replicas where they are wanted: `placed([1, 2], [2, 3], **config)`."""

    def create(*replicas: list[int], **config: str) -> str:
        name = unique("placed")
        new = NewTopic(name, num_partitions=len(replicas), replica_assignment=list(replicas), config=config)
        admin.create_topics([new])[name].result(30)
        return name

    return create


def partition_of(admin: AdminClient, topic: str, partition: int = 0) -> Any:
    return admin.list_topics(topic, timeout=10).topics[topic].partitions[partition]


def plan_file(directory: Path, topic: str, *replicas: list[int]) -> str:
    path = directory / "plan.json"
    moves = [{"topic": topic, "partition": partition, "replicas": ids} for partition, ids in enumerate(replicas)]
    path.write_text(json.dumps({"version": 1, "partitions": moves}))
    return str(path)


def throttles(admin: AdminClient, topic: str) -> dict[str, str]:
    """The throttles that are set, on the topic and on the brokers."""
    wanted = [ConfigResource(ConfigResource.Type.TOPIC, topic)]
    wanted += [ConfigResource(ConfigResource.Type.BROKER, str(broker_id)) for broker_id in (1, 2, 3)]
    found = {}
    for resource in wanted:
        for name, entry in admin.describe_configs([resource])[resource].result(30).items():
            if "throttled" in name and not entry.is_default and entry.value:
                found[f"{resource.name} {name}"] = entry.value
    return found


def test_the_reassignment_tool_moves_replicas_and_clears_its_throttle(
    java: Java,
    at: tuple[str, str],
    cluster: TidelogCluster,
    admin: AdminClient,
    client: ConfluentClient,
    placed: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = placed([1, 2], [2, 1])
    client.produce(topic, [Message(b"%d" % n, partition=n % 2) for n in range(200)])
    how = (*at, "--reassignment-json-file", plan_file(tmp_path, topic, [3, 2], [3, 1]))
    started = java(REASSIGN, *how, "--execute", "--throttle", "50000000").check().out
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in started
    assert any(name.endswith("replication.throttled.rate") for name in throttles(admin, topic))

    def completed() -> bool:
        out = java(REASSIGN, *how, "--verify").check().out
        return all(f"Reassignment of partition {topic}-{n} is completed." in out for n in range(2))

    eventually(completed, timeout_s=30)
    assert throttles(admin, topic) == {}
    assert [sorted(partition_of(admin, topic, n).isrs) for n in range(2)] == [[2, 3], [1, 3]]
    directories = {broker_id: one.data_dir for broker_id, one in cluster.brokers.items()}
    eventually(lambda: not (directories[1] / f"{topic}-0").exists() and not (directories[2] / f"{topic}-1").exists())
    assert "No partition reassignments found." in java(REASSIGN, *at, "--list").check().out
    values = [record.value for record in client.read(topic, 200, partitions=range(2))]
    assert sorted(values, key=int) == [b"%d" % n for n in range(200)]


def test_the_reassignment_tool_cancels_what_a_throttle_holds_back(
    java: Java,
    at: tuple[str, str],
    admin: AdminClient,
    client: ConfluentClient,
    placed: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = placed([1, 2])
    client.produce(topic, [Message(b"x" * 10_000)] * 400)
    how = (*at, "--reassignment-json-file", plan_file(tmp_path, topic, [3, 2]))
    java(REASSIGN, *how, "--execute", "--throttle", "10000").check()
    assert f"Reassignment of partition {topic}-0 is still in progress." in java(REASSIGN, *how, "--verify").out
    listed = java(REASSIGN, *at, "--list").check().out
    assert re.search(rf"{topic}-0: replicas: [\d,]+\. adding: 3\. removing: 1\.", listed), listed
    cancelled = java(REASSIGN, *how, "--cancel").check().out
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in cancelled
    assert throttles(admin, topic) == {}
    eventually(lambda: sorted(partition_of(admin, topic).replicas) == [1, 2])
    assert client.produce(topic, [Message(b"after")]) == [(0, 400)]


def test_the_reassignment_tool_proposes_a_plan_over_the_brokers_that_it_is_given(
    java: Java, at: tuple[str, str], placed: Callable[..., str], tmp_path: Path
) -> None:
    topic = placed([1, 2], [2, 1])
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    done = java(REASSIGN, *at, "--generate", "--topics-to-move-json-file", str(wanted), "--broker-list", "2,3").check()
    current, proposed = (json.loads(line) for line in done.lines if line.startswith("{"))
    assert [one["replicas"] for one in current["partitions"]] == [[1, 2], [2, 1]]
    assert [sorted(one["replicas"]) for one in proposed["partitions"]] == [[2, 3], [2, 3]]


def test_the_election_tool_gives_leadership_back_to_the_preferred_replica(
    java: Java,
    at: tuple[str, str],
    admin: AdminClient,
    client: ConfluentClient,
    placed: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = placed([1, 2, 3])
    client.produce(topic, [Message(b"before")])
    # The order of replicas changes, and the leader stays: it is still one of them.
    java(REASSIGN, *at, "--reassignment-json-file", plan_file(tmp_path, topic, [2, 3, 1]), "--execute").check()
    eventually(lambda: partition_of(admin, topic).replicas == [2, 3, 1])
    assert partition_of(admin, topic).leader == 1
    which = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    done = java("LeaderElectionCommand", *at, *which).check().out
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in done
    eventually(lambda: partition_of(admin, topic).leader == 2)
    assert client.produce(topic, [Message(b"after")]) == [(0, 1)]
    again = java("LeaderElectionCommand", *at, *which).check().out
    assert f"Valid replica already elected for partitions {topic}-0" in again


def test_the_topic_tool_finds_what_is_under_replicated_while_a_broker_is_away(
    java: Java, at: tuple[str, str], cluster: TidelogCluster, admin: AdminClient, placed: Callable[..., str]
) -> None:
    whole, half, single = placed([2, 1]), placed([1, 3]), placed([3])

    def shown(which: str) -> set[str]:
        described = java("TopicCommand", *at, "--describe", which).check().out
        return set(re.findall(r"Topic: (\S+)\s+Partition: 0", described))

    cluster.brokers[3].stop()
    try:
        eventually(lambda: partition_of(admin, half).isrs == [1])
        # The last replica in sync stays the only one, so that a partition without a leader lacks no replica.
        assert {whole, half, single} & shown("--under-replicated-partitions") == {half}
        assert {whole, half, single} & shown("--under-min-isr-partitions") == {half, single}
        assert {whole, half, single} & shown("--unavailable-partitions") == {single}
    finally:
        cluster.brokers[3].start()
    eventually(lambda: sorted(partition_of(admin, half).isrs) == [1, 3] and partition_of(admin, single).leader == 3)
    assert not {whole, half, single} & shown("--under-replicated-partitions")


def test_the_replica_verification_tool_compares_the_copies_on_all_brokers(
    cluster: TidelogCluster, client: ConfluentClient, placed: Callable[..., str]
) -> None:
    topic = placed([1, 2, 3], [2, 3, 1], [3, 1, 2])
    client.produce(topic, [Message(b"%d" % n, partition=n % 3) for n in range(300)])
    reports = first_lag_report(cluster.bootstrap, topic)
    assert re.search(rf"max lag is 0 for partition {topic}-\d at offset 100 among 3 partitions", reports)


def test_log_dirs_are_described_on_every_broker(
    java: Java, at: tuple[str, str], cluster: TidelogCluster, client: ConfluentClient, placed: Callable[..., str]
) -> None:
    topic = placed([1, 2, 3])
    client.produce(topic, [Message(b"v" * 100)] * 50)
    shown = java("LogDirsCommand", *at, "--describe", "--topic-list", topic).check()
    described = json.loads(next(line for line in shown.lines if line.startswith("{")))
    found = {
        one["broker"]: (directory["logDir"], *[(p["partition"], p["offsetLag"]) for p in directory["partitions"]])
        for one in described["brokers"]
        for directory in one["logDirs"]
    }
    assert found == {broker_id: (str(one.data_dir), (f"{topic}-0", 0)) for broker_id, one in cluster.brokers.items()}


def test_a_verifiable_consumer_reads_what_a_verifiable_producer_wrote(
    cluster: TidelogCluster, at: tuple[str, str], placed: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic = placed([1, 2, 3], [2, 3, 1], [3, 1, 2])
    load = ("--topic", topic, "--max-messages", "300", "--acks", "-1")
    written = run_tool("org.apache.kafka.tools.VerifiableProducer", *at, *load).check()
    events = [json.loads(line) for line in written.lines]
    assert [(one["sent"], one["acked"]) for one in events if one["name"] == "tool_data"] == [(300, 300)]
    which = ("--topic", topic, "--group-id", unique("group"), "--max-messages", "300", "--reset-policy", "earliest")
    read = run_tool("org.apache.kafka.tools.VerifiableConsumer", *at, *which, "--verbose").check()
    events = [json.loads(line) for line in read.lines]
    values = [one["value"] for one in events if one["name"] == "record_data"]
    assert sorted(values, key=int) == [str(n) for n in range(300)]
    assert all(one["success"] for one in events if one["name"] == "offsets_committed")


def test_the_quorum_tool_is_told_that_there_is_no_quorum(java: Java, at: tuple[str, str]) -> None:
    asked = java("MetadataQuorumCommand", *at, "describe", "--status")
    assert asked.exit_code == 1
    assert "UnsupportedVersionException" in asked.out + asked.err
