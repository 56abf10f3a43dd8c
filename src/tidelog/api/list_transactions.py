"""ListTransactions, versions 0-2: by state and producer id, by duration (1), by pattern of the id (2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.deciding.turn import Refusal
from tidelog.txn.admin import TransactionFilter
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.txn.transactions import Transactions


def handle(body: messages.ListTransactionsRequest, request: Request) -> messages.ListTransactionsResponse:
    _, wall_ms = request.doors.transactions.now()
    return answer(body, request.doors.transactions.shown, wall_ms)


def answer(
    body: messages.ListTransactionsRequest, transactions: Transactions, wall_ms: int
) -> messages.ListTransactionsResponse:
    response = messages.ListTransactionsResponse
    wanted = TransactionFilter(
        frozenset(body.state_filters),
        frozenset(body.producer_id_filters),
        body.duration_filter,
        body.transactional_id_pattern,
    )
    try:
        listing = transactions.listed(wanted, wall_ms)
    except Refusal as refusal:
        return response(error_code=int(refusal.code))
    return response(
        unknown_state_filters=listing.unknown_states,
        transaction_states=[
            response.TransactionState(
                transactional_id=found.transactional_id,
                producer_id=found.producer_id,
                transaction_state=found.state.label,
            )
            for found in listing.transactions
        ],
    )
