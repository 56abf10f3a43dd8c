"""DescribeGroups, versions 0-6: classic groups with their members and assignments.

A group that is not there is a dead one; from version 6 on that is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.grouping import reply_when_settled, tell_operations
from tidelog.deciding.turn import Refusal
from tidelog.group.classic_group import ClassicState
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.group.groups import Groups

    Answer = messages.DescribeGroupsResponse.DescribedGroup

FIRST_VERSION_WITH_NOT_FOUND: Final = 6


def handle(body: messages.DescribeGroupsRequest, request: Request) -> None:
    response = described(body, request.version, request.doors.groups.room)
    if body.include_authorized_operations:
        tell_operations(response.groups)
    of_group = messages.DescribeGroupsResponse.DescribedGroup
    reply_when_settled(request, response, lambda group_id, code: of_group(group_id=group_id, error_code=code))


def described(body: messages.DescribeGroupsRequest, version: int, groups: Groups) -> messages.DescribeGroupsResponse:
    return messages.DescribeGroupsResponse(groups=[_described(group_id, version, groups) for group_id in body.groups])


def _described(group_id: str, version: int, groups: Groups) -> Answer:
    response = messages.DescribeGroupsResponse
    try:
        group = groups.describe_classic(group_id)
    except Refusal as refusal:
        return _refused(group_id, version, refusal)
    return response.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            response.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )


def _refused(group_id: str, version: int, refusal: Refusal) -> Answer:
    of_group = messages.DescribeGroupsResponse.DescribedGroup
    if refusal.code is not ErrorCode.GROUP_ID_NOT_FOUND:
        return of_group(group_id=group_id, error_code=refusal.code)
    dead = of_group(group_id=group_id, group_state=ClassicState.DEAD.value)
    if version >= FIRST_VERSION_WITH_NOT_FOUND:
        dead.error_code, dead.error_message = refusal.code, refusal.detail
    return dead
