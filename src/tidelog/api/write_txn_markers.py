"""WriteTxnMarkers, versions 1-2: ends transactions on the partitions that this broker leads.

Coordinators send it, and so does an operator who aborts a transaction that was left hanging.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int


def handle(body: messages.WriteTxnMarkersRequest, request: Request) -> None:
    response = messages.WriteTxnMarkersResponse
    results: list[messages.WriteTxnMarkersResponse.WritableTxnMarkerResult] = []
    waiting = 1

    def told(result: messages.WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult, code: ErrorCode) -> None:
        result.error_code = int(code)
        one_less()

    def one_less() -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            request.reply(response(markers=results))

    for asked in body.markers:
        marker = Marker(
            asked.producer_id,
            asked.producer_epoch,
            asked.coordinator_epoch,
            asked.transaction_result,
            asked.transaction_version,
        )
        topics = []
        for topic in asked.topics:
            partitions = [
                response.WritableTxnMarkerPartitionResult(partition_index=index) for index in topic.partition_indexes
            ]
            for each in partitions:
                waiting += 1
                request.doors.markers.write(topic.name, each.partition_index, marker, partial(told, each))
            topics.append(response.WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
        results.append(response.WritableTxnMarkerResult(producer_id=asked.producer_id, topics=topics))
    one_less()
