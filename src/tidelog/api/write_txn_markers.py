"""WriteTxnMarkers, versions 1-2: ends transactions on the partitions that this broker leads.

Coordinators send it, and so does an operator who aborts a transaction that was left hanging.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int


def handle(body: messages.WriteTxnMarkersRequest, request: Request) -> messages.WriteTxnMarkersResponse:
    response = messages.WriteTxnMarkersResponse
    results = []
    for asked in body.markers:
        marker = Marker(
            asked.producer_id,
            asked.producer_epoch,
            asked.coordinator_epoch,
            asked.transaction_result,
            asked.transaction_version,
        )
        topics = [
            response.WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    response.WritableTxnMarkerPartitionResult(
                        partition_index=index,
                        error_code=request.doors.markers.write(topic.name, index, marker),
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ]
        results.append(response.WritableTxnMarkerResult(producer_id=asked.producer_id, topics=topics))
    return response(markers=results)
