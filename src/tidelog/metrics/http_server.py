"""A small HTTP/1.1 server on the broker's loop, for pages that are asked for with GET.

Each connection brings one request and is closed after its answer. It has limited time to send its request and to take
the answer, and a request is read up to a limited size. When too many are open, the oldest that is still sending its
request makes room. Answers that are being sent may hold a limited amount of memory together; beyond it, 503 is
answered. So whoever sends half a request, never reads, or connects a thousand times, costs little, and others are
served.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.net.loop import BROKEN, READ, WRITE

if TYPE_CHECKING:
    from tidelog.net.loop import Loop
    from tidelog.timer.wheel import TimerTask

MAX_CONNECTIONS: Final = 64
MAX_REQUEST_BYTES: Final = 8 * 1024
MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
#: for a request to arrive, for its answer to be taken, and for the client to close after it
REQUEST_MS: Final = 5_000
ANSWER_MS: Final = 30_000
CLOSING_MS: Final = 1_000
#: when no descriptor is left, until the next try
REST_MS: Final = 100
BUFFERS_AT_ONCE: Final = 64
_END: Final = b"\r\n\r\n"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
TEXT: Final = "text/plain; charset=utf-8"


class HttpConnection:
    """`path` is what was asked for, once that is known; `respond` answers it, now or later."""

    def __init__(self, server: HttpServer, connected: socket.socket) -> None:
        self.path = ""
        self.unsent_bytes = 0
        self.is_asking = True
        self._server = server
        self._socket = connected
        self._head = bytearray()
        self._wants_body = True
        self._answered = False
        self._unsent: list[memoryview] = []
        self._closed = False
        self._deadline: TimerTask | None = None
        self._allow(REQUEST_MS, lambda: self.respond(408, TEXT, [b"the request did not arrive in time\n"]))
        server.loop.register(connected.fileno(), READ, self._on_event)

    def respond(self, status: int, content_type: str, chunks: Sequence[bytes]) -> None:
        if self._closed:
            return
        self.is_asking = False
        self._answered = True
        size = sum(map(len, chunks))
        if self._server.unsent_bytes and self._server.unsent_bytes + size > MAX_UNSENT_BYTES:
            status, content_type, chunks = 503, TEXT, [b"too many answers are being sent\n"]
            size = len(chunks[0])
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\nContent-Length: {size}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        self._unsent = [memoryview(head.encode()), *(memoryview(each) for each in chunks if self._wants_body and each)]
        self.unsent_bytes = sum(map(len, self._unsent))
        self._server.unsent_bytes += self.unsent_bytes
        self._allow(ANSWER_MS, self.close)
        self._send()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._server.forget(self)
        self._unsent = []
        self._server.loop.unregister(self._socket.fileno())
        self._server.loop.at_turn_end(self._socket.close)

    def _allow(self, time_ms: int, then: Callable[[], object]) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        loop = self._server.loop
        self._deadline = loop.timer.add(loop.now_ms + time_ms, then)

    def _on_event(self, events: int) -> None:
        try:
            if events & WRITE:
                self._send()
            elif events & (READ | BROKEN):
                self._receive(bool(events & BROKEN))
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def _receive(self, broken: bool) -> None:
        received = self._socket.recv(MAX_REQUEST_BYTES)
        if not received and self.path and not self._answered and not broken:
            # It has said all that it wants to say, and waits for the answer.
            self._server.loop.modify(self._socket.fileno(), 0)
        elif not received:
            self.close()
        elif self.is_asking:
            self._head += received
            self._read_head()
        # What comes after the request is read and forgotten: closing on it would take the answer back.

    def _read_head(self) -> None:
        end = self._head.find(_END)
        if end < 0 and len(self._head) <= MAX_REQUEST_BYTES:
            return
        head, self._head = bytes(self._head[: max(end, 0)]), bytearray()
        if end < 0 or end > MAX_REQUEST_BYTES:
            self.respond(431, TEXT, [f"a request has at most {MAX_REQUEST_BYTES} bytes\n".encode()])
            return
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[1].startswith("/") or not words[2].startswith("HTTP/1."):
            self.respond(400, TEXT, [b"this is not an HTTP/1.1 request\n"])
            return
        self._wants_body = words[0] != "HEAD"
        if words[0] not in ("GET", "HEAD"):
            self.respond(405, TEXT, [b"only GET and HEAD are answered here\n"])
            return
        self.is_asking = False
        self.path = words[1].partition("?")[0]
        self._allow(ANSWER_MS, self.close)
        self._server.answer(self)

    def _send(self) -> None:
        """As much as the system takes at once; the rest when it takes more."""
        unsent = self._unsent
        try:
            sent = self._socket.sendmsg(unsent[:BUFFERS_AT_ONCE]) if unsent else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        self.unsent_bytes -= sent
        self._server.unsent_bytes -= sent
        done = 0
        while done < len(unsent) and sent >= len(unsent[done]):
            sent -= len(unsent[done])
            done += 1
        del unsent[:done]
        if unsent:
            unsent[0] = unsent[0][sent:]
            self._server.loop.modify(self._socket.fileno(), WRITE)
        else:
            self._end()

    def _end(self) -> None:
        """Everything is sent: the client closes when it has read it."""
        self._server.loop.modify(self._socket.fileno(), READ)
        self._allow(CLOSING_MS, self.close)
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()


class HttpServer:
    """`answer(connection)` is called for each request that is well formed."""

    def __init__(self, loop: Loop, answer: Callable[[HttpConnection], None]) -> None:
        self.loop = loop
        self.answer = answer
        self.unsent_bytes = 0
        self._listening: socket.socket | None = None
        self._resting: TimerTask | None = None
        #: the oldest first
        self._connections: dict[HttpConnection, None] = {}

    def listen(self, host: str, port: int) -> tuple[str, int]:
        """Port 0 lets the system choose."""
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        found.sort(key=lambda info: info[0] != socket.AF_INET)
        family, _, _, _, address = found[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(MAX_CONNECTIONS)
        except OSError:
            listening.close()
            raise
        self._listening = listening
        self.loop.register(listening.fileno(), READ, self._on_listening)
        bound: Any = listening.getsockname()
        return bound[0], bound[1]

    def close(self) -> None:
        if self._listening is not None:
            if self._resting is None:
                self.loop.unregister(self._listening.fileno())
            else:
                self._resting.cancel()
            self.loop.at_turn_end(self._listening.close)
            self._listening = None
        for connection in list(self._connections):
            connection.close()

    def forget(self, connection: HttpConnection) -> None:
        del self._connections[connection]
        self.unsent_bytes -= connection.unsent_bytes

    def _on_listening(self, _events: int) -> None:
        assert self._listening is not None
        try:
            connected, _ = self._listening.accept()
        except BlockingIOError:
            return
        except OSError:
            self._rest()
            return
        connected.setblocking(False)
        if len(self._connections) >= MAX_CONNECTIONS:
            oldest = next((each for each in self._connections if each.is_asking), None)
            (oldest or next(iter(self._connections))).close()
        self._connections[HttpConnection(self, connected)] = None

    def _rest(self) -> None:
        """No descriptor is left, or the client was gone again: not to be asked without pause."""
        assert self._listening is not None
        self.loop.unregister(self._listening.fileno())
        self._resting = self.loop.timer.add(self.loop.now_ms + REST_MS, self._resume)

    def _resume(self) -> None:
        self._resting = None
        if self._listening is not None:
            self.loop.register(self._listening.fileno(), READ, self._on_listening)
