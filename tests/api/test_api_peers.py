"""Brokers without sockets that ask each other over the network in memory: what one sends is what the other serves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from api_site import BROKER, START_MS, Site, batch

from tidelog.net.memory_network import MemoryNetwork
from tidelog.net.requester import PeerRequester
from tidelog.peers import Answered, Failure, PeerAddress
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey


class Asking:
    """A broker that is asked by another, which has its address and nothing else of it."""

    def __init__(self, directory: Path) -> None:
        self.site = Site(directory, {})
        self.network = MemoryNetwork(self.site.clock, self.site.timer, Random(1))
        host = self.site.broker.host
        self.network.listen(("b0", 9092), self.site.dispatch, host)
        self.requester = PeerRequester(1, host, self.network.dialler("b1"), Random(1))
        self.link = self.requester.link(PeerAddress(BROKER, "b0", 9092), "test")

    def send(self, api_key: int, asked: Any, **how: Any) -> list[Any]:
        outcomes: list[Any] = []
        self.link.send(api_key, asked, outcomes.append, 30_000, **how)
        self.run()
        return outcomes

    def ask(self, api_key: int, asked: Any, **how: Any) -> Any:
        (outcome,) = self.send(api_key, asked, **how)
        assert isinstance(outcome, Answered), outcome
        return outcome.message

    def run(self) -> None:
        """All that happens without time."""
        for _ in range(20):
            self.site.pass_time(0)


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    made = Asking(tmp_path)
    yield made
    assert made.site.reports == []


def fetch_of(topic_id: bytes, offset: int, wait_ms: int = 0) -> messages.FetchRequest:
    request = messages.FetchRequest
    wanted = request.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [request.FetchTopic(topic_id=topic_id, partitions=[wanted])]
    return request(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics)


def test_a_broker_fetches_from_another_as_it_would_over_a_socket(asking: Asking) -> None:
    topic_id = asking.site.topic("t")
    asking.site.produce("t", 3)
    answer = asking.ask(ApiKey.FETCH, fetch_of(topic_id, 0))
    records = bytes(answer.responses[0].partitions[0].records)
    stored = batch(3, START_MS)
    assert records[16:] != b"" and records[27:] == stored[27:]
    assert answer.responses[0].partitions[0].high_watermark == 3


def test_a_fetch_that_waits_is_answered_by_the_next_record(asking: Asking) -> None:
    topic_id = asking.site.topic("t")
    outcomes = asking.send(ApiKey.FETCH, fetch_of(topic_id, 0, wait_ms=5_000))
    asking.site.pass_time(100)
    assert outcomes == []
    asking.site.produce("t", 1)
    asking.run()
    (outcome,) = outcomes
    assert not isinstance(outcome, Failure)


def test_requests_behind_one_that_waits_are_answered_after_it(asking: Asking) -> None:
    topic_id = asking.site.topic("t")
    waiting = asking.send(ApiKey.FETCH, fetch_of(topic_id, 0, wait_ms=5_000))
    behind = asking.send(ApiKey.LIST_GROUPS, messages.ListGroupsRequest())
    assert (waiting, behind) == ([], [])
    asking.site.produce("t", 1)
    asking.run()
    assert len(waiting) == len(behind) == 1


def test_a_link_that_closes_lets_go_of_a_fetch_that_waits(asking: Asking) -> None:
    topic_id = asking.site.topic("t")
    asking.send(ApiKey.FETCH, fetch_of(topic_id, 0, wait_ms=5_000))
    parking = asking.site.broker.data.parking
    assert len(parking) == 1
    asking.link.close()
    asking.run()
    assert len(parking) == 0


def test_a_broker_is_reached_at_the_listener_between_brokers_and_nowhere_else(tmp_path: Path) -> None:
    registered = Site(tmp_path / "a", {}).broker.cluster
    assert registered.peer(BROKER) == PeerAddress(BROKER, "127.0.0.1", 9092)
    assert registered.peer(BROKER + 1) is None
    elsewhere = {
        "listeners": "PLAINTEXT://127.0.0.1:9092,INSIDE://127.0.0.1:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    # It has registered with a listener for clients only.
    assert Site(tmp_path / "b", elsewhere).broker.cluster.peer(BROKER) is None
