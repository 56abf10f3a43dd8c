"""Heartbeat, versions 0-4: a member of a classic group is alive, and learns whether to rejoin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.grouping import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire import messages


def handle(body: messages.HeartbeatRequest, request: Request) -> None:
    decide(request.doors.groups.room.heartbeat, body, request)
