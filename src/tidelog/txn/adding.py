"""AddPartitionsToTxn, versions 0-5, and AddOffsetsToTxn, versions 0-4: what a transaction touches.

Clients name a single transaction (AddPartitionsToTxn up to version 3). From version 4 on the request comes from
brokers, for many transactions at once: either to add a partition that a client of transactions version 2 has just
written to, or only to verify that a partition was added before an older client wrote to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.deciding.turn import Refusal, RequestContext
from tidelog.txn.completion import set_timeout
from tidelog.txn.shard import Shard
from tidelog.txn.state import TransactionState
from tidelog.txn.transaction import EPOCH_BUMP_VERSION, Transaction
from tidelog.txn.turn import TxnDecision
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

_E = ErrorCode


class Addition(NamedTuple):
    """What one transaction of a request asks for."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    partitions: frozenset[TopicPartition]
    client_version: int


def additions(request: messages.AddPartitionsToTxnRequest, context: RequestContext) -> list[Addition]:
    if context.api_version < 4:
        return [
            Addition(
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                False,
                _partitions(request.v3_and_below_topics),
                0,
            )
        ]
    named = {entry.transactional_id: entry for entry in request.transactions}
    return [
        Addition(
            entry.transactional_id,
            entry.producer_id,
            entry.producer_epoch,
            entry.verify_only,
            _partitions(entry.topics),
            EPOCH_BUMP_VERSION,
        )
        for entry in named.values()
    ]


def _partitions(
    topics: Iterable[messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic],
) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


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
    if transaction.producer_id != wanted.producer_id:
        raise Refusal(_E.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != wanted.producer_epoch:
        raise Refusal(_E.PRODUCER_FENCED)
    if transaction.state.is_prepared:
        raise Refusal(_E.CONCURRENT_TRANSACTIONS)
    return transaction


def answer(
    results: Mapping[str, Mapping[TopicPartition, ErrorCode]], context: RequestContext
) -> messages.AddPartitionsToTxnResponse:
    """`results`: transactional id -> partition -> code."""
    if context.api_version < 4:
        (codes,) = results.values()
        return messages.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topic_results(codes))
    of_result = messages.AddPartitionsToTxnResponse.AddPartitionsToTxnResult
    return messages.AddPartitionsToTxnResponse(
        results_by_transaction=[
            of_result(transactional_id=transactional_id, topic_results=_topic_results(codes))
            for transactional_id, codes in results.items()
        ]
    )


def _topic_results(
    codes: Mapping[TopicPartition, ErrorCode],
) -> list[messages.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]:
    response = messages.AddPartitionsToTxnResponse
    topics: dict[str, messages.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = {}
    for at in sorted(codes):
        topic = topics.setdefault(at.topic, response.AddPartitionsToTxnTopicResult(name=at.topic))
        topic.results_by_partition.append(
            response.AddPartitionsToTxnPartitionResult(
                partition_index=at.partition, partition_error_code=int(codes[at])
            )
        )
    return list(topics.values())
