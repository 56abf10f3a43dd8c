"""What others write into the store: the controller sees it, and the brokers serve it."""

from __future__ import annotations

from broker_cluster import BrokerCluster
from tidelog.control import nodes
from tidelog.control.model import ConfigResource, ResourceType
from tidelog.metadata.store import Committed, Create, Op, SetData, SubmitResult
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


def test_a_node_that_is_no_topic_is_left_alone() -> None:
    cluster = BrokerCluster(2)
    write(cluster, Create(nodes.topic_path("rubbish"), b"{"), Create(nodes.topic_path("a,b"), b"{}"))
    assert cluster.create("t").error_code == 0
    cluster.run(1_000)
    assert all(set(node.image.topics) == {"t"} for node in cluster.nodes.values())
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
