"""Heartbeat, versions 0-4: a member of a classic group is alive, and learns whether to rejoin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.grouping import decide
from tidelog.group.requests import Membership, membership
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire.errors import ErrorCode


def handle(body: messages.HeartbeatRequest, request: Request) -> None:
    decide(request, request.doors.groups.room.heartbeat, asked(body), answer)


def asked(body: messages.HeartbeatRequest) -> Membership:
    return membership((body.group_id, body.member_id, body.group_instance_id, body.generation_id))


def answer(code: ErrorCode, version: int) -> messages.HeartbeatResponse:
    return messages.HeartbeatResponse.of(error_code=code)
