"""What operators see of transactions; and forgetting ids that nobody uses.

Which ids and topics the asker may see is the business of the API room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tidelog.deciding.decision import SetTimer
from tidelog.deciding.turn import Refusal
from tidelog.txn.config import MAX_TOMBSTONE_BYTES, RECORD_OVERHEAD_BYTES
from tidelog.txn.records import tombstone
from tidelog.txn.shard import Shard
from tidelog.txn.state import BY_LABEL
from tidelog.txn.transaction import Transaction
from tidelog.txn.turn import TxnDecision
from tidelog.wire.errors import ErrorCode


class TransactionFilter(NamedTuple):
    """Which transactions to list: those that every filter takes; an empty one takes all."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    #: only those that began more than so many milliseconds ago; a negative number takes all
    longer_than_ms: int = -1
    id_pattern: str | None = None


class TransactionListing(NamedTuple):
    transactions: list[Transaction]
    #: what the filter named that is no state
    unknown_states: list[str]


def described(shard: Shard, transactional_id: str) -> Transaction:
    """As far as it is replicated. While a transaction ends, its partitions are those that still miss their marker: it
    waits for them."""
    transaction = shard.replicated().get(transactional_id)
    if transaction is None:
        raise Refusal(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    marking = shard.markings.get(transactional_id)
    if marking is None or transaction is not shard.transactions.get(transactional_id):
        return transaction
    return transaction._replace(partitions=frozenset(marking.missing))


def listed(
    shards: Iterable[Shard],
    wanted: TransactionFilter,
    compile_pattern: Callable[[str], Callable[[str], bool]],
    wall_ms: int,
) -> TransactionListing:
    try:
        matches = compile_pattern(wanted.id_pattern) if wanted.id_pattern else None
    except ValueError:
        raise Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION) from None
    states = {BY_LABEL[label] for label in wanted.states if label in BY_LABEL}

    def passes(transaction: Transaction) -> bool:
        if wanted.producer_ids and transaction.producer_id not in wanted.producer_ids:
            return False
        if wanted.states and transaction.state not in states:
            return False
        if wanted.longer_than_ms >= 0 and wall_ms - transaction.start_ms <= wanted.longer_than_ms:
            return False
        return matches is None or matches(transaction.transactional_id)

    found = [transaction for shard in shards for transaction in shard.replicated().values() if passes(transaction)]
    return TransactionListing(found, sorted(wanted.states - BY_LABEL.keys()))


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
