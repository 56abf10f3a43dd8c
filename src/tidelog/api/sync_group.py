"""SyncGroup, versions 0-5: a member asks for its assignment; answered when the leader has sent it.

From version 5 on a member must say which protocol it means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.grouping import decide
from tidelog.deciding.turn import Refusal
from tidelog.group.requests import Syncing, membership
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.group.outcomes import Synced

FIRST_VERSION_WITH_PROTOCOL: Final = 5


def handle(body: messages.SyncGroupRequest, request: Request) -> messages.SyncGroupResponse | None:
    try:
        syncing = asked(body, request.version)
    except Refusal as refusal:
        return answer(refusal, request.version)
    decide(request, request.doors.groups.room.sync, syncing, answer)
    return None


def asked(body: messages.SyncGroupRequest, version: int) -> Syncing:
    """Raises Refusal."""
    if version >= FIRST_VERSION_WITH_PROTOCOL and (body.protocol_type is None or body.protocol_name is None):
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return Syncing(
        membership((body.group_id, body.member_id, body.group_instance_id, body.generation_id)),
        body.protocol_type,
        body.protocol_name,
        {assigned.member_id: bytes(assigned.assignment) for assigned in body.assignments},
    )


def answer(outcome: Synced | Refusal, version: int) -> messages.SyncGroupResponse:
    if isinstance(outcome, Refusal):
        return messages.SyncGroupResponse(error_code=outcome.code)
    return messages.SyncGroupResponse.of(
        protocol_type=outcome.protocol_type, protocol_name=outcome.protocol_name, assignment=outcome.assignment
    )
