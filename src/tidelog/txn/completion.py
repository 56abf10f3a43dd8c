"""How a transaction ends: prepared, marked in every partition, completed.

    prepare     the outcome is durable, and from now on nothing else can happen to this transaction
    mark        each partition gets a commit or abort marker; a partition that cannot take it is tried again until it
                can, for readers of committed data wait there
    complete    all partitions have theirs: the id is free for the next transaction

A coordinator that dies in between leaves a prepared transaction in its log; the next one sends all markers again. A
transaction without partitions has nothing to mark: it is prepared and completed in one batch.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.deciding.decision import CancelTimer, SetTimer
from tidelog.txn.config import MARKER_RETRY_BACKOFF_MS
from tidelog.txn.shard import Shard
from tidelog.txn.state import TransactionState
from tidelog.txn.transaction import (
    EPOCH_BUMP_VERSION,
    NO_TIMEOUT_MS,
    Transaction,
)
from tidelog.txn.turn import TxnDecision, TxnMarkers
from tidelog.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

_E = ErrorCode

# The partition has moved on to a later epoch of the producer, or never held transactions: there is nothing to mark.
# (At a later epoch Kafka gives the whole transaction up, and its id is blocked for as long as it is remembered.)
_NEEDS_NO_MARKER = frozenset(
    {_E.NONE, _E.INVALID_PRODUCER_EPOCH, _E.UNSUPPORTED_FOR_MESSAGE_FORMAT, _E.UNSUPPORTED_VERSION}
)


def prepare(
    shard: Shard, turn: TxnDecision, transaction: Transaction, commit: bool, client_version: int, *, fence: bool = False
) -> Transaction:
    """Ends the transaction; the answer is the id as it will be once all is done, which is what its producer is told."""
    bumps = client_version >= EPOCH_BUMP_VERSION
    rotates = bumps and transaction.is_epoch_exhausted
    next_producer_id = shard.around.new_producer_id() if rotates else NO_PRODUCER_ID
    prepared = transaction.ending(commit, client_version, turn.wall_ms, next_producer_id, fence)
    done = prepared.completed(turn.wall_ms)
    if bumps:
        shard.remember_last_epoch(done, transaction.producer_epoch)
    elif fence:
        shard.remember_last_epoch(done, NO_PRODUCER_EPOCH)
    shard.store(turn, prepared)
    if transaction.state is TransactionState.ONGOING:
        turn.timers.append(CancelTimer(shard.key("timeout", transaction.transactional_id)))
    if prepared.partitions:
        token = shard.new_token(prepared.transactional_id)
        turn.mark(_markers(shard, prepared, prepared.partitions, token))
    else:
        shard.store(turn, done)
    return done


def fence(shard: Shard, turn: TxnDecision, transaction: Transaction) -> None:
    """Aborts an ongoing transaction over the head of its producer, who is left with an epoch that no longer counts."""
    level = shard.config.transaction_version
    prepare(shard, turn, transaction, False, level if level >= EPOCH_BUMP_VERSION else 0, fence=True)


def markers_written(
    shard: Shard, turn: TxnDecision, markers: TxnMarkers, results: Mapping[TopicPartition, ErrorCode]
) -> None:
    transactional_id = markers.transactional_id
    marking = shard.markings.get(transactional_id)
    if marking is None or shard.tokens.get(transactional_id) != markers.token:
        return
    for partition, code in results.items():
        if code in _NEEDS_NO_MARKER:
            marking.missing.discard(partition)
            marking.failed.discard(partition)
        elif code is not _E.TRANSACTION_COORDINATOR_FENCED and partition in marking.missing:
            # Whatever it is, readers wait for this marker. (Only the fenced may stop: another coordinator sends it.)
            marking.failed.add(partition)
    if not marking.missing:
        _complete(shard, turn, transactional_id)
    elif marking.failed:
        turn.timers.append(SetTimer(shard.key("markers", transactional_id), turn.now_ms + MARKER_RETRY_BACKOFF_MS))


def resume(shard: Shard, turn: TxnDecision, transactional_id: str) -> None:
    """Goes on with a prepared transaction after something failed.

    Only what failed is sent again. A second marker beside one that is still under way could arrive when the first has
    completed the transaction, and end the next one of a client that keeps its epoch.
    """
    marking = shard.markings.get(transactional_id)
    if marking is None:
        return
    if not marking.missing:
        _complete(shard, turn, transactional_id)
    elif marking.failed:
        token = shard.tokens[transactional_id]
        turn.mark(_markers(shard, shard.transactions[transactional_id], marking.failed, token))
        marking.failed.clear()


def start_over(shard: Shard, turn: TxnDecision, transactional_id: str) -> None:
    """Takes over a prepared transaction of an earlier coordinator: which partitions it reached nobody knows."""
    transaction = shard.transactions[transactional_id]
    if transaction.partitions:
        token = shard.new_token(transactional_id)
        turn.mark(_markers(shard, transaction, transaction.partitions, token))
    else:
        # Its completion is an event of its own, so that it can fail and come back alone.
        turn.timers.append(SetTimer(shard.key("markers", transactional_id), turn.now_ms))


def set_timeout(shard: Shard, turn: TxnDecision, transaction: Transaction, remaining_ms: int) -> None:
    if transaction.timeout_ms != NO_TIMEOUT_MS:
        key = shard.key("timeout", transaction.transactional_id)
        turn.timers.append(SetTimer(key, turn.now_ms + remaining_ms))


def _complete(shard: Shard, turn: TxnDecision, transactional_id: str) -> None:
    turn.fired = shard.key("markers", transactional_id)
    shard.store(turn, shard.transactions[transactional_id].completed(turn.wall_ms))


def _markers(
    shard: Shard, prepared: Transaction, partitions: frozenset[TopicPartition] | set[TopicPartition], token: int
) -> TxnMarkers:
    return TxnMarkers(
        prepared.transactional_id,
        prepared.producer_id,
        prepared.producer_epoch,
        shard.coordinator_epoch,
        prepared.state is TransactionState.PREPARE_COMMIT,
        prepared.client_version,
        tuple(sorted(partitions)),
        token,
    )
