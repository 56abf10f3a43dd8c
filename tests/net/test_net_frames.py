"""Bytes to frames and answers to bytes: whatever the pieces, the frames are the same and the order is kept."""

from __future__ import annotations

import itertools
import random
import socket
import struct
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from net_site import Site, framed, held_bytes, number_of, reply_to, request

from tidelog.net import Exchange, Limits
from tidelog.net.inbox import SMALL_BYTES
from tidelog.net.server import AREA_BYTES

SEVERAL = b"".join(request(number, 8 + 7 * number) for number in range(40))


def feed(pieces: list[bytes]) -> tuple[list[bytes], bytes]:
    """Send the pieces with turns between them; the frames that were dispatched and the bytes that came back."""
    site = Site()
    frames: list[bytes] = []

    def keep(exchange: Exchange, frame: memoryview) -> None:
        frames.append(bytes(frame))
        exchange.reply([reply_to(number_of(frame))])

    site.dispatch = keep
    try:
        client = site.connect()
        for piece in pieces:
            expected = site.server.bytes_in + len(piece)
            client.send(piece)
            site.until(lambda expected=expected: site.server.bytes_in == expected)  # type: ignore[misc]
        return frames, client.read(8 * 40)
    finally:
        site.close()


def test_fed_byte_by_byte_is_fed_whole() -> None:
    whole = feed([SEVERAL])
    assert len(whole[0]) == 40
    assert feed([SEVERAL[at : at + 1] for at in range(len(SEVERAL))]) == whole


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, len(SEVERAL)), max_size=8))
def test_any_cut_gives_the_same_frames(cuts: list[int]) -> None:
    borders = [0, *sorted(cuts), len(SEVERAL)]
    pieces = [SEVERAL[a:b] for a, b in itertools.pairwise(borders) if a < b]
    frames, replies = feed(pieces)
    assert b"".join(framed(frame) for frame in frames) == SEVERAL
    assert replies == b"".join(reply_to(number) for number in range(40))


@pytest.mark.parametrize(
    "size_bytes",
    [
        8,
        SMALL_BYTES - 4,
        SMALL_BYTES,
        65_536,
        AREA_BYTES - 5,
        AREA_BYTES - 4,
        AREA_BYTES,
        5 * AREA_BYTES + 3,
    ],
)
def test_frames_of_any_size_arrive_as_they_were_sent(site: Site, size_bytes: int) -> None:
    got: list[bool] = []
    body = struct.pack(">hhi", 0, 0, 7) + random.Random(size_bytes).randbytes(size_bytes - 8)

    def check(exchange: Exchange, frame: memoryview) -> None:
        got.append(frame == body)
        assert not frame.readonly
        exchange.reply([reply_to(number_of(frame))])

    site.dispatch = check
    client = site.connect()
    client.send(framed(body) * 3)
    assert client.read_numbers(3) == [7, 7, 7]
    assert got == [True] * 3
    assert held_bytes(site.server.connections[0]) == 0
    assert site.errors == []


def test_ten_thousand_pipelined_requests_are_answered_in_order(site: Site) -> None:
    client = site.connect()
    client.send(b"".join(request(number) for number in range(10_000)))
    assert client.read_numbers(10_000) == list(range(10_000))
    assert site.server.requests == 10_000


def test_a_long_pipeline_leaves_others_their_turn(site: Site) -> None:
    """While one connection has thousands of requests buffered, another is answered within a few turns."""
    order: list[str] = []

    def note(exchange: Exchange, frame: memoryview) -> None:
        order.append("other" if number_of(frame) < 0 else "pipeline")
        site.echo(exchange, frame)

    site.dispatch = note
    busy, other = site.connect(), site.connect()
    busy.send(b"".join(request(number) for number in range(10_000)))
    site.until(lambda: order)
    other.send(request(-1))
    assert other.read_numbers(1) == [-1]
    assert order.index("other") < 1000
    assert busy.read_numbers(10_000) == list(range(10_000))


