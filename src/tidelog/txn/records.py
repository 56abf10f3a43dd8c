"""Records of `__transaction_state`, as Apache Kafka writes them.

A key is an int16 0 and the transactional id; a value is an int16 version and the state of the id, all of it. Version
1 is written from `transaction.version` 1 on. Version 0 cannot hold a change of the producer id nor the version of the
client, so a state that has either is stored in version 1 at any level.

A key of another type or a value of a later version is read past: a newer broker may have written it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from tidelog.deciding.decision import CoordinatorRecord
from tidelog.txn.state import TransactionState
from tidelog.txn.transaction import EPOCH_BUMP_VERSION, Transaction
from tidelog.wire import messages
from tidelog.wire.batch import NO_PRODUCER_ID
from tidelog.wire.codec import schema_of
from tidelog.wire.malformed import WireError
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.stored import TRANSACTION_RECORDS, decode_versioned, encode_versioned, peek_version


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Sorted, so that the same state is always the same bytes."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


@lru_cache(maxsize=1_024)
def transaction_key(transactional_id: str) -> bytes:
    return encode_versioned(messages.TransactionLogKey(transactional_id=transactional_id), 0)


def transaction_record(transaction: Transaction, transaction_version: int) -> CoordinatorRecord:
    of_value = messages.TransactionLogValue
    rotates = transaction.previous_producer_id != transaction.producer_id
    bumps = transaction.client_version >= EPOCH_BUMP_VERSION
    version = 1 if transaction_version >= 1 or rotates or bumps else 0
    partitions = [
        of_value.PartitionsSchema.of(topic=topic, partition_ids=indexes)
        for topic, indexes in by_topic(transaction.partitions).items()
    ]
    value = of_value.of(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id if version else NO_PRODUCER_ID,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None if transaction.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    key, encoded = transaction_key(transaction.transactional_id), encode_versioned(value, version)
    # Version 0 does not keep all of it: what it keeps is only known from its bytes.
    return CoordinatorRecord(key, encoded, (transaction.transactional_id, transaction) if version else None)


def tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(transaction_key(transactional_id), None)


def decode(key: bytes, value: bytes | None) -> tuple[str, Transaction | None] | None:
    """The id and its state (None: forgotten); None for a record that is not for us. Raises WireError."""
    if peek_version(key) not in TRANSACTION_RECORDS:
        return None
    transactional_id = decode_versioned(messages.TransactionLogKey, key).transactional_id
    if value is None:
        return transactional_id, None
    if peek_version(value) > schema_of("TransactionLogValue").versions[1]:
        return None
    return transactional_id, _transaction(transactional_id, decode_versioned(messages.TransactionLogValue, value))


def _transaction(transactional_id: str, value: messages.TransactionLogValue) -> Transaction:
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise WireError(f"{transactional_id} in the unknown state {value.transaction_status}") from None
    return Transaction(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        state,
        value.transaction_last_update_timestamp_ms,
        value.previous_producer_id,
        value.next_producer_id,
        frozenset(
            TopicPartition(entry.topic, index)
            for entry in value.transaction_partitions or ()
            for index in entry.partition_ids
        ),
        value.transaction_start_timestamp_ms,
        value.client_transaction_version,
    )
