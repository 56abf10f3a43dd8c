"""Who is let in, who is sent away, and how everyone leaves."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
from net_site import Site, framed, held_bytes, number_of, reply_to, request

from tidelog.net import Exchange, Limits, Server
from tidelog.net.limits import MIB, ListenerLimits
from tidelog.net.pool import KEPT_BYTES
from tidelog.net.server import AREA_BYTES

MakeSite = Callable[..., Site]


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def knock(site: Site) -> socket.socket:
    """A client that the server may not have accepted."""
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(site.address)
    site.settle()
    return client


# -- sizes that no request has ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "sentence"),
    [
        (struct.pack(">i", 0x7FFFFFFF), "announced a size of 2147483647 bytes"),
        (struct.pack(">i", -1), "announced a size of -1 bytes"),
        (struct.pack(">i", 0), "announced a size of 0 bytes"),
        (struct.pack(">i", 7), "announced a size of 7 bytes, where 8 to 104857600 are allowed"),
        (struct.pack(">i", 104_857_601), "where 8 to 104857600 are allowed"),
        (b"GET / HTTP/1.1\r\n\r\n", "looks like the start of an HTTP request"),
        (b"PUT /x", "looks like the start of an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS handshake, and this listener is not encrypted"),
    ],
)
def test_an_impossible_size_ends_the_connection_with_a_sentence(site: Site, prefix: bytes, sentence: str) -> None:
    client = site.connect()
    client.send(request(1) + prefix)
    assert client.read_to_end() == reply_to(1)
    assert sentence in site.sentences[0]
    assert site.server.connections == []
    assert site.server.pool.kept_bytes == 0


def test_the_largest_allowed_size_is_allowed(make_site: MakeSite) -> None:
    site = make_site(socket_request_max_bytes=1000)
    client = site.connect()
    client.send(request(1, 1000))
    assert client.read_numbers(1) == [1]
    client.send(request(1, 1001))
    assert client.read_to_end() == b""


def test_claims_of_large_requests_cost_no_memory(site: Site) -> None:
    """500 connections each announce 100 MB and send a little."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    try:
        site.connect().send(request(1, 3 * AREA_BYTES))
        site.until(lambda: site.server.requests == 1)
        before = resident_bytes()
        for _ in range(500):
            site.connect().send(struct.pack(">i", 100_000_000) + bytes(20_000))
        site.settle()
        assert sum(held_bytes(connection) for connection in site.server.connections) == 500 * 20_004
        grown = resident_bytes() - before
        assert grown < 500 * 100_000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_pool_keeps_a_bounded_number_of_bytes(site: Site) -> None:
    clients = [site.connect() for _ in range(12)]
    for client in clients:
        client.send(request(1, 4_000_000)[:-1])
    site.settle()
    for client in clients:
        client.send(b"\0")
        assert client.read_numbers(1) == [1]
    assert 0 < site.server.pool.kept_bytes <= KEPT_BYTES


def test_large_requests_are_admitted_one_by_one_where_memory_is_limited(make_site: MakeSite) -> None:
    site = make_site(queued_max_request_bytes=1_000_000)
    clients = [site.connect() for _ in range(3)]
    for number, client in enumerate(clients):
        client.send(request(number, 600_000)[:200_000])
        site.settle()
    held = [held_bytes(connection) for connection in site.server.connections]
    assert held[0] == 200_000
    small = site.connect()
    small.send(request(9))
    assert small.read_numbers(1) == [9]
    # The last two are read no further than the read that brought their beginning.
    rest = request(0, 600_000)[200_000:]
    for client in clients[1:]:
        try:
            client.socket.send(rest)
        except BlockingIOError:
            pass
    site.settle()
    assert site.server.requests == 1
    assert site.loop._epoll.poll(0.02) == []
    clients[0].send(rest)
    assert clients[0].read_numbers(1) == [0]
    site.until(lambda: site.server.requests == 3)
    for number in (1, 2):
        assert clients[number].read_numbers(1) == [number]
    assert site.server._huge.reserved_bytes == 0


