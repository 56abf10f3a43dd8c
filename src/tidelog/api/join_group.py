"""JoinGroup, versions 0-9: a member of a classic group asks to join; answered when the group has gathered.

Version 0 has only the session timeout. From version 4 a member can be told to join again with the id that it is given,
and from version 9 a leader to skip the assignment. An error names no protocol: the name is null from version 7 on, and
empty before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.grouping import client_host, decide
from tidelog.group.outcomes import JoinRefusal
from tidelog.group.requests import Joining
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.group.outcomes import Joined

FIRST_VERSION_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_VERSION_WITH_MEMBER_ID_REQUIRED: Final = 4
FIRST_VERSION_WITHOUT_NAME: Final = 7
FIRST_VERSION_WITH_SKIP_ASSIGNMENT: Final = 9


def handle(body: messages.JoinGroupRequest, request: Request) -> None:
    joining = asked(body, request.version, request.client_id, client_host(request))
    decide(request, request.doors.groups.room.join, joining, answer)


def asked(body: messages.JoinGroupRequest, version: int, client_id: str, host: str) -> Joining:
    has_timeout = version >= FIRST_VERSION_WITH_REBALANCE_TIMEOUT
    return Joining(
        group_id=body.group_id,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        client_id=client_id,
        client_host=host,
        session_timeout_ms=body.session_timeout_ms,
        rebalance_timeout_ms=body.rebalance_timeout_ms if has_timeout else body.session_timeout_ms,
        protocol_type=body.protocol_type,
        protocols=[(protocol.name, bytes(protocol.metadata)) for protocol in body.protocols],
        knows_member_id_required=version >= FIRST_VERSION_WITH_MEMBER_ID_REQUIRED,
        knows_skip_assignment=version >= FIRST_VERSION_WITH_SKIP_ASSIGNMENT,
    )


def answer(outcome: Joined | JoinRefusal, version: int) -> messages.JoinGroupResponse:
    response = messages.JoinGroupResponse
    no_name = None if version >= FIRST_VERSION_WITHOUT_NAME else ""
    if isinstance(outcome, JoinRefusal):
        return response(error_code=outcome.code, member_id=outcome.member_id, protocol_name=no_name)
    return response.of(
        member_id=outcome.member_id,
        generation_id=outcome.generation_id,
        protocol_type=outcome.protocol_type,
        protocol_name=no_name if outcome.protocol_name is None else outcome.protocol_name,
        leader=outcome.leader_id,
        skip_assignment=outcome.skip_assignment,
        members=[
            response.JoinGroupResponseMember.of(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in outcome.members
        ],
    )
