"""OffsetDelete, version 0: forgets committed offsets of topics that the group does not read at the moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.grouping import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    decide("offset_delete", body, request)
