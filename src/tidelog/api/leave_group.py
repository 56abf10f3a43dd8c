"""LeaveGroup, versions 0-5: members leave a classic group; from version 3 several at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.grouping import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    decide("leave", body, request)
