"""DescribeTransactions, version 0: the state of transactions that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.transacting import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    decide("describe_transactions", body, request)
