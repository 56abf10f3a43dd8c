"""DescribeTransactions, version 0, and ListTransactions, versions 0-2; and forgetting ids that nobody uses.

Which ids and topics the asker may see is the business of the API room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.deciding.decision import SetTimer
from tidelog.deciding.turn import Refusal
from tidelog.txn.config import MAX_TOMBSTONE_BYTES, RECORD_OVERHEAD_BYTES
from tidelog.txn.records import by_topic, tombstone
from tidelog.txn.shard import Shard
from tidelog.txn.state import BY_LABEL
from tidelog.txn.transaction import Transaction
from tidelog.txn.turn import TxnDecision
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode


def described(shard: Shard, transactional_id: str) -> messages.DescribeTransactionsResponse.TransactionState:
    transaction = shard.transactions.get(transactional_id)
    if transaction is None:
        raise Refusal(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    of = messages.DescribeTransactionsResponse
    # While a transaction ends, the partitions that still miss their marker are those that it waits for.
    marking = shard.markings.get(transactional_id)
    partitions = transaction.partitions if marking is None else marking.missing
    return of.TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[of.TopicData(topic=name, partitions=indexes) for name, indexes in by_topic(partitions).items()],
    )


def listed(
    shards: Iterable[Shard],
    request: messages.ListTransactionsRequest,
    compile_pattern: Callable[[str], Callable[[str], bool]],
    wall_ms: int,
) -> messages.ListTransactionsResponse:
    of = messages.ListTransactionsResponse
    pattern = request.transactional_id_pattern
    try:
        matches = compile_pattern(pattern) if pattern else None
    except ValueError:
        return of(error_code=int(ErrorCode.INVALID_REGULAR_EXPRESSION))
    filters = set(request.state_filters)
    states = {BY_LABEL[label] for label in filters if label in BY_LABEL}
    producer_ids = set(request.producer_id_filters)

    def wanted(transaction: Transaction) -> bool:
        if producer_ids and transaction.producer_id not in producer_ids:
            return False
        if filters and transaction.state not in states:
            return False
        if request.duration_filter >= 0 and wall_ms - transaction.start_ms <= request.duration_filter:
            return False
        return matches is None or matches(transaction.transactional_id)

    return of(
        unknown_state_filters=sorted(filters - BY_LABEL.keys()),
        transaction_states=[
            of.TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.label,
            )
            for shard in shards
            for transaction in shard.transactions.values()
            if wanted(transaction)
        ],
    )


def expire(shard: Shard, turn: TxnDecision) -> None:
    """Tombstones for ids that have been at rest for `transactional.id.expiration.ms`; the timer looks again later."""
    newest_ms = turn.wall_ms - shard.config.id_expiration_ms
    interval_ms = shard.config.id_cleanup_interval_ms
    size_bytes = 0
    for transaction in shard.transactions.values():
        if not transaction.state.is_at_rest or transaction.last_update_ms > newest_ms:
            continue
        record = tombstone(transaction.transactional_id)
        size_bytes += len(record.key) + RECORD_OVERHEAD_BYTES
        if turn.records and size_bytes > MAX_TOMBSTONE_BYTES:
            # One batch is full: the rest follows as soon as this one is appended.
            interval_ms = 0
            break
        turn.append(record)
    turn.timers.append(SetTimer(shard.key("expiry"), turn.now_ms + interval_ms))
