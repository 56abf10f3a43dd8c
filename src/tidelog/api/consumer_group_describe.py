"""ConsumerGroupDescribe, versions 0-1: server-side groups with their members, current and target assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.grouping import described, require_consumer_protocol

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    require_consumer_protocol(request)
    return described("consumer_group_describe", body, request)
