"""What a transaction touches: partitions are added to it, or it is only verified that they were.

Clients add partitions before they write to them. Brokers ask on behalf of clients: either to add a partition that a
client of transactions version 2 has just written to, or to verify that a partition was added before an older client
wrote to it. The offsets of a group are added as the partition that they are stored in.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tidelog.deciding.turn import Refusal
from tidelog.txn.completion import set_timeout
from tidelog.txn.shard import Shard
from tidelog.txn.state import TransactionState
from tidelog.txn.transaction import ProducerIdentity, Transaction
from tidelog.txn.turn import TxnDecision
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

_E = ErrorCode


class Addition(NamedTuple):
    """`client_version` is the transactions version of the client that writes to the partitions."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: frozenset[TopicPartition]
    client_version: int
    verify_only: bool = False


#: transactional ID -> what became of each partition that was to be added or verified
AdditionResults: TypeAlias = dict[str, dict[TopicPartition, ErrorCode]]


def add(shard: Shard, turn: TxnDecision, wanted: Addition) -> None:
    if shard.existing(wanted.transactional_id).state.is_prepared:
        # Whoever asks: the producer may have the identity already that only completing puts in place.
        raise Refusal(_E.CONCURRENT_TRANSACTIONS)
    transaction = _open_to(shard, wanted)
    if transaction.state is TransactionState.ONGOING:
        if not wanted.partitions <= transaction.partitions:
            shard.store(turn, transaction.adding(wanted.partitions, wanted.client_version, turn.wall_ms))
        return
    begun = transaction.adding(wanted.partitions, wanted.client_version, turn.wall_ms)
    shard.store(turn, begun)
    set_timeout(shard, turn, begun, begun.timeout_ms)


def verify(shard: Shard, wanted: Addition) -> dict[TopicPartition, ErrorCode]:
    held = _open_to(shard, wanted).partitions
    return {at: _E.NONE if at in held else _E.TRANSACTION_ABORTABLE for at in wanted.partitions}


def _open_to(shard: Shard, wanted: Addition) -> Transaction:
    transaction = shard.existing(wanted.transactional_id)
    if transaction.producer_id != wanted.producer.producer_id:
        raise Refusal(_E.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != wanted.producer.producer_epoch:
        raise Refusal(_E.PRODUCER_FENCED)
    if transaction.state.is_prepared:
        raise Refusal(_E.CONCURRENT_TRANSACTIONS)
    return transaction
