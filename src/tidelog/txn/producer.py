"""Producers that start: a producer id and an epoch that fences every earlier producer of the same name.

A producer that lost track of what it sent may name the id and epoch it holds (KIP-360): it is given the next epoch only
if nobody else has initialised since, and a repeat of that request is given the same answer again.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.deciding.turn import Refusal
from tidelog.txn.completion import fence
from tidelog.txn.shard import Shard
from tidelog.txn.state import TransactionState
from tidelog.txn.transaction import (
    NO_IDENTITY,
    ProducerIdentity,
    Transaction,
    is_exhausted,
)
from tidelog.txn.turn import TxnDecision
from tidelog.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.wire.errors import ErrorCode

_E = ErrorCode


class Initialisation(NamedTuple):
    """A producer starts. Without a transactional ID it is an idempotent one, which has no timeout and no past.

    `held` is the identity that it believes to have.
    """

    transactional_id: str | None
    timeout_ms: int
    held: ProducerIdentity = NO_IDENTITY

    @property
    def expected(self) -> ProducerIdentity | None:
        """The identity that must still be in place; None if the producer names none."""
        if self.held == NO_IDENTITY:
            return None
        if NO_PRODUCER_ID in self.held:
            raise Refusal(_E.INVALID_REQUEST)
        return self.held


def initialise(
    shard: Shard, turn: TxnDecision, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None
) -> Transaction | None:
    """The state that the producer starts from; None if it must ask again, because a transaction has to end first."""
    transaction = shard.transactions.get(transactional_id)
    if transaction is None:
        # Whatever identity the producer names, its id has expired since: it gets a new one.
        after = Transaction.created(transactional_id, shard.around.new_producer_id(), timeout_ms, turn.wall_ms)
        last_epoch = NO_PRODUCER_EPOCH
    else:
        if transaction.state.is_prepared:
            # Before a look at the identity: the one that the producer was told of may still have to be put in place.
            return None
        if expected is not None and not _is_known(transaction, expected):
            raise Refusal(_E.PRODUCER_FENCED)
        if transaction.state is TransactionState.ONGOING:
            # The epoch that this abort takes is nobody's: the producer gets the one after it when it asks again.
            fence(shard, turn, transaction)
            return None
        after, last_epoch = _next_epoch(shard, turn, transaction, timeout_ms, expected)
    shard.remember_last_epoch(after, last_epoch)
    shard.store(turn, after)
    return after


def _is_known(transaction: Transaction, expected: ProducerIdentity) -> bool:
    if expected.producer_id == transaction.producer_id:
        return True
    # The answer that carried the new producer id may have been lost.
    return expected.producer_id == transaction.previous_producer_id and is_exhausted(expected.producer_epoch)


def _next_epoch(
    shard: Shard, turn: TxnDecision, transaction: Transaction, timeout_ms: int, expected: ProducerIdentity | None
) -> tuple[Transaction, int]:
    epoch = transaction.producer_epoch
    if expected is not None and expected.producer_epoch != epoch:
        last_epoch = shard.last_epoch(transaction)
        if expected.producer_epoch != last_epoch:
            raise Refusal(_E.PRODUCER_FENCED)
        # A repeat: had another producer initialised in between, it would have left no last epoch. (Where the epochs are
        # used up Kafka has no answer to a repeat nor to the fenced, but an unknown server error.)
        return transaction.initialised(epoch, timeout_ms, turn.wall_ms), last_epoch
    last_epoch = NO_PRODUCER_EPOCH if expected is None else epoch
    if transaction.is_epoch_exhausted:
        producer_id = shard.around.new_producer_id()
        return transaction.rotated(producer_id, timeout_ms, turn.wall_ms), last_epoch
    return transaction.initialised(epoch + 1, timeout_ms, turn.wall_ms), last_epoch
