"""DescribeDelays, version 0: what waits in partitions of delay topics, and what stands in its way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.wire import messages
from tidelog.wire.errors import CodedError, ErrorCode, KafkaError
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.coordinator.delay_partition import DelayPartition

    Result = messages.DescribeDelaysResponse.DelayPartitionResult

MOST_RECORDS: Final = 10_000


def handle(body: messages.DescribeDelaysRequest, request: Request) -> messages.DescribeDelaysResponse:
    response = messages.DescribeDelaysResponse
    most = min(max(body.max_records, 0), MOST_RECORDS)
    topics = []
    for topic in body.topics:
        results = []
        for index in topic.partition_indexes:
            result = response.DelayPartitionResult(partition_index=index)
            try:
                _describe(delay_partition(request, topic.name, index), most, result)
            except CodedError as error:
                result.error_code, result.error_message = error.code, str(error)
            results.append(result)
        topics.append(response.DelayTopicResult(name=topic.name, partitions=results))
    return response(topics=topics)


def delay_partition(request: Request, topic: str, index: int) -> DelayPartition:
    """The partition, where this broker delivers from it."""
    doors = request.doors
    partition = doors.data.partition(topic, index)
    partition.check_leader()
    if not partition.log.config.tidelog_delay_target:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic} is not a delay topic: it has no tidelog.delay.target")
    known = doors.delays.partitions.get(TopicPartition(topic, index))
    if known is None or not known.is_loaded:
        why = None if known is None else known.stalled
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, why)
    return known


def _describe(known: DelayPartition, most: int, result: Result) -> None:
    record = messages.DescribeDelaysResponse.DelayedRecord
    schedule = known.schedule
    result.target = known.log.config.tidelog_delay_target
    result.waiting_count = len(schedule)
    result.delivered_count = schedule.delivered_count
    result.malformed_count = schedule.malformed_count
    result.stalled = known.stalled
    parcel = schedule.parcel
    sent = [] if parcel is None else [record(offset=at, due_ms=due, state="sent") for due, at in parcel.keys]
    stopped = [
        record(offset=at, due_ms=why.due_ms, state="stopped", reason=why.reason)
        for at, why in schedule.picture.stopped.items()
    ]
    malformed = [record(offset=at, due_ms=-1, state="malformed", reason=why) for at, why in schedule.malformed.items()]
    waiting = [record(offset=at, due_ms=due, state="waiting") for due, at in schedule.first(most)]
    result.records = [*stopped, *malformed, *sent, *waiting][:most]
