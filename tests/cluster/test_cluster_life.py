"""A cluster lives: topics, leaders and settings, whichever broker is asked, and whoever comes and goes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from broker_cluster import BrokerCluster, WithoutFetching
from seeds import seeds
from tidelog.control.leadership import IsrChange, IsrResult
from tidelog.net.memory_network import Weather
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.errors import ErrorCode

INTERNAL = {"__consumer_offsets", "__transaction_state"}


# --- asking any broker -------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [0, 1, 2])
def test_a_topic_is_known_to_every_broker_when_its_creation_is_answered(asked: int) -> None:
    cluster = BrokerCluster(3)
    result = cluster.create("t", 3, 3, broker_id=asked)
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 3, 3)
    for node in cluster.nodes.values():
        assert [len(p.isr) for p in node.image.topics["t"].partitions] == [3, 3, 3]
        assert {p.key for p in node.broker.data.replicas.partitions.values()} == {("t", 0), ("t", 1), ("t", 2)}
    cluster.check()


def test_a_broker_that_does_not_answer_holds_up_an_admin_request_for_a_moment_only() -> None:
    cluster = BrokerCluster(3)
    cluster.network.cut(cluster.controller.machine, cluster.followers[0].machine)
    before_ms = cluster.clock.now_ms
    assert cluster.create("t", broker_id=cluster.controller.id).error_code == 0
    assert 500 <= cluster.clock.now_ms - before_ms <= 600
    assert "t" in cluster.followers[1].image.topics
    assert "t" not in cluster.followers[0].image.topics
    cluster.network.mend(cluster.controller.machine, cluster.followers[0].machine)
    cluster.agree()
    cluster.check()


def test_admin_requests_that_reach_another_broker_are_relayed() -> None:
    cluster = BrokerCluster(3)
    other = cluster.followers[0].id
    cluster.create("t", 1, 2, broker_id=other)
    grown = cluster.ask(
        other,
        messages.CreatePartitionsRequest(
            topics=[messages.CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2, assignments=None)]
        ),
    )
    assert [r.error_code for r in grown.results] == [0]
    altered = cluster.ask(other, _alter(2, "t", "retention.ms", "7"))
    assert [(r.resource_type, r.error_code) for r in altered.responses] == [(2, 0)]
    elected = cluster.ask(other, messages.ElectLeadersRequest(election_type=0, topic_partitions=None), version=2)
    assert elected.error_code == 0
    deleted = cluster.ask(
        other, messages.DeleteTopicsRequest(topics=[messages.DeleteTopicsRequest.DeleteTopicState(name="t")])
    )
    assert [r.error_code for r in deleted.responses] == [0]
    assert not cluster.stored.topics
    cluster.check()


def _alter(kind: int, name: str, key: str, value: str) -> messages.IncrementalAlterConfigsRequest:
    request = messages.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name=key, config_operation=0, value=value)
    return request(resources=[request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])])


def test_what_a_broker_is_set_to_by_another_reaches_it() -> None:
    cluster = BrokerCluster(3)
    (answer,) = cluster.ask(0, _alter(4, "2", "log.retention.ms", "77")).responses
    assert answer.error_code == 0, answer
    cluster.agree()
    assert cluster.nodes[2].broker.config.get("log.retention.ms") == 77
    assert cluster.nodes[1].broker.config.get("log.retention.ms") is None
    (answer,) = cluster.ask(0, _alter(4, "9", "log.retention.ms", "77")).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    cluster.check()


def test_the_loggers_of_a_broker_are_its_own_though_the_rest_is_relayed() -> None:
    cluster = BrokerCluster(2)
    other = cluster.followers[0]
    cluster.create("t")
    request = _alter(8, str(other.id), "root", "DEBUG")
    request.resources += _alter(2, "t", "retention.ms", "7").resources
    answer = cluster.ask(other.id, request)
    assert [(r.resource_type, r.error_code) for r in answer.responses] == [(2, 0), (8, 0)]
    assert other.broker.log_level.level == "DEBUG"
    assert cluster.controller.broker.log_level.level == "INFO"
    cluster.check()


def test_a_request_waits_for_a_controller_while_there_is_none() -> None:
    cluster = BrokerCluster(3)
    dead = cluster.lose(cluster.controller.id)
    asked = min(cluster.nodes)
    request = messages.CreateTopicsRequest
    outcome = cluster.send(
        asked, request(topics=[request.CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    )
    cluster.run(2_000)
    assert not outcome
    cluster.expire(dead)
    cluster.run_until(lambda: bool(outcome))
    assert outcome[0].message.topics[0].error_code == 0  # type: ignore[union-attr]
    cluster.check()


def test_without_a_controller_a_request_is_refused_in_the_end() -> None:
    cluster = BrokerCluster(2, settings={"controller.socket.timeout.ms": "3000"})
    cluster.lose(cluster.controller.id)
    (answer,) = cluster.ask(
        min(cluster.nodes),
        messages.CreateTopicsRequest(topics=[messages.CreateTopicsRequest.CreatableTopic(name="t")]),
    ).topics
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_leader_changes_its_isr_wherever_the_controller_is_and_hears_what_is_wrong() -> None:
    cluster = BrokerCluster(3, wrap_requester=lambda node, requester: WithoutFetching(requester))
    cluster.create("t", 3, 3)
    topic = cluster.stored.topics["t"]

    def ask(leader: int, change: IsrChange) -> IsrResult:
        results: list[list[IsrResult]] = []
        cluster.nodes[leader].broker.controller.alter_partition([change], results.append)
        cluster.run_until(lambda: bool(results))
        return results[0][0]

    for p in topic.partitions:
        change = IsrChange(topic.topic_id, p.partition_index, p.leader_epoch, p.partition_epoch, [(p.leader, -1)])
        result = ask(p.leader, change)
        assert not result.error.is_failure and result.state is not None
        assert (result.state.isr, result.state.partition_epoch) == ((p.leader,), p.partition_epoch + 1)
        assert result.state.replicas == p.replicas
        assert ask(p.leader, change).error.code is ErrorCode.INVALID_UPDATE_VERSION
        assert ask(p.leader, change._replace(leader_epoch=-1)).error.code is ErrorCode.FENCED_LEADER_EPOCH
        assert ask(p.leader, change._replace(topic_id=bytes(16))).error.code is ErrorCode.UNKNOWN_TOPIC_ID
        present = cluster.stored.topics["t"].partitions[p.partition_index].partition_epoch
        other = next(r for r in p.replicas if r != p.leader)
        stale = change._replace(partition_epoch=present, new_isr=[(p.leader, -1), (other, 1)])
        assert ask(p.leader, stale).error.code is ErrorCode.INELIGIBLE_REPLICA
    cluster.check()


@pytest.mark.parametrize("by_name", [True, False], ids=["made because it is named", "relayed"])
def test_what_a_leader_asks_the_controller_does_not_wait_behind_what_clients_do(by_name: bool) -> None:
    cluster = BrokerCluster(3)
    controller, (asking, silent) = cluster.controller, cluster.followers
    cluster.create("t", 6, 1)
    topic = cluster.stored.topics["t"]
    index = next(p.partition_index for p in topic.partitions if p.leader == asking.id)
    # What clients change from now on is answered when the controller has given up waiting for the silent one.
    cluster.network.cut(controller.machine, silent.machine)
    asked: list[list[Any]] = []
    for name in ("new", "newer"):
        if by_name:
            named = messages.MetadataRequest.MetadataRequestTopic(name=name)
            asked.append(cluster.send(asking.id, messages.MetadataRequest(topics=[named]), client=name))
        else:
            wanted = messages.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            asked.append(cluster.send(asking.id, messages.CreateTopicsRequest(topics=[wanted]), client=name))
    cluster.run_until(lambda: "new" in cluster.stored.topics)
    answers: list[list[IsrResult]] = []
    change = IsrChange(topic.topic_id, index, 0, 0, [(asking.id, -1)])
    asking.broker.controller.alter_partition([change], answers.append)
    cluster.run_until(lambda: bool(answers))
    assert not any(asked)
    cluster.run_until(lambda: all(asked))
    cluster.check()


@pytest.mark.parametrize("seed", seeds(range(2), fresh=1))
def test_producer_ids_of_two_brokers_never_meet_whatever_is_lost(seed: int) -> None:
    weather = Weather(longest_ms=40, lost_share=0.05, breaking_share=0.05)
    cluster = BrokerCluster(3, seed, weather=weather)
    taken: list[int] = []
    for round_ in range(3):
        for node in list(cluster.nodes.values()):
            ids = node.broker.producer_ids
            for _ in range(1_100 if node in cluster.nodes.values() else 0):
                while (taking := ids.take()) is None:
                    ready: list[bool] = []
                    ids.when_ready(lambda ready=ready: ready.append(True))
                    if round_ == 1 and node is not cluster.controller and len(cluster.nodes) == 3:
                        cluster.kill(cluster.controller.id)
                    cluster.run_until(lambda ready=ready: bool(ready))
                taken.append(taking)
        for broker_id in {0, 1, 2} - cluster.nodes.keys():
            cluster.start(broker_id)
    assert len(set(taken)) == len(taken) > 8_000
    cluster.check()


def test_clients_are_not_told_of_what_brokers_ask_each_other() -> None:
    cluster = BrokerCluster(1)
    request = messages.ApiVersionsRequest
    to_broker = cluster.ask(0, request(client_software_name="tidelog-broker", client_software_version="1"))
    to_client = cluster.ask(0, request(client_software_name="librdkafka", client_software_version="1"))
    for_brokers, for_clients = ({each.api_key for each in told.api_keys} for told in (to_broker, to_client))
    assert for_brokers - for_clients == {7, 56, 67, 10001}
    # There is no quorum to describe: clients say so themselves.
    assert ApiKey.DESCRIBE_QUORUM not in for_brokers | for_clients


def test_every_broker_names_the_controller_and_the_cluster() -> None:
    cluster = BrokerCluster(3)
    for _ in range(2):
        cluster.agree()
        for broker_id in cluster.nodes:
            told = cluster.ask(broker_id, messages.DescribeClusterRequest())
            assert (told.controller_id, told.cluster_id) == (cluster.controller.id, cluster.stored.cluster_id)
            assert {broker.broker_id for broker in told.brokers} == set(cluster.nodes)
        cluster.kill(cluster.controller.id)
    cluster.check()


# --- internal topics ---------------------------------------------------------------------------------


def find_coordinator(cluster: BrokerCluster, asked: int, key_type: int) -> int:
    request = messages.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["k"])
    (found,) = cluster.ask(asked, request).coordinators
    return found.error_code


def test_internal_topics_have_their_configured_replicas() -> None:
    cluster = BrokerCluster(3)
    other = cluster.followers[0].id
    assert find_coordinator(cluster, other, 0) == find_coordinator(cluster, other, 1) == 0
    for name in INTERNAL:
        assert {len(p.replicas) for p in cluster.stored.topics[name].partitions} == {3}
    cluster.check()


def test_internal_topics_are_not_created_with_fewer_replicas_than_configured() -> None:
    cluster = BrokerCluster(2)
    assert find_coordinator(cluster, 0, 0) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    wanted = messages.MetadataRequest.MetadataRequestTopic(name="__consumer_offsets")
    (told,) = cluster.ask(1, messages.MetadataRequest(topics=[wanted], allow_auto_topic_creation=True)).topics
    assert told.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert not cluster.stored.topics
    cluster.start(2)
    assert find_coordinator(cluster, 0, 0) == 0
    cluster.check()


def test_a_broker_says_once_why_an_internal_topic_cannot_be_created() -> None:
    cluster = BrokerCluster(3, settings={"offsets.topic.segment.bytes": "40000"})
    for _ in range(3):
        assert find_coordinator(cluster, 1, 0) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (told,) = [notice for notice in cluster.nodes[1].notices if "__consumer_offsets" in notice]
    assert "cannot be created" in told and "segment.bytes" in told and "1048576" in told
    cluster.check()


# --- coming and going --------------------------------------------------------------------------------


def test_a_clean_stop_moves_leaders_away_first() -> None:
    cluster = BrokerCluster(3)
    cluster.create("t", 6, 3)
    for going in (cluster.followers[0].id, cluster.controller.id):
        led = [p for p in cluster.stored.topics["t"].partitions if p.leader == going]
        assert led
        node = cluster.nodes[going]
        left: list[bool] = []
        node.broker.leave(lambda left=left: left.append(True))
        cluster.run_until(lambda left=left: bool(left))
        # Everybody knows before the broker is gone.
        for each in cluster.nodes.values():
            assert all(p.leader not in (going, -1) for p in each.image.topics["t"].partitions)
        cluster.stop(going)
        cluster.agree()
        cluster.start(going)
        cluster.bring_in_sync()
    cluster.check()


def test_only_a_broker_that_did_not_stop_in_order_is_said_to_be_dead() -> None:
    cluster = BrokerCluster(3)
    controller, (stopped, killed) = cluster.controller, cluster.followers
    left: list[bool] = []
    stopped.broker.leave(lambda: left.append(True))
    cluster.run_until(lambda: bool(left))
    for node in (stopped, killed):
        cluster.kill(node.id, expire=False)
        cluster.run_until(lambda node=node: node.id not in cluster.stored.brokers)
    said = [notice for notice in controller.notices if "taken for dead" in notice]
    assert said == [f"broker {killed.id} refuses connections: its process is taken for dead"]
    cluster.check()


def test_the_last_broker_stops_without_waiting_for_anybody() -> None:
    cluster = BrokerCluster(2)
    cluster.create("t", 1, 2)
    cluster.kill(1 - cluster.leader("t", 0))
    cluster.agree()
    (last,) = cluster.nodes.values()
    cluster.stop(last.id)
    assert not any("handed over" in notice for notice in last.notices)
    cluster.check()


def test_a_stop_waits_for_replicas_and_gives_up_in_the_end() -> None:
    cluster = BrokerCluster(3, settings={"controlled.shutdown.retry.backoff.ms": "1000"})
    cluster.create("t", 1, 2)
    leader = cluster.leader("t", 0)
    cluster.kill(next(r for r in cluster.stored.topics["t"].partitions[0].replicas if r != leader))
    cluster.run_until(lambda: len(cluster.stored.topics["t"].partitions[0].isr) == 1)
    before_ms = cluster.clock.now_ms
    node = cluster.nodes[leader]
    cluster.stop(leader)
    assert cluster.clock.now_ms - before_ms >= 2_000
    assert any("t-0" in notice for notice in node.notices)
    cluster.check()


def test_a_stop_does_not_wait_for_long_for_a_controller_that_is_silent() -> None:
    cluster = BrokerCluster(3)
    cluster.create("t", 3, 3)
    controller, going = cluster.controller, cluster.followers[0]
    cluster.network.cut(controller.machine, going.machine)
    before_ms = cluster.clock.now_ms
    cluster.stop(going.id)
    assert cluster.clock.now_ms - before_ms <= 10_000
    assert [notice for notice in going.notices if f"broker {controller.id}, does not answer" in notice]
    cluster.check()


def test_a_stop_of_the_controller_does_not_wait_for_long_for_the_store() -> None:
    cluster = BrokerCluster(3)
    cluster.create("t", 3, 3)
    controller = cluster.controller
    left: list[bool] = []
    with cluster.ensemble.delayed():
        before_ms = cluster.clock.now_ms
        controller.broker.leave(lambda: left.append(True))
        cluster.run_until(lambda: bool(left))
        assert cluster.clock.now_ms - before_ms <= 10_000
    assert [notice for notice in controller.notices if "ZooKeeper does not answer" in notice]
    cluster.run(1_000)
    assert left == [True]
    cluster.check()


def test_preferred_replicas_lead_again_after_a_while() -> None:
    cluster = BrokerCluster(3, settings={"leader.imbalance.check.interval.seconds": "60"})
    cluster.create("t", 6, 3)
    cluster.kill(1)
    cluster.run_until(lambda: all(p.leader not in (1, -1) for p in cluster.stored.topics["t"].partitions))
    cluster.start(1)
    cluster.bring_in_sync()
    cluster.run_until(lambda: all(p.leader == p.replicas[0] for p in cluster.stored.topics["t"].partitions))
    cluster.agree()
    cluster.check()


def test_replicas_move_on_demand_and_the_move_can_be_seen_and_cancelled_anywhere() -> None:
    cluster = BrokerCluster(3)
    cluster.create("t", 3, 1)
    leader, target = (node.id for node in cluster.followers)
    index = next(p.partition_index for p in cluster.stored.topics["t"].partitions if p.leader == leader)

    def ask(replicas: list[int] | None) -> int:
        request = messages.AlterPartitionReassignmentsRequest
        partition = request.ReassignablePartition(partition_index=index, replicas=replicas)
        topics = [request.ReassignableTopic(name="t", partitions=[partition])]
        (topic,) = cluster.ask(cluster.followers[0].id, request(topics=topics, timeout_ms=1_000)).responses
        return topic.partitions[0].error_code

    def moves(broker_id: int) -> list[list[int]]:
        listed = cluster.ask(broker_id, messages.ListPartitionReassignmentsRequest(topics=None)).topics
        return [p.adding_replicas for topic in listed for p in topic.partitions]

    machines = cluster.nodes[target].machine, cluster.nodes[leader].machine
    cluster.network.cut(*machines)  # so that it cannot catch up
    assert ask([target]) == 0
    cluster.agree()
    assert all(moves(broker_id) == [[target]] for broker_id in cluster.nodes)
    assert ask(None) == 0
    assert ask(None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    cluster.agree()
    assert all(moves(broker_id) == [] for broker_id in cluster.nodes)
    cluster.network.mend(*machines)
    assert ask([target]) == 0
    cluster.agree()
    cluster.bring_in_sync()
    partition = cluster.stored.topics["t"].partitions[index]
    assert (partition.replicas, partition.leader) == ((target,), target)
    cluster.check()


# --- without the store --------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["the controller", "another broker"])
def test_what_would_change_the_metadata_is_refused_in_time_and_not_done_later_while_the_store_is_away(
    asked: str,
) -> None:
    cluster = BrokerCluster(3)
    cluster.create("t", 1, 3)
    broker_id = cluster.controller.id if asked == "the controller" else cluster.followers[0].id
    for node in cluster.nodes.values():
        node.store.suspend()
    topics = [messages.CreateTopicsRequest.CreatableTopic(name="late", num_partitions=1, replication_factor=3)]
    creation = cluster.send(broker_id, messages.CreateTopicsRequest(topics=topics, timeout_ms=2_000), client="one")
    gone = [messages.DeleteTopicsRequest.DeleteTopicState(name="t")]
    deletion = cluster.send(broker_id, messages.DeleteTopicsRequest(topics=gone, timeout_ms=3_000), client="two")
    config = messages.IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", value="7")
    resource = messages.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2, resource_name="t", configs=[config]
    )
    alteration = cluster.send(broker_id, messages.IncrementalAlterConfigsRequest(resources=[resource]), client="three")
    cluster.run(2_100)
    assert [bool(outcome) for outcome in (creation, deletion, alteration)] == [True, False, False]
    cluster.run(1_000)
    assert [bool(outcome) for outcome in (creation, deletion, alteration)] == [True, True, False]
    cluster.run(40_000)
    codes = [
        cast(Any, creation[0]).message.topics[0].error_code,
        cast(Any, deletion[0]).message.responses[0].error_code,
        cast(Any, alteration[0]).message.responses[0].error_code,
    ]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT] * 3
    for node in cluster.nodes.values():
        node.store.resume()
    assert cluster.create("u", 1, 3).error_code == 0
    assert cluster.stored.topics.keys() == {"t", "u"}
    assert not any(node.values for node in cluster.stored.configs.values())
    cluster.check()


def test_what_would_change_the_metadata_is_done_when_the_store_is_back_in_time() -> None:
    cluster = BrokerCluster(3)
    node = cluster.controller
    node.store.suspend()
    topics = [messages.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=3)]
    outcome = cluster.send(node.id, messages.CreateTopicsRequest(topics=topics, timeout_ms=5_000))
    cluster.run(3_000)
    assert not outcome
    node.store.resume()
    cluster.run_until(lambda: bool(outcome))
    assert cast(Any, outcome[0]).message.topics[0].error_code == 0
    cluster.check()
