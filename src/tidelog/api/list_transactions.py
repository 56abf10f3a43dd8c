"""ListTransactions, versions 0-2: by state and producer id, by duration (1), by pattern of the id (2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.transacting import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    decide("list_transactions", body, request)