def test_a_reservation_is_returned_when_its_connection_goes(make_site: MakeSite) -> None:
    site = make_site(queued_max_request_bytes=1000)
    first, second = site.connect(), site.connect()
    for client in (first, second):
        client.send(request(1, 300_000)[:200_000])
        site.settle()
        client.send(request(1, 300_000)[200_000:250_000])
        site.settle()
    first.socket.close()
    site.until(lambda: len(site.server.connections) == 1)
    second.send(request(1, 300_000)[250_000:])
    assert second.read_numbers(1) == [1]
    second.socket.close()
    site.until(lambda: not site.server.connections)
    assert site.server._huge.reserved_bytes == 0


# -- how many ---------------------------------------------------------------------------------------------------------


def test_connections_beyond_the_limit_wait_until_one_closes(make_site: MakeSite) -> None:
    site = make_site(max_connections=2)
    first = site.connect()
    site.connect()
    third = knock(site)
    assert len(site.server.connections) == 2
    assert "all 2 connections are taken" in site.sentences[0]
    assert site.loop._epoll.poll(0.02) == []  # waiting costs no turns
    first.socket.close()
    site.until(lambda: site.server.connections_accepted == 3)
    third.send(request(1))
    site.until(lambda: site.server.requests == 1)
    third.close()


def test_a_raised_limit_lets_in_who_waits(make_site: MakeSite) -> None:
    site = make_site(max_connections=1)
    site.connect()
    second = knock(site)
    assert len(site.server.connections) == 1
    site.limits.max_connections = 2
    site.server.limits_changed()
    site.until(lambda: len(site.server.connections) == 2)
    second.close()


def test_connections_of_one_address_are_limited(make_site: MakeSite) -> None:
    site = make_site(max_connections_per_ip=2)
    first = site.connect()
    site.connect()
    third = site.connect()
    assert third.read_to_end() == b""
    assert site.server.connections_refused == 1
    assert "closing a connection from 127.0.0.1: it has 2 already" in site.sentences
    first.socket.close()
    site.until(lambda: len(site.server.connections) == 1)
    fourth = site.connect()
    fourth.send(request(4))
    assert fourth.read_numbers(1) == [4]
    site.limits.max_connections_per_ip_overrides["127.0.0.1"] = 3
    fifth = site.connect()
    fifth.send(request(5))
    assert fifth.read_numbers(1) == [5]


def test_new_connections_are_limited_to_a_rate(make_site: MakeSite) -> None:
    site = make_site(max_connection_creation_rate=3)
    site.advance(5000)
    clients = [knock(site) for _ in range(8)]
    assert site.server.connections_accepted == 3
    site.advance(999)
    assert site.server.connections_accepted == 3
    site.advance(1)
    site.until(lambda: site.server.connections_accepted == 6)
    site.settle()
    assert site.server.connections_accepted == 6
    site.advance(1000)
    site.until(lambda: site.server.connections_accepted == 8)
    for client in clients:
        client.close()


def test_a_listener_with_a_limit_of_its_own_leaves_the_others_open(make_site: MakeSite) -> None:
    site = make_site(max_connections=4)
    site.limits.of_listeners["SMALL"] = ListenerLimits(max_connections=1)
    public = site.address
    small = site.server.listen("127.0.0.1", 0, "SMALL")
    site.address = small
    first = site.connect()
    waiting = knock(site)
    assert len(site.server.connections) == 1
    assert "all 1 connections of the listener SMALL are taken" in site.sentences[0]
    assert site.loop._epoll.poll(0.02) == []  # waiting costs no turns
    site.address = public
    other = site.connect()
    other.send(request(1))
    assert other.read_numbers(1) == [1]
    first.socket.close()
    site.until(lambda: site.server.connections_accepted == 3)
    waiting.close()
    site.until(lambda: len(site.server.connections) == 1)
    site.limits.of_listeners["SMALL"] = ListenerLimits(max_connections=2)
    site.server.limits_changed()
    site.address = small
    assert [site.connect(), site.connect()] and len(site.server.connections) == 3


