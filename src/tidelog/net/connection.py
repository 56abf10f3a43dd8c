"""One connection: bytes become frames, frames become exchanges, and answers become bytes again.

Receiving. All connections read into one large area that the server owns. A frame that has arrived whole is dispatched
where it lies. What is left goes into the connection's inbox, so that the area is free for the next connection:

    the inbox is empty              read into the area
    a small part of a frame         put it at the front of the area and read behind it
    a large part of a frame         read on into the inbox, up to the end of that frame, without another copy
    requests that must wait         read on into the inbox, up to `max_held_bytes`, then stop reading

A size prefix that no request can have ends the connection.

Turns. A frame is dispatched if the request before it has been answered or has allowed the next one, fewer than
`max_pipelined_requests` are unanswered, no more than `max_unsent_bytes` are waiting for the peer to read them, and the
connection is not muted. After `max_frames_per_turn` frames the other connections go first; the rest follows in the
loop's next turn.

Sending. Answers given while the connection handles an event leave together at the end of that event; answers given
later leave at the end of the loop's turn. What the peer does not accept waits until it does.

The end. When the peer has stopped sending, its whole frames are still dispatched: a producer with acks=0 sends and
leaves. If a request is unanswered after that, the client is assumed to be gone; otherwise whatever is left is sent
first. If somebody still works on an unanswered request, its `on_abandoned` tells them.

`tidelog.net.states` has the table of all states that this goes through.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidelog.net.exchange import Exchange
from tidelog.net.inbox import SIZE_BYTES, SMALL_BYTES, Inbox, size_at
from tidelog.net.loop import BROKEN, READ, WRITE
from tidelog.net.outbox import Outbox, TruncatedSliceError, release
from tidelog.net.states import IS_PAUSED, IS_RESUMING, TAKES_INPUT, Event, State, next_state
from tidelog.net.transport import Transport
from tidelog.timer import TimerTask

if TYPE_CHECKING:
    from tidelog.net.admission import Admission
    from tidelog.net.server import Server

SMALLEST_REQUEST_BYTES = 8  # api key, api version, correlation id

# The states and events that nearly every request meets, by names that are found faster than members of an enum.
_READING: Final = State.READING
_RESUMING: Final = State.RESUMING
_HANGING_UP: Final = State.HANGING_UP
_CLOSED: Final = State.CLOSED
_CAUGHT_UP: Final = Event.CAUGHT_UP
_TURN_USED_UP: Final = Event.TURN_USED_UP


class Connection:
    """The `Inbound` of requests that come over a socket."""

    __slots__ = (
        "_admission",
        "_events",
        "_idle_check",
        "_inbox",
        "_loop",
        "_mute",
        "_outbox",
        "_pending",
        "_serial",
        "_server",
        "_settles_soon",
        "_state",
        "_transport",
        "context",
        "last_active_ms",
        "listener_name",
        "peer",
    )

    def __init__(self, server: Server, transport: Transport, peer: tuple[str, int], listener_name: str) -> None:
        self.peer = peer
        self.listener_name = listener_name
        self.context: Any = None
        self._server = server
        self._loop = server.loop
        self._transport = transport
        self._state: State = _READING
        self._inbox = Inbox(server.pool)
        self._outbox = Outbox()
        self._pending: deque[Exchange] = deque()  # in the order of the requests; the first is unanswered
        self._serial: Exchange | None = None  # the newest request, while it keeps the next one waiting
        self._settles_soon = False  # at the end of the event or turn at hand, so nobody else has to see to it
        self._mute: TimerTask | None = None
        self._admission: Admission | None = None  # where the large request being read has reserved memory
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
    def closed(self) -> bool:
        return self._state is State.CLOSED

    def mute(self, until_ms: int) -> None:
        """Dispatch nothing from this connection before then: its client is over its quota."""
        if self._mute is not None:
            self._mute.cancel()
        if not self.closed:
            self._mute = self._loop.timer.add(until_ms, self._unmute)

    def remark(self, kind: str, why: str) -> None:
        """Tells the operator why this connection is closed; `kind` is what it is about."""
        self._server.remarks.add(kind, f"closing {self!r}: {why}")

    def finish(self) -> None:
        """Dispatch nothing more; close once the requests under way are answered and their answers sent."""
        self._move(Event.DRAIN)
        if not self.closed:
            self._settle_soon()

    def close(self) -> None:
        """Close it now, whatever has not been sent."""
        if self.closed:
            return
        self._move(Event.CLOSE)
        self._loop.unregister(self._transport.fileno())
        self._loop.at_turn_end(self._transport.close)
        for task in (self._idle_check, self._mute):
            if task is not None:
                task.cancel()
        self._inbox.clear()
        self._outbox.drop()
        self._release_memory()
        self._abandon_pending()
        self._server._on_connection_closed(self)

    def _move(self, event: Event) -> State:
        self._state = state = next_state(self._state, event)
        return state

    # -- answers ------------------------------------------------------------------------------------------------

    def _on_answer(self, exchange: Exchange) -> None:
        state = self._state
        if state is _HANGING_UP or state is _CLOSED:  # too late
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
            if not self._settles_soon:
                self._settle_soon()
        elif self._state in IS_PAUSED:
            self._settle_soon()

    def _on_allow_next(self, exchange: Exchange) -> None:
        if self._serial is exchange:
            self._serial = None
            if not self._settles_soon and self._state is not _CLOSED:
                self._settle_soon()

    def _hang_up(self) -> None:
        """Send what is ready, then close; requests that are not answered yet never will be."""
        self._move(Event.HANG_UP)
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
            state = self._state
            if not self._events & READ or (state is not _READING and state not in TAKES_INPUT):
                if events & BROKEN:
                    self.close()  # not reading, so nothing else would notice
                    return
            elif state is not _RESUMING:
                settles_soon = self._settles_soon
                self._settles_soon = True
                try:
                    self._receive()
                except BlockingIOError:
                    pass
                except OSError:
                    self.close()  # reset by the peer or the network
                finally:
                    self._settles_soon = settles_soon
        if self._state is not _CLOSED:
            self._settle(bool(events & WRITE))

    def _resume(self) -> None:
        """Dispatch from the inbox what had to wait for this turn."""
        if self._state not in IS_RESUMING:
            return  # draining, hanging up or closed meanwhile
        inbox = self._inbox
        assert inbox.view is not None
        settles_soon = self._settles_soon
        self._settles_soon = True
        try:
            self._dispatch(inbox.view, inbox.begin, inbox.end)
        finally:
            self._settles_soon = settles_soon
        if self._state is not _CLOSED:
            self._settle()

    def _unmute(self) -> None:
        self._mute = None
        self._settle()

    def _on_memory(self, admission: Admission) -> None:
        """The request that waited is admitted."""
        if self._move(Event.MEMORY_GRANTED) is _READING:
            self._admission = admission
            self._settle()
        else:
            admission.release(self)

    def _settle_soon(self) -> None:
        if not self._settles_soon:
            self._settles_soon = True
            self._loop.at_turn_end(self._on_turn_end)

    def _on_turn_end(self) -> None:
        self._settles_soon = False
        if self._state is not _CLOSED:
            self._settle()

    def _settle(self, writable: bool = False) -> None:
        """Send what can be sent, then decide what comes next: the end, another frame, which events to wait for."""
        outbox = self._outbox
        if outbox.parts and (writable or not self._events & WRITE):
            try:
                sent = outbox.flush(self._transport)
            except OSError:
                self.close()
                return
            except TruncatedSliceError as error:
                self.remark("answer", str(error))
                self.close()
                return
            if sent:
                self._server.bytes_out += sent
                self.last_active_ms = self._loop.now_ms
        free = self._may_dispatch()
        state = self._state
        if state is not _READING and state is not _RESUMING:
            if free and state in IS_PAUSED:
                state = self._move(Event.UNBLOCKED)
                self._loop.call_soon(self._resume)
            elif self._is_over():
                self.close()
                return
        events = WRITE if outbox.parts else 0
        if (state is _READING or state in TAKES_INPUT) and (
            free or len(self._inbox) < self._server.limits.max_held_bytes
        ):
            events |= READ
        if events != self._events:
            self._events = events
            self._loop.modify(self._transport.fileno(), events)

    def _is_over(self) -> bool:
        if self._state is State.HALF_CLOSED:
            return bool(self._pending) or not self._outbox.parts
        if self._state in (State.DRAINING, State.HANGING_UP):
            return not self._pending and not self._outbox.parts
        return False

    def _may_dispatch(self) -> bool:
        limits = self._server.limits
        return (
            self._serial is None
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
                # There is no memory for it now. Or else an answer given since the connection last settled has unblocked
                # a whole frame in the inbox, or filled the outbox. The connection settles next; reading into no room
                # would look like the end of the input.
                return
            received = recv_into(room)
            inbox.end += received
            view, begin, end = inbox.view, inbox.begin, inbox.end
        if received == 0:
            self._move(Event.INPUT_ENDED)
        else:
            self._server.bytes_in += received
            self._dispatch(view, begin, end)

    def _room_in_inbox(self) -> memoryview | None:
        if not self._may_dispatch():
            return self._inbox.room(self._server.limits.max_held_bytes)
        needed_bytes = self._inbox.needed_bytes()
        return self._inbox.room(needed_bytes) if self._reserve_memory(needed_bytes) else None

    def _reserve_memory(self, needed_bytes: int) -> bool:
        """Whether the rest of a request of this size, part of which is here, may be read."""
        if self._admission is None and needed_bytes > len(self._inbox):
            admission = self._server._admission_to(needed_bytes)
            if admission is not None:
                if not admission.reserve(self, needed_bytes):
                    self._move(Event.MEMORY_REFUSED)
                    return False
                self._admission = admission
        return True

    def _release_memory(self) -> None:
        if self._admission is not None:
            self._admission.release(self)
            self._admission = None

    def _dispatch(self, view: memoryview, begin: int, end: int) -> None:
        """Dispatch the whole frames in `view[begin:end]` whose turn it is, and keep the rest in the inbox."""
        server = self._server
        limits = server.limits
        dispatch = server.dispatch
        pending = self._pending
        now_ms = self._loop.now_ms
        frames_left = limits.max_frames_per_turn
        free = self._may_dispatch()
        before = self._state
        outcome = _CAUGHT_UP
        while end - begin >= SIZE_BYTES:
            size = size_at(view, begin)[0]
            if size < SMALLEST_REQUEST_BYTES or size > limits.socket_request_max_bytes:
                self._refuse(size, bytes(view[begin : begin + SIZE_BYTES]))
                return
            frame_end = begin + SIZE_BYTES + size
            if frame_end > end:
                break
            if not free:
                outcome = Event.BLOCKED
                break
            if frames_left == 0:
                outcome = _TURN_USED_UP
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
            begin = frame_end
            if self._admission is not None:
                self._release_memory()
            if self._state is not before:
                self._inbox.clear()  # closed, hanging up or draining: the rest will never be dispatched
                return
            free = self._serial is None and self._may_dispatch()
        self._inbox.keep(view, begin, end)
        if outcome is not _CAUGHT_UP or before is not _READING:
            self._move(outcome)
            if outcome is _TURN_USED_UP:
                self._loop.call_soon(self._resume)
        if end - begin > SMALL_BYTES and free and self._state is _READING:
            self._reserve_memory(self._inbox.needed_bytes())

    def _refuse(self, size: int, prefix: bytes) -> None:
        if prefix[:3].isalpha():
            guess = f"; {prefix.decode('ascii', 'replace')!r} looks like the start of an HTTP request"
        elif prefix[:2] == b"\x16\x03":
            guess = "; it looks like the start of a TLS handshake, and this listener is not encrypted"
        else:
            guess = ""
        largest = self._server.limits.socket_request_max_bytes
        self.remark(
            "request",
            f"a request announced a size of {size} bytes, "
            f"where {SMALLEST_REQUEST_BYTES} to {largest} are allowed{guess}",
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
