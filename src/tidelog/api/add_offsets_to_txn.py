"""AddOffsetsToTxn, versions 0-4: the offsets of a group become part of a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.transacting import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire import messages


def handle(body: messages.AddOffsetsToTxnRequest, request: Request) -> None:
    doors = request.doors
    partition = doors.groups.room.partition_for(body.group_id)
    decide(
        lambda ticket, body, context, now_ms, wall_ms: doors.transactions.room.add_offsets_to_txn(
            ticket, body, context, partition, now_ms, wall_ms
        ),
        body,
        request,
    )
