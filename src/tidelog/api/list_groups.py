"""ListGroups, versions 0-5: the groups that this broker coordinates, by state (4) and type (5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.grouping import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire import messages


def handle(body: messages.ListGroupsRequest, request: Request) -> None:
    decide(request.doors.groups.room.list_groups, body, request)