def test_answers_in_any_order_leave_in_the_order_of_the_requests(site: Site) -> None:
    site.dispatch = site.park_and_allow_next
    client = site.connect()
    client.send(b"".join(request(number) for number in range(50)))
    site.until(lambda: len(site.exchanges) == 50)
    order = list(range(50))
    random.Random(7).shuffle(order)
    for number in order:
        if number % 5 == 3:
            site.exchanges[number].no_reply()
        else:
            site.exchanges[number].reply([reply_to(number)])
        site.turn()
    expected = [number for number in range(50) if number % 5 != 3]
    assert client.read_numbers(len(expected)) == expected
    assert not site.server.connections[0]._pending


def test_the_next_request_waits_for_the_answer_unless_it_is_allowed(site: Site) -> None:
    site.dispatch = site.park
    client = site.connect()
    client.send(b"".join(request(number) for number in range(3)))
    site.settle()
    assert len(site.exchanges) == 1
    site.exchanges[0].allow_next()
    site.settle()
    assert len(site.exchanges) == 2
    site.exchanges[1].reply([reply_to(1)])
    site.settle()
    assert len(site.exchanges) == 3
    client.pull()
    assert client.received == b""  # the first is not answered
    site.exchanges[2].reply([reply_to(2)])
    site.exchanges[0].reply([reply_to(0)])
    assert client.read_numbers(3) == [0, 1, 2]


def test_allowing_an_older_request_does_not_free_the_newest(site: Site) -> None:
    site.dispatch = site.park
    client = site.connect()
    client.send(b"".join(request(number) for number in range(3)))
    site.until(lambda: len(site.exchanges) == 1)
    site.exchanges[0].allow_next()
    site.until(lambda: len(site.exchanges) == 2)
    site.exchanges[0].reply([reply_to(0)])
    site.exchanges[0].allow_next()
    site.settle()
    assert len(site.exchanges) == 2


def test_a_request_is_answered_once(site: Site) -> None:
    site.dispatch = site.park
    site.connect().send(request(1))
    site.until(lambda: site.exchanges)
    assert not site.exchanges[0].answered
    site.exchanges[0].reply([reply_to(1)])
    assert site.exchanges[0].answered
    with pytest.raises(RuntimeError):
        site.exchanges[0].no_reply()


def test_answers_of_one_event_leave_in_one_send(site: Site) -> None:
    site.server.limits.max_frames_per_turn = 20
    client = site.connect()
    sends: list[int] = []
    transport = site.server.connections[0]._transport
    send = transport.send
    transport.send = lambda data, flags: (sends.append(len(data)), send(data, flags))[1]  # type: ignore[method-assign]
    client.send(b"".join(request(number) for number in range(20)))
    assert client.read_numbers(20) == list(range(20))
    assert sends == [20 * 8]


def test_answers_given_later_in_one_turn_leave_in_one_send(site: Site) -> None:
    client = site.connect()
    site.dispatch = site.park_and_allow_next
    client.send(b"".join(request(number) for number in range(20)))
    site.until(lambda: len(site.exchanges) == 20)
    sends: list[int] = []
    transport = site.server.connections[0]._transport
    send = transport.send
    transport.send = lambda data, flags: (sends.append(len(data)), send(data, flags))[1]  # type: ignore[method-assign]
    site.loop.call_soon(lambda: [e.reply([reply_to(n)]) for n, e in reversed(list(enumerate(site.exchanges)))])
    assert client.read_numbers(20) == list(range(20))
    assert sends == [20 * 8]


