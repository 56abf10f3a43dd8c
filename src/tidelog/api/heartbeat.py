"""Heartbeat, versions 0-4: a member of a classic group is alive, and learns whether to rejoin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.grouping import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    decide("heartbeat", body, request)
