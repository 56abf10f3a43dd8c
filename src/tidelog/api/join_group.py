"""JoinGroup, versions 0-9: a member of a classic group asks to join; answered when the group has gathered.

An error names no protocol: the name is null from version 7 on, and empty before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.grouping import decide
from tidelog.api.tickets import AmendingTicket

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire import messages

FIRST_VERSION_WITHOUT_NAME: Final = 7


def handle(body: messages.JoinGroupRequest, request: Request) -> None:
    def amend(message: messages.JoinGroupResponse) -> None:
        if message.error_code and request.version >= FIRST_VERSION_WITHOUT_NAME:
            message.protocol_name = None

    decide(request.doors.groups.room.join, body, request, AmendingTicket(request, amend))
