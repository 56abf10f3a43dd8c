"""A link to a broker in another process: killed, paused, and behind a listener that clients have filled."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tidelog.clock import SystemClock
from tidelog.net import Loop
from tidelog.net.link import ConnectTimes, PeerLink
from tidelog.net.requester import PeerRequester
from tidelog.net.socket_channel import SocketDialler
from tidelog.peers import Answered, Failure, FailureKind, PeerAddress
from tidelog.testing.broker import RunningBroker
from tidelog.timer.host import Host
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.records import build_batch

TIMEOUT_MS = 30_000
RECORD_BYTES = 1 << 20
#: `tidelog serve` where the configuration alone says at which addresses
SERVE_AS_CONFIGURED = (
    sys.executable,
    "-c",
    "import runpy, sys; given = sys.argv[1:]; "
    "at = given.index('--host'); sys.argv = ['tidelog', 'serve', *given[:at], *given[at + 4:]]; "
    "runpy.run_module('tidelog.cli.main', run_name='__main__')",
)


class Asker:
    """A link on a loop of its own; `ask` turns it until there is an outcome."""

    def __init__(self, loop: Loop, port: int) -> None:
        self.loop = loop
        host = Host(SystemClock(), loop.timer, loop, lambda what, error: pytest.fail(f"{what}: {error}"))
        times = ConnectTimes(backoff_ms=10, backoff_max_ms=50)
        self.requester = PeerRequester(1, host, SocketDialler(loop), Random(), times)
        self.link: PeerLink = self.requester.link(PeerAddress(0, "127.0.0.1", port), "test")

    def outcome(self, api_key: int, asked: Any, timeout_ms: int = TIMEOUT_MS, look: Any = None) -> Any:
        found: list[Any] = []

        def done(outcome: Any) -> None:
            found.append(look(outcome.message) if look and isinstance(outcome, Answered) else outcome)
            self.loop.stop()

        self.link.send(api_key, asked, done, timeout_ms)
        self.loop.run()
        return found[0]

    def ask(self, api_key: int, asked: Any) -> Any:
        outcome = self.outcome(api_key, asked)
        assert not isinstance(outcome, Failure), outcome
        return outcome.message


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        yield running


@pytest.fixture
def asker(broker: RunningBroker, system_loop: Loop) -> Iterator[Asker]:
    made = Asker(system_loop, broker.port)
    yield made
    made.requester.close()
    system_loop.turn(0)


def test_megabytes_go_there_and_come_back_as_they_were(asker: Asker) -> None:
    create = messages.CreateTopicsRequest
    wanted = create.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    topic_id = asker.ask(ApiKey.CREATE_TOPICS, create(topics=[wanted], timeout_ms=5000)).topics[0].topic_id
    produce = messages.ProduceRequest
    value = Random(1).randbytes(RECORD_BYTES - 1000)
    data = bytes(build_batch([(1, None, value, None)]))
    partition = produce.PartitionProduceData(index=0, records=data)
    topics = [produce.TopicProduceData(topic_id=topic_id, partition_data=[partition])]
    for _ in range(12):
        answer = asker.ask(ApiKey.PRODUCE, produce(acks=1, timeout_ms=5000, topic_data=topics))
        assert answer.responses[0].partition_responses[0].error_code == 0
    fetch = messages.FetchRequest
    read = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=64 << 20)
    topics_read = [fetch.FetchTopic(topic_id=topic_id, partitions=[read])]
    asked = fetch(max_wait_ms=500, min_bytes=1, max_bytes=64 << 20, topics=topics_read)
    records = asker.outcome(ApiKey.FETCH, asked, look=lambda message: bytes(message.responses[0].partitions[0].records))
    assert len(records) == 12 * len(data)
    # A leader writes offset and epoch into the header; what the checksum covers is as it was sent.
    assert all(records[at + 21 : at + len(data)] == data[21:] for at in range(0, len(records), len(data)))


def test_a_killed_broker_is_lost_then_refuses_and_is_found_again(broker: RunningBroker, asker: Asker) -> None:
    asker.ask(ApiKey.LIST_GROUPS, messages.ListGroupsRequest())
    broker.kill()
    kinds = [asker.outcome(ApiKey.LIST_GROUPS, messages.ListGroupsRequest()).kind for _ in range(3)]
    assert kinds[0] in (FailureKind.DISCONNECTED, FailureKind.REFUSED)
    assert kinds[1:] == [FailureKind.REFUSED] * 2
    broker.start()
    asker.ask(ApiKey.LIST_GROUPS, messages.ListGroupsRequest())


def test_a_paused_broker_times_out_and_answers_after_it_goes_on(broker: RunningBroker, asker: Asker) -> None:
    asker.ask(ApiKey.LIST_GROUPS, messages.ListGroupsRequest())
    broker.pause()
    outcome = asker.outcome(ApiKey.LIST_GROUPS, messages.ListGroupsRequest(), timeout_ms=50)
    assert (outcome.kind, outcome.maybe_done) == (FailureKind.TIMED_OUT, True)
    outcome = asker.outcome(ApiKey.LIST_GROUPS, messages.ListGroupsRequest(), timeout_ms=50)
    assert (outcome.kind, outcome.maybe_done) == (FailureKind.TIMED_OUT, False)
    broker.resume()
    asker.ask(ApiKey.LIST_GROUPS, messages.ListGroupsRequest())


def test_clients_cannot_keep_a_broker_out_of_the_listener_between_brokers(system_loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = {
        "listeners": f"CLIENTS://127.0.0.1:0,INTERNAL://127.0.0.1:{port}",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "max.connections": "1",
    }
    with RunningBroker(config, command=SERVE_AS_CONFIGURED) as broker:
        first = Asker(system_loop, broker.port)
        first.ask(ApiKey.LIST_GROUPS, messages.ListGroupsRequest())
        second = Asker(system_loop, port)
        second.ask(ApiKey.LIST_GROUPS, messages.ListGroupsRequest())
        for asker in (first, second):
            asker.requester.close()
        system_loop.turn(0)
