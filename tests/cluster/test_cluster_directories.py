"""Log directories of one broker of several: failed ones, and cordoned ones."""

from __future__ import annotations

import pytest

from broker_cluster import BrokerCluster
from tidelog.log.log_dir import LogDir
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

#: well below `replica.lag.time.max.ms`, after which a leader leaves out a silent follower anyway
SOON_MS = 3_000
FAILURE = OSError(5, "Input/output error")


def cluster_with_directories() -> BrokerCluster:
    cluster = BrokerCluster(3, settings={"log.dirs": "/a,/b"})
    cluster.create("t", 6, 3)
    cluster.bring_in_sync()
    return cluster


def directories(cluster: BrokerCluster, broker_id: int) -> list[LogDir]:
    return cluster.nodes[broker_id].broker.data.logs.dirs


def test_others_lead_at_once_what_was_in_a_failed_directory_and_nobody_waits_for_its_replicas() -> None:
    cluster = cluster_with_directories()
    for broker_id in (1, 2):  # the second time two are left, and then one
        healthy, failing = directories(cluster, broker_id)
        lost, kept = set(failing.logs), set(healthy.logs)
        assert lost and kept
        failing.fail(FAILURE)
        cluster.run(SOON_MS)
        for topic, index in lost:
            state = cluster.stored.topics[topic].partitions[index]
            assert broker_id not in state.isr and state.leader in state.isr
        for topic, index in kept:
            assert broker_id in cluster.stored.topics[topic].partitions[index].isr
        assert not cluster.nodes[broker_id].fatal
        (_, index) = min(lost)
        asked = messages.ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1)
        of_topic = messages.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked])
        (told,) = cluster.ask(broker_id, messages.ListOffsetsRequest(replica_id=-1, topics=[of_topic])).topics
        assert told.partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [what for _, what, _ in cluster.reports] == [
        f"log directory /b has failed ({FAILURE}): its partitions are offline"
    ] * 2


def test_the_only_member_of_an_isr_stays_in_it_when_its_directory_fails() -> None:
    cluster = BrokerCluster(2, settings={"log.dirs": "/a,/b"})
    cluster.create("alone", 2, 1)
    leaders = [cluster.leader("alone", partition) for partition in (0, 1)]
    for leader in set(leaders):
        for directory in directories(cluster, leader):
            if directory.logs:
                directory.fail(FAILURE)
                break
    cluster.run(SOON_MS)
    assert [cluster.stored.topics["alone"].partitions[p].isr for p in (0, 1)] == [(leader,) for leader in leaders]


def test_a_broker_all_of_whose_directories_have_failed_stops() -> None:
    cluster = cluster_with_directories()
    for directory in directories(cluster, 1):
        directory.fail(FAILURE)
    cluster.run(SOON_MS)
    assert "every log directory has failed: the broker stops" in cluster.nodes[1].fatal[0]


def test_nothing_new_is_placed_on_a_broker_whose_directories_are_all_cordoned() -> None:
    cluster = BrokerCluster(3)
    cluster.create("t", 3, 2)

    def cordon(value: str | None) -> None:
        request = messages.IncrementalAlterConfigsRequest
        config = request.AlterableConfig(name="cordoned.log.dirs", config_operation=0 if value else 1, value=value)
        resource = request.AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
        (answer,) = cluster.ask(1, request(resources=[resource])).responses
        assert answer.error_code == 0

    before = [p.replicas for p in cluster.stored.topics["t"].partitions]
    cordon("*")
    cluster.create("later", 9, 2)
    assert all(1 not in p.replicas for p in cluster.stored.topics["later"].partitions)
    more = messages.CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=9)
    cluster.ask(0, messages.CreatePartitionsRequest(topics=[more], timeout_ms=30_000))
    partitions = cluster.stored.topics["t"].partitions
    assert [p.replicas for p in partitions[:3]] == before
    assert all(1 not in p.replicas for p in partitions[3:])
    refused = cluster.create("wide", 1, 3)
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert refused.error_message is not None and "only 2 of 3 brokers take new partitions" in refused.error_message
    cordon(None)
    assert cluster.create("wide", 1, 3).error_code == 0
    cluster.check()


@pytest.mark.parametrize("setting", ["*", "/data"])
def test_nothing_new_is_placed_on_a_broker_whose_own_settings_cordon_its_directories(setting: str) -> None:
    cluster = BrokerCluster(2)
    cluster.start(2, cordoned_log_dirs=setting)
    cluster.agree()
    for controller in (cluster.controller.id, None):
        if controller is not None:
            cluster.create("t", 6, 2)
        else:  # the next one knows, too
            cluster.kill(cluster.controller.id)
            cluster.run_until(lambda: any(node.is_controller for node in cluster.nodes.values()))
            cluster.create("u", 6, 1)
    assert all(2 not in p.replicas for topic in cluster.stored.topics.values() for p in topic.partitions)
    cluster.check()
