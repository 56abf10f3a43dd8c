"""LeaveGroup, versions 0-5: members leave a classic group; from version 3 several at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.grouping import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire import messages


def handle(body: messages.LeaveGroupRequest, request: Request) -> None:
    decide(request.doors.groups.room.leave, body, request)
