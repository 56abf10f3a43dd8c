"""JoinGroup, versions 0-9: a member of a classic group asks to join; answered when the group has gathered.

An error names no protocol: the name is null from version 7 on, and empty before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.grouping import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire import messages

FIRST_VERSION_WITHOUT_NAME: Final = 7


class Joining:
    """The ticket of a join."""

    __slots__ = ("_request",)

    def __init__(self, request: Request) -> None:
        self._request = request

    def reply(self, message: messages.JoinGroupResponse) -> None:
        if message.error_code and self._request.version >= FIRST_VERSION_WITHOUT_NAME:
            message.protocol_name = None
        self._request.reply(message)


def handle(body: messages.JoinGroupRequest, request: Request) -> None:
    decide(request.doors.groups.room.join, body, request, Joining(request))
