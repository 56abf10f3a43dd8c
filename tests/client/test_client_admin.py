"""Administration through the client, against a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from bench.systems.process import BrokerProcess

from tidelog.client import Client
from tidelog.client.errors import Exists, NotFound, Refused


def test_a_topic_is_created_described_and_deleted(client: Client, unique: Callable[[str], str]) -> None:
    name = unique("topic")
    created = client.admin.create_topic(name, 3, 1, {"retention.ms": "1000"})
    assert (created.name, created.partitions, created.replication_factor) == (name, 3, 1)
    described = client.topic(name)
    assert described.topic_id == created.topic_id
    assert list(described.partitions) == [0, 1, 2]
    assert not any(partition.under_replicated for partition in described.partitions.values())
    assert name in client.describe().topics
    client.admin.delete_topics([name])
    with pytest.raises(NotFound):
        client.topic(name)


def test_a_topic_that_exists_cannot_be_created_again(client: Client, topic: str) -> None:
    with pytest.raises(Exists):
        client.admin.create_topic(topic)


def test_validating_creates_nothing(client: Client, unique: Callable[[str], str]) -> None:
    name = unique("topic")
    client.admin.create_topic(name, 1, 1, validate_only=True)
    with pytest.raises(NotFound):
        client.topic(name)
    with pytest.raises(Refused):
        client.admin.create_topic("not/a/name", validate_only=True)


def test_the_others_are_deleted_where_one_is_missing(client: Client, topic: str) -> None:
    with pytest.raises(NotFound, match="no-such-topic"):
        client.admin.delete_topics(["no-such-topic", topic])
    with pytest.raises(NotFound):
        client.topic(topic)


def test_partitions_are_added_never_taken(client: Client, topic: str) -> None:
    client.admin.create_partitions(topic, 4)
    assert list(client.topic(topic).partitions) == [0, 1, 2, 3]
    with pytest.raises(Refused):
        client.admin.create_partitions(topic, 2)


def test_records_are_deleted_up_to_an_offset_or_the_end(client: Client, new_topic: Callable[..., str]) -> None:
    name = new_topic(2)
    for partition in range(2):
        client.produce(name, [b"x"] * 5, partition=partition)
    assert client.admin.delete_records(name, {0: 2, 1: -1}) == {0: 2, 1: 5}
    assert [at.offset for at in client.offsets(name, when="earliest").values()] == [2, 5]


def test_configurations_are_set_unset_and_replaced(client: Client, topic: str) -> None:
    def own() -> dict[str, str | None]:
        return {e.name: e.value for e in client.admin.describe_configs("topic", topic) if e.source == "topic"}

    client.admin.alter_configs("topic", topic, set={"retention.ms": "1000", "cleanup.policy": "compact"})
    assert own() == {"cleanup.policy": "compact", "retention.ms": "1000"}
    client.admin.alter_configs("topic", topic, append={"cleanup.policy": "delete"}, delete=["retention.ms"])
    assert own() == {"cleanup.policy": "compact,delete"}
    client.admin.alter_configs("topic", topic, subtract={"cleanup.policy": "delete"})
    assert own() == {"cleanup.policy": "compact"}
    client.admin.alter_configs("topic", topic, set={"retention.ms": "7"}, validate_only=True)
    assert own() == {"cleanup.policy": "compact"}


def test_one_key_is_described_with_its_type_and_synonyms(client: Client, topic: str) -> None:
    client.admin.alter_configs("topic", topic, set={"retention.ms": "1000"})
    (entry,) = client.admin.describe_configs("topic", topic, ["retention.ms"], documentation=True)
    assert (entry.value, entry.source, entry.type, entry.is_default) == ("1000", "topic", "long", False)
    assert ("retention.ms", "1000", "topic") in entry.synonyms
    assert entry.documentation


def test_a_value_that_cannot_be_is_refused_with_the_brokers_words(client: Client, topic: str) -> None:
    with pytest.raises(Refused, match=r"retention\.ms"):
        client.admin.alter_configs("topic", topic, set={"retention.ms": "soon"})
    with pytest.raises(NotFound):
        client.admin.alter_configs("topic", "no-such-topic", set={"retention.ms": "1"})
    with pytest.raises(Refused, match="has no configuration"):
        client.admin.describe_configs("table", "x")


def test_a_brokers_configuration_is_asked_of_the_broker(client: Client, broker_ids: list[int]) -> None:
    for node_id in broker_ids:
        entries = {entry.name: entry for entry in client.admin.describe_configs("broker", str(node_id))}
        assert entries["log.retention.hours"].value == "168"
        client.admin.alter_configs("broker", str(node_id), set={"log.cleaner.threads": "2"})
        for _ in range(100):  # a broker without ZooKeeper learns of its own configuration a moment later
            (entry,) = client.admin.describe_configs("broker", str(node_id), ["log.cleaner.threads"])
            if entry.value == "2":
                break
            time.sleep(0.05)
        assert (entry.value, entry.source) == ("2", "broker")
        client.admin.alter_configs("broker", str(node_id), delete=["log.cleaner.threads"])
    with pytest.raises(NotFound, match="broker 4711"):
        client.admin.describe_configs("broker", "4711")


def test_the_cluster_tells_its_brokers_and_controller(client: Client, broker: BrokerProcess) -> None:
    cluster = client.admin.describe_cluster()
    assert sorted(f"{node.host}:{node.port}" for node in cluster.nodes.values()) == sorted(broker.bootstrap.split(","))
    assert cluster.controller_id in cluster.nodes
    assert cluster.cluster_id and cluster.fenced == []


def test_the_disk_tells_the_size_of_each_replica(client: Client, topic: str, broker_ids: list[int]) -> None:
    client.produce(topic, [b"x" * 1000])
    for node_id in broker_ids:
        (directory,) = client.admin.log_dirs(node_id, [topic])
        (replica,) = directory.replicas
        assert (replica.topic, replica.partition) == (topic, 0)
        assert 1000 < replica.size_bytes < 1200
        assert directory.total_bytes > 0


def test_a_preferred_leader_that_leads_needs_no_election(client: Client, topic: str) -> None:
    assert client.admin.elect_leaders([(topic, 0)]) == {}
    outcome = client.admin.elect_leaders([(topic, 9)])
    assert isinstance(outcome[topic, 9], NotFound)
