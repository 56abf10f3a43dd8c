"""One request and its answer: all that the rest of the broker sees of the network.

    dispatch(exchange, frame)     # frame: the request without its size prefix, writable, valid until dispatch returns

An exchange is answered once, from within `dispatch` or any time later: with a reply, with silence (`no_reply`, for
acks=0) or by closing the connection. Answers may be given in any order; the connection sends them in the order of the
requests. Until it is answered or says `allow_next`, the connection's next request is not dispatched.

If the connection ends first, `on_abandoned` is called, if set, so that whatever works on this request can let go; an
answer given after that is dropped without an error. All of this happens on the loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.net.outbox import Part

if TYPE_CHECKING:
    from tidelog.net.meter import RequestMeter

_NOTHING: tuple[Part, ...] = ()


class Inbound(Protocol):
    """The connection that a request came on, which takes its answer: one of this room, or one in memory."""

    #: belongs to the api: who the client is and what it calls itself
    context: Any

    @property
    def peer(self) -> tuple[str, int]: ...

    @property
    def listener_name(self) -> str: ...

    @property
    def local_host(self) -> str: ...

    @property
    def closed(self) -> bool: ...

    def remark(self, kind: str, why: str) -> None:
        """Tells why the connection is closed."""

    def _on_answer(self, exchange: Exchange) -> None: ...

    def _on_allow_next(self, exchange: Exchange) -> None: ...


class Exchange:
    __slots__ = ("_answer", "_closes", "began_ns", "connection", "meter", "on_abandoned", "received_ms")

    def __init__(self, connection: Inbound, received_ms: int) -> None:
        self.connection = connection
        self.received_ms = received_ms  # monotonic
        self.on_abandoned: Callable[[], object] | None = None
        self._answer: Sequence[Part] | None = None
        self._closes = False
        #: who wants to know how long this takes, and since when
        self.meter: RequestMeter | None = None
        self.began_ns: int

    @property
    def answered(self) -> bool:
        return self._answer is not None

    def reply(self, parts: Sequence[Part]) -> None:
        """Bytes and file slices that together are one whole response, size prefix included."""
        if self._answer is not None:
            raise RuntimeError("this request has been answered already")
        self._answer = parts
        if self.meter is not None:
            self.meter.took(perf_counter_ns() - self.began_ns)
        self.on_abandoned = None  # it usually refers back to this exchange: let both go without the cyclic collector
        self.connection._on_answer(self)

    def no_reply(self) -> None:
        """The request is done and the client expects no response to it."""
        self.reply(_NOTHING)

    def close(self, last_words: Sequence[Part] = _NOTHING) -> None:
        """Answer by closing: earlier requests are answered first, then `last_words` are sent, then it ends."""
        self._closes = True
        self.reply(last_words)

    def hang_up(self, why: str) -> None:
        """Close, and tell the operator why."""
        self.connection.remark("request", why)
        self.close()

    def allow_next(self) -> None:
        """Let the connection's next request be dispatched although this one is not answered yet."""
        self.connection._on_allow_next(self)
