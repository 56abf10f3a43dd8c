"""Topics and configurations through the admin clients: what is asked happens, what is wrong is refused by its code."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
from bench.systems.process import BrokerProcess
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from kafka.protocol.consumer import OffsetSpec as KafkaPythonOffsetSpec
from stock import Message, ProduceFailed, create_topic, eventually
from stock_python import ConfluentClient


@pytest.fixture
def python_admin(broker: BrokerProcess) -> Iterator[kafka.KafkaAdminClient]:
    client = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def only(futures: dict[Any, Any]) -> Any:
    """The result of an admin call about one thing."""
    (future,) = futures.values()
    return future.result(30)


def refusal(futures: dict[Any, Any]) -> int:
    """The code with which an admin call about one thing was refused."""
    with pytest.raises(KafkaException) as refused:
        only(futures)
    return int(refused.value.args[0].code())


def configs_of(admin: AdminClient, kind: ConfigResource.Type, name: str) -> dict[str, ConfigEntry]:
    described: dict[str, ConfigEntry] = only(admin.describe_configs([ConfigResource(kind, name)]))
    return described


def increment(admin: AdminClient, kind: ConfigResource.Type, name: str, *entries: ConfigEntry, **options: Any) -> None:
    resource = ConfigResource(kind, name, incremental_configs=list(entries))
    only(admin.incremental_alter_configs([resource], **options))


def entry(name: str, value: str | None, operation: AlterConfigOpType = AlterConfigOpType.SET) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=operation)


@pytest.mark.replicated
def test_a_created_topic_is_listed_described_and_gone_when_deleted(
    broker: BrokerProcess, broker_ids: list[int], admin: AdminClient, unique: Callable[[str], str]
) -> None:
    name = unique("topic")
    create_topic(broker.bootstrap, name, 3)
    assert name in admin.list_topics(timeout=10).topics
    described = only(admin.describe_topics(TopicCollection([name])))
    assert [(p.id, sorted(r.id for r in p.replicas), sorted(r.id for r in p.isr)) for p in described.partitions] == [
        (partition, broker_ids, broker_ids) for partition in range(3)
    ]
    assert {p.leader.id for p in described.partitions} == set(broker_ids)
    assert [p.leader.id for p in described.partitions] == [p.replicas[0].id for p in described.partitions]
    assert not described.is_internal
    assert str(described.topic_id) not in ("", "AAAAAAAAAAAAAAAAAAAAAA")
    only(admin.delete_topics([name]))
    eventually(lambda: name not in admin.list_topics(timeout=10).topics)
    with pytest.raises(KafkaException) as refused:
        only(admin.describe_topics(TopicCollection([name])))
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_made_again_has_a_new_id_and_no_records(
    broker: BrokerProcess, admin: AdminClient, confluent: ConfluentClient, topic: str
) -> None:
    confluent.produce(topic, [Message(b"old")] * 10)
    first = only(admin.describe_topics(TopicCollection([topic]))).topic_id
    only(admin.delete_topics([topic]))
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics)
    create_topic(broker.bootstrap, topic, 2)
    second = only(admin.describe_topics(TopicCollection([topic]))).topic_id
    assert str(first) != str(second)
    assert confluent.offsets(topic) == (0, 0)
    assert confluent.produce(topic, [Message(b"new")]) == [(0, 0)]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (lambda name: NewTopic("no/slashes", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (lambda name: NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (lambda name: NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (lambda name: NewTopic(name, 0, 1), KafkaError.INVALID_PARTITIONS),
        (lambda name: NewTopic(name, 1, 4), KafkaError.INVALID_REPLICATION_FACTOR),
        (lambda name: NewTopic(name, 1, 1, config={"no.such.config": "1"}), KafkaError.INVALID_CONFIG),
        (lambda name: NewTopic(name, 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (lambda name: NewTopic(name, 1, 1, config={"cleanup.policy": "burn"}), KafkaError.INVALID_CONFIG),
        (lambda name: NewTopic(name, 1, 1, config={"segment.bytes": "1"}), KafkaError.INVALID_CONFIG),
    ],
    ids=[
        "slash",
        "too-long",
        "dots",
        "no-partitions",
        "too-many-replicas",
        "unknown-config",
        "not-a-number",
        "policy",
        "too-small",
    ],
)
def test_a_wrong_topic_is_refused(admin: AdminClient, unique: Callable[[str], str], wrong: Any, code: int) -> None:
    new = wrong(unique("topic"))
    assert refusal(admin.create_topics([new])) == code
    assert new.topic not in admin.list_topics(timeout=10).topics


def test_an_assignment_to_an_unknown_broker_is_refused(
    python_admin: kafka.KafkaAdminClient, unique: Callable[[str], str]
) -> None:
    wrong = {unique("topic"): {"assignments": {0: [4711]}}}
    (refused,) = python_admin.create_topics(wrong, raise_errors=False)["topics"]
    assert refused["error_code"] == KafkaError.INVALID_REPLICA_ASSIGNMENT


def test_a_topic_that_exists_is_refused(admin: AdminClient, topic: str) -> None:
    assert refusal(admin.create_topics([NewTopic(topic, 1, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS


def test_a_topic_that_only_validates_is_not_made(admin: AdminClient, unique: Callable[[str], str]) -> None:
    name = unique("topic")
    only(admin.create_topics([NewTopic(name, 1, 1)], validate_only=True))
    assert name not in admin.list_topics(timeout=10).topics
    assert (
        refusal(admin.create_topics([NewTopic(name, 1, 9)], validate_only=True))
        == KafkaError.INVALID_REPLICATION_FACTOR
    )


def test_names_that_differ_by_dot_and_underscore_collide(admin: AdminClient, unique: Callable[[str], str]) -> None:
    name = unique("topic") + ".a_b"
    only(admin.create_topics([NewTopic(name, 1, 1)]))
    assert refusal(admin.create_topics([NewTopic(name.replace("_", "."), 1, 1)])) == KafkaError.TOPIC_EXCEPTION


def test_default_partitions_and_replicas_are_the_brokers(
    python_admin: kafka.KafkaAdminClient, broker_ids: list[int], unique: Callable[[str], str]
) -> None:
    name = unique("topic")
    created = python_admin.create_topics({name: {"num_partitions": -1, "replication_factor": -1}})
    (topic,) = created["topics"]
    assert (topic["error_code"], topic["num_partitions"], topic["replication_factor"]) == (0, 1, len(broker_ids))
    assert topic["configs"]["cleanup.policy"]["value"] == "delete"
    python_admin.wait_for_topics([name])
    (described,) = python_admin.describe_topics([name])
    assert [partition["partition_index"] for partition in described["partitions"]] == [0]


def test_an_unknown_topic_is_refused_everywhere(admin: AdminClient, unique: Callable[[str], str]) -> None:
    name = unique("missing")
    assert refusal(admin.delete_topics([name])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert refusal(admin.create_partitions([NewPartitions(name, 3)])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    missing = ConfigResource(ConfigResource.Type.TOPIC, name)
    assert refusal(admin.describe_configs([missing])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    alteration = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry("retention.ms", "1")])
    assert refusal(admin.incremental_alter_configs([alteration])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_partitions_are_added_and_never_removed(admin: AdminClient, confluent: ConfluentClient, topic: str) -> None:
    confluent.produce(topic, [Message(b"first")])
    only(admin.create_partitions([NewPartitions(topic, 4)], validate_only=True))
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 1
    only(admin.create_partitions([NewPartitions(topic, 4)]))
    eventually(lambda: sorted(admin.list_topics(topic, timeout=10).topics[topic].partitions) == [0, 1, 2, 3])
    assert confluent.produce(topic, [Message(b"v", partition=p) for p in range(4)]) == [(0, 1), (1, 0), (2, 0), (3, 0)]
    for count in (2, 4):
        assert refusal(admin.create_partitions([NewPartitions(topic, count)])) == KafkaError.INVALID_PARTITIONS


def value_of(admin: AdminClient, kind: ConfigResource.Type, name: str, config: str) -> tuple[str, int]:
    described = configs_of(admin, kind, name)[config]
    return described.value, described.source


def test_a_topics_configs_are_described_with_their_sources(admin: AdminClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"retention.ms": "1234567", "cleanup.policy": "compact,delete"})
    described = configs_of(admin, ConfigResource.Type.TOPIC, topic)
    assert described["retention.ms"].value == "1234567"
    assert described["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert described["cleanup.policy"].value == "compact,delete"
    assert described["segment.bytes"].value == "1073741824"
    assert described["segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    assert not described["segment.bytes"].is_read_only
    assert {
        "compression.type", "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms",
        "index.interval.bytes", "max.compaction.lag.ms", "max.message.bytes", "message.timestamp.type",
        "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "min.insync.replicas", "preallocate", "retention.bytes",
        "segment.index.bytes", "segment.jitter.ms", "segment.ms", "unclean.leader.election.enable",
        "message.timestamp.before.max.ms", "message.timestamp.after.max.ms",
        "leader.replication.throttled.replicas", "follower.replication.throttled.replicas",
    } <= set(described)  # fmt: skip


def test_configs_change_one_by_one(admin: AdminClient, topic: str) -> None:
    kind = ConfigResource.Type.TOPIC
    increment(admin, kind, topic, entry("retention.ms", "1000"), entry("cleanup.policy", "compact"))
    increment(admin, kind, topic, entry("cleanup.policy", "delete", AlterConfigOpType.APPEND))
    eventually(lambda: configs_of(admin, kind, topic)["cleanup.policy"].value == "compact,delete")
    assert configs_of(admin, kind, topic)["retention.ms"].value == "1000"
    increment(admin, kind, topic, entry("cleanup.policy", "compact", AlterConfigOpType.SUBTRACT))
    increment(admin, kind, topic, entry("retention.ms", None, AlterConfigOpType.DELETE))
    default = ("604800000", ConfigSource.DEFAULT_CONFIG.value)
    eventually(lambda: value_of(admin, kind, topic, "retention.ms") == default)
    assert configs_of(admin, kind, topic)["cleanup.policy"].value == "delete"
    increment(admin, kind, topic, entry("retention.ms", "77"), validate_only=True)
    assert configs_of(admin, kind, topic)["retention.ms"].value == "604800000"


@pytest.mark.filterwarnings("ignore:.*deprecated.*")
def test_altering_all_configs_resets_those_not_named(admin: AdminClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"retention.ms": "1000", "max.message.bytes": "5000"})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"max.message.bytes": "6000"})
    only(admin.alter_configs([resource]))
    eventually(lambda: configs_of(admin, ConfigResource.Type.TOPIC, topic)["max.message.bytes"].value == "6000")
    assert configs_of(admin, ConfigResource.Type.TOPIC, topic)["retention.ms"].value == "604800000"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (entry("no.such.config", "1"), KafkaError.INVALID_CONFIG),
        (entry("retention.ms", "soon"), KafkaError.INVALID_CONFIG),
        (entry("min.insync.replicas", "0"), KafkaError.INVALID_CONFIG),
        (entry("retention.ms", "1", AlterConfigOpType.APPEND), KafkaError.INVALID_CONFIG),
        (entry("compression.type", "brotli"), KafkaError.INVALID_CONFIG),
    ],
    ids=["unknown", "not-a-number", "too-small", "append-to-a-number", "no-such-codec"],
)
def test_a_wrong_config_is_refused(admin: AdminClient, topic: str, wrong: ConfigEntry, code: int) -> None:
    before = {name: config.value for name, config in configs_of(admin, ConfigResource.Type.TOPIC, topic).items()}
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry("flush.ms", "5"), wrong])
    assert refusal(admin.incremental_alter_configs([resource])) == code
    after = {name: config.value for name, config in configs_of(admin, ConfigResource.Type.TOPIC, topic).items()}
    assert after == before, "a refused change must change nothing, not even its valid part"


def test_a_changed_config_takes_effect(admin: AdminClient, confluent: ConfluentClient, topic: str) -> None:
    confluent.produce(topic, [Message(b"x" * 10_000)])
    increment(admin, ConfigResource.Type.TOPIC, topic, entry("max.message.bytes", "5000"))

    def refused() -> bool:
        try:
            confluent.produce(topic, [Message(b"x" * 10_000)])
        except ProduceFailed as error:
            return error.code == KafkaError.MSG_SIZE_TOO_LARGE
        return False

    eventually(refused)


def test_the_brokers_configs_are_described_and_altered(admin: AdminClient, broker_id: str) -> None:
    kind = ConfigResource.Type.BROKER
    described = configs_of(admin, kind, broker_id)
    assert described["num.partitions"].value == "1"
    assert described["log.dirs"].is_read_only
    assert described["log.dirs"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert not described["log.cleaner.threads"].is_read_only
    increment(admin, kind, broker_id, entry("log.cleaner.threads", "2"))
    changed = ("2", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    eventually(lambda: value_of(admin, kind, broker_id, "log.cleaner.threads") == changed)
    increment(admin, kind, broker_id, entry("log.cleaner.threads", None, AlterConfigOpType.DELETE))
    eventually(lambda: configs_of(admin, kind, broker_id)["log.cleaner.threads"].value == "1")
    read_only = ConfigResource(kind, broker_id, incremental_configs=[entry("log.dirs", "/elsewhere")])
    assert refusal(admin.incremental_alter_configs([read_only])) == KafkaError.INVALID_REQUEST


@pytest.mark.replicated
def test_a_broker_default_reaches_the_topics_that_have_no_value(
    admin: AdminClient, broker_ids: list[int], topic: str
) -> None:
    kind = ConfigResource.Type.BROKER
    for broker_id in broker_ids:
        increment(admin, kind, str(broker_id), entry("log.retention.ms", "4444444"))
    try:
        inherited = ("4444444", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
        eventually(lambda: value_of(admin, ConfigResource.Type.TOPIC, topic, "retention.ms") == inherited)
    finally:
        for broker_id in broker_ids:
            increment(admin, kind, str(broker_id), entry("log.retention.ms", None, AlterConfigOpType.DELETE))
    eventually(lambda: configs_of(admin, ConfigResource.Type.TOPIC, topic)["retention.ms"].value == "604800000")


def test_offsets_are_listed_by_every_spec(
    admin: AdminClient, python_admin: kafka.KafkaAdminClient, topic: str, confluent: ConfluentClient
) -> None:
    at = TopicPartition(topic, 0)
    for spec in (OffsetSpec.max_timestamp(), OffsetSpec.for_timestamp(5)):
        empty = only(admin.list_offsets({at: spec}))
        assert (empty.offset, empty.timestamp) == (-1, -1)
    confluent.produce(topic, [Message(b"v", timestamp_ms=stamp) for stamp in (1_000, 9_000, 3_000)])
    only(admin.delete_records([TopicPartition(topic, 0, 1)]))
    found = {
        name: only(admin.list_offsets({at: spec}))
        for name, spec in {
            "earliest": OffsetSpec.earliest(),
            "latest": OffsetSpec.latest(),
            "max": OffsetSpec.max_timestamp(),
            "time": OffsetSpec.for_timestamp(2_000),
            "too late": OffsetSpec.for_timestamp(9_001),
        }.items()
    }
    assert {name: (info.offset, info.timestamp) for name, info in found.items()} == {
        "earliest": (1, -1), "latest": (3, -1), "max": (1, 9_000), "time": (1, 9_000), "too late": (-1, -1),
    }  # fmt: skip
    assert found["latest"].leader_epoch == found["max"].leader_epoch >= 0
    # Without tiered storage the earliest local offset is the earliest; nothing is tiered, so the latest tiered is none.
    python_at = kafka.TopicPartition(topic, 0)
    listed = {
        spec.name: python_admin.list_partition_offsets({python_at: spec})[python_at].offset
        for spec in KafkaPythonOffsetSpec
    }
    expected = {"EARLIEST": 1, "LATEST": 3, "MAX_TIMESTAMP": 1, "EARLIEST_LOCAL": 1, "LATEST_TIERED": -1}
    assert {name: listed[name] for name in expected if name in listed} == {
        n: o for n, o in expected.items() if n in listed
    }


def test_records_cannot_be_deleted_past_the_end(admin: AdminClient, confluent: ConfluentClient, topic: str) -> None:
    confluent.produce(topic, [Message(b"v")] * 5)
    assert refusal(admin.delete_records([TopicPartition(topic, 0, 6)])) == KafkaError.OFFSET_OUT_OF_RANGE
    assert confluent.offsets(topic) == (0, 5)


def test_nobody_has_scram_credentials(admin: AdminClient) -> None:
    assert admin.describe_user_scram_credentials().result(10) == {}
    asked = admin.describe_user_scram_credentials(["nobody"])
    assert refusal(asked) == KafkaError.RESOURCE_NOT_FOUND


@pytest.mark.replicated
def test_the_cluster_is_described(
    admin: AdminClient, python_admin: kafka.KafkaAdminClient, broker: BrokerProcess
) -> None:
    cluster = admin.describe_cluster().result(10)
    nodes = sorted((node.id, node.host, node.port) for node in cluster.nodes)
    assert sorted((host, port) for _, host, port in nodes) == sorted((broker.host, port) for port in broker.data_dirs)
    assert cluster.controller.id in [node_id for node_id, _, _ in nodes]
    assert len(cluster.cluster_id) >= 16
    seen = python_admin.describe_cluster()
    assert seen["cluster_id"] == cluster.cluster_id
    assert sorted((one["broker_id"], one["host"], one["port"]) for one in seen["brokers"]) == nodes


@pytest.mark.replicated
def test_log_dirs_tell_the_size_of_each_partition(
    broker: BrokerProcess,
    python_admin: kafka.KafkaAdminClient,
    confluent: ConfluentClient,
    new_topic: Callable[..., str],
) -> None:
    topic = new_topic(partitions=2)
    confluent.produce(topic, [Message(b"x" * 1_000, partition=1)] * 10)
    directories = [directory for answer in python_admin.describe_log_dirs() for directory in answer["log_dirs"]]
    assert {directory["log_dir"] for directory in directories} == {str(one) for one in broker.data_dirs.values()}
    for directory in directories:
        assert directory["error_code"] == 0
        assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
        (mine,) = [one for one in directory["topics"] if one["name"] == topic]
        sizes = {
            one["partition_index"]: (one["partition_size"], one["offset_lag"], one["is_future_key"])
            for one in mine["partitions"]
        }
        assert sizes[0] == (0, 0, False)
        segment = Path(directory["log_dir"]) / f"{topic}-1" / "00000000000000000000.log"
        assert sizes[1] == (segment.stat().st_size, 0, False)


def test_an_election_that_changes_nothing_says_so(admin: AdminClient, topic: str) -> None:
    outcome = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(10)
    assert {at.partition: error.code() for at, error in outcome.items()} == {0: KafkaError.ELECTION_NOT_NEEDED}
    outcome = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("no-such-topic", 0)]).result(10)
    assert {at.partition: error.code() for at, error in outcome.items()} == {0: KafkaError.UNKNOWN_TOPIC_OR_PART}


def test_topics_and_partitions_are_described_page_by_page(
    python_admin: kafka.KafkaAdminClient, new_topic: Callable[..., str]
) -> None:
    first, second = sorted([new_topic(partitions=5), new_topic(partitions=5)])
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        page = python_admin.describe_topic_partitions([first, second], response_partition_limit=3, cursor=cursor)
        got = [(topic["name"], one["partition_index"]) for topic in page["topics"] for one in topic["partitions"]]
        assert len(got) <= 3
        seen += got
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [(name, partition) for name in (first, second) for partition in range(5)]


def test_config_resources_are_listed(python_admin: kafka.KafkaAdminClient, broker_id: str, topic: str) -> None:
    listed = python_admin.list_config_resources(["TOPIC", "BROKER"])
    assert topic in listed["topic"]
    assert broker_id in listed["broker"]


def test_a_topic_is_deleted_and_described_by_its_id(python_admin: kafka.KafkaAdminClient, topic: str) -> None:
    (by_name,) = python_admin.describe_topics([topic])
    (by_id,) = python_admin.describe_topics([uuid.UUID(str(by_name["topic_id"]))])
    assert by_id["name"] == topic
    python_admin.delete_topics([uuid.UUID(str(by_name["topic_id"]))])
    eventually(lambda: topic not in python_admin.list_topics())


def test_many_topics_are_made_and_deleted_in_one_request(admin: AdminClient, unique: Callable[[str], str]) -> None:
    names = [unique("topic") for _ in range(30)]
    made = admin.create_topics([NewTopic(name, 2, 1) for name in names] + [NewTopic("bad name", 1, 1)])
    outcomes = {name: future.exception(30) for name, future in made.items()}
    assert outcomes.pop("bad name").args[0].code() == KafkaError.TOPIC_EXCEPTION
    assert set(outcomes.values()) == {None}
    eventually(lambda: set(names) <= set(admin.list_topics(timeout=10).topics))
    for future in admin.delete_topics(names).values():
        future.result(30)
    eventually(lambda: not set(names) & set(admin.list_topics(timeout=10).topics))


def test_a_client_makes_a_topic_by_writing_to_it(
    broker: BrokerProcess, confluent: ConfluentClient, unique: Callable[[str], str]
) -> None:
    name = unique("auto")
    assert confluent.produce(name, [Message(b"first")]) == [(0, 0)]
    assert [r.value for r in confluent.read(name, 1)] == [b"first"]


def test_no_topic_is_made_where_auto_creation_is_off(
    start_broker: Callable[..., BrokerProcess], unique: Callable[[str], str]
) -> None:
    broker = start_broker({"auto.create.topics.enable": "false", "num.partitions": "3"})
    client = ConfluentClient(broker.bootstrap)
    metadata = client.consumer().list_topics("missing", timeout=10).topics["missing"]
    assert metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics(["made"], wait_for_metadata=True)
    (described,) = admin.describe_topics(["made"])
    admin.close()
    assert len(described["partitions"]) == 3
    create_topic(broker.bootstrap, "other", 2)
    assert client.produce("other", [Message(b"v", partition=1)]) == [(1, 0)]
