"""A server on a real loopback socket, its loop turned by the test itself.

The test and the loop share one thread: `until` turns the loop, without waiting, until something holds. So nothing
sleeps, the order of events is the test's, and a test that would hang fails after a bounded number of turns.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

import pytest

from tidelog.net import Connection, Exchange, Limits, Loop, Server
from tidelog.timer import Timer

GIVE_UP_AFTER_SECONDS = 60


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(number: int, size_bytes: int = 16) -> bytes:
    """A frame whose body begins with its number, as a correlation id would."""
    body = struct.pack(">hhi", 0, 0, number)
    return framed(body + bytes(max(0, size_bytes - len(body))))


def number_of(frame: memoryview) -> int:
    number: int = struct.unpack_from(">i", frame, 4)[0]
    return number


def reply_to(number: int) -> bytes:
    return framed(struct.pack(">i", number))


def held_bytes(connection: Connection) -> int:
    """Bytes received that are kept until the rest of their frame arrives or their turn comes."""
    return len(connection._inbox)


def unsent_bytes(connection: Connection) -> int:
    return connection._outbox.size_bytes


class HandClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class Site:
    """A loop and a server with clients; `dispatch` may be replaced by a test, and echoes numbers until then."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.clock = HandClock()
        self.errors: list[tuple[str, BaseException]] = []
        self.sentences: list[str] = []
        self.frames: list[bytes] = []
        self.exchanges: list[Exchange] = []
        self.loop = Loop(self.clock, Timer(self.clock.now_ms), on_error=lambda what, e: self.errors.append((what, e)))
        self.limits = limits or Limits()
        self.dispatch: Callable[[Exchange, memoryview], object] = self.echo
        self.server = Server(self.loop, self.limits, lambda e, f: self.dispatch(e, f), self.sentences.append)
        self.address = self.server.listen("127.0.0.1", 0, "PLAINTEXT")
        self.clients: list[Client] = []

    def echo(self, exchange: Exchange, frame: memoryview) -> None:
        exchange.reply([reply_to(number_of(frame))])

    def park(self, exchange: Exchange, frame: memoryview) -> None:
        """Keep it for the test to answer."""
        self.frames.append(bytes(frame))
        self.exchanges.append(exchange)

    def park_and_allow_next(self, exchange: Exchange, frame: memoryview) -> None:
        self.park(exchange, frame)
        exchange.allow_next()

    def connect(self, receive_buffer_bytes: int = 0) -> Client:
        client = Client(self, receive_buffer_bytes)
        self.clients.append(client)
        return client

    def turn(self, turns: int = 1) -> None:
        for _ in range(turns):
            self.loop.turn(0)

    def advance(self, distance_ms: int) -> None:
        self.clock.now_ms += distance_ms
        self.turn()

    def until(self, holds: Callable[[], object], step: Callable[[], object] = lambda: None) -> None:
        """Turn until `holds()`. Loopback delivers in its own time, so a turn that finds nothing is not the end."""
        give_up = time.monotonic() + GIVE_UP_AFTER_SECONDS
        while not holds():
            if time.monotonic() > give_up:
                pytest.fail(f"still waiting; errors: {self.errors}, log: {self.sentences}")
            self.loop.turn(0)
            step()

    def settle(self) -> None:
        """Turn until several turns in a row find nothing to do."""
        quiet = 0
        before = None
        while quiet < 20:
            self.loop.turn(1)
            now = (self.server.requests, self.server.bytes_in, self.server.bytes_out, len(self.server.connections))
            quiet = quiet + 1 if now == before else 0
            before = now

    def close(self) -> None:
        for client in self.clients:
            client.socket.close()
        self.server.close()
        self.loop.close()


class Client:
    def __init__(self, site: Site, receive_buffer_bytes: int) -> None:
        self.site = site
        self.socket = socket.socket()
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        accepted = site.server.connections_accepted + site.server.connections_refused
        self.socket.setblocking(False)
        self.socket.connect_ex(site.address)
        site.until(lambda: site.server.connections_accepted + site.server.connections_refused > accepted)
        self.received = bytearray()
        self.ended = False

    def send(self, data: bytes) -> None:
        """All of it, turning the loop when the socket is full."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.socket.send(view) :]
            except BlockingIOError:
                self.site.turn()

    def pull(self, size_bytes: int = 1 << 20) -> None:
        try:
            data = self.socket.recv(size_bytes)
        except BlockingIOError:
            return
        except ConnectionError:
            self.ended = True
            return
        self.received += data
        self.ended = self.ended or not data

    def read(self, size_bytes: int) -> bytes:
        self.site.until(lambda: len(self.received) >= size_bytes or self.ended, self.pull)
        data = bytes(self.received[:size_bytes])
        del self.received[:size_bytes]
        return data

    def read_numbers(self, count: int) -> list[int]:
        return [struct.unpack_from(">ii", self.read(8))[1] for _ in range(count)]

    def read_to_end(self) -> bytes:
        self.site.until(lambda: self.ended, self.pull)
        return bytes(self.received)
