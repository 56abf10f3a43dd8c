"""Bad input on real sockets: nothing is lost, nothing falls over, and memory follows what was received."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable

import pytest
from abuse_requests import CODECS, MIB, bomb, consumer_join, fetch_of, framed, join_of, metadata_of, packed
from bench import raw
from faultkit import batch, most_resident_bytes, resident_bytes

from tidelog.api.routes import ROUTES
from tidelog.testing.broker import RunningBroker
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.codec import request_codec
from tidelog.wire.compression import compress
from tidelog.wire.frame import encode_request

CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_VERSION, INVALID_TOPIC = 2, 10, 35, 17

Connect = Callable[[], raw.Connection]


def is_closed(connection: raw.Connection) -> bool:
    try:
        return connection.socket.recv(1) == b""
    except ConnectionResetError:
        return True


def make_topic(connection: raw.Connection, name: str) -> None:
    connection.ask(raw.auto_create_frame(name))


def still_serves(connect: Connect) -> bool:
    connection = connect()
    make_topic(connection, "alive")
    return connection.produce(raw.produce_frame("alive", 0, batch(b"yes"))).error_code == 0


@pytest.mark.parametrize(
    "start",
    [
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
    ],
    ids=["largest", "negative", "zero", "http", "tls"],
)
def test_a_size_that_no_request_has_closes_the_connection_and_costs_no_memory(
    broker: RunningBroker, connect: Connect, start: bytes
) -> None:
    assert still_serves(connect)
    before = resident_bytes(broker.pid)
    for _ in range(20):
        connection = connect()
        connection.socket.sendall(start)
        assert is_closed(connection)
    assert resident_bytes(broker.pid) - before < 20 * MIB
    assert still_serves(connect)


def test_claimed_sizes_take_no_memory_before_their_bytes_come(broker: RunningBroker, connect: Connect) -> None:
    assert still_serves(connect)
    before = resident_bytes(broker.pid)
    connections = [connect() for _ in range(200)]
    for connection in connections:
        connection.socket.sendall(struct.pack(">i", 100 * MIB) + b"\x00\x00\x00\x09")
    assert still_serves(connect)
    assert resident_bytes(broker.pid) - before < 200 * MIB


def test_every_api_and_version_survives_nonsense(broker: RunningBroker, connect: Connect) -> None:
    """Truncated, flipped and stretched requests of every kind: an answer or a closed connection, and life goes on."""
    dice = random.Random(20260)
    for key, route in ROUTES.items():
        for version in range(route.min_version, route.max_version + 1):
            whole = b"".join(
                bytes(part)
                for part in encode_request(key, version, 1, "fuzz", request_codec(key, version).message_class())
            )
            for _ in range(4):
                body = bytearray(whole[4:])
                damage = dice.randrange(3)
                if damage == 0:
                    del body[dice.randrange(8, len(body) + 1) :]
                elif damage == 1:
                    for _ in range(dice.randrange(1, 5)):
                        body[dice.randrange(8, len(body))] = dice.randrange(256)
                else:
                    body += dice.randbytes(dice.randrange(1, 64))
                connection = raw.Connection(broker.host, broker.port, timeout=60)
                connection.socket.sendall(struct.pack(">i", len(body)) + body)
                connection.socket.shutdown(socket.SHUT_WR)
                while connection.socket.recv(65536):
                    pass
                connection.close()
    assert broker.running
    assert still_serves(connect)


def test_api_versions_of_any_version_is_answered_and_the_connection_kept(connect: Connect) -> None:
    connection = connect()
    too_new = struct.pack(">hhih", 18, 99, 41, 4) + b"test" + b"\x00"
    answer = connection.ask(struct.pack(">i", len(too_new)) + too_new)
    correlation, code, count = struct.unpack_from(">ihi", answer)
    assert (correlation, code, count > 10) == (41, UNSUPPORTED_VERSION, True)
    make_topic(connection, "kept")
    assert connection.produce(raw.produce_frame("kept", 0, batch(b"x"))).error_code == 0


@pytest.mark.parametrize(("api_key", "version"), [(0, 99), (1, 3), (2, 0), (3, 99), (8, 1), (19, 1), (20, 0), (32, 0)])
def test_a_version_that_is_not_served_closes_the_connection_and_is_told_to_the_operator(
    broker: RunningBroker, connect: Connect, api_key: int, version: int
) -> None:
    connection = connect()
    unserved = struct.pack(">hhih", api_key, version, 42, 4) + b"test" + bytes(40)
    connection.socket.sendall(struct.pack(">i", len(unserved)) + unserved)
    assert is_closed(connection)
    assert f"v{version} from 'test' is not served" in broker.stderr()
    assert "Error" not in broker.stderr()
    assert still_serves(connect)


def test_a_corrupt_batch_is_refused_and_the_next_one_taken(connect: Connect) -> None:
    connection = connect()
    make_topic(connection, "t")
    good = batch(b"payload")
    for at in range(21, len(good)):
        flipped = bytearray(good)
        flipped[at] ^= 0x40
        assert connection.produce(raw.produce_frame("t", 0, bytes(flipped))).error_code == CORRUPT_MESSAGE
    assert connection.produce(raw.produce_frame("t", 0, good)) == raw.Produced(0, 0)


def test_a_batch_over_the_limit_is_too_large(connect: Connect) -> None:
    connection = connect()
    make_topic(connection, "t")
    assert connection.produce(raw.produce_frame("t", 0, batch(b"x" * 2 * MIB))).error_code == MESSAGE_TOO_LARGE
    assert connection.produce(raw.produce_frame("t", 0, batch(b"x" * (MIB - 1000)))).error_code == 0


@pytest.mark.parametrize("name", ["", ".", "..", "with space", "ümlaut", "x" * 250])
def test_a_bad_topic_name_is_named_as_such(connect: Connect, name: str) -> None:
    answer = connect().ask(raw.auto_create_frame(name))
    assert struct.pack(">h", INVALID_TOPIC) + raw.compact(name.encode()) in answer


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
def test_a_bomb_is_refused_with_bounded_memory(broker: RunningBroker, connect: Connect, codec: int) -> None:
    """Under a megabyte on the wire, half a gigabyte unpacked."""
    connection = connect()
    make_topic(connection, "t")
    before = resident_bytes(broker.pid)
    bomb = bytes(compress(codec, bytes(512 * MIB) if codec != CODECS["snappy"] else bytes(20 * MIB), None))
    if codec == CODECS["snappy"]:
        # Snappy packs 21 to 1 at best, so a real bomb does not fit: one that only claims its size has to do.
        bomb = (
            b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + struct.pack(">i", 20) + b"\xff\xff\xff\xff\x07" + bytes(15)
        )
    refused = connection.produce(raw.produce_frame("t", 0, packed(codec, bomb[: MIB - 100], 1)))
    assert refused.error_code in (MESSAGE_TOO_LARGE, 87)
    assert resident_bytes(broker.pid) - before < 300 * MIB
    assert connection.produce(raw.produce_frame("t", 0, batch(b"x"))) == raw.Produced(0, 0)


def test_ten_thousand_pipelined_requests_are_answered_in_order_while_others_are_served(
    broker: RunningBroker, connect: Connect
) -> None:
    greedy, modest = connect(), connect()
    make_topic(greedy, "t")
    requests = bytearray()
    for number in range(10_000):
        frame = bytearray(raw.produce_frame("t", 0, batch(b"x")))
        struct.pack_into(">i", frame, 8, number)
        requests += frame
    before = resident_bytes(broker.pid)
    greedy.socket.settimeout(0.5)
    sent = answered = 0
    buffer = bytearray()
    while answered < 10_000:
        if sent < len(requests):
            try:
                sent += greedy.socket.send(requests[sent : sent + 65536])
            except TimeoutError:
                pass
            if sent < 10 * 65536:
                assert modest.produce(raw.produce_frame("t", 0, batch(b"y"))).error_code == 0
                continue
        greedy.socket.settimeout(30)
        buffer += greedy.socket.recv(1 << 20)
        while len(buffer) >= 8:
            size, correlation = struct.unpack_from(">ii", buffer)
            if len(buffer) < 4 + size:
                break
            assert correlation == answered
            answered += 1
            del buffer[: 4 + size]
    assert resident_bytes(broker.pid) - before < 64 * MIB


def test_a_crowd_of_slow_connections_does_not_keep_others_out(broker: RunningBroker, connect: Connect) -> None:
    """Two thousand that send a byte now and then: a healthy client gets all its answers, memory stays bounded."""
    healthy = connect()
    make_topic(healthy, "t")
    before = resident_bytes(broker.pid)
    request = raw.produce_frame("t", 0, batch(b"slow"))
    crowd = [connect() for _ in range(2_000)]
    for at in range(5):
        for slow in crowd:
            slow.socket.sendall(request[at : at + 1])
        for _ in range(50):
            assert healthy.produce(raw.produce_frame("t", 0, batch(b"z"))).error_code == 0
    assert resident_bytes(broker.pid) - before < 2_000 * MIB // 20


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_bombs_that_are_refused_are_forgotten(broker: RunningBroker, connect: Connect, codec: str) -> None:
    """Three of 130 MB, unpacked: each would keep its own until a rare collection."""
    connection = connect()
    make_topic(connection, "healthy")
    before = resident_bytes(broker.pid)
    request = bomb(codec, 130 * MIB)
    for _ in range(3):
        assert connection.produce(request).error_code == MESSAGE_TOO_LARGE
    assert resident_bytes(broker.pid) - before < 100 * MIB
    assert most_resident_bytes(broker.pid) - before < 300 * MIB


def test_bombs_that_are_taken_come_one_after_the_other(broker: RunningBroker, connect: Connect) -> None:
    crowd = [connect() for _ in range(4)]
    make_topic(crowd[0], "healthy")
    before = resident_bytes(broker.pid)
    request = bomb("gzip", 60 * MIB)
    for one in crowd:
        one.socket.sendall(request)
    modest = connect()
    for _ in range(20):
        assert modest.produce(raw.produce_frame("healthy", 0, batch(b"y"))).error_code == 0
    assert {raw.parse_produced(one.answer()).error_code for one in crowd} == {0}
    assert most_resident_bytes(broker.pid) - before < 150 * MIB


@pytest.mark.parametrize(
    "request_of",
    [lambda: fetch_of(200_000), lambda: metadata_of(200_000), lambda: join_of("g", 10 * MIB)],
    ids=["fetch", "metadata", "join"],
)
def test_a_request_beyond_any_clients_ends_its_connection_alone(
    broker: RunningBroker, connect: Connect, request_of: Callable[[], bytes]
) -> None:
    assert still_serves(connect)
    before = resident_bytes(broker.pid)
    connection = connect()
    connection.socket.sendall(request_of())
    assert is_closed(connection)
    assert "are not read" in broker.stderr() or "more elements than are read" in broker.stderr()
    assert most_resident_bytes(broker.pid) - before < 100 * MIB
    assert still_serves(connect)


def test_half_sent_requests_hold_a_bounded_memory(broker: RunningBroker, connect: Connect) -> None:
    assert still_serves(connect)
    before = resident_bytes(broker.pid)
    crowd = [connect() for _ in range(12)]
    start = struct.pack(">i", 60 * MIB) + struct.pack(">hhih", 0, 9, 1, 4) + b"half"
    piece = bytes(4 * MIB)
    for one in crowd:
        one.socket.sendall(start)
        one.socket.setblocking(False)
    for _ in range(12):
        for one in crowd:
            try:
                one.socket.send(piece)
            except BlockingIOError:
                pass
        assert still_serves(connect)
    assert resident_bytes(broker.pid) - before < 250 * MIB


def test_groups_that_were_deleted_make_room_for_others(broker: RunningBroker, connect: Connect) -> None:
    connection = connect()
    make_topic(connection, "healthy")
    connection.ask(framed(ApiKey.FIND_COORDINATOR, 3, messages.FindCoordinatorRequest(key="g")))

    def round_of_groups(first: int) -> None:
        names = [f"group-{number}" for number in range(first, first + 800)]
        for name in names:
            connection.ask(consumer_join(name, "m", subscribed_topic_names=["healthy"]))
            leave = messages.ConsumerGroupHeartbeatRequest(group_id=name, member_id="m", member_epoch=-1)
            connection.ask(framed(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, leave))
        connection.ask(framed(ApiKey.DELETE_GROUPS, 2, messages.DeleteGroupsRequest(groups_names=names)))

    round_of_groups(0)
    before = resident_bytes(broker.pid)
    for number in range(1, 4):
        round_of_groups(10_000 * number)
    assert resident_bytes(broker.pid) - before < 2 * MIB
