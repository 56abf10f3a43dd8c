"""Listeners and the connections that came through them, with the limits on how many there may be.

Accepting. A listener takes a bounded number of connections a turn. It stops (its socket leaves epoll; the kernel's
backlog holds who comes) in three cases: all of `max_connections` are taken, until one closes; the rate of new
connections is used up, until the timer says that it has recovered; or `accept` fails for want of descriptors or
memory, until a short while later. Established connections are served all the time. Too many from one address are
accepted and closed at once, since waiting in the backlog would keep everyone else out.

Draining. No new connections, no new requests; requests under way are answered, the answers are sent, and each
connection closes when that is done. What is left at the deadline is closed as it is.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any

from tidelog.net.connection import Connection
from tidelog.net.exchange import Exchange
from tidelog.net.limits import Limits
from tidelog.net.loop import READ, Loop
from tidelog.net.pool import BufferPool
from tidelog.net.transport import PlainTransport
from tidelog.timer import TimerTask

AREA_BYTES = 1024 * 1024
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Dispatch = Callable[[Exchange, memoryview], object]
Log = Callable[[str], object]


class _Listener:
    __slots__ = ("name", "server", "socket")

    def __init__(self, server: Server, listening: socket.socket, name: str) -> None:
        self.server = server
        self.socket = listening
        self.name = name

    def on_event(self, _events: int) -> None:
        self.server._accept(self)


class Server:
    """`dispatch(exchange, frame)` is called for every whole request, `log(sentence)` for what operators should know."""

    __slots__ = (
        "_accepting",
        "_connections",
        "_drain_deadline",
        "_drained",
        "_draining",
        "_listeners",
        "_per_ip",
        "_rate_begun_ms",
        "_rate_used",
        "_resume",
        "area",
        "bytes_in",
        "bytes_out",
        "connections_accepted",
        "connections_refused",
        "dispatch",
        "idle_closed",
        "limits",
        "log",
        "loop",
        "pool",
        "requests",
    )

    def __init__(self, loop: Loop, limits: Limits, dispatch: Dispatch, log: Log = lambda _: None) -> None:
        self.loop = loop
        self.limits = limits
        self.dispatch = dispatch
        self.log = log
        self.area = memoryview(bytearray(AREA_BYTES))  # where every connection reads; of use within one event only
        self.pool = BufferPool()
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        self.idle_closed = 0
        self._connections: dict[Connection, None] = {}
        self._per_ip: dict[str, int] = {}
        self._listeners: list[_Listener] = []
        self._accepting = True
        self._resume: TimerTask | None = None  # when accepting goes on, if a time is known
        self._rate_begun_ms = 0
        self._rate_used = 0
        self._draining = False
        self._drained: Callable[[], object] | None = None
        self._drain_deadline: TimerTask | None = None

    @property
    def connections(self) -> list[Connection]:
        return list(self._connections)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def draining(self) -> bool:
        return self._draining

    def listen(self, host: str, port: int, listener_name: str) -> tuple[str, int]:
        """Listen on every address that `host` stands for, all with one port; an empty host is every interface.

        Port 0 lets the system choose. The first address is returned.
        """
        opened: list[socket.socket] = []
        error: OSError | None = None
        for family, address in _addresses(host, port):
            if opened:
                address = (address[0], opened[0].getsockname()[1], *address[2:])
            try:
                opened.append(self._open(family, address))
            except OSError as failure:
                error = error or failure
        if not opened:
            raise error or OSError(errno.EADDRNOTAVAIL, f"{host!r} has no address to listen on")
        for listening in opened:
            listener = _Listener(self, listening, listener_name)
            self._listeners.append(listener)
            if self._accepting:
                self.loop.register(listening.fileno(), READ, listener.on_event)
        bound: tuple[str, int] = opened[0].getsockname()[:2]
        return bound

    def drain(self, done: Callable[[], object], deadline_ms: int | None = None) -> None:
        """End in good order; `done()` when every connection is closed. `deadline_ms` is monotonic."""
        self._draining = True
        self._stop_listening()
        self._drained = done
        if deadline_ms is not None:
            self._drain_deadline = self.loop.timer.add(deadline_ms, self.close)
        for connection in self.connections:
            connection.finish()
        self._check_drained()

    def close(self) -> None:
        """End now."""
        self._stop_listening()
        for connection in self.connections:
            connection.close()

    def _stop_listening(self) -> None:
        self._pause_accepting()
        for listener in self._listeners:
            self.loop.at_turn_end(listener.socket.close)
        self._listeners.clear()

    def _open(self, family: int, address: tuple[Any, ...]) -> socket.socket:
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if self.limits.socket_receive_buffer_bytes > 0:
                # Before listening: the window's scale is agreed on when a connection is made.
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.limits.socket_receive_buffer_bytes)
            listening.bind(address)
            listening.listen(self.limits.socket_listen_backlog_size)
        except OSError:
            listening.close()
            raise
        return listening

    # -- accepting ----------------------------------------------------------------------------------------------

    def _accept(self, listener: _Listener) -> None:
        for _ in range(self.limits.max_accepts_per_turn):
            if not self._accepting or not self._room_for_one():
                return
            try:
                connected, address = listener.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self.log(f"cannot accept connections for now: {error.strerror}")
                    self._pause_accepting(self.loop.now_ms + self.limits.accept_backoff_ms)
                    return
                continue  # this one was gone before it was accepted
            self._admit(connected, address[0], address[1], listener.name)

    def _room_for_one(self) -> bool:
        if len(self._connections) >= self.limits.max_connections:
            self.log(f"all {self.limits.max_connections} connections are taken: new ones wait until one closes")
            self._pause_accepting()
            return False
        rate = self.limits.max_connection_creation_rate
        if rate >= 0:
            now_ms = self.loop.now_ms
            if now_ms - self._rate_begun_ms >= 1000:
                self._rate_begun_ms = now_ms
                self._rate_used = 0
            if self._rate_used >= rate:
                self._pause_accepting(self._rate_begun_ms + 1000)
                return False
            self._rate_used += 1
        return True

    def _admit(self, connected: socket.socket, host: str, port: int, listener_name: str) -> None:
        if host.startswith("::ffff:"):
            host = host[7:]
        count = self._per_ip.get(host, 0)
        if 0 <= self.limits.max_connections_per_ip <= count:
            self.connections_refused += 1
            self.log(f"closing a connection from {host}: it has {count} already")
            connected.close()
            return
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.limits.socket_send_buffer_bytes > 0:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.socket_send_buffer_bytes)
            connection = Connection(self, PlainTransport(connected), (host, port), listener_name)
        except OSError:
            connected.close()  # it is gone again
            return
        self._per_ip[host] = count + 1
        self._connections[connection] = None
        self.connections_accepted += 1

    def _pause_accepting(self, until_ms: int | None = None) -> None:
        """Until a time, or else until a connection closes."""
        if self._accepting:
            self._accepting = False
            for listener in self._listeners:
                self.loop.unregister(listener.socket.fileno())
        if self._resume is not None:
            self._resume.cancel()
        self._resume = None if until_ms is None else self.loop.timer.add(until_ms, self._resume_accepting)

    def _resume_accepting(self) -> None:
        self._resume = None
        if not self._accepting and not self._draining:
            self._accepting = True
            for listener in self._listeners:
                self.loop.register(listener.socket.fileno(), READ, listener.on_event)

    def _on_connection_closed(self, connection: Connection) -> None:
        if self._connections.pop(connection, 0) == 0:
            return
        host = connection.peer[0]
        count = self._per_ip[host] - 1
        if count:
            self._per_ip[host] = count
        else:
            del self._per_ip[host]
        if self._draining:
            self._check_drained()
        elif self._resume is None:
            self._resume_accepting()

    def _check_drained(self) -> None:
        if not self._connections and self._drained is not None:
            done, self._drained = self._drained, None
            if self._drain_deadline is not None:
                self._drain_deadline.cancel()
            self.loop.call_soon(done)


def _addresses(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # IPv4 first: it is what a returned address of `localhost` is most widely understood as.
    found.sort(key=lambda info: info[0] != socket.AF_INET)
    return list(dict.fromkeys((int(info[0]), info[4]) for info in found))