def test_a_listener_with_a_rate_of_its_own_leaves_the_others_open(make_site: MakeSite) -> None:
    site = make_site()
    site.limits.of_listeners["SMALL"] = ListenerLimits(max_connection_creation_rate=2)
    public = site.address
    site.address = site.server.listen("127.0.0.1", 0, "SMALL")
    site.advance(5000)
    clients = [knock(site) for _ in range(4)]
    assert site.server.connections_accepted == 2
    site.address = public
    clients += [knock(site) for _ in range(3)]
    assert site.server.connections_accepted == 5
    site.advance(1000)
    site.until(lambda: site.server.connections_accepted == 7)
    for client in clients:
        client.close()


def test_a_protected_listener_takes_connections_when_all_are_taken(make_site: MakeSite) -> None:
    site = make_site(max_connections=2)
    public = site.address
    internal = site.server.listen("127.0.0.1", 0, "INTERNAL", protected=True)
    quiet = site.connect()
    site.advance(10)
    lively = site.connect()
    site.address = internal
    peer = site.connect()
    assert quiet.read_to_end() == b""
    assert len(site.server.connections) == 2
    for number, client in enumerate((lively, peer)):
        client.send(request(number))
        assert client.read_numbers(1) == [number]
    site.address = public
    waiting = knock(site)
    assert len(site.server.connections) == 2
    waiting.close()


