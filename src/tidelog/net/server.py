"""The connections of a broker: what they share, how many there are, and how they all end.

Shared are the receive area (see `connection`), the pool of large buffers and the counters. Draining ends in good
order: no new connections and no new requests; requests under way are answered, the answers are sent, and each
connection closes when that is done. What is left at the deadline is closed as it is.

Huge requests, and with `queued_max_request_bytes` all that are too large for the area, are admitted one by one: such a
request reserves its announced size before more than its beginning is read, and waits in line, unread, while others have
reserved too much. The reservation is only a number; memory still follows what arrives. One request is always admitted,
so a limit smaller than a request delays but does not refuse it. Where others wait, the one that was admitted first has
`huge_request_ms` to arrive: whoever sends half of a request and rests must not keep the others out.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from operator import attrgetter

from tidelog.net.acceptor import Acceptor, Listener
from tidelog.net.connection import Connection
from tidelog.net.exchange import Exchange
from tidelog.net.limits import Limits
from tidelog.net.loop import Loop
from tidelog.net.pool import BufferPool
from tidelog.net.transport import PlainTransport, TransportOf
from tidelog.timer import TimerTask

AREA_BYTES = 1024 * 1024

Dispatch = Callable[[Exchange, memoryview], object]
Log = Callable[[str], object]


class Server:
    """`dispatch(exchange, frame)` is called for every whole request, `log(sentence)` for what operators should know."""

    __slots__ = (
        "_acceptor",
        "_admitted_ms",
        "_connections",
        "_drain_deadline",
        "_drained",
        "_patience",
        "_reserved_bytes",
        "_waiting_for_memory",
        "area",
        "bytes_in",
        "bytes_out",
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
        self.idle_closed = 0
        self._acceptor = Acceptor(self)
        self._connections: dict[Connection, bool] = {}  # to whether it came through a protected listener
        self._drained: Callable[[], object] | None = None
        self._drain_deadline: TimerTask | None = None
        self._reserved_bytes = 0
        #: since when those that have reserved have, the first of them first
        self._admitted_ms: dict[Connection, int] = {}
        self._waiting_for_memory: deque[Connection] = deque()
        self._patience: TimerTask | None = None

    @property
    def connections(self) -> list[Connection]:
        return list(self._connections)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def connections_accepted(self) -> int:
        return self._acceptor.accepted

    @property
    def connections_refused(self) -> int:
        return self._acceptor.refused

    def listen(
        self,
        host: str,
        port: int,
        listener_name: str,
        protected: bool = False,
        transport: TransportOf = PlainTransport,
    ) -> tuple[str, int]:
        """Listen on every address that `host` stands for, all with one port; an empty host is every interface.

        Port 0 lets the system choose. The first address is returned. `protected` is for the listener between brokers,
        `transport` makes what a connection reads and writes through of its socket.
        """
        return self._acceptor.listen(host, port, listener_name, protected, transport)

    def limits_changed(self) -> None:
        """A limit on connections was changed while some may be waiting for it."""
        self._acceptor.limits_changed()

    def drain(self, done: Callable[[], object], deadline_ms: int | None = None) -> None:
        """End in good order; `done()` when every connection is closed. `deadline_ms` is monotonic."""
        self._drained = done
        self._acceptor.close()
        if deadline_ms is not None:
            self._drain_deadline = self.loop.timer.add(deadline_ms, self.close)
        for connection in self.connections:
            connection.finish()
        self._check_drained()

    def close(self) -> None:
        """End now."""
        self._acceptor.close()
        for connection in self.connections:
            connection.close()

    # -- for the acceptor and the connections -------------------------------------------------------------------

    def _welcome(self, connected: socket.socket, peer: tuple[str, int], listener: Listener) -> None:
        connection = Connection(self, listener.transport(connected), peer, listener.name)
        self._connections[connection] = listener.protected
        if listener.protected and len(self._connections) > self.limits.max_connections:
            others = [other for other, protected in self._connections.items() if not protected]
            if others:
                quietest = min(others, key=attrgetter("last_active_ms"))
                self.log(f"closing {quietest!r}: its place is needed for {connection!r}")
                quietest.close()

    def _on_connection_closed(self, connection: Connection) -> None:
        del self._connections[connection]
        self._acceptor.on_connection_closed(connection.peer[0])
        self._check_drained()

    def _check_drained(self) -> None:
        if not self._connections and self._drained is not None:
            done, self._drained = self._drained, None
            if self._drain_deadline is not None:
                self._drain_deadline.cancel()
            self.loop.call_soon(done)

    def _reserve(self, connection: Connection, size_bytes: int) -> bool:
        """Whether a large request may be read now; if not, the connection will be told when to ask again."""
        limits = self.limits
        limit = (
            limits.queued_max_request_bytes if limits.queued_max_request_bytes >= 0 else limits.max_huge_requests_bytes
        )
        if self._reserved_bytes and self._reserved_bytes + size_bytes > limit:
            self._waiting_for_memory.append(connection)
            self._watch_first()
            return False
        self._reserved_bytes += size_bytes
        self._admitted_ms[connection] = self.loop.now_ms
        return True

    def _must_reserve(self, size_bytes: int) -> bool:
        limits = self.limits
        return limits.queued_max_request_bytes >= 0 or size_bytes > limits.huge_request_bytes

    def _watch_first(self) -> None:
        if self._patience is None:
            first_ms = next(iter(self._admitted_ms.values()))
            self._patience = self.loop.timer.add(first_ms + self.limits.huge_request_ms, self._end_first)

    def _end_first(self) -> None:
        self._patience = None
        if not self._admitted_ms or all(waiting.closed for waiting in self._waiting_for_memory):
            return
        first, since_ms = next(iter(self._admitted_ms.items()))
        if self.loop.now_ms - since_ms >= self.limits.huge_request_ms:
            self.log(f"closing {first!r}: its large request has not arrived, and others wait for the memory")
            first.close()
        else:
            self._watch_first()

    def _release(self, connection: Connection, size_bytes: int) -> None:
        self._reserved_bytes -= size_bytes
        del self._admitted_ms[connection]
        waiting, self._waiting_for_memory = self._waiting_for_memory, deque()
        for connection in waiting:
            self.loop.call_soon(connection._on_memory)
