"""AddPartitionsToTxn, versions 0-5: partitions become part of a transaction. From version 4 brokers ask, for several.

A request about a partition that does not exist adds none of its transaction: the others are OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from tidelog.api.transacting import understood
from tidelog.txn.adding import Addition, AdditionResults
from tidelog.txn.transaction import EPOCH_BUMP_VERSION, ProducerIdentity
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.control.image import Image

    Topic = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    TopicResult = messages.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult

FIRST_BATCHED_VERSION: Final = 4
FIRST_VERSION_WITH_FENCED: Final = 2


def handle(body: messages.AddPartitionsToTxnRequest, request: Request) -> None:
    image = request.doors.cluster.image
    refused: AdditionResults = {}
    possible = []
    for wanted in asked(body, request.version):
        not_attempted = _not_attempted(wanted, image)
        if not_attempted is None:
            possible.append(wanted)
        else:
            refused[wanted.transactional_id] = not_attempted
    request.doors.transactions.add(
        possible, lambda results: request.reply(answer({**results, **refused}, request.version))
    )


def asked(body: messages.AddPartitionsToTxnRequest, version: int) -> list[Addition]:
    """One for each transaction; of several entries for one the last counts."""
    if version < FIRST_BATCHED_VERSION:
        producer = ProducerIdentity(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        partitions = _partitions(body.v3_and_below_topics)
        return [Addition(body.v3_and_below_transactional_id, producer, partitions, client_version=0)]
    named = {entry.transactional_id: entry for entry in body.transactions}
    return [
        Addition(
            entry.transactional_id,
            ProducerIdentity(entry.producer_id, entry.producer_epoch),
            _partitions(entry.topics),
            EPOCH_BUMP_VERSION,
            entry.verify_only,
        )
        for entry in named.values()
    ]


def _partitions(topics: Iterable[Topic]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


def answer(results: AdditionResults, version: int) -> messages.AddPartitionsToTxnResponse:
    response = messages.AddPartitionsToTxnResponse
    if version < FIRST_BATCHED_VERSION:
        (codes,) = results.values()
        return response.of(results_by_topic_v3_and_below=_topic_results(codes, version))
    return response(
        results_by_transaction=[
            response.AddPartitionsToTxnResult(
                transactional_id=transactional_id, topic_results=_topic_results(codes, version)
            )
            for transactional_id, codes in results.items()
        ]
    )


def _topic_results(codes: Mapping[TopicPartition, ErrorCode], version: int) -> list[TopicResult]:
    response = messages.AddPartitionsToTxnResponse
    topics: dict[str, TopicResult] = {}
    for at in sorted(codes):
        topic = topics.setdefault(at.topic, response.AddPartitionsToTxnTopicResult.of(name=at.topic))
        code = understood(codes[at], version, FIRST_VERSION_WITH_FENCED)
        topic.results_by_partition.append(
            response.AddPartitionsToTxnPartitionResult.of(partition_index=at.partition, partition_error_code=int(code))
        )
    return list(topics.values())


def _not_attempted(wanted: Addition, image: Image) -> dict[TopicPartition, ErrorCode] | None:
    """The answer where some partition does not exist, as far as this broker knows; None where all do.

    What is added gets a marker in the end, which one that does not exist would be taken not to need.
    """
    unknown = {at for at in wanted.partitions if image.partition(*at) is None}
    if not unknown:
        return None
    return {
        at: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if at in unknown else ErrorCode.OPERATION_NOT_ATTEMPTED
        for at in wanted.partitions
    }
