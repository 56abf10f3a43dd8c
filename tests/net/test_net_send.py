"""Sending: file slices beside bytes, peers that read slowly, files that became shorter."""

from __future__ import annotations

import os
import random
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from typing import BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from net_site import Client, Site, held_bytes, number_of, reply_to, request, unsent_bytes

from tidelog.net import Exchange
from tidelog.net.outbox import FLUSH_BYTES, JOIN_BYTES, SMALL_SLICE_BYTES, Outbox, Part, TruncatedSliceError
from tidelog.net.server import AREA_BYTES

CONTENT = random.Random(3).randbytes(8 * 1024 * 1024)


class Slice:
    """What the log hands out, and how often it was released."""

    def __init__(self, file: BinaryIO, position: int, size_bytes: int) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes
        self.released = 0

    def fileno(self) -> int:
        return self.file.fileno()

    def release(self) -> None:
        self.released += 1


class BareSlice:
    """A slice with nothing to release."""

    def __init__(self, file: BinaryIO, position: int, size_bytes: int) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes

    def fileno(self) -> int:
        return self.file.fileno()


@pytest.fixture
def file() -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as opened:
        opened.write(CONTENT)
        opened.flush()
        yield opened


def answer_with(site: Site, parts: list[Part]) -> Client:
    site.dispatch = lambda exchange, frame: exchange.reply(parts)
    client = site.connect()
    client.send(request(0))
    return client


def expected_of(parts: list[Part]) -> bytes:
    return b"".join(
        bytes(part)
        if isinstance(part, bytes | bytearray | memoryview)
        else CONTENT[part.position : part.position + part.size_bytes]
        for part in parts
    )


def test_a_slice_larger_than_any_socket_buffer_arrives_whole(site: Site, file: BinaryIO) -> None:
    big = Slice(file, 12_345, len(CONTENT) - 12_345)
    parts: list[Part] = [b"head", big, b"tail"]
    client = answer_with(site, parts)
    assert client.read(8 + big.size_bytes) == expected_of(parts)
    assert big.released == 1
    assert site.server.bytes_out == 8 + big.size_bytes
    assert unsent_bytes(site.server.connections[0]) == 0


SIZES = st.sampled_from(
    [0, 1, 100, SMALL_SLICE_BYTES, SMALL_SLICE_BYTES + 1, JOIN_BYTES - 1, JOIN_BYTES, JOIN_BYTES + 1, FLUSH_BYTES + 7]
)


@settings(max_examples=40, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.sampled_from(["bytes", "bytearray", "view", "slice", "bare"]), SIZES), max_size=12),
    sendfile=st.booleans(),
)
def test_any_mix_of_parts_arrives_in_order(shapes: list[tuple[str, int]], sendfile: bool) -> None:
    with tempfile.TemporaryFile() as opened:
        opened.write(CONTENT[: 2 * FLUSH_BYTES])
        opened.flush()
        slices: list[Slice] = []
        parts: list[Part] = [b"begin"]
        for number, (kind, size_bytes) in enumerate(shapes):
            data = CONTENT[number : number + size_bytes]
            if kind == "slice":
                slices.append(Slice(opened, number, size_bytes))
                parts.append(slices[-1])
            elif kind == "bare":
                parts.append(BareSlice(opened, number, size_bytes))
            else:
                parts.append({"bytes": bytes, "bytearray": bytearray, "view": memoryview}[kind](data))
        expected = expected_of(parts)
        site = Site()
        try:
            client = site.connect()
            site.server.connections[0]._transport.can_sendfile = sendfile
            site.dispatch = lambda exchange, frame: exchange.reply(parts)
            client.send(request(0))
            assert client.read(len(expected)) == expected
            assert [one.released for one in slices] == [1] * len(slices)
            assert site.errors == []
        finally:
            site.close()


def test_many_small_slices_leave_in_one_send(site: Site, file: BinaryIO) -> None:
    """A fetch of a little from each of many partitions."""
    parts: list[Part] = []
    for number in range(50):
        parts += [f"partition {number}".encode(), Slice(file, number * 1000, 900)]
    client = site.connect()
    transport = site.server.connections[0]._transport
    sends: list[int] = []
    send = transport.send
    transport.send = lambda data, flags: (sends.append(len(data)), send(data, flags))[1]  # type: ignore[method-assign]
    site.dispatch = lambda exchange, frame: exchange.reply(parts)
    client.send(request(0))
    assert client.read(len(expected_of(parts))) == expected_of(parts)
    assert len(sends) == 1


