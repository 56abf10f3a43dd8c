"""JoinGroup, versions 0-9: a member of a classic group asks to join; answered when the group has gathered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.grouping import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    decide("join", body, request)
