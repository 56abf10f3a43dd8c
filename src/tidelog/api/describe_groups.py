"""DescribeGroups, versions 0-6: classic groups with their members and assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.grouping import described

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    return described("describe_groups", body, request)
