"""DescribeDelays, version 0: what waits in partitions of delay and half topics, and what stands in its way."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from tidelog.deliver.halves import HalfSchedule
from tidelog.wire import messages
from tidelog.wire.errors import CodedError, ErrorCode, KafkaError
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.coordinator.waiting_partition import WaitingPartition

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
                _describe(waiting_partition(request, topic.name, index), most, result)
            except CodedError as error:
                result.error_code, result.error_message = error.code, str(error)
            results.append(result)
        topics.append(response.DelayTopicResult(name=topic.name, partitions=results))
    return response(topics=topics)


def waiting_partition(request: Request, topic: str, index: int) -> WaitingPartition:
    """The partition, where this broker delivers from it."""
    doors = request.doors
    partition = doors.data.partition(topic, index)
    partition.check_leader()
    if not partition.log.config.waits_for:
        why = f"nothing waits in {topic}: it has neither tidelog.delay.target nor tidelog.half.target"
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    known = doors.delays.partitions.get(TopicPartition(topic, index))
    if known is None or not known.is_loaded:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None if known is None else known.stalled)
    return known


def _describe(known: WaitingPartition, most: int, result: Result) -> None:
    record = messages.DescribeDelaysResponse.DelayedRecord
    schedule = known.schedule
    result.target = known.target
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
    if isinstance(schedule, HalfSchedule):
        result.waiting_count += len(schedule.prepared)
        waiting = [
            record(
                offset=each.offset,
                due_ms=each.timestamp,
                state="undecided" if each.is_undecided else "prepared",
                half_id=half_id.decode("utf-8", "replace"),
            )
            for half_id, each in islice(schedule.prepared.items(), most)
        ]
    else:
        waiting = [record(offset=at, due_ms=due, state="waiting") for due, at in schedule.first(most)]
    result.records = [*stopped, *malformed, *sent, *waiting][:most]
