"""Apache Kafka's own command line tools, run against the broker as an operator would run them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.systems.java import ToolResult, run_tool
from bench.systems.process import BrokerProcess
from stock import Message, eventually, first_lag_report
from stock_python import ConfluentClient

pytestmark = pytest.mark.java

CONFIG_COMMAND = "kafka.admin.ConfigCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"

Java = Callable[..., ToolResult]


@pytest.fixture
def at(broker: BrokerProcess) -> tuple[str, str]:
    return ("--bootstrap-server", broker.bootstrap)


def test_topics_are_created_described_altered_listed_and_deleted(
    java: Java, at: tuple[str, str], broker_ids: list[int], unique: Callable[[str], str]
) -> None:
    name, replicas = unique("tool"), len(broker_ids)
    settings = ("--partitions", "2", "--replication-factor", str(replicas), "--config", "retention.ms=5000")
    created = java("TopicCommand", *at, "--create", "--topic", name, *settings).check()
    assert f"Created topic {name}." in created.out
    eventually(lambda: name in java("TopicCommand", *at, "--list").check().lines)
    described = java("TopicCommand", *at, "--describe", "--topic", name).check()
    assert re.search(
        rf"Topic: {name}\s+TopicId: \S+\s+PartitionCount: 2\s+ReplicationFactor: {replicas}", described.out
    )
    assert "retention.ms=5000" in described.out
    row = r"Partition: (\d+)\s+Leader: \d+\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)"
    for partition, (number, *lists) in enumerate(re.findall(row, described.out)):
        assert int(number) == partition
        assert [sorted(map(int, one.split(","))) for one in lists] == [broker_ids, broker_ids]
    assert len(re.findall(row, described.out)) == 2
    java("TopicCommand", *at, "--alter", "--topic", name, "--partitions", "5").check()
    eventually(lambda: "PartitionCount: 5" in java("TopicCommand", *at, "--describe", "--topic", name).check().out)
    again = java("TopicCommand", *at, "--create", "--topic", name)
    assert again.exit_code == 1
    assert "already exists" in again.out + again.err
    java("TopicCommand", *at, "--create", "--topic", name, "--if-not-exists").check()
    for filtered in ("--unavailable-partitions", "--under-replicated-partitions", "--under-min-isr-partitions"):
        assert java("TopicCommand", *at, "--describe", "--topic", name, filtered).check().lines == []
    java("TopicCommand", *at, "--delete", "--topic", name).check()
    eventually(lambda: name not in java("TopicCommand", *at, "--list").check().lines)
    missing = java("TopicCommand", *at, "--describe", "--topic", name)
    assert missing.exit_code == 1
    assert "does not exist" in missing.out + missing.err


def test_topic_configs_are_added_deleted_and_described(java: Java, at: tuple[str, str], topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    added = java(
        CONFIG_COMMAND, *at, "--alter", *entity, "--add-config", "retention.ms=7000,cleanup.policy=[compact,delete]"
    )
    assert f"Completed updating config for topic {topic}." in added.check().out
    eventually(lambda: "retention.ms=7000" in java(CONFIG_COMMAND, *at, "--describe", *entity).check().out)
    described = java(CONFIG_COMMAND, *at, "--describe", *entity).check().out
    assert (
        "cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete"
        in described
    )
    java(CONFIG_COMMAND, *at, "--alter", *entity, "--delete-config", "retention.ms").check()
    eventually(lambda: "retention.ms" not in java(CONFIG_COMMAND, *at, "--describe", *entity).check().out)
    everything = java(CONFIG_COMMAND, *at, "--describe", "--all", *entity).check().out
    assert "retention.ms=604800000 sensitive=false synonyms={}" in everything
    assert "max.message.bytes=1048588 sensitive=false synonyms={DEFAULT_CONFIG:message.max.bytes=1048588}" in everything
    wrong = java(CONFIG_COMMAND, *at, "--alter", *entity, "--add-config", "retention.ms=never")
    assert wrong.exit_code == 1
    assert "InvalidConfigurationException" in wrong.out + wrong.err


def test_broker_configs_are_added_deleted_and_described(java: Java, at: tuple[str, str], broker_id: str) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", broker_id)
    everything = java(CONFIG_COMMAND, *at, "--describe", "--all", *entity).check().out
    for name in ("num.partitions=1", "log.segment.bytes=1073741824", "message.max.bytes=1048588", "num.io.threads=8"):
        assert name + " " in everything
    java(CONFIG_COMMAND, *at, "--alter", *entity, "--add-config", "log.cleaner.threads=2").check()
    dynamic = "log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2"
    eventually(lambda: dynamic in java(CONFIG_COMMAND, *at, "--describe", *entity).check().out)
    java(CONFIG_COMMAND, *at, "--alter", *entity, "--delete-config", "log.cleaner.threads").check()
    eventually(lambda: "log.cleaner.threads" not in java(CONFIG_COMMAND, *at, "--describe", *entity).check().out)
    default = ("--entity-type", "brokers", "--entity-default")
    java(CONFIG_COMMAND, *at, "--alter", *default, "--add-config", "log.cleaner.backoff.ms=14000").check()
    dynamic = "log.cleaner.backoff.ms=14000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:"
    eventually(lambda: dynamic in java(CONFIG_COMMAND, *at, "--describe", *default).check().out)
    java(CONFIG_COMMAND, *at, "--alter", *default, "--delete-config", "log.cleaner.backoff.ms").check()


def test_how_much_a_broker_says_is_described_and_altered(java: Java, at: tuple[str, str], broker_id: str) -> None:
    entity = ("--entity-type", "broker-loggers", "--entity-name", broker_id)
    java(CONFIG_COMMAND, *at, "--alter", *entity, "--add-config", "root=WARN").check()
    assert "root=WARN sensitive=false" in java(CONFIG_COMMAND, *at, "--describe", *entity).check().out
    java(CONFIG_COMMAND, *at, "--alter", *entity, "--add-config", "root=INFO").check()
    wrong = java(CONFIG_COMMAND, *at, "--alter", *entity, "--add-config", "root=LOUD")
    assert wrong.exit_code == 1
    assert "InvalidConfigurationException" in wrong.out + wrong.err


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_the_console_producer_writes_the_console_consumer_reads(
    java: Java, at: tuple[str, str], topic: str, codec: str
) -> None:
    lines = [f"h{n}:v{n}\tkey-{n}\tvalue {n} ✓" for n in range(200)]
    parse = ("parse.headers=true", "parse.key=true", "key.separator=\t")
    properties = [part for one in parse for part in ("--reader-property", one)]
    java(
        "ConsoleProducer", *at, "--topic", topic, "--compression-codec", codec, *properties, stdin="\n".join(lines)
    ).check()
    shown = ("print.headers=true", "print.key=true", "print.offset=true", "print.partition=true")
    properties = [part for one in shown for part in ("--formatter-property", one)]
    where = ("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "200")
    read = java(CONSOLE_CONSUMER, *at, *where, *properties).check()
    assert read.lines == [f"Partition:0\tOffset:{n}\t{line}" for n, line in enumerate(lines)]
    # The tool stops after the last message it was asked for, wherever it starts.
    where = ("--topic", topic, "--partition", "0", "--offset", "150", "--max-messages", "2")
    assert java(CONSOLE_CONSUMER, *at, *where).check().lines == ["value 150 ✓", "value 151 ✓"]


def test_the_performance_producer_writes_what_it_says(
    java: Java, at: tuple[str, str], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)
    load = ("--topic", topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    for acks in ("0", "1", "all"):
        done = java("ProducerPerformance", *at, *load, "--command-property", f"acks={acks}").check()
        assert "20000 records sent" in done.out
    offsets = java("GetOffsetShell", *at, "--topic", topic).check().lines
    assert sum(int(line.split(":")[2]) for line in offsets) == 60_000


def test_the_verifiable_producer_sees_every_acknowledgement(at: tuple[str, str], topic: str) -> None:
    # It reports from a hook of the JVM's own end, so it needs one to itself.
    load = ("--topic", topic, "--max-messages", "500", "--acks", "-1")
    done = run_tool("org.apache.kafka.tools.VerifiableProducer", *at, *load).check()
    events = [json.loads(line) for line in done.lines]
    sent = [event for event in events if event["name"] == "producer_send_success"]
    assert [(event["partition"], event["offset"], event["value"]) for event in sent] == [
        (0, n, str(n)) for n in range(500)
    ]
    assert [(e["sent"], e["acked"]) for e in events if e["name"] == "tool_data"] == [(500, 500)]


def test_the_offset_shell_finds_ends_beginnings_and_times(
    java: Java, at: tuple[str, str], confluent: ConfluentClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    confluent.produce(topic, [Message(b"v", partition=1, timestamp_ms=1_000 * n) for n in range(1, 11)])

    def offsets(time: str) -> list[str]:
        return java("GetOffsetShell", *at, "--topic", topic, "--time", time).check().lines

    assert offsets("latest") == [f"{topic}:0:0", f"{topic}:1:10"]
    assert offsets("earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    # A partition without an answer is left out.
    assert offsets("4500") == [f"{topic}:1:4"]
    assert offsets("max-timestamp") == [f"{topic}:1:9"]
    assert offsets("earliest-local") == [f"{topic}:0:0", f"{topic}:1:0"]
    chosen = java("GetOffsetShell", *at, "--topic-partitions", f"{topic}:1", "--time", "-1").check().lines
    assert chosen == [f"{topic}:1:10"]


def test_records_are_deleted_by_the_tool(
    java: Java, at: tuple[str, str], confluent: ConfluentClient, topic: str, tmp_path: Path
) -> None:
    confluent.produce(topic, [Message(b"v")] * 50)
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 20}], "version": 1}))
    done = java("DeleteRecordsCommand", *at, "--offset-json-file", str(wanted)).check()
    assert f"partition: {topic}-0\tlow_watermark: 20" in done.out
    assert confluent.offsets(topic) == (20, 50)


def test_log_dirs_are_described_by_the_tool(
    java: Java, at: tuple[str, str], broker: BrokerProcess, broker_id: str, confluent: ConfluentClient, topic: str
) -> None:
    confluent.produce(topic, [Message(b"v" * 100)] * 50)
    shown = java("LogDirsCommand", *at, "--describe", "--topic-list", topic, "--broker-list", broker_id).check()
    described = json.loads(next(line for line in shown.lines if line.startswith("{")))
    (one,) = described["brokers"]
    (directory,) = one["logDirs"]
    assert (directory["logDir"], directory["error"]) == (str(broker.data_dir), None)
    (partition,) = directory["partitions"]
    assert partition["partition"] == f"{topic}-0"
    assert partition["size"] == (broker.data_dir / f"{topic}-0" / "00000000000000000000.log").stat().st_size
    assert (partition["offsetLag"], partition["isFuture"]) == (0, False)


#: What a client may rely on: each API with the highest version that Apache Kafka 4.3.0 serves.
SERVED = {
    "Produce": 13, "Fetch": 18, "ListOffsets": 11, "Metadata": 13, "OffsetCommit": 10, "OffsetFetch": 10,
    "FindCoordinator": 6, "JoinGroup": 9, "Heartbeat": 4, "LeaveGroup": 5, "SyncGroup": 5, "DescribeGroups": 6,
    "ListGroups": 5, "ApiVersions": 4, "CreateTopics": 7, "DeleteTopics": 6, "DeleteRecords": 2, "InitProducerId": 5,
    "OffsetForLeaderEpoch": 4, "DescribeConfigs": 4, "AlterConfigs": 2, "DescribeLogDirs": 5, "CreatePartitions": 3,
    "DeleteGroups": 2, "ElectLeaders": 2, "IncrementalAlterConfigs": 1, "OffsetDelete": 0, "DescribeCluster": 2,
    "DescribeTopicPartitions": 0,
}  # fmt: skip


def test_the_api_versions_are_those_of_the_real_one(java: Java, at: tuple[str, str]) -> None:
    shown = java("BrokerApiVersionsCommand", *at).check().out
    served = {
        name: int(usable.rsplit(" to ")[-1]) if " to " in usable else int(usable)
        for name, usable in re.findall(r"(\w+)\(\d+\): ([\d to]+) \[usable", shown)
    }
    assert {name: served.get(name) for name in SERVED} == SERVED


def test_the_cluster_tool_knows_the_cluster(java: Java, at: tuple[str, str], broker: BrokerProcess) -> None:
    shown = java("ClusterTool", "cluster-id", *at).check().out
    assert re.search(r"Cluster ID: \S{16,}", shown)
    endpoints = java("ClusterTool", "list-endpoints", *at).check().out
    for port in broker.data_dirs:
        assert re.search(rf"\b{re.escape(broker.host)}\s+{port}\b", endpoints)


def test_a_preferred_election_is_run_by_the_tool(java: Java, at: tuple[str, str], topic: str) -> None:
    preferred = ("--election-type", "preferred", "--partition", "0")
    done = java("LeaderElectionCommand", *at, *preferred, "--topic", topic).check()
    assert "Valid replica already elected for partitions" in done.out
    missing = java(
        "LeaderElectionCommand", *at, "--election-type", "preferred", "--topic", "missing", "--partition", "0"
    )
    assert missing.exit_code == 1
    assert "UnknownTopicOrPartitionException" in missing.out + missing.err


def test_the_replica_verification_tool_finds_no_lag(
    broker: BrokerProcess, confluent: ConfluentClient, topic: str
) -> None:
    """It fetches as the debugging consumer (replica id -2) and reports for as long as it runs."""
    confluent.produce(topic, [Message(b"%d" % n) for n in range(100)])
    reports = first_lag_report(broker.bootstrap, topic)
    assert f"max lag is 0 for partition {topic}-0 at offset 100 among 1 partitions" in reports
