"""DescribeGroups, versions 0-6: classic groups with their members and assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.grouping import context_of
from tidelog.api.operations import GROUP_OPERATIONS

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    clock = request.broker.clock
    decision = request.broker.groups.describe_groups(
        request, body, context_of(request), clock.monotonic_ms(), clock.wall_ms()
    )
    response = decision.replies[0].message
    if body.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response
