"""EndTxn, versions 0-5: commits or aborts; answered when the decision is stored, before the markers are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.transacting import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire import messages


def handle(body: messages.EndTxnRequest, request: Request) -> None:
    decide(request.doors.transactions.room.end_txn, body, request)
