"""DescribeTransactions, version 0: the state of transactions that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.deciding.turn import Refusal
from tidelog.txn.records import by_topic
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.txn.transactions import Transactions


def handle(body: messages.DescribeTransactionsRequest, request: Request) -> messages.DescribeTransactionsResponse:
    return answer(body, request.doors.transactions.shown)


def answer(
    body: messages.DescribeTransactionsRequest, transactions: Transactions
) -> messages.DescribeTransactionsResponse:
    states = [_state(transactional_id, transactions) for transactional_id in body.transactional_ids]
    return messages.DescribeTransactionsResponse(transaction_states=states)


def _state(transactional_id: str, transactions: Transactions) -> messages.DescribeTransactionsResponse.TransactionState:
    response = messages.DescribeTransactionsResponse
    try:
        found = transactions.described(transactional_id)
    except Refusal as refusal:
        return response.TransactionState(transactional_id=transactional_id, error_code=int(refusal.code))
    return response.TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[
            response.TopicData(topic=name, partitions=indexes) for name, indexes in by_topic(found.partitions).items()
        ],
    )
