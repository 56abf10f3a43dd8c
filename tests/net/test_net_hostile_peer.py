"""A link to something that is not a broker, or no longer one: every request ends, once, and nothing is left behind."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from net_peers import TIMEOUT_MS, TIMES, Hostile, SocketPeers, fetch_answer
from net_site import framed

from tidelog.net.socket_channel import SocketChannel
from tidelog.peers import FailureKind, PeerAddress
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey


@pytest.fixture
def peers() -> Iterator[SocketPeers]:
    made = SocketPeers()
    yield made
    made.close()
    assert made.reports == []


@pytest.fixture
def hostile(peers: SocketPeers) -> Iterator[Hostile]:
    made = Hostile(peers)
    yield made
    made.close()


def the_failure(peers: SocketPeers) -> tuple[FailureKind, bool]:
    peers.until(lambda: peers.outcomes)
    (failure,) = peers.failures
    return failure.kind, failure.maybe_done


def test_a_peer_that_hangs_up_in_mid_frame_fails_the_request(peers: SocketPeers, hostile: Hostile) -> None:
    peers.send(peers.link())
    hostile.greet()
    hostile.say(fetch_answer(*hostile.request(), 1)[:-1])
    peers.settle()
    hostile.hang_up()
    assert the_failure(peers) == (FailureKind.DISCONNECTED, True)


def test_a_peer_that_hangs_up_in_a_large_frame_fails_the_request(peers: SocketPeers, hostile: Hostile) -> None:
    peers.send(peers.link())
    hostile.greet()
    hostile.say(fetch_answer(*hostile.request(), 1, bytes(200_000))[:150_000])
    peers.settle()
    hostile.hang_up()
    assert the_failure(peers) == (FailureKind.DISCONNECTED, True)


def test_an_answer_to_another_request_ends_the_connection(peers: SocketPeers, hostile: Hostile) -> None:
    link = peers.link()
    peers.send(link)
    hostile.greet()
    key, version, correlation_id = hostile.request()
    hostile.say(fetch_answer(key, version, correlation_id + 1, 1))
    assert the_failure(peers) == (FailureKind.MALFORMED, True)
    assert "instead of" in peers.failures[0].why


def test_an_answer_that_nobody_asked_for_ends_the_connection(peers: SocketPeers, hostile: Hostile) -> None:
    link = peers.link()
    peers.send(link)
    hostile.greet()
    answer = fetch_answer(*hostile.request(), 1)
    hostile.say(answer + answer)
    peers.until(lambda: peers.outcomes)
    assert peers.numbers == [1]
    peers.until(lambda: "IDLE" in repr(link))


@pytest.mark.parametrize("size", [-1, 0, 3, (1 << 30) + 1])
def test_a_length_that_no_answer_can_have_ends_the_connection(peers: SocketPeers, hostile: Hostile, size: int) -> None:
    peers.send(peers.link())
    hostile.greet()
    hostile.request()
    hostile.say(struct.pack(">i", size))
    assert the_failure(peers) == (FailureKind.MALFORMED, True)
    assert str(size) in peers.failures[0].why


def test_an_answer_that_cannot_be_read_ends_the_connection(peers: SocketPeers, hostile: Hostile) -> None:
    peers.send(peers.link())
    hostile.greet()
    _, _, correlation_id = hostile.request()
    hostile.say(framed(struct.pack(">i", correlation_id) + b"\xff" * 20))
    assert the_failure(peers) == (FailureKind.MALFORMED, True)


def test_something_that_speaks_another_protocol_is_given_up(peers: SocketPeers, hostile: Hostile) -> None:
    peers.send(peers.link())
    hostile.request()
    hostile.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert the_failure(peers) == (FailureKind.MALFORMED, False)


def test_a_peer_that_accepts_and_hangs_up_fails_what_waits(peers: SocketPeers, hostile: Hostile) -> None:
    peers.send(peers.link())
    peers.until(lambda: hostile.accepted is not None, hostile.step)
    hostile.hang_up()
    assert the_failure(peers) == (FailureKind.DISCONNECTED, False)


def test_a_peer_that_never_accepts_is_unreachable_in_the_end(peers: SocketPeers, hostile: Hostile) -> None:
    peers.send(peers.link(), timeout_ms=60_000)
    peers.settle()
    peers.pass_time(TIMES.setup_ms)
    assert the_failure(peers) == (FailureKind.UNREACHABLE, False)


def test_two_answers_in_one_segment_are_two_answers(peers: SocketPeers, hostile: Hostile) -> None:
    link = peers.link()
    peers.send(link, 1)
    peers.send(link, 2)
    hostile.greet()
    hostile.say(fetch_answer(*hostile.request(), 1) + fetch_answer(*hostile.request(), 2))
    peers.until(lambda: len(peers.outcomes) == 2)
    assert peers.numbers == [1, 2]


def test_answers_may_come_byte_by_byte(peers: SocketPeers, hostile: Hostile) -> None:
    link = peers.link()
    peers.send(link, 1)
    peers.send(link, 2)
    hostile.greet()
    for byte in fetch_answer(*hostile.request(), 1) + fetch_answer(*hostile.request(), 2):
        hostile.say(bytes([byte]))
        peers.site.turn()
    peers.until(lambda: len(peers.outcomes) == 2)
    assert peers.numbers == [1, 2]


@pytest.mark.parametrize("size", [1, 16_300, 16_400, 65_400, 65_600, 300_000])
def test_answers_of_every_size_are_cut_where_they_end(peers: SocketPeers, hostile: Hostile, size: int) -> None:
    link = peers.link()
    found: list[tuple[int, bytes]] = []

    def read(outcome: Any) -> None:
        records = outcome.message.responses[0].partitions[0].records
        found.append((outcome.message.session_id, bytes(records)))

    expected = [(number, bytes([number]) * (size + number)) for number in range(5)]
    for _ in expected:
        link.send(ApiKey.FETCH, lambda version: _fetch(), read, TIMEOUT_MS)
    hostile.greet()
    answers = b"".join(fetch_answer(*hostile.request(), *each) for each in expected)
    at = 0
    for step in (1, 3, 7, 5_000, 16_384, 65_536, 100_000, len(answers)):
        piece = answers[at : at + step]
        assert hostile.accepted is not None
        while piece:
            try:
                sent = hostile.accepted.send(piece)
            except BlockingIOError:
                sent = 0
            piece = piece[sent:]
            at += sent
            peers.site.turn()
    peers.until(lambda: len(found) == len(expected))
    assert found == expected


def test_the_buffer_of_a_large_answer_is_used_again(peers: SocketPeers, hostile: Hostile) -> None:
    link = peers.link()
    peers.send(link, 1)
    hostile.greet()
    hostile.say(fetch_answer(*hostile.request(), 1, bytes(100_000)))
    peers.until(lambda: peers.outcomes)
    pool = link._dialler.pool  # type: ignore[attr-defined]
    (kept,) = pool._kept
    peers.send(link, 2)
    hostile.say(fetch_answer(*hostile.request(), 2, bytes(100_000)))
    peers.until(lambda: len(peers.outcomes) == 2)
    assert len(pool._kept) == 1 and pool._kept[0] is kept


def test_what_the_peer_does_not_read_was_not_done(peers: SocketPeers, hostile: Hostile) -> None:
    """A peer whose buffers are full has not seen all of the request, so it cannot have carried it out."""
    link = peers.link()
    peers.send(link, 1)
    hostile.greet()
    hostile.say(fetch_answer(*hostile.request(), 1))
    peers.until(lambda: peers.outcomes)
    for _ in range(2):
        link.send(ApiKey.PRODUCE, lambda version: _produce(32 << 20), peers.outcomes.append, TIMEOUT_MS)
    peers.settle()
    peers.pass_time(TIMEOUT_MS)
    peers.until(lambda: len(peers.outcomes) == 3)
    assert [failure.maybe_done for failure in peers.failures] == [False, False]


def test_a_name_is_looked_up_and_its_addresses_are_tried(peers: SocketPeers) -> None:
    peers.peer = PeerAddress(2, "localhost", peers.peer.port)
    assert peers.ask(peers.link(), 7).message.session_id == 7


def test_a_name_at_which_nobody_listens_refuses(peers: SocketPeers) -> None:
    peers.peer = PeerAddress(2, "localhost", peers.peer.port)
    peers.kill()
    assert peers.ask(peers.link()).kind is FailureKind.REFUSED


def test_a_name_that_does_not_exist_is_unreachable(peers: SocketPeers) -> None:
    peers.peer = PeerAddress(2, "no such host", 9092)
    outcome = peers.ask(peers.link())
    assert (outcome.kind, outcome.maybe_done) == (FailureKind.UNREACHABLE, False)


def test_a_link_that_closes_while_a_name_is_looked_up_leaves_nothing(peers: SocketPeers) -> None:
    peers.peer = PeerAddress(2, "localhost", peers.peer.port)
    link = peers.link()
    peers.send(link)
    link.close()
    peers.until(lambda: peers.outcomes)
    peers.settle()
    assert (peers.failures[0].kind, peers.connected) == (FailureKind.CLOSED, 0)


def test_a_socket_that_is_connected_with_itself_has_found_nobody() -> None:
    alone = socket.socket()
    with alone:
        alone.bind(("127.0.0.1", 0))
        alone.connect(alone.getsockname())
        assert SocketChannel._is_connected_to_itself(alone)
    listening = socket.create_server(("127.0.0.1", 0))
    with listening, socket.create_connection(listening.getsockname()) as other:
        assert not SocketChannel._is_connected_to_itself(other)


def test_the_receive_buffer_has_the_size_that_was_asked_for(peers: SocketPeers) -> None:
    peers.send(link := peers.link(receive_buffer_bytes=70_000))
    channel = link._channel
    assert isinstance(channel, SocketChannel) and channel._socket is not None
    # The system doubles what it is told, for its own use.
    assert channel._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 140_000
    assert channel._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_no_descriptor_is_left_behind_whatever_happened(peers: SocketPeers) -> None:
    peers.ask(peers.link(), 1)
    before = len(os.listdir("/proc/self/fd"))
    for round_ in range(5):
        link = peers.link()
        peers.ask(link, round_)
        peers.kill()
        assert peers.ask(link).kind is FailureKind.REFUSED
        link.close()
        peers.revive()
        pending = peers.link()
        peers.send(pending)
        pending.close()
        peers.settle()
        assert peers.failures[-1].kind is FailureKind.CLOSED
    peers.site.turn(2)
    assert len(os.listdir("/proc/self/fd")) <= before


def _fetch() -> Any:
    return messages.FetchRequest()


def _produce(size: int) -> Any:
    request = messages.ProduceRequest
    data = request.PartitionProduceData(index=0, records=bytes(size))
    return request(acks=1, topic_data=[request.TopicProduceData(name="t", topic_id=bytes(16), partition_data=[data])])
