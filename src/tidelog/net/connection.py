"""One connection: bytes to frames, frames to exchanges, answers back to bytes, and when to stop reading.

Receiving. All connections read into one large area that the server owns. A frame that is whole there is dispatched
where it lies; what is left goes into the connection's inbox, so that the area is free for the next one.

    the inbox is empty              read into the area
    a small part of a frame         put it at the front of the area and read behind it
    a large part of a frame         read on into the inbox, up to the end of that frame; no further copy
    requests that must wait         read on into the inbox, up to `max_held_bytes`, then not at all

A size prefix that no request can have ends the connection.

Turns. A frame is dispatched while: the request before it is answered or allowed the next, fewer than
`max_pipelined_requests` are unanswered, no more than `max_unsent_bytes` wait for the peer to read, and the connection
is not muted. After `max_frames_per_turn` the others go first, and the rest follows in the next turn of the loop.

Sending. Answers that are given while the connection handles an event leave together at the end of that event, those
that come later at the end of the loop's turn. What the peer does not take waits for it to become writable.

The end. When the peer has sent all it will, its whole frames are still dispatched (a producer with acks=0 sends and
goes); then, if any request is unanswered, the client is taken to be gone, or else what is to be sent is sent. Whoever
waits for an unanswered request is told by its `on_abandoned`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.net.exchange import Exchange
from tidelog.net.inbox import SIZE_BYTES, SMALL_BYTES, Inbox, size_at
from tidelog.net.loop import BROKEN, READ, WRITE
from tidelog.net.outbox import Outbox, TruncatedSliceError, release
from tidelog.net.transport import Transport
from tidelog.timer import TimerTask

if TYPE_CHECKING:
    from tidelog.net.admission import Admission
    from tidelog.net.server import Server

SMALLEST_REQUEST_BYTES = 8  # api key, api version, correlation id


class Connection:
    """`context` belongs to the api: who the client is, what it called itself."""

    __slots__ = (
        "_admission",
        "_closing",
        "_continuing",
        "_dirty",
        "_eof",
        "_events",
        "_handling",
        "_hung_up",
        "_idle_check",
        "_inbox",
        "_loop",
        "_mute",
        "_needs_memory",
        "_on_close",
        "_outbox",
        "_pending",
        "_serial",
        "_server",
        "_stalled",
        "_transport",
        "closed",
        "context",
        "last_active_ms",
        "listener_name",
        "peer",
    )

    def __init__(self, server: Server, transport: Transport, peer: tuple[str, int], listener_name: str) -> None:
        self.peer = peer
        self.listener_name = listener_name
        self.context: Any = None
        self.closed = False
        self._server = server
        self._loop = server.loop
        self._transport = transport
        self._inbox = Inbox(server.pool)
        self._outbox = Outbox()
        self._pending: deque[Exchange] = deque()  # in the order of the requests; the head is unanswered
        self._serial: Exchange | None = None  # the newest request, while it keeps the next one waiting
        self._stalled = False  # a whole frame is in the inbox and may not be dispatched
        self._continuing = False  # a whole frame is in the inbox and will be dispatched in the next turn
        self._handling = False  # within an event: its end will settle
        self._dirty = False  # the end of this turn will settle
        self._closing = False  # nothing more is dispatched; it ends when all is answered and sent
        self._hung_up = False  # a request was answered by closing: later answers are dropped
        self._eof = False
        self._mute: TimerTask | None = None
        self._admission: Admission | None = None  # what the large request that is being read has reserved from
        self._needs_memory = False  # a large request waits to be admitted
        self._on_close: dict[Callable[[], object], None] = {}
        self._events = READ
        self._loop.register(transport.fileno(), READ, self._on_event)
        self.last_active_ms = self._loop.now_ms
        self._idle_check: TimerTask | None = None
        self._watch_idleness()

    def __repr__(self) -> str:
        return f"<connection from {self.peer[0]}:{self.peer[1]} on {self.listener_name}>"

    @property
    def local_host(self) -> str:
        """The address of this machine that the peer connected to."""
        return self._transport.local_host()

    @property
    def unanswered(self) -> int:
        """Requests that were dispatched and whose answer has not joined the bytes to send."""
        return len(self._pending)

    @property
    def held_bytes(self) -> int:
        """Bytes received that are kept until the rest of their frame or their turn comes."""
        return len(self._inbox)

    @property
    def unsent_bytes(self) -> int:
        return self._outbox.size_bytes

    def on_close(self, callback: Callable[[], object]) -> None:
        """Call it once when the connection has ended, for whatever reason."""
        self._on_close[callback] = None

    def forget_on_close(self, callback: Callable[[], object]) -> None:
        self._on_close.pop(callback, None)

    def mute(self, until_ms: int) -> None:
        """Dispatch nothing of this connection before then: its client is over its quota."""
        if self._mute is not None:
            self._mute.cancel()
        if not self.closed:
            self._mute = self._loop.timer.add(until_ms, self._unmute)

    def finish(self) -> None:
        """Dispatch nothing more; end when the requests under way are answered and their answers sent."""
        self._closing = True
        if not self._handling and not self._dirty and not self.closed:
            self._settle_at_turn_end()

    def close(self) -> None:
        """End it now, whatever has not been sent."""
        if self.closed:
            return
        self.closed = True
        self._loop.unregister(self._transport.fileno())
        self._loop.at_turn_end(self._transport.close)
        for task in (self._idle_check, self._mute):
            if task is not None:
                task.cancel()
        self._inbox.clear()
        self._outbox.drop()
        self._release_memory()
        self._abandon_pending()
        for callback in self._on_close:
            self._notify(callback)
        self._on_close.clear()
        self._server._on_connection_closed(self)

    # -- answers ------------------------------------------------------------------------------------------------

    def _on_answer(self, exchange: Exchange) -> None:
        if self.closed or self._hung_up:
            for part in exchange._answer or ():
                release(part)
            return
        if self._serial is exchange:
            self._serial = None
        pending = self._pending
        if pending[0] is exchange:
            add = self._outbox.add
            while pending and (answer := pending[0]._answer) is not None:
                if answer:
                    add(answer)
                if pending.popleft()._closes:
                    self._hang_up()
                    break
            if not self._handling and not self._dirty:
                self._settle_at_turn_end()
        elif self._stalled and not self._handling and not self._dirty:
            self._settle_at_turn_end()

    def _on_allow_next(self, exchange: Exchange) -> None:
        if self._serial is exchange:
            self._serial = None
            if not self._handling and not self._dirty and not self.closed:
                self._settle_at_turn_end()

    def _hang_up(self) -> None:
        """Send what is ready, then end; requests that are not answered yet will not be."""
        self._closing = self._hung_up = True
        self._abandon_pending()

    def _abandon_pending(self) -> None:
        pending, self._pending = self._pending, deque()
        for exchange in pending:
            if exchange._answer is not None:
                for part in exchange._answer:
                    release(part)
            elif exchange.on_abandoned is not None:
                self._notify(exchange.on_abandoned)

    def _notify(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except Exception as error:
            self._loop.on_error(f"{callback!r} failed for {self!r}", error)

    # -- events -------------------------------------------------------------------------------------------------

    def _on_event(self, events: int) -> None:
        self.last_active_ms = self._loop.now_ms
        if events & (READ | BROKEN):
            if not self._events & READ:
                if events & BROKEN:
                    self.close()  # not reading, so nothing else would notice
                    return
            elif not self._continuing:
                self._handling = True
                try:
                    self._receive()
                except BlockingIOError:
                    pass
                except OSError:
                    self.close()  # reset by the peer or the network
                finally:
                    self._handling = False
        if not self.closed:
            self._settle(bool(events & WRITE))

    def _continue(self) -> None:
        """Dispatch from the inbox what had to wait for this turn."""
        self._continuing = False
        inbox = self._inbox
        if inbox.view is None:  # closed meanwhile
            return
        self._handling = True
        try:
            self._dispatch(inbox.view, inbox.begin, inbox.end)
        finally:
            self._handling = False
        if not self.closed:
            self._settle()

    def _unmute(self) -> None:
        self._mute = None
        self._settle()

    def _on_memory(self, admission: Admission) -> None:
        """The request that waited is admitted."""
        self._needs_memory = False
        if self.closed:
            admission.release(self)
        else:
            self._admission = admission
            self._settle()

    def _settle_at_turn_end(self) -> None:
        self._dirty = True
        self._loop.at_turn_end(self._on_turn_end)

    def _on_turn_end(self) -> None:
        self._dirty = False
        if not self.closed:
            self._settle()

    def _settle(self, writable: bool = False) -> None:
        """Send what can be sent, then decide what happens next: the end, another frame, which events to wait for."""
        outbox = self._outbox
        if outbox.parts and (writable or not self._events & WRITE):
            try:
                sent = outbox.flush(self._transport)
            except OSError:
                self.close()
                return
            except TruncatedSliceError as error:
                self._server.log(f"closing {self!r}: {error}")
                self.close()
                return
            if sent:
                self._server.bytes_out += sent
                self.last_active_ms = self._loop.now_ms
        free = self._may_dispatch()
        if self._stalled and free:
            self._stalled = False
            self._continuing = True
            self._loop.call_soon(self._continue)
        if (self._closing or self._eof) and self._is_over():
            self.close()
            return
        events = WRITE if outbox.parts else 0
        if not (self._closing or self._eof or self._needs_memory) and (
            free or len(self._inbox) < self._server.limits.max_held_bytes
        ):
            events |= READ
        if events != self._events:
            self._events = events
            self._loop.modify(self._transport.fileno(), events)

    def _is_over(self) -> bool:
        if self._closing and not self._pending and not self._outbox.parts:
            return True
        if self._eof and not self._stalled and not self._continuing:
            return bool(self._pending) or not self._outbox.parts
        return False

    def _may_dispatch(self) -> bool:
        limits = self._server.limits
        return (
            self._serial is None
            and not self._closing
            and self._mute is None
            and len(self._pending) < limits.max_pipelined_requests
            and self._outbox.size_bytes <= limits.max_unsent_bytes
        )

    # -- frames -------------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        inbox = self._inbox
        recv_into = self._transport.recv_into
        if inbox.view is None:
            view = self._server.read_area()
            begin = 0
            end = received = recv_into(view)
        elif (held := inbox.end - inbox.begin) <= SMALL_BYTES and self._may_dispatch():
            view = self._server.read_area()
            view[:held] = inbox.view[inbox.begin : inbox.end]
            received = recv_into(view[held:])
            begin = 0
            end = held + received
        else:
            room = self._room_in_inbox()
            if not room:
                # No memory for it now; or, since the last settling, an answer has freed this connection with a whole
                # frame in its inbox, or filled its outbox. Settling follows. An empty read would look like the end.
                return
            received = recv_into(room)
            inbox.end += received
            view, begin, end = inbox.view, inbox.begin, inbox.end
        if received == 0:
            self._eof = True
        else:
            self._server.bytes_in += received
            self._dispatch(view, begin, end)

    def _room_in_inbox(self) -> memoryview | None:
        if not self._may_dispatch():
            return self._inbox.room(self._server.limits.max_held_bytes)
        needed_bytes = self._inbox.needed_bytes()
        return self._inbox.room(needed_bytes) if self._reserve_memory(needed_bytes) else None

    def _reserve_memory(self, needed_bytes: int) -> bool:
        """Whether a request of this size, of which a part is here, may be read on."""
        if self._needs_memory:
            return False
        if self._admission is None and needed_bytes > len(self._inbox):
            admission = self._server._admission_to(needed_bytes)
            if admission is not None:
                if not admission.reserve(self, needed_bytes):
                    self._needs_memory = True
                    return False
                self._admission = admission
        return True

    def _release_memory(self) -> None:
        if self._admission is not None:
            self._admission.release(self)
            self._admission = None

    def _dispatch(self, view: memoryview, begin: int, end: int) -> None:
        """Dispatch the whole frames of `view[begin:end]` whose turn it is, and keep the rest in the inbox."""
        server = self._server
        limits = server.limits
        dispatch = server.dispatch
        pending = self._pending
        now_ms = self._loop.now_ms
        frames_left = limits.max_frames_per_turn
        free = self._may_dispatch()
        self._stalled = False
        while end - begin >= SIZE_BYTES:
            size = size_at(view, begin)[0]
            if size < SMALLEST_REQUEST_BYTES or size > limits.socket_request_max_bytes:
                self._refuse(size, bytes(view[begin : begin + SIZE_BYTES]))
                return
            frame_end = begin + SIZE_BYTES + size
            if frame_end > end:
                break
            if not free:
                self._stalled = True
                break
            if frames_left == 0:
                self._continuing = True
                self._loop.call_soon(self._continue)
                break
            frames_left -= 1
            exchange = self._serial = Exchange(self, now_ms)
            pending.append(exchange)
            server.requests += 1
            try:
                dispatch(exchange, view[begin + SIZE_BYTES : frame_end])
            except Exception as error:
                self._loop.on_error(f"a request of {self!r} failed", error)
                self.close()
            if self.closed:
                return
            begin = frame_end
            free = self._serial is None and self._may_dispatch()
            if self._admission is not None:
                self._release_memory()
        self._inbox.keep(view, begin, end)
        if end - begin > SMALL_BYTES and free and not self._continuing:
            self._reserve_memory(self._inbox.needed_bytes())

    def _refuse(self, size: int, prefix: bytes) -> None:
        if prefix[:3].isalpha():
            guess = f"; {prefix.decode('ascii', 'replace')!r} looks like the start of an HTTP request"
        elif prefix[:2] == b"\x16\x03":
            guess = "; it looks like the start of a TLS handshake, and this listener is not encrypted"
        else:
            guess = ""
        largest = self._server.limits.socket_request_max_bytes
        self._server.log(
            f"closing {self!r}: a request announced a size of {size} bytes, "
            f"where {SMALLEST_REQUEST_BYTES} to {largest} are allowed{guess}"
        )
        self._inbox.clear()
        self._hang_up()  # what the client meant next cannot be known

    # -- idleness -----------------------------------------------------------------------------------------------

    def _watch_idleness(self) -> None:
        idle_ms = self._server.limits.connections_max_idle_ms
        if idle_ms >= 0:
            self._idle_check = self._loop.timer.add(self.last_active_ms + idle_ms, self._check_idleness)

    def _check_idleness(self) -> None:
        """Activity only notes the time; whether the connection was idle is looked at once per idle period."""
        if self._pending:
            self.last_active_ms = self._loop.now_ms  # it waits for us
        if self._loop.now_ms - self.last_active_ms >= self._server.limits.connections_max_idle_ms:
            self._server.idle_closed += 1
            self.close()
        else:
            self._watch_idleness()