def test_closing_as_an_answer_sends_what_came_before_and_nothing_after(site: Site) -> None:
    site.dispatch = site.park_and_allow_next
    client = site.connect()
    client.send(b"".join(request(number) for number in range(4)))
    site.until(lambda: len(site.exchanges) == 4)
    abandoned: list[int] = []
    for number, exchange in enumerate(site.exchanges):
        exchange.on_abandoned = lambda number=number: abandoned.append(number)  # type: ignore[misc]
    site.exchanges[2].reply([reply_to(2)])
    site.exchanges[1].close([reply_to(-1)])
    site.settle()
    assert len(site.server.connections) == 1  # the first request is still to be answered
    site.exchanges[0].reply([reply_to(0)])
    assert client.read_to_end() == reply_to(0) + reply_to(-1)
    assert abandoned == [3]
    site.exchanges[3].reply([reply_to(3)])  # too late, and no harm
    assert site.server.connections == []
    assert site.errors == []


def test_requests_after_a_closing_answer_are_not_dispatched(site: Site) -> None:
    def close_the_third(exchange: Exchange, frame: memoryview) -> None:
        site.frames.append(bytes(frame))
        if number_of(frame) == 2:
            exchange.close()
        else:
            exchange.reply([reply_to(number_of(frame))])

    site.dispatch = close_the_third
    client = site.connect()
    client.send(b"".join(request(number) for number in range(10)))
    client.read_to_end()
    assert len(site.frames) == 3


def test_a_failing_dispatch_ends_its_connection_and_no_other(site: Site) -> None:
    def fail(exchange: Exchange, frame: memoryview) -> None:
        if number_of(frame) == 13:
            raise ValueError("no")
        site.echo(exchange, frame)

    site.dispatch = fail
    bad, good = site.connect(), site.connect()
    bad.send(request(13) + request(14))
    bad.read_to_end()
    good.send(request(1))
    assert good.read_numbers(1) == [1]
    assert [str(error) for _, error in site.errors] == ["no"]
    assert len(site.server.connections) == 1


def test_when_the_peer_goes_its_waiting_requests_are_told(site: Site) -> None:
    site.dispatch = site.park_and_allow_next
    client = site.connect()
    client.send(request(0) + request(1))
    site.until(lambda: len(site.exchanges) == 2)
    told: list[str] = []
    connection = site.server.connections[0]
    site.exchanges[0].on_abandoned = lambda: told.append("first")
    site.exchanges[1].on_abandoned = lambda: 1 / 0
    client.socket.close()
    site.until(lambda: connection.closed)
    assert told == ["first"]
    assert [type(error) for _, error in site.errors] == [ZeroDivisionError]
    site.exchanges[0].reply([reply_to(0)])


def test_an_answered_request_is_not_told_when_the_peer_goes(site: Site) -> None:
    site.dispatch = site.park
    client = site.connect()
    client.send(request(0))
    site.until(lambda: site.exchanges)
    site.exchanges[0].on_abandoned = lambda: pytest.fail("told")
    site.exchanges[0].reply([reply_to(0)])
    assert client.read_numbers(1) == [0]
    client.socket.close()
    site.until(lambda: not site.server.connections)
    assert site.errors == []


def test_frames_sent_before_the_peer_closed_are_all_dispatched(site: Site) -> None:
    """A producer with acks=0 sends and goes."""
    count = 0

    def quiet(exchange: Exchange, frame: memoryview) -> None:
        nonlocal count
        count += 1
        exchange.no_reply()

    site.dispatch = quiet
    client = site.connect()
    client.send(b"".join(request(number) for number in range(5000)))
    client.socket.close()
    site.until(lambda: not site.server.connections)
    assert count == 5000


def test_frames_behind_a_waiting_one_are_dispatched_though_the_peer_closed(site: Site) -> None:
    site.dispatch = site.park
    client = site.connect()
    client.send(request(0) + request(1))
    client.socket.close()
    site.settle()
    assert len(site.exchanges) == 1
    site.exchanges[0].no_reply()
    site.until(lambda: len(site.exchanges) == 2)
    site.exchanges[1].no_reply()
    site.until(lambda: not site.server.connections)


