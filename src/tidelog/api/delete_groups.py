"""DeleteGroups, versions 0-2: groups without members go, and their offsets with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.grouping import context_of
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: messages.DeleteGroupsRequest, request: Request) -> messages.DeleteGroupsResponse | None:
    clock = request.doors.host.clock
    gathering = Gathering(request)
    decisions = request.doors.groups.room.delete_groups(
        gathering, body, context_of(request), clock.monotonic_ms(), clock.wall_ms()
    )
    if not decisions:
        return messages.DeleteGroupsResponse()
    gathering.missing = len(decisions)
    for decision in decisions:
        request.doors.groups.carry_out(decision)
    return None


class Gathering:
    """A ticket that gets one part of the answer from each coordinator partition, and answers with all of them."""

    __slots__ = ("_request", "_results", "missing")

    def __init__(self, request: Request) -> None:
        self._request = request
        self._results: list[messages.DeleteGroupsResponse.DeletableGroupResult] = []
        self.missing = 0

    def reply(self, message: messages.DeleteGroupsResponse) -> None:
        self._results.extend(message.results)
        self.missing -= 1
        if self.missing == 0:
            self._request.reply(messages.DeleteGroupsResponse(results=self._results))
