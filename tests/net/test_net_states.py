"""Every state of a connection and every event: by the table alone, and on live connections."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from net_site import Client, Site, reply_to, request

from tidelog.net import Connection, Exchange, Limits
from tidelog.net.states import (
    IS_PAUSED,
    IS_RESUMING,
    TAKES_INPUT,
    TRANSITIONS,
    Event,
    State,
    next_state,
)

MakeSite = Callable[..., Site]
DROPS_ANSWERS = {State.HANGING_UP, State.CLOSED}
UNREAD = bytes(8_000_000)  # more than the buffers of two sockets take

# One row a state and one column an event, in the order of their definition; a dot is what cannot happen.
GRID = """
                     caught  blocked  turn      unblocked  refused  granted  ended    drain     hang_up  close
READING              READ    PAUSED   RESUME    .          WAIT     .        HALF     DRAIN     HANG     CLOSED
PAUSED               READ    PAUSED   RESUME    RESUME     .        .        PAUSED_E DRAIN     HANG     CLOSED
RESUMING             READ    PAUSED   RESUME    .          .        .        .        DRAIN     HANG     CLOSED
WAITING_FOR_MEMORY   .       .        .         .          .        READ     .        DRAIN     HANG     CLOSED
PAUSED_AT_END        .       .        .         RESUME_E   .        .        .        DRAIN     HANG     CLOSED
RESUMING_AT_END      HALF    PAUSED_E RESUME_E  .          .        .        .        DRAIN     HANG     CLOSED
HALF_CLOSED          .       .        .         .          .        .        .        HALF      .        CLOSED
DRAINING             .       .        .         .          .        DRAIN    .        DRAIN     HANG     CLOSED
HANGING_UP           .       .        .         .          .        HANG     .        HANG      .        CLOSED
CLOSED               .       .        .         .          .        CLOSED   .        CLOSED    .        CLOSED
"""
SHORT = {
    "READ": State.READING,
    "PAUSED": State.PAUSED,
    "RESUME": State.RESUMING,
    "WAIT": State.WAITING_FOR_MEMORY,
    "PAUSED_E": State.PAUSED_AT_END,
    "RESUME_E": State.RESUMING_AT_END,
    "HALF": State.HALF_CLOSED,
    "DRAIN": State.DRAINING,
    "HANG": State.HANGING_UP,
    "CLOSED": State.CLOSED,
}


@pytest.mark.parametrize("row", GRID.split("\n")[2:-1], ids=lambda row: row.split()[0])
def test_each_event_in_each_state_leads_where_the_table_says_or_is_refused(row: str) -> None:
    name, *cells = row.split()
    state = State[name]
    for event, cell in zip(Event, cells, strict=True):
        if cell == ".":
            with pytest.raises(AssertionError, match=f"{event.name} cannot happen to a connection that is {name}"):
                next_state(state, event)
        else:
            assert next_state(state, event) is SHORT[cell]


def reachable(start: State) -> set[State]:
    found, new = {start}, [start]
    while new:
        following = set(TRANSITIONS[new.pop()].values()) - found
        found |= following
        new += following
    return found


def test_every_state_is_reached_and_can_be_closed_and_the_end_is_final() -> None:
    assert set(TRANSITIONS) == set(State) == reachable(State.READING)
    assert all(ways[Event.CLOSE] is State.CLOSED for ways in TRANSITIONS.values())
    assert set(TRANSITIONS[State.CLOSED].values()) == {State.CLOSED}


def test_a_connection_that_stopped_taking_input_for_good_never_takes_it_again() -> None:
    for state in set(State) - TAKES_INPUT - {State.WAITING_FOR_MEMORY}:
        assert not reachable(state) & TAKES_INPUT
    for state in (State.HALF_CLOSED, State.DRAINING, State.HANGING_UP, State.CLOSED):
        assert not reachable(state) & (IS_PAUSED | IS_RESUMING)
    for state in DROPS_ANSWERS:
        assert reachable(state) <= DROPS_ANSWERS


# -- live connections -------------------------------------------------------------------------------------------------

#: what brings a connection into a state: its site, its client
Recipe = Callable[[MakeSite], tuple[Site, Client]]


def reading(make_site: MakeSite) -> tuple[Site, Client]:
    site = make_site()
    return site, site.connect()


def paused(make_site: MakeSite) -> tuple[Site, Client]:
    site = make_site(max_frames_per_turn=1)
    site.dispatch = site.park
    client = site.connect()
    client.send(b"".join(request(number) for number in range(20)))
    site.settle()
    return site, client


def resuming(make_site: MakeSite) -> tuple[Site, Client]:
    site = make_site(max_frames_per_turn=1)
    client = site.connect()
    client.send(b"".join(request(number) for number in range(20)))
    site.until(lambda: site.server.requests)
    return site, client


def waiting_for_memory(make_site: MakeSite) -> tuple[Site, Client]:
    site = make_site(queued_max_request_bytes=1000)
    second = site.connect()
    for client in (site.connect(), second):
        client.send(request(1, 300_000)[:200_000])
        site.settle()
    return site, second


def paused_at_end(make_site: MakeSite) -> tuple[Site, Client]:
    site, client = paused(make_site)
    client.socket.shutdown(socket.SHUT_WR)
    site.settle()
    return site, client


def resuming_at_end(make_site: MakeSite) -> tuple[Site, Client]:
    site, client = paused_at_end(make_site)
    site.dispatch = site.echo
    site.exchanges[0].reply([reply_to(0)])
    site.turn()
    return site, client


def unread(make_site: MakeSite) -> tuple[Site, Client]:
    site = make_site()
    site.dispatch = site.park
    client = site.connect(receive_buffer_bytes=4096)
    client.send(request(0))
    site.until(lambda: site.exchanges)
    return site, client


def half_closed(make_site: MakeSite) -> tuple[Site, Client]:
    site, client = unread(make_site)
    site.exchanges[0].reply([UNREAD])
    client.socket.shutdown(socket.SHUT_WR)
    site.settle()
    return site, client


def draining(make_site: MakeSite) -> tuple[Site, Client]:
    site, client = paused(make_site)
    site.server.connections[0].finish()
    site.settle()
    return site, client


def hanging_up(make_site: MakeSite) -> tuple[Site, Client]:
    site, client = unread(make_site)
    site.exchanges[0].close([UNREAD])
    site.settle()
    return site, client


RECIPES: dict[State, Recipe] = {
    State.READING: reading,
    State.PAUSED: paused,
    State.RESUMING: resuming,
    State.WAITING_FOR_MEMORY: waiting_for_memory,
    State.PAUSED_AT_END: paused_at_end,
    State.RESUMING_AT_END: resuming_at_end,
    State.HALF_CLOSED: half_closed,
    State.DRAINING: draining,
    State.HANGING_UP: hanging_up,
}


def in_state(state: State, make_site: MakeSite) -> tuple[Site, Client, Connection]:
    site, client = RECIPES[state](make_site)
    connection = site.server.connections[0]
    assert connection._state is state
    return site, client, connection


def answer_all(site: Site) -> None:
    for exchange in site.exchanges:
        if not exchange.answered:
            exchange.reply([reply_to(0)])


def assert_nothing_is_left(site: Site, connection: Connection) -> None:
    assert connection.closed
    assert len(connection._inbox) == connection._outbox.size_bytes == len(connection._pending) == 0
    for other in site.server.connections:
        other.close()
    site.settle()  # a reservation that was granted just now is given back
    assert site.server._huge.reserved_bytes == 0
    site.advance(site.limits.connections_max_idle_ms)  # no timer of a closed connection goes off
    assert site.errors == []


@pytest.mark.parametrize("state", RECIPES, ids=lambda state: state.name)
def test_a_connection_can_be_closed_in_any_state(make_site: MakeSite, state: State) -> None:
    site, client, connection = in_state(state, make_site)
    connection.close()
    connection.close()
    connection.finish()
    connection.mute(site.clock.now_ms + 10)
    client.read_to_end()
    assert_nothing_is_left(site, connection)
    answer_all(site)  # too late, and no harm


@pytest.mark.parametrize("state", RECIPES, ids=lambda state: state.name)
def test_draining_in_any_state_dispatches_nothing_more_and_answers_what_is_under_way(
    make_site: MakeSite, state: State
) -> None:
    site, client, connection = in_state(state, make_site)
    dispatched = site.server.requests
    under_way = sum(not exchange.answered for exchange in site.exchanges)
    connection.finish()
    assert connection._state is TRANSITIONS[state][Event.DRAIN]
    site.turn()
    answer_all(site)
    received = client.read_to_end()
    assert received.endswith(reply_to(0) * under_way)
    assert site.server.requests == dispatched
    assert_nothing_is_left(site, connection)


@pytest.mark.parametrize("state", RECIPES, ids=lambda state: state.name)
def test_a_reset_by_the_peer_ends_the_connection_in_any_state(make_site: MakeSite, state: State) -> None:
    site, client, connection = in_state(state, make_site)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()
    site.until(lambda: connection.closed)
    assert_nothing_is_left(site, connection)


@pytest.mark.parametrize("state", RECIPES, ids=lambda state: state.name)
def test_when_the_peer_stops_sending_in_any_state_its_whole_requests_are_still_served(
    make_site: MakeSite, state: State
) -> None:
    site, client, connection = in_state(state, make_site)
    site.dispatch = site.echo
    client.socket.shutdown(socket.SHUT_WR)
    site.turn()
    if state is State.WAITING_FOR_MEMORY:
        site.server.connections[1].close()  # only now is it read again, so that the end is seen
    answer_all(site)
    client.read_to_end()
    if state in IS_PAUSED | IS_RESUMING:
        assert site.server.requests == 20
    assert_nothing_is_left(site, connection)


@pytest.mark.parametrize("state", sorted(set(RECIPES) - {State.HALF_CLOSED, State.HANGING_UP}), ids=lambda s: s.name)
def test_hanging_up_in_any_state_sends_what_is_ready_and_drops_later_answers(make_site: MakeSite, state: State) -> None:
    site, client, connection = in_state(state, make_site)
    told: list[Exchange] = []
    waiting = [exchange for exchange in site.exchanges if not exchange.answered]
    for exchange in waiting:
        exchange.on_abandoned = lambda exchange=exchange: told.append(exchange)  # type: ignore[misc]
    connection._hang_up()
    assert connection._state is State.HANGING_UP
    assert told == waiting
    answer_all(site)
    connection._settle_soon()
    assert client.read_to_end() == b"".join(reply_to(number) for number in range(len(client.received) // 8))
    assert_nothing_is_left(site, connection)


def test_memory_that_is_granted_to_a_draining_connection_goes_to_the_next(make_site: MakeSite) -> None:
    site, client, connection = in_state(State.WAITING_FOR_MEMORY, make_site)
    third = site.connect()
    third.send(request(3, 300_000)[:200_000])
    site.settle()
    assert site.server.connections[2]._state is State.WAITING_FOR_MEMORY
    connection.mute(site.clock.now_ms + 10_000)
    connection._pending.append(Exchange(connection, site.clock.now_ms))  # so that draining does not end it at once
    connection.finish()
    site.turn()
    assert connection._state is State.DRAINING
    site.server.connections[1].close()
    third.send(request(3, 300_000)[200_000:])
    assert third.read_numbers(1) == [3]
    connection.close()
    assert client.read_to_end() == b""


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 32))
def test_no_order_of_events_leads_to_a_transition_that_does_not_exist(seed: int) -> None:
    draw = random.Random(seed)
    limits = Limits(
        max_frames_per_turn=draw.choice((1, 3, 16)),
        max_pipelined_requests=draw.choice((2, 5)),
        max_held_bytes=draw.choice((64, 65_536)),
        max_unsent_bytes=draw.choice((1000, 1_000_000)),
        queued_max_request_bytes=draw.choice((-1, 1000)),
    )
    site = Site(limits)
    site.dispatch = lambda e, f: draw.choice((site.park, site.echo, site.echo, site.park_and_allow_next))(e, f)
    peers = [site.connect() for _ in range(2)]

    def send(client: Client) -> None:
        data = b"".join(request(n, draw.choice((8, 60, 50_000, 150_000))) for n in range(draw.randrange(1, 6)))
        try:
            client.socket.send(data[: draw.randrange(1, len(data) + 1)] if draw.random() < 0.3 else data)
        except OSError:
            pass  # full, or it has ended

    def answer(_: Client) -> None:
        if site.exchanges:
            exchange = site.exchanges.pop(draw.randrange(len(site.exchanges)))
            if draw.random() < 0.05:
                exchange.close()
            else:
                exchange.reply([bytes(draw.choice((8, 5000)))])

    def stop_sending(client: Client) -> None:
        try:
            client.socket.shutdown(draw.choice((socket.SHUT_WR, socket.SHUT_RDWR)))
        except OSError:
            pass

    def mute(_: Client) -> None:
        for connection in site.server.connections:
            connection.mute(site.clock.now_ms + draw.randrange(20))

    def drain(_: Client) -> None:
        for connection in site.server.connections:
            connection.finish()

    steps = (send, send, send, answer, answer, answer, lambda _: site.advance(5), mute, Client.pull, Client.pull)
    ends = (stop_sending, drain)
    try:
        for _ in range(60):
            step = draw.choice(ends if draw.random() < 0.02 else steps)
            step(draw.choice(peers))
            if draw.random() < 0.6:
                site.turn()
        drain(peers[0])
        site.advance(1000)

        def finish_all() -> None:
            answer(peers[0])
            for client in peers:
                client.pull()

        site.until(lambda: not site.server.connections, finish_all)
        assert site.errors == []
    finally:
        site.close()