@pytest.mark.parametrize("size_bytes", [1000, 500_000])
@pytest.mark.parametrize("sendfile", [True, False])
def test_a_file_that_became_shorter_ends_the_connection(
    site: Site, file: BinaryIO, size_bytes: int, sendfile: bool
) -> None:
    cut = Slice(file, 0, size_bytes)
    behind = Slice(file, 0, 200_000)
    client = site.connect()
    site.server.connections[0]._transport.can_sendfile = sendfile
    site.dispatch = lambda exchange, frame: exchange.reply([b"head", cut, behind])
    os.ftruncate(file.fileno(), size_bytes - 1)
    client.send(request(0))
    received = client.read_to_end()
    assert len(received) < 4 + size_bytes
    assert (b"head" + CONTENT).startswith(received)
    assert (cut.released, behind.released) == (1, 1)
    assert "the file ends" in site.sentences[0]
    assert site.server.connections == []


def test_slices_of_a_connection_that_goes_are_released(site: Site, file: BinaryIO) -> None:
    sending, waiting, late = (Slice(file, 0, len(CONTENT)) for _ in range(3))
    site.dispatch = site.park_and_allow_next
    client = site.connect()
    client.send(request(0) + request(1) + request(2))
    site.until(lambda: len(site.exchanges) == 3)
    site.exchanges[0].reply([sending])
    site.exchanges[2].reply([waiting])
    site.until(lambda: site.server.bytes_out)
    assert (sending.released, waiting.released) == (0, 0)
    client.socket.close()
    site.until(lambda: not site.server.connections)
    assert (sending.released, waiting.released) == (1, 1)
    site.exchanges[1].reply([late])
    assert late.released == 1


def test_a_peer_that_does_not_read_is_not_served_further(make_site: Callable[..., Site]) -> None:
    """Memory stays bounded: after `max_unsent_bytes` its requests are neither dispatched nor even read."""
    site = make_site(max_unsent_bytes=200_000, max_held_bytes=10_000)
    site.dispatch = lambda exchange, frame: exchange.reply([bytes(50_000)])
    client = site.connect(receive_buffer_bytes=4096)
    sent = 0
    try:
        while sent < 50_000_000:
            sent += client.socket.send(request(0, 1000) * 100)
            site.turn(3)
    except BlockingIOError:
        pass  # the server stopped reading
    site.settle()
    connection = site.server.connections[0]
    assert unsent_bytes(connection) <= 200_000 + 50_000
    assert held_bytes(connection) <= AREA_BYTES  # what one event brought, and no more
    assert site.server.requests * 50_000 == site.server.bytes_out + unsent_bytes(connection)
    turns = site.loop.turns
    assert site.loop._epoll.poll(0.02) == []  # and it is not asked about in vain
    assert turns == site.loop.turns

    served = site.server.requests
    site.until(lambda: site.server.requests > served + 20, client.pull)  # it reads again: it is served again
    assert site.errors == []


def test_requests_past_an_unanswered_one_are_bounded(make_site: Callable[..., Site]) -> None:
    site = make_site(max_pipelined_requests=10, max_held_bytes=1000)
    site.dispatch = site.park_and_allow_next
    client = site.connect()
    client.send(b"".join(request(number) for number in range(200)))
    site.settle()
    assert len(site.exchanges) == 10
    site.exchanges[5].reply([reply_to(5)])
    site.settle()
    assert len(site.exchanges) == 10  # it cannot be sent before the five before it
    for number in range(5):
        site.exchanges[number].reply([reply_to(number)])
    site.settle()
    assert len(site.exchanges) == 16

    def answer_the_rest() -> None:
        for number, exchange in enumerate(site.exchanges):
            if not exchange.answered:
                exchange.reply([reply_to(number)])

    site.until(lambda: site.server.requests == 200, answer_the_rest)
    answer_the_rest()
    assert client.read_numbers(200) == list(range(200))


def test_a_serial_request_holds_a_bounded_number_of_bytes_behind_it(make_site: Callable[..., Site]) -> None:
    site = make_site(max_held_bytes=20_000)
    site.dispatch = site.park
    client = site.connect()
    sent = 0
    try:
        while sent < 50_000_000:
            sent += client.socket.send(request(0, 1000) * 100)
            site.turn(3)
    except BlockingIOError:
        pass
    site.settle()
    connection = site.server.connections[0]
    assert len(site.exchanges) == 1
    assert held_bytes(connection) <= AREA_BYTES  # what came with the request, and no more
    assert site.loop._epoll.poll(0.02) == []


