"""EndTxn, versions 0-5: commits or aborts; answered when the decision is stored, before the markers are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.transacting import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    decide("end_txn", body, request)
