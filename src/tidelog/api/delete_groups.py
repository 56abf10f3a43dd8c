"""DeleteGroups, versions 0-2: groups without members go, and their offsets with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.tickets import GatheringTicket
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.group.outcomes import GroupsDeleted


def handle(body: messages.DeleteGroupsRequest, request: Request) -> messages.DeleteGroupsResponse | None:
    groups = request.doors.groups
    gathering = GatheringTicket(request, answer)
    decisions = groups.room.delete_groups(gathering, body.groups_names, *groups.now())
    if not decisions:
        return messages.DeleteGroupsResponse()
    gathering.missing = len(decisions)
    for decision in decisions:
        groups.carry_out(decision)
    return None


def answer(parts: list[GroupsDeleted]) -> messages.DeleteGroupsResponse:
    response = messages.DeleteGroupsResponse
    return response(
        results=[
            response.DeletableGroupResult(group_id=group_id, error_code=code)
            for part in parts
            for group_id, code in part.results
        ]
    )
