"""The connections of a broker: what they share, how many there are, and how they all end.

They share the receive area (see `connection`), the pool of large buffers and the counters. Draining ends everything in
good order: no new connections and no new requests; requests under way are answered, the answers are sent, and each
connection closes when that is done. Whatever is left at the deadline is closed as it is.

Requests that are not small, and with `queued_max_request_bytes` all that do not fit into the area, are admitted one by
one (see `admission`). The large and the huge ones have budgets of their own, so that they do not keep producers of
ordinary batches waiting.
"""

from __future__ import annotations

import mmap
import socket
from collections.abc import Callable
from operator import attrgetter

from tidelog.net.acceptor import Acceptor, Listener
from tidelog.net.admission import Admission
from tidelog.net.connection import Connection
from tidelog.net.exchange import Exchange
from tidelog.net.inbox import SMALL_BYTES
from tidelog.net.limits import Limits
from tidelog.net.loop import Loop
from tidelog.net.pool import BufferPool
from tidelog.net.remarks import Remarks
from tidelog.net.transport import PlainTransport, TransportOf
from tidelog.timer import TimerTask

AREA_BYTES = 1024 * 1024

Dispatch = Callable[[Exchange, memoryview], object]
Log = Callable[[str], object]


class Server:
    """`dispatch(exchange, frame)` is called for every whole request, `log(sentence)` for what operators should know."""

    __slots__ = (
        "_acceptor",
        "_connections",
        "_drain_deadline",
        "_drained",
        "_huge",
        "_large",
        "_medium",
        "_short_area",
        "area",
        "bytes_in",
        "bytes_out",
        "connections_accepted",
        "connections_refused",
        "dispatch",
        "idle_closed",
        "limits",
        "loop",
        "pool",
        "remarks",
        "requests",
    )

    def __init__(self, loop: Loop, limits: Limits, dispatch: Dispatch, log: Log = lambda _: None) -> None:
        self.loop = loop
        self.limits = limits
        self.dispatch = dispatch
        self.remarks = Remarks(loop, log)
        # Where every connection reads; of use within one event only. Mapped memory is taken only as far as it is used.
        self.area = memoryview(mmap.mmap(-1, AREA_BYTES, mmap.MAP_PRIVATE))
        self._short_area = self.area[: 2 * SMALL_BYTES]
        self.pool = BufferPool()
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        self.idle_closed = 0
        self._acceptor = Acceptor(self)
        self._connections: dict[Connection, bool] = {}  # to whether it came through a protected listener
        self._drained: Callable[[], object] | None = None
        self._drain_deadline: TimerTask | None = None
        self._huge = Admission(loop, limits, self._most_huge_bytes)
        self._large = Admission(loop, limits, self._most_large_bytes)
        self._medium = Admission(loop, limits, self._most_medium_bytes)

    @property
    def connections(self) -> list[Connection]:
        return list(self._connections)

    def listen(
        self,
        host: str,
        port: int,
        listener_name: str,
        protected: bool = False,
        transport: TransportOf = PlainTransport,
    ) -> tuple[str, int]:
        """Listen on every address that `host` stands for, all with one port; an empty host is every interface.

        Port 0 lets the system choose. The first address is returned. `protected` is for the listener between brokers;
        `transport` wraps a socket in what a connection reads from and writes to.
        """
        return self._acceptor.listen(host, port, listener_name, protected, transport)

    def limits_changed(self) -> None:
        """A limit on connections has changed; some may have been waiting for that."""
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
        self.remarks.close()

    # -- for the acceptor and the connections -------------------------------------------------------------------

    def _welcome(self, connected: socket.socket, peer: tuple[str, int], listener: Listener) -> None:
        connection = Connection(self, listener.transport(connected), peer, listener.name)
        self._connections[connection] = listener.protected
        if listener.protected and len(self._connections) > self.limits.max_connections:
            others = [other for other, protected in self._connections.items() if not protected]
            if others:
                quietest = min(others, key=attrgetter("last_active_ms"))
                quietest.remark("place", f"its place is needed for {connection!r}")
                quietest.close()

    def _on_connection_closed(self, connection: Connection) -> None:
        del self._connections[connection]
        self._acceptor.on_connection_closed(connection.peer[0], connection.listener_name)
        self._check_drained()

    def _check_drained(self) -> None:
        if not self._connections and self._drained is not None:
            done, self._drained = self._drained, None
            if self._drain_deadline is not None:
                self._drain_deadline.cancel()
            self.remarks.close()
            self.loop.call_soon(done)

    def _admission_to(self, size_bytes: int) -> Admission | None:
        """Where a request of that size, which did not arrive at once, has to be admitted; None if it need not be."""
        limits = self.limits
        if size_bytes > limits.huge_request_bytes or limits.queued_max_request_bytes >= 0:
            return self._huge
        if size_bytes > limits.large_request_bytes:
            return self._large
        return self._medium if size_bytes > limits.medium_request_bytes else None

    def read_area(self) -> memoryview:
        """Where a connection with an almost empty inbox reads: a small area while memory is short, since what is read
        of a request that must wait is kept."""
        return self._short_area if self._medium.is_full else self.area

    def _most_huge_bytes(self) -> int:
        queued_bytes = self.limits.queued_max_request_bytes
        return queued_bytes if queued_bytes >= 0 else self.limits.max_huge_requests_bytes

    def _most_medium_bytes(self) -> int:
        return self.limits.max_medium_requests_bytes

    def _most_large_bytes(self) -> int:
        return self.limits.max_large_requests_bytes
