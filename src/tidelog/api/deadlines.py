"""Requests that change the metadata are answered within the time that they give, though the store cannot be reached.

While there is no connection to the store nothing can be decided, and it may last. The client is told REQUEST_TIMED_OUT
when its time is over, and what it asked for is not done when the store is back, unless it was on its way already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.api.refusal import refuse
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.relaying import Handler
    from tidelog.api.request import Request
    from tidelog.wire.classes import Message

#: between two looks at a request whose time is over while the store can be reached: it is being decided
LOOK_MS: Final = 1_000


def timeout_of(body: Any, request: Request) -> int:
    """What the client gives; where it gives nothing, as long as a broker tries to reach the controller."""
    given: int = getattr(body, "timeout_ms", 0)
    default: int = request.doors.config.values.controller_socket_timeout_ms
    return given if given > 0 else default


def in_time(handler: Handler) -> Handler:
    """A handler whose client hears when its time is over."""

    def handle(body: Any, request: Request) -> Message | None:
        message = handler(body, request)
        if message is None and not request.exchange.answered and not request.is_part:
            _watch(body, request, timeout_of(body, request))
        return message

    return handle


def _watch(body: Any, request: Request, wait_ms: int) -> None:
    host = request.doors.host

    def look() -> None:
        if request.exchange.answered:
            return
        if request.exchange.connection.closed:
            request.is_withdrawn = request.doors.cluster.is_cut_off
        elif request.doors.cluster.is_cut_off:
            why = "ZooKeeper cannot be reached, so nothing can be changed. Try again when it is back."
            refusal = refuse(request.api_key, request.version, body, ErrorCode.REQUEST_TIMED_OUT, why)
            assert refusal is not None, "every request that changes the metadata has a response"
            request.reply(refusal)
        else:
            host.timer.add(host.clock.monotonic_ms() + LOOK_MS, look)

    host.timer.add(host.clock.monotonic_ms() + wait_ms, look)
