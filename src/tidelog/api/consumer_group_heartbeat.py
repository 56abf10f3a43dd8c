"""ConsumerGroupHeartbeat, versions 0-1: the one call of a member of a server-side group (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.grouping import decide, require_consumer_protocol

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire import messages


def handle(body: messages.ConsumerGroupHeartbeatRequest, request: Request) -> None:
    require_consumer_protocol(request)
    decide(request.doors.groups.room.consumer_group_heartbeat, body, request)
