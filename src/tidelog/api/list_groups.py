"""ListGroups, versions 0-5: the groups that this broker coordinates, by state (4) and type (5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.deciding.turn import Refusal
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.group.groups import Groups


def handle(body: messages.ListGroupsRequest, request: Request) -> messages.ListGroupsResponse:
    return listed(body, request.doors.groups.room)


def listed(body: messages.ListGroupsRequest, groups: Groups) -> messages.ListGroupsResponse:
    response = messages.ListGroupsResponse
    try:
        found = groups.list_groups(body.states_filter, body.types_filter)
    except Refusal as refusal:
        return response(error_code=refusal.code)
    return response(
        groups=[
            response.ListedGroup(group_id=group_id, protocol_type=protocol_type, group_state=state, group_type=kind)
            for group_id, protocol_type, state, kind in found
        ]
    )
