"""ConsumerGroupDescribe, versions 0-1: server-side groups with their members, current and target assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.grouping import require_consumer_protocol, tell_operations, told

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire import messages


def handle(body: messages.ConsumerGroupDescribeRequest, request: Request) -> messages.ConsumerGroupDescribeResponse:
    require_consumer_protocol(request)
    response: messages.ConsumerGroupDescribeResponse = told(
        request.doors.groups.room.consumer_group_describe, body, request
    )
    if body.include_authorized_operations:
        tell_operations(response.groups)
    return response