def test_a_reset_is_noticed_though_the_connection_is_not_read(make_site: Callable[..., Site]) -> None:
    site = make_site(max_held_bytes=10)
    site.dispatch = site.park
    client = site.connect()
    client.send(request(0) + request(1))
    site.settle()
    connection = site.server.connections[0]
    assert connection._events == 0
    client.socket.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER: closing resets
    client.socket.close()
    site.until(lambda: connection.closed)


def test_a_fast_reader_of_a_large_answer_leaves_others_their_turn(site: Site, file: BinaryIO) -> None:
    def big_or_small(exchange: Exchange, frame: memoryview) -> None:
        if number_of(frame) == 0:
            exchange.reply([Slice(file, 0, len(CONTENT)) for _ in range(10)])
        else:
            site.echo(exchange, frame)

    site.dispatch = big_or_small
    reader, other = site.connect(), site.connect()
    reader.send(request(0))
    other.send(request(1))
    site.until(lambda: other.received, lambda: (reader.pull(), other.pull()))
    assert site.server.bytes_out < 4 * len(CONTENT)
    assert len(reader.read(10 * len(CONTENT))) == 10 * len(CONTENT)


def test_an_outbox_counts_what_is_left(file: BinaryIO) -> None:
    class Trickle:
        """Takes up to a number of bytes a call, nothing on every third."""

        can_sendfile = True

        def __init__(self) -> None:
            self.taken = bytearray()
            self.calls = 0

        def _take(self, data: bytes | bytearray | memoryview) -> int:
            self.calls += 1
            if self.calls % 3 == 0:
                raise BlockingIOError
            self.taken += bytes(data)[:7001]
            return min(len(data), 7001)

        def send(self, data: bytes | bytearray | memoryview, flags: int) -> int:
            return self._take(data)

        def sendfile(self, fd: int, position: int, count: int) -> int:
            return self._take(os.pread(fd, count, position))

        def fileno(self) -> int:
            return -1

        def recv_into(self, buffer: memoryview) -> int:
            raise NotImplementedError

        def close(self) -> None:
            raise NotImplementedError

    outbox, transport = Outbox(), Trickle()
    parts: list[Part] = [b"x" * 100, Slice(file, 5, 100_000), b"y" * 90_000, Slice(file, 9, 500), bytearray(b"z" * 300)]
    outbox.add(parts)
    total = len(expected_of(parts))
    while outbox.parts:
        outbox.flush(transport)
        assert outbox.size_bytes + len(transport.taken) == total
    assert transport.taken == expected_of(parts)


def test_one_flush_sends_a_bounded_number_of_bytes_to_a_peer_that_takes_all(file: BinaryIO) -> None:
    class Bottomless:
        can_sendfile = True

        def send(self, data: bytes | bytearray | memoryview, flags: int) -> int:
            return len(data)

        def sendfile(self, fd: int, position: int, count: int) -> int:
            return count

    outbox = Outbox()
    outbox.add([Slice(file, 0, len(CONTENT)), *(bytes(50_000) for _ in range(200))])
    while outbox.parts:
        assert 0 < outbox.flush(Bottomless()) < 2 * FLUSH_BYTES  # type: ignore[arg-type]


def test_a_truncated_small_slice_raises_before_anything_of_it_is_sent(file: BinaryIO) -> None:
    outbox = Outbox()
    outbox.add([Slice(file, len(CONTENT) - 10, 11)])
    with pytest.raises(TruncatedSliceError):
        outbox.flush(None)  # type: ignore[arg-type]


def test_all_but_the_last_send_announce_that_more_is_coming(file: BinaryIO) -> None:
    calls: list[tuple[str, bool]] = []

    class Recorder:
        can_sendfile = True

        def send(self, data: bytes | bytearray | memoryview, flags: int) -> int:
            calls.append(("send", bool(flags & socket.MSG_MORE)))
            return len(data)

        def sendfile(self, fd: int, position: int, count: int) -> int:
            calls.append(("sendfile", False))
            return count

    outbox = Outbox()
    outbox.add([b"size", b"head", Slice(file, 0, 100_000), b"between", b"x" * JOIN_BYTES, b"tail"])
    outbox.flush(Recorder())  # type: ignore[arg-type]
    assert calls == [("send", True), ("sendfile", False), ("send", True), ("send", True), ("send", False)]
    assert outbox.size_bytes == 0
