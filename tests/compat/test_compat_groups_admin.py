"""Groups through admin calls and Apache Kafka's group tool: listed, described, reset, deleted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bench.systems.java import ToolResult
from bench.systems.process import BrokerProcess
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from members import Member, member_settings
from stock import Message, eventually
from stock_python import ConfluentClient

Java = Callable[..., ToolResult]
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PROTOCOLS = ("classic", "consumer")


def only(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(30)


def refusal(futures: dict[Any, Any]) -> int:
    with pytest.raises(KafkaException) as refused:
        only(futures)
    return int(refused.value.args[0].code())


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


@pytest.fixture
def filled(new_topic: Callable[..., str], confluent: ConfluentClient) -> str:
    """Two partitions of fifty records, stamped a second apart."""
    topic = new_topic(partitions=2)
    base_ms = 1_700_000_000_000
    messages = [Message(b"%d" % n, partition=n % 2, timestamp_ms=base_ms + 1_000 * (n // 2)) for n in range(100)]
    confluent.produce(topic, messages)
    return topic


@pytest.fixture(params=PROTOCOLS)
def living(request: pytest.FixtureRequest, broker: BrokerProcess, group: str, filled: str) -> Iterator[Member]:
    """A member that has read and committed everything, and stays."""
    member = Member(broker.bootstrap, group, [filled], request.param, client_id="the-member")
    eventually(lambda: len(member.read) == 100, 45)
    yield member
    if not member.stopped:
        member.leave()


@pytest.fixture
def committed(broker: BrokerProcess, group: str, filled: str) -> str:
    """A group without members whose offsets are 30 and 20."""
    consumer = Consumer(member_settings(broker.bootstrap, group))
    consumer.commit(offsets=[TopicPartition(filled, 0, 30), TopicPartition(filled, 1, 20)], asynchronous=False)
    consumer.close()
    return group


def offsets_of(admin: AdminClient, group: str) -> dict[int, int]:
    listed = only(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    return {at.partition: at.offset for at in listed.topic_partitions}


def test_a_group_with_a_member_is_listed_and_described(
    admin: AdminClient, living: Member, group: str, filled: str, broker_ids: list[int]
) -> None:
    listed = {one.group_id: one for one in admin.list_consumer_groups().result(30).valid}
    assert listed[group].state == ConsumerGroupState.STABLE
    assert not listed[group].is_simple_consumer_group
    described = only(admin.describe_consumer_groups([group]))
    assert described.state == ConsumerGroupState.STABLE
    assert described.type == listed[group].type
    assert described.coordinator.id in broker_ids
    (member,) = described.members
    assert member.client_id == "the-member"
    assert member.host == "/127.0.0.1"
    assert {(at.topic, at.partition) for at in member.assignment.topic_partitions} == {(filled, 0), (filled, 1)}
    assert offsets_of(admin, group) == {0: 50, 1: 50}
    living.leave()
    eventually(lambda: only(admin.describe_consumer_groups([group])).state == ConsumerGroupState.EMPTY)
    assert only(admin.describe_consumer_groups([group])).members == []


def test_groups_are_listed_by_state_and_type(admin: AdminClient, living: Member, group: str) -> None:
    kind = only(admin.describe_consumer_groups([group])).type

    def names(**filters: Any) -> set[str]:
        return {one.group_id for one in admin.list_consumer_groups(**filters).result(30).valid}

    assert group in names(states={ConsumerGroupState.STABLE})
    assert group not in names(states={ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD})
    other = ConsumerGroupType.CLASSIC if kind == ConsumerGroupType.CONSUMER else ConsumerGroupType.CONSUMER
    assert group in names(types={kind})
    assert group not in names(types={other})


def test_a_group_with_a_member_is_neither_deleted_nor_altered(
    admin: AdminClient, living: Member, group: str, filled: str
) -> None:
    assert refusal(admin.delete_consumer_groups([group])) == KafkaError.NON_EMPTY_GROUP
    change = ConsumerGroupTopicPartitions(group, [TopicPartition(filled, 0, 1)])
    altered = only(admin.alter_consumer_group_offsets([change]))
    assert [at.error.code() for at in altered.topic_partitions] == [KafkaError.UNKNOWN_MEMBER_ID]
    assert offsets_of(admin, group) == {0: 50, 1: 50}


def test_offsets_of_an_empty_group_are_altered_and_the_group_deleted(
    admin: AdminClient, committed: str, filled: str
) -> None:
    assert offsets_of(admin, committed) == {0: 30, 1: 20}
    change = ConsumerGroupTopicPartitions(committed, [TopicPartition(filled, 1, 5)])
    only(admin.alter_consumer_group_offsets([change]))
    assert offsets_of(admin, committed) == {0: 30, 1: 5}
    only(admin.delete_consumer_groups([committed]))
    assert offsets_of(admin, committed) == {}
    assert refusal(admin.delete_consumer_groups([committed])) == KafkaError.GROUP_ID_NOT_FOUND


def test_an_unknown_group_is_dead_or_not_found(admin: AdminClient, group: str) -> None:
    assert refusal(admin.delete_consumer_groups([group])) == KafkaError.GROUP_ID_NOT_FOUND
    with pytest.raises(KafkaException) as refused:
        described = only(admin.describe_consumer_groups([group]))
        assert described.state == ConsumerGroupState.DEAD
        raise KafkaException(KafkaError(KafkaError.GROUP_ID_NOT_FOUND))
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
    assert offsets_of(admin, group) == {}


def test_the_group_tool_describes_offsets_members_and_state(
    java: Java, broker: BrokerProcess, living: Member, group: str, filled: str
) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    assert group in java(GROUP_COMMAND, *at, "--list").check().lines
    offsets = java(GROUP_COMMAND, *at, "--describe", "--group", group).check().out
    for partition in (0, 1):
        row = rf"{group}\s+{filled}\s+{partition}\s+50\s+50\s+0\s+\S+\s+/127.0.0.1\s+the-member"
        assert re.search(row, offsets), offsets
    members = java(GROUP_COMMAND, *at, "--describe", "--group", group, "--members", "--verbose").check().out
    assert re.search(rf"{group}\s+\S+\s+/127.0.0.1\s+the-member\s+2\s", members), members
    assert f"{filled}" in members
    state = java(GROUP_COMMAND, *at, "--describe", "--group", group, "--state").check().out
    addresses = "|".join(broker.bootstrap.split(","))
    assert re.search(rf"{group}\s+({addresses})\s+\(\d+\)\s+\S+\s+Stable\s+1", state), state
    refused = java(GROUP_COMMAND, *at, "--delete", "--group", group)
    assert "GroupNotEmptyException" in refused.out + refused.err


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (("--to-earliest",), {0: 0, 1: 0}),
        (("--to-latest",), {0: 50, 1: 50}),
        (("--to-offset", "17"), {0: 17, 1: 17}),
        (("--shift-by", "-5"), {0: 25, 1: 15}),
        (("--to-datetime", "2023-11-14T22:13:30.000+00:00"), {0: 10, 1: 10}),
        (("--to-current",), {0: 30, 1: 20}),
    ],
    ids=["earliest", "latest", "offset", "shift", "datetime", "current"],
)
def test_the_group_tool_resets_offsets(
    java: Java, broker: BrokerProcess, admin: AdminClient, committed: str, filled: str, how: Any, expected: Any
) -> None:
    which = ("--bootstrap-server", broker.bootstrap, "--group", committed, "--topic", filled)
    java(GROUP_COMMAND, *which, "--reset-offsets", *how, "--dry-run").check()
    assert offsets_of(admin, committed) == {0: 30, 1: 20}
    java(GROUP_COMMAND, *which, "--reset-offsets", *how, "--execute").check()
    assert offsets_of(admin, committed) == expected


def test_the_group_tool_deletes_offsets_and_groups(
    java: Java, broker: BrokerProcess, admin: AdminClient, committed: str, filled: str
) -> None:
    which = ("--bootstrap-server", broker.bootstrap, "--group", committed)
    done = java(GROUP_COMMAND, *which, "--delete-offsets", "--topic", f"{filled}:1").check().out
    assert re.search(rf"{filled}\s+1\s+Successful", done)
    assert offsets_of(admin, committed) == {0: 30}
    deleted = java(GROUP_COMMAND, *which, "--delete").check().out
    assert f"Deletion of requested consumer groups ('{committed}') was successful." in deleted
    assert committed not in java(GROUP_COMMAND, "--bootstrap-server", broker.bootstrap, "--list").check().lines


def test_the_offsets_of_a_topic_in_use_are_not_deleted(
    java: Java, broker: BrokerProcess, living: Member, group: str, filled: str
) -> None:
    which = ("--bootstrap-server", broker.bootstrap, "--group", group)
    refused = java(GROUP_COMMAND, *which, "--delete-offsets", "--topic", filled)
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in refused.out + refused.err or "subscribed" in refused.out + refused.err


def test_offsets_survive_the_brokers_end(
    start_broker: Callable[..., BrokerProcess], unique: Callable[[str], str]
) -> None:
    broker = start_broker()
    topic, group = unique("topic"), unique("group")
    ConfluentClient(broker.bootstrap).produce(topic, [Message(b"%d" % n) for n in range(10)])
    consumer = Consumer(member_settings(broker.bootstrap, group))

    def commits() -> bool:
        # The first group of a broker's life waits for the offsets topic to be made.
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, 4, metadata="here")], asynchronous=False)
        except KafkaException as error:
            assert error.args[0].retriable() or error.args[0].code() == KafkaError.NOT_COORDINATOR, error
            return False
        return True

    eventually(commits, 45)
    consumer.close()
    broker.kill()
    broker.start()
    member = Member(broker.bootstrap, group, [topic])
    eventually(lambda: len(member.read) >= 6, 45)
    member.leave()
    assert [int(value) for _, _, value in member.read] == list(range(4, 10))
