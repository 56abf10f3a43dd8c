"""What the handlers of transaction APIs share: how a request reaches the transaction coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.grouping import context_of

if TYPE_CHECKING:
    from tidelog.api.request import Request


def decide(name: str, body: Any, request: Request, *more: Any) -> None:
    """Hands the request to the method `name` of the transaction room; the answer comes through its ticket."""
    doors = request.doors
    clock = doors.host.clock
    method = getattr(doors.transactions.room, name)
    doors.transactions.carry_out(
        method(request, body, context_of(request), *more, clock.monotonic_ms(), clock.wall_ms())
    )
