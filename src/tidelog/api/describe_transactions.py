"""DescribeTransactions, version 0: the state of transactions that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.transacting import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire import messages


def handle(body: messages.DescribeTransactionsRequest, request: Request) -> None:
    decide(request.doors.transactions.room.describe_transactions, body, request)
