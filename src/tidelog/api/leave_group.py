"""LeaveGroup, versions 0-5: members leave a classic group; from version 3 several at once, each with its own code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.grouping import decide
from tidelog.deciding.turn import Refusal
from tidelog.group.requests import Leaving, MemberIdentity
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.group.outcomes import MembersLeft

FIRST_VERSION_WITH_MEMBERS: Final = 3


def handle(body: messages.LeaveGroupRequest, request: Request) -> None:
    leaving = asked(body, request.version)

    def answer_them(outcome: MembersLeft | Refusal, version: int) -> messages.LeaveGroupResponse:
        return answer(outcome, leaving, version)

    decide(request, request.doors.groups.room.leave, leaving, answer_them)


def asked(body: messages.LeaveGroupRequest, version: int) -> Leaving:
    if version < FIRST_VERSION_WITH_MEMBERS:
        return Leaving(body.group_id, [MemberIdentity(body.member_id)])
    return Leaving(body.group_id, [MemberIdentity(m.member_id, m.group_instance_id) for m in body.members])


def answer(outcome: MembersLeft | Refusal, leaving: Leaving, version: int) -> messages.LeaveGroupResponse:
    response = messages.LeaveGroupResponse
    if isinstance(outcome, Refusal):
        return response(error_code=outcome.code)
    if version < FIRST_VERSION_WITH_MEMBERS:
        return response(error_code=outcome.codes[0])
    return response(
        members=[
            response.MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
            for (member_id, instance_id), code in zip(leaving.members, outcome.codes, strict=True)
        ]
    )
