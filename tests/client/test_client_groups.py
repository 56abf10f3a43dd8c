"""Consumer groups through the client, against a real broker and stock consumers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from bench.systems.process import BrokerProcess
from confluent_kafka import Consumer

from tidelog.client import Client
from tidelog.client.errors import ClientError, NotFound
from tidelog.client.groups import DescribedGroup, GroupOffset


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


@pytest.fixture(params=["classic", "consumer"])
def member(request: pytest.FixtureRequest, broker: BrokerProcess, group: str, topic: str) -> Iterator[Consumer]:
    """A stock consumer that subscribes to the topic as a member of the group."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "client.id": "stock",
        "group.protocol": request.param,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    yield consumer
    consumer.close()


def settled(client: Client, group: str, consumer: Consumer) -> DescribedGroup:
    """The group once its member has its partitions."""
    for _ in range(200):
        consumer.poll(0.05)
        try:
            described = client.groups.describe(group)
        except NotFound:
            continue
        if described.state == "Stable" and described.members and described.members[0].assignment:
            return described
    raise AssertionError("the group did not settle")


def test_a_group_tells_its_members_and_what_they_read(
    client: Client, group: str, topic: str, member: Consumer, request: pytest.FixtureRequest
) -> None:
    described = settled(client, group, member)
    assert described.type == request.node.callspec.params["member"]
    assert (described.group_id, described.protocol_type) == (group, "consumer")
    (one,) = described.members
    assert (one.client_id, one.assignment) == ("stock", [(topic, 0)])
    listed = {row.group_id: row for row in client.groups.list_all()}
    assert (listed[group].state, listed[group].type) == ("Stable", described.type)


def test_a_group_with_members_is_neither_moved_nor_deleted(
    client: Client, group: str, topic: str, member: Consumer
) -> None:
    settled(client, group, member)
    with pytest.raises(ClientError):
        client.groups.commit(group, {(topic, 0): 0})
    with pytest.raises(ClientError) as raised:
        client.groups.delete(group)
    assert raised.value.hint is not None and "stop" in raised.value.hint


def test_offsets_are_committed_listed_and_deleted(client: Client, group: str, new_topic: Callable[..., str]) -> None:
    name = new_topic(3)
    client.groups.commit(group, {(name, 0): 7, (name, 2): GroupOffset(9, 0, "note")})
    assert client.groups.offsets(group) == {(name, 0): GroupOffset(7), (name, 2): GroupOffset(9, 0, "note")}
    assert client.groups.offsets(group, [(name, 0), (name, 1)]) == {(name, 0): GroupOffset(7)}
    client.groups.delete_offsets(group, [(name, 0)])
    assert list(client.groups.offsets(group)) == [(name, 2)]
    described = client.groups.describe(group)
    assert (described.state, described.members) == ("Empty", [])


def test_a_deleted_group_is_gone(client: Client, group: str, topic: str) -> None:
    client.groups.commit(group, {(topic, 0): 1})
    client.groups.delete(group)
    assert client.groups.offsets(group) == {}
    deadline = time.monotonic() + 20
    while group in {row.group_id for row in client.groups.list_all()}:
        assert time.monotonic() < deadline
    for question in (client.groups.describe, client.groups.delete):
        with pytest.raises(NotFound):
            question(group)