def test_running_out_of_descriptors_pauses_accepting_and_nothing_else(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site(accept_backoff_ms=100)
    client = site.connect()
    listener = site.server._acceptor._listeners[0]
    real = listener.socket

    class Exhausted:
        def accept(self) -> Any:
            raise OSError(errno.EMFILE, "Too many open files")

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    listener.socket = Exhausted()  # type: ignore[assignment]
    late = knock(site)
    assert site.sentences == ["cannot accept connections for now: Too many open files"]
    client.send(request(1))
    assert client.read_numbers(1) == [1]
    site.advance(100)  # it tries again, in vain
    site.settle()
    assert len(site.sentences) == 2
    listener.socket = real
    site.advance(100)
    site.until(lambda: site.server.connections_accepted == 2)
    late.close()


def test_a_burst_of_connections_leaves_others_their_turn(make_site: MakeSite) -> None:
    site = make_site(max_accepts_per_turn=4)
    client = site.connect()
    crowd = []
    for _ in range(20):
        newcomer = socket.socket()
        newcomer.setblocking(False)
        newcomer.connect_ex(site.address)
        crowd.append(newcomer)
    client.send(request(1))
    site.turn()
    assert len(site.server.connections) <= 5
    assert client.read_numbers(1) == [1]
    site.until(lambda: len(site.server.connections) == 21)
    for newcomer in crowd:
        newcomer.close()


# -- idleness ---------------------------------------------------------------------------------------------------------


def test_an_idle_connection_is_closed_and_a_used_one_is_not(make_site: MakeSite) -> None:
    site = make_site(connections_max_idle_ms=1000)
    idle, used = site.connect(), site.connect()
    for _ in range(4):
        site.advance(400)
        used.send(request(1))
        assert used.read_numbers(1) == [1]
    assert idle.read_to_end() == b""
    assert site.server.idle_closed == 1
    site.advance(1001)
    assert used.read_to_end() == b""
    assert site.loop.timer.next_deadline_ms() is None


def test_idleness_costs_one_timer_a_connection_however_many_requests(make_site: MakeSite) -> None:
    site = make_site(connections_max_idle_ms=1000)
    client = site.connect()
    task = site.server.connections[0]._idle_check
    for _ in range(100):
        client.send(request(1))
        client.read_numbers(1)
    assert site.server.connections[0]._idle_check is task
    assert len(site.loop.timer) == 1


def test_a_connection_that_waits_for_an_answer_is_not_idle(make_site: MakeSite) -> None:
    site = make_site(connections_max_idle_ms=1000)
    site.dispatch = site.park
    client = site.connect()
    client.send(request(1))
    site.until(lambda: site.exchanges)
    for _ in range(5):
        site.advance(900)
    site.exchanges[0].reply([reply_to(1)])
    assert client.read_numbers(1) == [1]
    site.advance(2000)
    assert client.read_to_end() == b""


# -- muting -----------------------------------------------------------------------------------------------------------


def test_a_muted_connection_waits_and_the_others_do_not(site: Site) -> None:
    muted, other = site.connect(), site.connect()
    site.server.connections[0].mute(site.clock.now_ms + 500)
    muted.send(request(1) + request(2))
    other.send(request(3))
    assert other.read_numbers(1) == [3]
    site.settle()
    assert site.server.requests == 1
    site.server.connections[0].mute(site.clock.now_ms + 900)
    site.advance(500)
    site.settle()
    assert site.server.requests == 1
    site.advance(400)
    assert muted.read_numbers(2) == [1, 2]


def test_muting_from_within_a_request_lets_its_own_answer_through(site: Site) -> None:
    def over_quota(exchange: Exchange, frame: memoryview) -> None:
        site.echo(exchange, frame)
        exchange.connection.mute(site.clock.now_ms + 100)

    site.dispatch = over_quota
    client = site.connect()
    client.send(request(1) + request(2))
    assert client.read_numbers(1) == [1]
    site.settle()
    assert site.server.requests == 1
    site.advance(100)
    assert client.read_numbers(1) == [2]


# -- draining ---------------------------------------------------------------------------------------------------------


def test_draining_answers_what_is_under_way_and_takes_nothing_new(site: Site) -> None:
    site.dispatch = site.park
    quiet, busy = site.connect(), site.connect()
    busy.send(request(1) + request(2))
    site.until(lambda: site.exchanges)
    done: list[bool] = []
    site.server.drain(lambda: done.append(True))
    assert quiet.read_to_end() == b""
    late = socket.socket()
    assert late.connect_ex(site.address) == errno.ECONNREFUSED
    late.close()
    assert not done
    site.exchanges[0].reply([reply_to(1), bytes(2_000_000)])
    assert busy.read_to_end() == reply_to(1) + bytes(2_000_000)
    site.until(lambda: done)
    assert len(site.exchanges) == 1
    assert site.loop.timer.next_deadline_ms() is None


def test_draining_ends_at_its_deadline(site: Site) -> None:
    site.dispatch = site.park
    client = site.connect()
    client.send(request(1))
    site.until(lambda: site.exchanges)
    abandoned: list[bool] = []
    site.exchanges[0].on_abandoned = lambda: abandoned.append(True)
    done: list[bool] = []
    site.server.drain(lambda: done.append(True), site.clock.now_ms + 1000)
    site.advance(999)
    assert not done
    site.advance(1)
    assert client.read_to_end() == b""
    site.until(lambda: done)
    assert abandoned == [True]


def test_draining_an_idle_server_is_done_at_once(make_site: MakeSite) -> None:
    site = make_site()
    done: list[bool] = []
    site.server.drain(lambda: done.append(True), site.clock.now_ms + 1000)
    site.turn()
    assert done == [True]
    assert site.loop.timer.next_deadline_ms() is None


# -- addresses --------------------------------------------------------------------------------------------------------


def ipv6_works() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


@pytest.mark.parametrize("host", ["", "localhost"])
def test_a_name_is_served_on_all_of_its_addresses_with_one_port(site: Site, host: str) -> None:
    seen: list[str] = []
    site.dispatch = lambda exchange, frame: (seen.append(exchange.connection.peer[0]), site.echo(exchange, frame))
    _, port = site.server.listen(host, 0, "ANY")
    addresses = ["127.0.0.1"]
    if ipv6_works() and (not host or any(i[4][0] == "::1" for i in socket.getaddrinfo("localhost", None))):
        addresses.append("::1")
    for address in addresses:
        site.address = (address, port)
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as client:
            client.setblocking(False)
            client.connect_ex((address, port))
            site.settle()
            client.send(request(1))
            site.until(lambda address=address: address in seen)  # type: ignore[misc]
    assert seen == addresses


def test_a_port_in_use_is_an_error_and_a_closed_one_can_be_used_again(site: Site) -> None:
    with pytest.raises(OSError, match="in use"):
        site.server.listen("127.0.0.1", site.address[1], "AGAIN")
    client = site.connect()
    client.send(request(1))
    client.read_numbers(1)
    site.server.close()
    site.turn()
    assert Server(site.loop, Limits(), site.echo).listen("127.0.0.1", site.address[1], "P") == site.address


def test_socket_options_are_what_the_limits_say(make_site: MakeSite) -> None:
    site = make_site(socket_send_buffer_bytes=50_000, socket_receive_buffer_bytes=60_000)
    site.connect()
    with socket.socket(fileno=os.dup(site.server.connections[0]._transport.fileno())) as connected:
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 50_000
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * 60_000


def test_counters_count(site: Site) -> None:
    client = site.connect()
    client.send(request(1, 100) + request(2, 100))
    assert client.read_numbers(2) == [1, 2]
    server = site.server
    assert (server.requests, server.bytes_in, server.bytes_out) == (2, 208, 16)
    assert (len(server.connections), server.connections_accepted, server.connections_refused) == (1, 1, 0)


def test_the_context_of_a_connection_is_shared_by_its_requests(site: Site) -> None:
    def count(exchange: Exchange, frame: memoryview) -> None:
        exchange.connection.context = (exchange.connection.context or 0) + 1
        exchange.reply([framed(struct.pack(">ii", number_of(frame), exchange.connection.context))])

    site.dispatch = count
    first, second = site.connect(), site.connect()
    first.send(request(1) + request(1))
    second.send(request(1))
    assert first.read(24)[-4:] == b"\0\0\0\2"
    assert second.read(12)[-4:] == b"\0\0\0\1"


def test_huge_requests_are_admitted_within_a_bound_though_none_is_set(make_site: MakeSite) -> None:
    site = make_site(huge_request_bytes=100_000, max_huge_requests_bytes=1_000_000)
    clients = [site.connect() for _ in range(3)]
    for number, client in enumerate(clients):
        client.send(request(number, 600_000)[:200_000])
        site.settle()
        client.send(request(number, 600_000)[200_000:400_000])
        site.settle()
    held = [held_bytes(connection) for connection in site.server.connections]
    assert held[0] == 400_000
    assert max(held[1:]) <= 200_000
    modest = site.connect()
    modest.send(request(9, 90_000))
    assert modest.read_numbers(1) == [9]
    clients[0].send(request(0, 600_000)[400_000:])
    assert clients[0].read_numbers(1) == [0]


def test_large_requests_are_admitted_within_a_bound_of_their_own(make_site: MakeSite) -> None:
    site = make_site(
        large_request_bytes=100_000,
        max_large_requests_bytes=1_000_000,
        huge_request_bytes=700_000,
        max_huge_requests_bytes=1_000_000,
    )
    sizes = {0: 900_000, 1: 600_000, 2: 600_000, 3: 600_000}
    clients = {number: site.connect() for number in sizes}
    for number, client in clients.items():
        for begin in (0, 200_000):
            client.send(request(number, sizes[number])[begin : begin + 200_000])
            site.settle()
    held = [held_bytes(connection) for connection in site.server.connections]
    assert held[:2] == [400_000, 400_000]
    assert max(held[2:]) <= 200_000
    modest = site.connect()
    modest.send(request(9, 90_000))
    assert modest.read_numbers(1) == [9]
    for number, client in clients.items():
        client.send(request(number, sizes[number])[400_000:])
        assert client.read_numbers(1) == [number]
    assert (site.server._large.reserved_bytes, site.server._huge.reserved_bytes) == (0, 0)


def test_half_sent_requests_below_the_huge_ones_are_bounded_by_default(make_site: MakeSite) -> None:
    site = make_site()
    server, limits = site.server, site.server.limits
    announced = [server._admission_to(size) for size in (60_000, MIB, 2 * MIB, 8 * MIB - 1, 9 * MIB)]
    assert announced == [None, server._medium, server._large, server._large, server._huge]
    most = limits.max_medium_requests_bytes + limits.max_large_requests_bytes + limits.max_huge_requests_bytes
    assert most <= 384 * MIB


def test_half_sent_requests_of_many_connections_hold_a_bounded_memory(make_site: MakeSite) -> None:
    site = make_site(max_medium_requests_bytes=2_000_000)
    clients = [site.connect() for _ in range(50)]
    for number, client in enumerate(clients):
        client.socket.send(request(number, 200_000)[:190_000])
    site.settle()
    held = sum(held_bytes(connection) for connection in site.server.connections)
    assert held < 2_000_000 + 50 * 40_000
    small = site.connect()
    small.send(request(99))
    assert small.read_numbers(1) == [99]
    # As room is made they are read in the order in which they came.
    for number, client in enumerate(clients):
        client.send(request(number, 200_000)[190_000:])
        assert client.read_numbers(1) == [number]
    assert site.server._medium.reserved_bytes == 0


def test_half_sent_requests_that_came_in_one_read_give_way_to_those_that_wait(make_site: MakeSite) -> None:
    site = make_site(max_medium_requests_bytes=401_000, huge_request_ms=5_000)
    stuck = [site.connect() for _ in range(2)]
    for client in stuck:
        client.send(request(1, 200_000)[:190_000])
    site.settle()
    other = site.connect()
    other.send(request(2, 200_000)[:190_000])
    site.settle()
    assert len(site.server.connections) == 3
    site.clock.now_ms += 5_001
    site.until(lambda: len(site.server.connections) < 3)
    assert "others wait for the memory" in site.sentences[-1]
    other.send(request(2, 200_000)[190_000:])
    assert other.read_numbers(1) == [2]


def test_half_of_a_huge_request_does_not_keep_others_out_for_ever(make_site: MakeSite) -> None:
    site = make_site(huge_request_bytes=100_000, max_huge_requests_bytes=1_000_000, huge_request_ms=5_000)
    stuck, other = site.connect(), site.connect()
    stuck.send(request(1, 600_000)[:200_000])
    site.settle()
    other.send(request(2, 600_000)[:200_000])
    site.settle()
    other.send(request(2, 600_000)[200_000:300_000])
    site.settle()
    assert len(site.server.connections) == 2
    site.clock.now_ms += 5_001
    site.until(lambda: len(site.server.connections) == 1)
    assert "others wait for the memory" in site.sentences[-1]
    other.send(request(2, 600_000)[300_000:])
    assert other.read_numbers(1) == [2]


def test_the_largest_requests_take_memory_as_they_arrive(make_site: MakeSite) -> None:
    site = make_site()
    client = site.connect()
    client.send(request(1, 40_000_000)[:3_000_000])
    site.until(lambda: held_bytes(site.server.connections[0]) > 2_500_000)
    inbox = site.server.connections[0]._inbox
    assert isinstance(inbox.view.obj, mmap.mmap)
    client.send(request(1, 40_000_000)[3_000_000:])
    assert client.read_numbers(1) == [1]
