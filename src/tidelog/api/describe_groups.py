"""DescribeGroups, versions 0-6: classic groups with their members and assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.grouping import tell_operations, told

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire import messages


def handle(body: messages.DescribeGroupsRequest, request: Request) -> messages.DescribeGroupsResponse:
    response: messages.DescribeGroupsResponse = told(request.doors.groups.room.describe_groups, body, request)
    if body.include_authorized_operations:
        tell_operations(response.groups)
    return response
