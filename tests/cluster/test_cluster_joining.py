"""How brokers find together on one store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_cluster import BrokerCluster
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.sources import load
from tidelog.control.errors import ApiError
from tidelog.log.memory_disk import MemoryDisk
from tidelog.metadata.memory import MemoryEnsemble, MemoryStore
from tidelog.metadata.store import Create, Delete, TreeResult
from tidelog.node.founding import choose_broker_id
from tidelog.peers.requester import Failure, FailureKind
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode


def test_three_brokers_that_start_on_an_empty_store_all_serve_one_cluster() -> None:
    cluster = BrokerCluster(3)
    assert {node.broker.cluster.cluster_id for node in cluster.nodes.values()} == {cluster.stored.cluster_id}
    assert len([node for node in cluster.nodes.values() if node.is_controller]) == 1
    cluster.agree()
    for broker_id in cluster.nodes:
        told = cluster.ask(broker_id, messages.MetadataRequest(topics=[]))
        assert sorted(node.node_id for node in told.brokers) == [0, 1, 2]
        assert told.controller_id == cluster.controller.id
    cluster.check()


def test_only_the_controller_reads_the_tree_and_watches_more_than_the_election(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: dict[int, set[str]] = {}
    tree = MemoryStore.tree

    def recorded(store: MemoryStore, path: str, done: Callable[[TreeResult], None]) -> None:
        read.setdefault(store.session_id, set()).add(path)
        tree(store, path, done)

    monkeypatch.setattr(MemoryStore, "tree", recorded)
    cluster = BrokerCluster(3)
    cluster.create("t", 3, 3)
    cluster.kill(cluster.followers[0].id)
    cluster.agree()
    for node in cluster.nodes.values():
        watched = set(node.broker.cluster.driver._watches)
        assert ("/brokers/topics" in read.get(node.store.session_id, ())) is node.is_controller
        own = {"/controller", f"/brokers/ids/{node.id}"}
        assert (watched == own) is not node.is_controller
    cluster.check()


def test_a_broker_that_starts_within_its_former_session_replaces_its_registration_and_its_election() -> None:
    cluster = BrokerCluster(1)
    cluster.create("t")
    dead = cluster.kill(0, expire=False)
    former = cluster.stored.brokers[0].epoch
    node = cluster.begin(0)
    cluster.run_until(lambda: node.is_ready, most_ms=1_000)
    assert node.is_controller and cluster.stored.brokers[0].epoch > former
    assert cluster.leader("t", 0) == 0
    cluster.expire(dead)
    cluster.run(1_000)
    assert cluster.stored.brokers.keys() == {0} and node.is_controller
    cluster.check()


def test_nothing_stays_without_a_leader_when_brokers_are_started_again_within_their_sessions() -> None:
    cluster = BrokerCluster(3)
    cluster.create("t", 6, 2)
    for broker_id in (1, 2):
        cluster.kill(broker_id, expire=False)
    for broker_id in (1, 2):
        cluster.begin(broker_id)
    cluster.run_until(lambda: all(node.is_ready for node in cluster.nodes.values()), most_ms=1_000)
    cluster.run_until(lambda: all(cluster.leader("t", partition) >= 0 for partition in range(6)), most_ms=1_000)
    cluster.bring_in_sync()
    cluster.check()


def test_a_former_process_is_buried_when_its_successor_does_not_know_its_registration() -> None:
    cluster = BrokerCluster(3)
    cluster.create("t", 6, 2)
    follower = cluster.followers[0].id
    cluster.kill(follower, expire=False)
    cluster.disks[follower] = MemoryDisk()  # by which it cannot tell that it was its own process
    node = cluster.begin(follower)
    cluster.run_until(lambda: node.is_ready, most_ms=2_000)
    assert any("still registered" in notice for notice in node.notices)
    assert any("was started again" in notice for notice in cluster.controller.notices)
    cluster.bring_in_sync()
    cluster.check()


def test_a_broker_that_cannot_tell_who_is_registered_waits_for_that_session_to_end() -> None:
    cluster = BrokerCluster(1)
    dead = cluster.kill(0, expire=False)
    cluster.disks[0] = MemoryDisk()
    node = cluster.begin(0)
    cluster.run(5_000)
    assert not node.is_ready and node.failure is None
    assert any("still registered" in notice for notice in node.notices)
    cluster.expire(dead)
    cluster.run_until(lambda: node.is_ready)
    cluster.agree()
    cluster.check()


def test_a_broker_stops_when_another_process_has_registered_in_its_place() -> None:
    cluster = BrokerCluster(2)
    cluster.create("t", 2, 2)
    path = f"/brokers/ids/{cluster.followers[0].id}"
    rival, data = cluster.ensemble.connect(), cluster.ensemble.tree.walk("/")
    registration = next(node.data for found, node in data if found == path)
    rival.submit([Delete(path), Create(path, registration, ephemeral=True)], lambda result: None)
    cluster.run_until(lambda: bool(cluster.followers[0].fatal), most_ms=1_000)
    (reason,) = cluster.followers[0].fatal
    assert "another process has registered" in reason and "broker.id of its own" in reason


def test_a_copy_of_a_directory_on_another_machine_does_not_replace_the_broker_it_was_copied_from() -> None:
    cluster = BrokerCluster(2)
    first = cluster.nodes.pop(1)
    first.broker.data.logs._release()  # a copy is not locked by the broker that it was copied from
    twin = cluster.begin(1, machine="elsewhere")
    cluster.run_until(lambda: twin.failure is not None)
    assert isinstance(twin.failure, ApiError)
    assert twin.failure.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert not first.fatal


def test_a_second_broker_with_the_same_id_is_refused_after_a_session_time_out() -> None:
    cluster = BrokerCluster(2)
    other = MemoryDisk()
    cluster.disks[1], first = other, cluster.nodes.pop(1)
    twin = cluster.begin(1, machine="elsewhere")
    began_ms = cluster.clock.now_ms
    cluster.run_until(lambda: twin.failure is not None)
    assert isinstance(twin.failure, ApiError)
    assert twin.failure.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.clock.now_ms - began_ms >= 18_000
    assert first.image.brokers.keys() == {0, 1}


def test_directories_of_another_cluster_are_refused() -> None:
    cluster, other = BrokerCluster(1), BrokerCluster(1, seed=2)
    cluster.kill(0)
    other.kill(0)
    other.disks[0] = cluster.disks[0]
    node = other.begin(0)
    other.run(1_000)
    assert isinstance(node.failure, str) and "belongs to node 0 of cluster" in node.failure
    assert not node.is_ready


@pytest.mark.files
def test_a_broker_with_records_does_not_start_on_a_store_that_knows_nothing() -> None:
    cluster = BrokerCluster(1)
    cluster.create("t")
    cluster.kill(0)
    cluster.ensemble = MemoryEnsemble()
    node = cluster.begin(0)
    cluster.run(1_000)
    assert isinstance(node.failure, str) and "knows no cluster" in node.failure
    assert cluster.ensemble.tree.children("/") == []
    assert cluster.disks[0].exists("/data/t-0/00000000000000000000.log")


def test_what_was_deleted_or_moved_while_a_broker_was_away_is_taken_out_of_service() -> None:
    cluster = BrokerCluster(3)
    for name in ("kept", "deleted", "moved"):
        cluster.create(name, 1, 3)
    cluster.kill(2)
    cluster.agree()
    request = messages.AlterPartitionReassignmentsRequest
    partition = request.ReassignablePartition(partition_index=0, replicas=[0, 1])
    cluster.ask(0, request(topics=[request.ReassignableTopic(name="moved", partitions=[partition])], timeout_ms=1000))
    gone = messages.DeleteTopicsRequest.DeleteTopicState(name="deleted")
    cluster.ask(0, messages.DeleteTopicsRequest(topics=[gone], timeout_ms=1000))
    node = cluster.start(2)
    assert set(node.broker.data.logs.logs) == {("kept", 0)}
    told = " ".join(node.notices)
    assert "deleted-0 is removed" in told and "moved-0 is set aside" in told
    cluster.agree()
    cluster.check()


def test_a_broker_says_in_one_line_what_was_moved_while_it_was_away() -> None:
    cluster = BrokerCluster(3)
    cluster.create("moved", 20, 3)
    cluster.kill(2)
    cluster.agree()
    request = messages.AlterPartitionReassignmentsRequest
    partitions = [request.ReassignablePartition(partition_index=index, replicas=[0, 1]) for index in range(20)]
    cluster.ask(0, request(topics=[request.ReassignableTopic(name="moved", partitions=partitions)], timeout_ms=1000))
    node = cluster.start(2)
    (told,) = [notice for notice in node.notices if "set aside" in notice]
    assert "moved-0, moved-1" in told and "(20 in all) are set aside" in told
    cluster.check()


def test_a_broker_without_an_id_takes_one_from_the_store_and_keeps_it() -> None:
    cluster = BrokerCluster(1)
    store, disk = cluster.ensemble.connect(), MemoryDisk()

    def choose(disk: MemoryDisk, **settings: str) -> object:
        flags = ["log.dirs=/data", *(f"{name.replace('_', '.')}={value}" for name, value in settings.items())]
        chosen: list[object] = []
        choose_broker_id(store, BrokerConfig(load(flags=flags)), disk, chosen.append)
        return chosen[0]

    assert [choose(MemoryDisk()), choose(MemoryDisk())] == [1001, 1002]
    assert choose(MemoryDisk(), broker_id="7") == 7
    assert choose(MemoryDisk(), reserved_broker_max_id="5") == 8
    assert "broker.id.generation.enable is false" in str(choose(disk, broker_id_generation_enable="false"))
    assert choose(cluster.disks[0]) == 0
    empty = MemoryEnsemble().connect()
    chosen: list[object] = []
    choose_broker_id(empty, BrokerConfig(load(flags=["log.dirs=/data"])), disk, chosen.append)
    assert chosen == [1001]


def test_a_broker_that_the_controller_cannot_reach_says_so_and_serves_nobody_yet() -> None:
    cluster = BrokerCluster(2)
    cluster.create("t")
    controller = cluster.controller.machine
    cluster.network.cut(controller, "b2")
    node = cluster.begin(2)
    cluster.run(11_000)
    assert not node.is_ready
    assert any("waits for the controller" in notice for notice in node.notices)
    outcome = cluster.send(2, messages.MetadataRequest(topics=None))
    cluster.run_until(lambda: bool(outcome))
    assert isinstance(outcome[0], Failure) and outcome[0].kind is FailureKind.DISCONNECTED
    cluster.network.mend(controller, "b2")
    cluster.run_until(lambda: node.is_ready)
    assert [topic.name for topic in cluster.ask(2, messages.MetadataRequest(topics=None)).topics] == ["t"]
    cluster.check()
