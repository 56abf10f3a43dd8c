"""AddPartitionsToTxn, versions 0-5: partitions become part of a transaction. From version 4 brokers ask, for several.

A client's request about a partition that does not exist adds none of them: the others are OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.grouping import context_of
from tidelog.api.tickets import GatheringTicket
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request

    Topic = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

FIRST_BATCHED_VERSION: Final = 4


def handle(body: messages.AddPartitionsToTxnRequest, request: Request) -> messages.AddPartitionsToTxnResponse | None:
    transactions = request.doors.transactions
    if request.version < FIRST_BATCHED_VERSION:
        unknown = _unknown(body.v3_and_below_topics, request)
        if unknown:
            results = _not_attempted(body.v3_and_below_topics, unknown)
            return messages.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
        gathering: Request | GatheringTicket[messages.AddPartitionsToTxnResponse] = request
    else:
        gathering = GatheringTicket(request, transactions.room.merged)
    decisions = transactions.room.add_partitions_to_txn(gathering, body, context_of(request), *transactions.now())
    if not decisions:
        return messages.AddPartitionsToTxnResponse()
    if isinstance(gathering, GatheringTicket):
        gathering.missing = len(decisions)
    for decision in decisions:
        transactions.carry_out(decision)
    return None


def _unknown(topics: list[Topic], request: Request) -> set[tuple[str, int]]:
    image = request.doors.cluster.image
    return {
        (topic.name, index)
        for topic in topics
        for index in topic.partitions
        if image.partition(topic.name, index) is None
    }


def _not_attempted(
    topics: list[Topic], unknown: set[tuple[str, int]]
) -> list[messages.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]:
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
