"""AddPartitionsToTxn, versions 0-5: partitions become part of a transaction. From version 4 brokers ask, for several.

A client's request about a partition that does not exist adds none of them: the others are OPERATION_NOT_ATTEMPTED.
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

    Topic = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    TopicResult = messages.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult

FIRST_BATCHED_VERSION: Final = 4
FIRST_VERSION_WITH_FENCED: Final = 2


def handle(body: messages.AddPartitionsToTxnRequest, request: Request) -> messages.AddPartitionsToTxnResponse | None:
    if request.version < FIRST_BATCHED_VERSION:
        unknown = _unknown(body.v3_and_below_topics, request)
        if unknown:
            results = _not_attempted(body.v3_and_below_topics, unknown)
            return messages.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    request.doors.transactions.add(
        asked(body, request.version), lambda results: request.reply(answer(results, request.version))
    )
    return None


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
        return response(results_by_topic_v3_and_below=_topic_results(codes, version))
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
        topic = topics.setdefault(at.topic, response.AddPartitionsToTxnTopicResult(name=at.topic))
        code = understood(codes[at], version, FIRST_VERSION_WITH_FENCED)
        topic.results_by_partition.append(
            response.AddPartitionsToTxnPartitionResult(partition_index=at.partition, partition_error_code=int(code))
        )
    return list(topics.values())


def _unknown(topics: list[Topic], request: Request) -> set[tuple[str, int]]:
    image = request.doors.cluster.image
    return {
        (topic.name, index)
        for topic in topics
        for index in topic.partitions
        if image.partition(topic.name, index) is None
    }


def _not_attempted(topics: list[Topic], unknown: set[tuple[str, int]]) -> list[TopicResult]:
    response = messages.AddPartitionsToTxnResponse
    return [
        response.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                response.AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        if (topic.name, index) in unknown
                        else ErrorCode.OPERATION_NOT_ATTEMPTED
                    ),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
