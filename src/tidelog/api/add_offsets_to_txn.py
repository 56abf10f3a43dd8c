"""AddOffsetsToTxn, versions 0-4: the offsets of a group become part of a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.transacting import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    decide("add_offsets_to_txn", body, request, request.doors.groups.room.partition_for(body.group_id))
