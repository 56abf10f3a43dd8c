"""DeleteGroups, versions 0-2: groups without members go, and their offsets with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.grouping import context_of
from tidelog.api.tickets import GatheringTicket
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: messages.DeleteGroupsRequest, request: Request) -> messages.DeleteGroupsResponse | None:
    groups = request.doors.groups
    gathering = GatheringTicket(request, _merged)
    decisions = groups.room.delete_groups(gathering, body, context_of(request), *groups.now())
    if not decisions:
        return messages.DeleteGroupsResponse()
    gathering.missing = len(decisions)
    for decision in decisions:
        groups.carry_out(decision)
    return None


def _merged(parts: list[messages.DeleteGroupsResponse]) -> messages.DeleteGroupsResponse:
    return messages.DeleteGroupsResponse(results=[result for part in parts for result in part.results])