def test_a_peer_that_only_stops_sending_gets_its_answers(site: Site) -> None:
    """More of them than fit into the sockets' buffers, so that most leave after its end was seen."""
    filler = bytes(50_000)
    site.dispatch = lambda exchange, frame: exchange.reply([reply_to(number_of(frame)), filler])
    client = site.connect(receive_buffer_bytes=4096)
    client.send(b"".join(request(number) for number in range(100)))
    client.socket.shutdown(socket.SHUT_WR)
    site.settle()
    assert client.read_to_end() == b"".join(reply_to(number) + filler for number in range(100))


def test_an_idle_connection_holds_no_buffer(site: Site) -> None:
    client = site.connect()
    client.send(request(1, 300_000)[:-1])
    site.until(lambda: site.server.bytes_in == 300_003)
    assert held_bytes(site.server.connections[0]) == 300_003
    client.send(b"\0")
    assert client.read_numbers(1) == [1]
    assert site.server.connections[0]._inbox.view is None


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sizes=st.lists(st.integers(8, 200_000), min_size=1, max_size=12),
    seed=st.integers(0, 1000),
    held=st.sampled_from([64, 5000, 65_536]),
    frames=st.sampled_from([1, 2, 32]),
)
def test_any_mix_of_waiting_and_answering_keeps_frames_and_order(
    sizes: list[int], seed: int, held: int, frames: int
) -> None:
    """Random sizes, pieces, delays and limits: the bodies arrive unchanged, the answers in order."""
    draw = random.Random(seed)
    site = Site(Limits(max_held_bytes=held, max_frames_per_turn=frames, max_pipelined_requests=3))
    bodies = [struct.pack(">hhi", 0, 0, n) + draw.randbytes(size - 8) for n, size in enumerate(sizes)]
    waiting: list[tuple[int, Exchange]] = []
    got: list[bytes] = []

    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        got.append(bytes(frame))
        action = draw.random()
        if action < 0.4:
            exchange.reply([reply_to(number_of(frame))])
        else:
            waiting.append((number_of(frame), exchange))
            if action < 0.7:
                exchange.allow_next()

    def answer_one() -> None:
        client.pull()
        if waiting and draw.random() < 0.5:
            number, exchange = waiting.pop(draw.randrange(len(waiting)))
            exchange.reply([reply_to(number)])

    site.dispatch = dispatch
    client = site.connect()
    data = b"".join(framed(body) for body in bodies)
    try:
        while data:
            cut = min(len(data), int(draw.expovariate(1 / 40_000)) + 1)
            try:
                data = data[client.socket.send(data[:cut]) :]
            except BlockingIOError:
                pass
            site.turn()
            answer_one()
        site.until(lambda: len(client.received) == 8 * len(bodies), answer_one)
        assert got == bodies
        assert client.received == b"".join(reply_to(number) for number in range(len(bodies)))
        assert site.errors == []
    finally:
        site.close()


def test_an_answer_between_event_and_settling_is_not_taken_for_the_end(site: Site) -> None:
    """The answer frees the connection just before more bytes of it are read in the same turn."""
    site.dispatch = site.park
    client = site.connect()
    client.send(request(0) + request(1, 50_000) + request(2, 50_000)[:100])
    site.settle()
    assert len(site.exchanges) == 1
    client.send(request(2, 50_000)[100:])
    site.dispatch = site.echo
    site.exchanges[0].reply([reply_to(0)])  # settles at the end of the turn; the read event comes before that
    assert client.read_numbers(3) == [0, 1, 2]


def test_each_connection_knows_its_peer_and_listener(make_site: Callable[..., Site]) -> None:
    site = make_site()
    other_address = site.server.listen("127.0.0.1", 0, "INTERNAL")
    first = site.connect()
    site.address = other_address
    second = site.connect()
    seen = {c.peer: c.listener_name for c in site.server.connections}
    assert seen == {first.socket.getsockname(): "PLAINTEXT", second.socket.getsockname(): "INTERNAL"}
