"""What others write into the store: the controller sees it, and the brokers serve it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_cluster import BrokerCluster
from tidelog.control import nodes
from tidelog.control.model import ConfigResource, ResourceType
from tidelog.metadata.memory import MemoryStore
from tidelog.metadata.store import Committed, Create, Op, SetData, SubmitResult, TreeResult
from tidelog.wire import messages


def write(cluster: BrokerCluster, *ops: Op) -> None:
    done: list[SubmitResult] = []
    cluster.ensemble.connect().submit(ops, done.append)
    assert isinstance(done[0], Committed), done


def test_a_topic_that_somebody_writes_under_brokers_topics_is_served() -> None:
    cluster = BrokerCluster(3)
    write(cluster, Create(nodes.topic_path("by-hand"), b'{"version":1,"partitions":{"0":[1,2],"1":[2,0]}}'))
    cluster.agree()
    topic = cluster.stored.topics["by-hand"]
    assert [p.leader for p in topic.partitions] == [1, 2]
    assert any(topic.topic_id)
    for broker_id in cluster.nodes:
        (told,) = cluster.ask(
            broker_id,
            messages.MetadataRequest(topics=[messages.MetadataRequest.MetadataRequestTopic(name="by-hand")]),
        ).topics
        assert [p.leader_id for p in told.partitions] == [1, 2]
    replica = cluster.nodes[2].broker.data.partition("by-hand", 1)
    assert replica.is_leader and replica.topic_id == topic.topic_id
    cluster.check()


def test_a_topic_of_an_old_kafka_is_served_under_the_id_that_it_gets() -> None:
    cluster = BrokerCluster(0)
    state = b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":5,"isr":[0,1,2]}'
    paths = ["/brokers", nodes.TOPICS]
    write(
        cluster,
        *map(Create, paths),
        Create(nodes.topic_path("old"), b'{"version":1,"partitions":{"0":[0,1,2]}}'),
        *map(Create, (nodes.partitions_path("old"), nodes.partition_path("old", 0))),
        Create(nodes.state_path("old", 0), state),
    )
    for broker_id in range(3):
        cluster.start(broker_id)
    cluster.bring_in_sync()
    topic = cluster.stored.topics["old"]
    assert any(topic.topic_id) and topic.partitions[0].leader_epoch > 5
    for node in cluster.nodes.values():
        replica = node.broker.data.partition("old", 0)
        assert replica.topic_id == replica.log.topic_id == topic.topic_id
        assert node.broker.groups.room._around.topics.topic_id("old") == topic.topic_id
    cluster.check()


def test_a_configuration_that_a_notification_names_is_followed() -> None:
    cluster = BrokerCluster(3)
    cluster.create("t", 1, 3)
    write(
        cluster,
        SetData(nodes.config_path("topics", "t"), nodes.encode_config({"retention.ms": "7"})),
        Create("/config/changes/config_change_", b'{"version":2,"entity_path":"topics/t"}', sequential=True),
        Create("/config/changes/config_change_", b"rubbish", sequential=True),
    )
    cluster.agree()
    for node in cluster.nodes.values():
        assert node.image.config(ConfigResource(ResourceType.TOPIC, "t")) == {"retention.ms": "7"}
        assert node.broker.data.partition("t", 0).log.config.retention_ms == 7
    assert cluster.ensemble.tree.children("/config/changes") == []
    cluster.check()


def test_moves_and_elections_that_somebody_writes_are_carried_out_and_taken_away() -> None:
    cluster = BrokerCluster(3)
    write(cluster, Create(nodes.topic_path("t"), b'{"version":1,"partitions":{"0":[0]}}'))
    cluster.agree()
    moves = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,0]}]}'
    write(cluster, Create("/admin/reassign_partitions", moves))
    cluster.agree()
    (partition,) = cluster.stored.topics["t"].partitions
    assert (partition.replicas, partition.adding) == ((1, 0), (1,))
    assert cluster.ensemble.tree.get("/admin/reassign_partitions") is None
    election = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    write(cluster, Create("/admin/preferred_replica_election", election))
    cluster.agree()
    assert cluster.ensemble.tree.get("/admin/preferred_replica_election") is None
    cluster.check()


def test_a_configuration_that_cannot_be_read_sets_nothing_and_stops_no_controller() -> None:
    cluster = BrokerCluster(3)
    for data in (b"{", b"[]", b'{"config":7}'):
        cluster.create("t", 1, 3, retention_ms="9")
        write(cluster, SetData(nodes.config_path("topics", "t"), data))
        before = cluster.controller.id
        cluster.kill(before)
        cluster.run_until(lambda: any(node.is_controller for node in cluster.nodes.values()))
        cluster.agree()
        assert cluster.controller.image.config(ConfigResource(ResourceType.TOPIC, "t")) == {}
        cluster.start(before)
    cluster.check()


def test_a_node_that_is_no_topic_is_left_alone_and_told_of_by_the_controller() -> None:
    cluster = BrokerCluster(2)
    write(
        cluster,
        Create(nodes.topic_path("rubbish"), b"{"),
        Create(nodes.topic_path("a,b"), b'{"partitions":{"0":[1]}}'),
        Create(nodes.topic_path("words"), b'{"partitions":{"0":["one"]}}'),
        Create(nodes.topic_path("nobody"), b'{"partitions":{"0":[]}}'),
        Create(nodes.topic_path("good"), b'{"partitions":{"0":[1]}}'),
    )
    assert cluster.create("t").error_code == 0
    cluster.run(1_000)
    assert all(set(node.image.topics) == {"t", "good"} for node in cluster.nodes.values())
    told = [notice for notice in cluster.controller.notices if "cannot be read" in notice]
    assert [line.split()[0] for line in told] == [nodes.topic_path(n) for n in ("a,b", "nobody", "rubbish", "words")]
    assert all("corrects or deletes it" in line for line in told)
    cluster.agree()
    cluster.check()


@pytest.mark.parametrize(
    "path",
    [nodes.topic_path("t"), nodes.state_path("t", 0), nodes.config_path("topics", "t"), nodes.broker_path(9)],
    ids=["topic", "state", "config", "broker"],
)
def test_a_malformed_node_stops_no_controller_and_hides_no_topic(path: str) -> None:
    cluster = BrokerCluster(3)
    for name in ("a", "t", "z"):
        cluster.create(name, 1, 3)
    cluster.bring_in_sync()
    write(cluster, Create(path, b"{") if path == nodes.broker_path(9) else SetData(path, b"{"))
    told: list[str] = []
    for _ in range(2):  # the second controller has never known anything else
        before = cluster.controller.id
        cluster.kill(before)
        cluster.run_until(lambda: any(node.is_controller for node in cluster.nodes.values()))
        cluster.run(2_000)
        told += [notice for notice in cluster.controller.notices if "cannot be read" in notice]
        assert cluster.create(f"after{before}", 1, 2).error_code == 0
        for node in cluster.nodes.values():
            assert node.broker.data.partition("t", 0).log is not None
        cluster.start(before)
    assert told and all(line.startswith(f"{path} ") for line in told)
    assert all({"a", "z"} <= set(node.image.topics) for node in cluster.nodes.values())
    cluster.check()


@pytest.mark.files
def test_a_topic_that_nobody_can_read_keeps_its_records_and_is_served_when_its_node_is_repaired() -> None:
    cluster = BrokerCluster(1)
    cluster.create("t", 2, 1)
    good = cluster.ensemble.tree.get(nodes.topic_path("t"))
    assert good is not None
    write(cluster, SetData(nodes.topic_path("t"), b"[]"))
    cluster.kill(0)
    node = cluster.start(0)  # knows nothing of the topic but what cannot be read
    assert "t" not in node.image.topics
    assert not any("removed" in notice or "set aside" in notice for notice in node.notices)
    assert cluster.disks[0].exists("/data/t-0/00000000000000000000.log")
    write(cluster, SetData(nodes.topic_path("t"), good.data))
    cluster.run_until(lambda: "t" in node.image.topics, most_ms=1_000)
    assert node.broker.data.partition("t", 1).is_leader
    assert node.image.malformed == {}
    cluster.agree()
    cluster.check()


def test_moves_that_cannot_be_read_are_taken_away_and_told_of() -> None:
    cluster = BrokerCluster(2)
    for path in ("/admin/reassign_partitions", "/admin/preferred_replica_election"):
        write(cluster, Create(path, b'{"version":1}'))
        cluster.run(100)
        assert cluster.ensemble.tree.get(path) is None
        assert any(path in notice and "Write it again" in notice for notice in cluster.controller.notices)
    assert cluster.create("t").error_code == 0
    cluster.check()


def test_what_stands_in_the_way_of_a_deletion_holds_up_no_other_work() -> None:
    cluster = BrokerCluster(3)
    cluster.create("blocked", 1, 3)
    cluster.create("t", 1, 3)
    write(cluster, Create(nodes.topic_path("blocked") + "/mine", b""))
    write(cluster, Create(nodes.delete_topic_path("blocked")))
    leader = cluster.leader("t", 0)
    victim = leader if leader != cluster.controller.id else cluster.followers[0].id
    cluster.run(1_000)
    cluster.kill(victim)
    cluster.run_until(lambda: victim not in cluster.stored.topics["t"].partitions[0].isr, most_ms=5_000)
    assert any("Remove what somebody has written there" in notice for notice in cluster.controller.notices)
    cluster.check()


def test_other_products_nodes_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = BrokerCluster(1)
    write(cluster, Create("/solr"), Create("/solr/x"), Create("/admin/theirs"), Create("/config/theirs"))
    read: list[str] = []
    tree = MemoryStore.tree

    def recorded(store: MemoryStore, path: str, done: Callable[[TreeResult], None]) -> None:
        def answered(result: TreeResult) -> None:
            assert isinstance(result, list)
            read.extend(path for path, _ in result)
            done(result)

        tree(store, path, answered)

    monkeypatch.setattr(MemoryStore, "tree", recorded)
    cluster.kill(0)
    cluster.start(0)
    assert "/brokers/topics" in read
    assert not [path for path in read if "solr" in path or "theirs" in path]
    cluster.check()
