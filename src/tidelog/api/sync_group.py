"""SyncGroup, versions 0-5: a member asks for its assignment; answered when the leader has sent it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.grouping import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire import messages


def handle(body: messages.SyncGroupRequest, request: Request) -> None:
    decide(request.doors.groups.room.sync, body, request)
