"""Listening sockets, and who is let in.

A listener takes a bounded number of connections a turn. It rests (its socket leaves epoll; the kernel's backlog holds
whoever comes) in three cases:

    full          all of `max_connections` are taken                      until one closes
    rate spent    this second has had its share of new connections        until the second is over
    exhausted     `accept` failed for want of descriptors or memory       for `accept_backoff_ms`

The first two hold for all listeners together, and for one that has limits of its own (`of_listeners`).

Established connections are served all the time. A connection too many from one address is accepted and closed at once:
resting would keep everyone else out.

A protected listener, the one that brokers use among themselves, rests only in the last case, so that clients cannot
keep replication out. For each connection that it takes beyond `max_connections`, the connection of another listener
that has been quiet the longest is closed.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any

from tidelog.net.limits import ListenerLimits
from tidelog.net.loop import READ
from tidelog.net.transport import TransportOf
from tidelog.timer import TimerTask

if TYPE_CHECKING:
    from tidelog.net.server import Server

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RATE_WINDOW_MS = 1000


_NO_LIMITS = ListenerLimits()


class Gate:
    """How far the limits on new connections are used up: by all listeners, or by those of one name."""

    __slots__ = ("connections", "full", "rate_begun_ms", "rate_spent", "rate_used")

    def __init__(self) -> None:
        self.connections = 0
        self.full = False
        self.rate_spent = False
        self.rate_begun_ms = 0
        self.rate_used = 0

    @property
    def shut(self) -> bool:
        return self.full or self.rate_spent

    def open(self) -> None:
        """Whichever limit still holds is found again by the next `accept`."""
        self.full = self.rate_spent = False


class Listener:
    __slots__ = ("acceptor", "gate", "name", "protected", "resting", "socket", "transport")

    def __init__(
        self,
        acceptor: Acceptor,
        gate: Gate,
        listening: socket.socket,
        name: str,
        protected: bool,
        transport: TransportOf,
    ) -> None:
        self.acceptor = acceptor
        self.gate = gate
        self.socket = listening
        self.name = name
        self.protected = protected
        self.transport = transport
        self.resting = True  # not in epoll

    def on_event(self, _events: int) -> None:
        self.acceptor._accept(self)


class Acceptor:
    __slots__ = (
        "_exhausted",
        "_gate",
        "_gates",
        "_listeners",
        "_per_ip",
        "_server",
        "_timers",
    )

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listeners: list[Listener] = []
        self._per_ip: dict[str, int] = {}
        self._gate = Gate()
        self._gates: dict[str, Gate] = {}
        self._exhausted = False
        self._timers: set[TimerTask] = set()

    def listen(self, host: str, port: int, name: str, protected: bool, transport: TransportOf) -> tuple[str, int]:
        """See `Server.listen`."""
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
        gate = self._gates.setdefault(name, Gate())
        self._listeners += [Listener(self, gate, listening, name, protected, transport) for listening in opened]
        self._update()
        bound: tuple[str, int] = opened[0].getsockname()[:2]
        return bound

    def close(self) -> None:
        """Stop listening, for good."""
        for task in self._timers:
            task.cancel()
        self._timers.clear()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            if not listener.resting:
                self._server.loop.unregister(listener.socket.fileno())
            self._server.loop.at_turn_end(listener.socket.close)

    def limits_changed(self) -> None:
        for gate in (self._gate, *self._gates.values()):
            gate.open()
        self._update()

    def on_connection_closed(self, host: str, listener_name: str) -> None:
        count = self._per_ip[host] - 1
        if count:
            self._per_ip[host] = count
        else:
            del self._per_ip[host]
        gates = (self._gate, self._gates[listener_name])
        was_full = any(gate.full for gate in gates)
        for gate in gates:
            gate.connections -= 1
            gate.full = False
        if was_full:
            self._update()

    def _open(self, family: int, address: tuple[Any, ...]) -> socket.socket:
        limits = self._server.limits
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if limits.socket_receive_buffer_bytes > 0:
                # Before listening: the window's scale is agreed on when a connection is made.
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.socket_receive_buffer_bytes)
            listening.bind(address)
            listening.listen(limits.socket_listen_backlog_size)
        except OSError:
            listening.close()
            raise
        return listening

    # -- one event ----------------------------------------------------------------------------------------------

    def _accept(self, listener: Listener) -> None:
        for _ in range(self._server.limits.max_accepts_per_turn):
            if not listener.protected and not self._room_for_one(listener):
                return
            try:
                connected, address = listener.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._server.remarks.add("exhausted", f"cannot accept connections for now: {error.strerror}")
                    self._exhausted = True
                    self._rest(self._server.loop.now_ms + self._server.limits.accept_backoff_ms)
                    return
                continue  # this one was gone before it was accepted
            self._gate.rate_used += 1
            listener.gate.rate_used += 1
            self._admit(connected, address[0], address[1], listener)

    def _room_for_one(self, listener: Listener) -> bool:
        limits = self._server.limits
        own = limits.of_listeners.get(listener.name, _NO_LIMITS)
        return self._opens(
            self._gate, limits.max_connections, limits.max_connection_creation_rate, "connections"
        ) and self._opens(listener.gate, *own, f"connections of the listener {listener.name}")

    def _opens(self, gate: Gate, max_connections: int, rate: int, what: str) -> bool:
        """Whether one more may come in; if not, the listener rests until that may have changed."""
        server = self._server
        if 0 <= max_connections <= gate.connections:
            server.remarks.add("full", f"all {max_connections} {what} are taken: new ones wait until one closes")
            gate.full = True
            self._update()
            return False
        if rate >= 0:
            if server.loop.now_ms - gate.rate_begun_ms >= _RATE_WINDOW_MS:
                gate.rate_begun_ms = server.loop.now_ms
                gate.rate_used = 0
            if gate.rate_used >= rate:
                gate.rate_spent = True
                self._rest(gate.rate_begun_ms + _RATE_WINDOW_MS)
                return False
        return True

    def _admit(self, connected: socket.socket, host: str, port: int, listener: Listener) -> None:
        limits = self._server.limits
        count = self._per_ip.get(host, 0)
        allowed = limits.max_connections_per_ip_overrides.get(host, limits.max_connections_per_ip)
        if 0 <= allowed <= count:
            self._server.connections_refused += 1
            self._server.remarks.add("address", f"closing a connection from {host}: it has {count} already")
            connected.close()
            return
        self._per_ip[host] = count + 1
        self._gate.connections += 1
        listener.gate.connections += 1
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if limits.socket_send_buffer_bytes > 0:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.socket_send_buffer_bytes)
            self._server._welcome(connected, (host, port), listener)
        except OSError:
            connected.close()  # it is gone again
            self.on_connection_closed(host, listener.name)
            return
        self._server.connections_accepted += 1

    # -- resting ------------------------------------------------------------------------------------------------

    def _rest(self, until_ms: int) -> None:
        def resume() -> None:
            self._timers.discard(task)
            self._exhausted = False
            self.limits_changed()

        task = self._server.loop.timer.add(until_ms, resume)
        self._timers.add(task)
        self._update()

    def _update(self) -> None:
        """Put each listener into epoll or take it out."""
        for listener in self._listeners:
            rest = self._exhausted or (not listener.protected and (self._gate.shut or listener.gate.shut))
            if rest != listener.resting:
                listener.resting = rest
                if rest:
                    self._server.loop.unregister(listener.socket.fileno())
                else:
                    self._server.loop.register(listener.socket.fileno(), READ, listener.on_event)


def _addresses(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
    # As bytes where that says the same: of a string Python would import the rules of international names.
    name = host.encode() if host.isascii() else host
    found = socket.getaddrinfo(name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # IPv4 first: it is what a returned address of `localhost` is most widely understood as.
    found.sort(key=lambda info: info[0] != socket.AF_INET)
    return list(dict.fromkeys((int(info[0]), info[4]) for info in found))
