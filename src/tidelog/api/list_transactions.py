"""ListTransactions, versions 0-2: by state and producer id, by duration (1), by pattern of the id (2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.transacting import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire import messages


def handle(body: messages.ListTransactionsRequest, request: Request) -> None:
    decide(request.doors.transactions.room.list_transactions, body, request)
