"""A channel over TCP: it connects without blocking, sends at the end of the loop's turn, and cuts frames.

Connecting. A name is looked up on a worker's thread. Its addresses are tried one after the other, in one attempt: the
peer refuses if none accepts and one refuses.

Receiving. All channels of a dialler read into one area. A frame that lies there whole is handed on where it lies. The
beginning of a larger one is copied into a buffer of the frame's full size, and the rest is read straight behind it: a
peer is trusted to send what it announces, as a client is not (see `inbox`), up to `max_answer_bytes`.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from tidelog.net.channel import ChannelEvents
from tidelog.net.inbox import READ_BYTES, SIZE_BYTES, SMALL_BYTES, size_at
from tidelog.net.loop import BROKEN, READ, WRITE, Loop
from tidelog.net.outbox import Outbox, Part, TruncatedSliceError
from tidelog.net.pool import BufferPool
from tidelog.net.transport import PlainTransport, Transport, TransportOf
from tidelog.peers.requester import FailureKind, LinkOptions, PeerAddress

AREA_BYTES: Final = 64 * 1024
#: a correlation id
SMALLEST_ANSWER_BYTES: Final = 4

Address: TypeAlias = tuple[int, tuple[Any, ...]]


class SocketDialler:
    """What the channels of a broker share: the loop, the area in which they read, the buffers of large frames."""

    __slots__ = ("area", "loop", "pool", "transport")

    def __init__(self, loop: Loop, transport: TransportOf = PlainTransport) -> None:
        self.loop = loop
        self.transport = transport
        self.area = memoryview(bytearray(AREA_BYTES))  # of use within one event only
        self.pool = BufferPool()

    def dial(self, peer: PeerAddress, options: LinkOptions, events: ChannelEvents) -> SocketChannel:
        return SocketChannel(self, peer, options, events)


class SocketChannel:
    __slots__ = (
        "_addresses",
        "_closed",
        "_dialler",
        "_events",
        "_filled",
        "_flushes_soon",
        "_frame",
        "_frame_bytes",
        "_loop",
        "_most_bytes",
        "_open",
        "_options",
        "_outbox",
        "_peer",
        "_refusal",
        "_rest",
        "_socket",
        "_transport",
        "_wanted",
        "received_bytes",
        "sent_bytes",
        "taken_bytes",
    )

    def __init__(self, dialler: SocketDialler, peer: PeerAddress, options: LinkOptions, events: ChannelEvents) -> None:
        self._dialler = dialler
        self._loop = dialler.loop
        self._peer = peer
        self._options = options
        self._events = events
        self._most_bytes = options.max_answer_bytes
        self._addresses: deque[Address] = deque()
        self._refusal: tuple[FailureKind, str] | None = (
            None  # the best explanation so far of why there is no connection
        )
        self._socket: socket.socket | None = None
        self._transport: Transport | None = None
        self._open = False
        self._closed = False
        self._wanted = 0  # the events that the loop waits for
        self._outbox = Outbox()
        self._flushes_soon = False
        self._rest = b""  # the beginning of a small frame
        self._frame: memoryview | None = None  # a large frame, of whose _frame_bytes so many are _filled
        self._frame_bytes = 0
        self._filled = 0
        self.taken_bytes = 0
        self.sent_bytes = 0
        self.received_bytes = 0
        self._find_addresses()

    def send(self, parts: Iterable[Part]) -> None:
        outbox = self._outbox
        before = outbox.size_bytes
        outbox.add(parts)
        self.taken_bytes += outbox.size_bytes - before
        if not self._flushes_soon:
            self._flushes_soon = True
            self._loop.at_turn_end(self._flush)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._hang_up()
        self._outbox.drop()
        self._give_back()

    # -- connecting ---------------------------------------------------------------------------------------------

    def _find_addresses(self) -> None:
        host, port = self._peer.host, self._peer.port
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                socket.inet_pton(family, host)
            except OSError:
                continue
            self._addresses.append((family, (host, port)))
            self._try_next()
            return

        def found(addresses: Any, error: BaseException | None) -> None:
            if self._closed:
                return
            if error is not None:
                self._fail(FailureKind.UNREACHABLE, f"cannot find {self._peer}: {_reason(error)}")
                return
            self._addresses.extend(dict.fromkeys((family, address) for family, _, _, _, address in addresses))
            self._try_next()

        self._loop.in_worker(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), found)

    def _try_next(self) -> None:
        """Begins to connect to the next address; the outcome is an event of a later turn."""
        while self._addresses:
            family, address = self._addresses.popleft()
            try:
                connecting = self._make_socket(family)
            except OSError as error:
                self._not_there(error)
                continue
            self._socket = connecting
            number = connecting.connect_ex(address)
            if number in (0, errno.EINPROGRESS):
                self._wanted = WRITE
                self._loop.register(connecting.fileno(), WRITE, self._on_event)
                return
            self._drop_socket()
            self._not_there(OSError(number, os.strerror(number)))
        self._loop.call_soon(self._give_up)

    def _make_socket(self, family: int) -> socket.socket:
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._options.receive_buffer_bytes > 0:
                # Before connecting: the window's scale is agreed on when a connection is made.
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._options.receive_buffer_bytes)
        except OSError:
            made.close()
            raise
        return made

    def _not_there(self, error: OSError) -> None:
        refused = error.errno == errno.ECONNREFUSED
        if self._refusal is None or refused:
            kind = FailureKind.REFUSED if refused else FailureKind.UNREACHABLE
            self._refusal = kind, f"cannot connect to {self._peer}: {_reason(error)}"

    def _give_up(self) -> None:
        if not self._closed:
            assert self._refusal is not None
            self._fail(*self._refusal)

    def _on_connected(self) -> None:
        assert self._socket is not None
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number == 0 and self._is_connected_to_itself(self._socket):
            number = errno.ECONNREFUSED
        if number:
            self._hang_up()
            self._not_there(OSError(number, os.strerror(number)))
            self._try_next()
            return
        self._open = True
        self._transport = self._dialler.transport(self._socket)
        self._want(READ)
        self._events.on_open()

    @staticmethod
    def _is_connected_to_itself(connected: socket.socket) -> bool:
        """Where nobody listens on this machine, the system may choose the very port for our own end: TCP then connects
        the socket with itself."""
        try:
            return bool(connected.getsockname() == connected.getpeername())
        except OSError:
            return False  # gone again, which reading will find

    # -- the end ------------------------------------------------------------------------------------------------

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._loop.unregister(self._socket.fileno())
            self._drop_socket()

    def _drop_socket(self) -> None:
        assert self._socket is not None
        self._loop.at_turn_end(self._socket.close)
        self._socket = self._transport = None

    def _fail(self, kind: FailureKind, why: str) -> None:
        self.close()
        self._events.on_closed(kind, why)

    def _lose(self, why: str) -> None:
        self._fail(FailureKind.DISCONNECTED, f"the connection to {self._peer} was lost: {why}")

    def _give_back(self) -> None:
        if self._frame is not None:
            self._dialler.pool.give(self._frame)
            self._frame = None

    # -- events -------------------------------------------------------------------------------------------------

    def _on_event(self, events: int) -> None:
        if not self._open:
            self._on_connected()
            return
        if events & (READ | BROKEN):
            try:
                self._receive()
            except BlockingIOError:
                pass
            except OSError as error:
                self._lose(_reason(error))
        if events & WRITE and not self._closed:
            self._flush()

    def _want(self, events: int) -> None:
        if events != self._wanted:
            assert self._socket is not None
            self._wanted = events
            self._loop.modify(self._socket.fileno(), events)

    def _flush(self) -> None:
        self._flushes_soon = False
        if self._closed or self._transport is None:
            return
        try:
            self.sent_bytes += self._outbox.flush(self._transport)
        except (OSError, TruncatedSliceError) as error:
            self._lose(_reason(error))
            return
        self._want(READ | WRITE if self._outbox.parts else READ)

    def _receive(self) -> None:
        assert self._transport is not None
        frame = self._frame
        if frame is not None:
            room = frame[self._filled : min(self._frame_bytes, self._filled + READ_BYTES)]
            received = self._transport.recv_into(room)
            self._filled += received
        else:
            area = self._dialler.area
            held = len(self._rest)
            area[:held] = self._rest
            received = self._transport.recv_into(area[held:] if held else area)
        if received == 0:
            self._lose("the peer has closed it")
            return
        self.received_bytes += received
        if frame is None:
            self._cut(area, held + received)
        elif self._filled == self._frame_bytes:
            self._frame = None
            try:
                self._events.on_frame(frame[SIZE_BYTES : self._frame_bytes])
            finally:
                self._dialler.pool.give(frame)

    def _cut(self, area: memoryview, end: int) -> None:
        """Hands on the whole frames of the area, and keeps what follows them."""
        begin = 0
        self._rest = b""
        on_frame = self._events.on_frame
        while end - begin >= SIZE_BYTES:
            size: int = size_at(area, begin)[0]
            if not SMALLEST_ANSWER_BYTES <= size <= self._most_bytes:
                why = f"{self._peer} announced an answer of {size} bytes, where {SMALLEST_ANSWER_BYTES} to "
                self._fail(FailureKind.MALFORMED, f"{why}{self._most_bytes} are allowed")
                return
            frame_end = begin + SIZE_BYTES + size
            if frame_end > end:
                break
            on_frame(area[begin + SIZE_BYTES : frame_end])
            if self._closed:
                return
            begin = frame_end
        held = end - begin
        if held < SIZE_BYTES or SIZE_BYTES + size <= SMALL_BYTES:
            self._rest = bytes(area[begin:end])
            return
        self._frame_bytes = SIZE_BYTES + size
        self._frame = self._dialler.pool.take(self._frame_bytes, self._frame_bytes)
        self._frame[:held] = area[begin:end]
        self._filled = held


def _reason(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error).lower()
