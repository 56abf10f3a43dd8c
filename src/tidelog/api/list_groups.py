"""ListGroups, versions 0-5: the groups that this broker coordinates, by state (4) and type (5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.deciding.turn import Refusal
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.group.groups import Groups


def handle(body: messages.ListGroupsRequest, request: Request) -> None:
    """As they are now, once that is committed; see `grouping.reply_when_settled`."""
    groups = request.doors.groups
    response = listed(body, groups.room)

    def settled(errors: Mapping[int, ErrorCode]) -> None:
        if late := [code for code in errors.values() if code is not ErrorCode.NOT_COORDINATOR]:
            request.reply(messages.ListGroupsResponse(error_code=late[0]))
            return
        # Those of partitions that moved meanwhile are listed elsewhere.
        response.groups = [
            group for group in response.groups if groups.room.partition_for(group.group_id) not in errors
        ]
        request.reply(response)

    groups.when_settled({shard.partition for shard in groups.room.loaded()}, request.guard(settled))


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
