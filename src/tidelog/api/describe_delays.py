"""DescribeDelays, version 0: what waits in partitions of delay and half topics, and what stands in its way."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from tidelog.coordinator.half_partition import HalfPartition
from tidelog.deliver.halves import HalfSchedule, PreparedHalf
from tidelog.wire import messages
from tidelog.wire.errors import CodedError, ErrorCode, KafkaError
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.api.request import Request
    from tidelog.coordinator.cancelling_partition import CancellingPartition
    from tidelog.deliver.wheels import Key
    from tidelog.timer.slices import Job

    Described = messages.DescribeDelaysResponse.DelayedRecord
    Result = messages.DescribeDelaysResponse.DelayPartitionResult

#: of one answer
MOST_RECORDS: Final = 10_000


def handle(body: messages.DescribeDelaysRequest, request: Request) -> None:
    request.doors.slices.add(_answer(body, request))


def _answer(body: messages.DescribeDelaysRequest, request: Request) -> Job:
    """What waits may be a million records: they are looked through on a worker."""
    response = messages.DescribeDelaysResponse
    topics = []
    room = MOST_RECORDS
    for topic in body.topics:
        results = []
        for index in topic.partition_indexes:
            result = response.DelayPartitionResult(partition_index=index)
            results.append(result)
            most = min(max(body.max_records, 0), room)
            try:
                known = waiting_partition(request, topic.name, index)
                if not known.has_read and known.stalled is None:
                    raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                schedule = known.schedule
                if isinstance(schedule, HalfSchedule):
                    waiting = _prepared(schedule, most, body.half_id)
                else:
                    keys: list[Key] = (yield schedule.first(most)) if most else []
                    waiting = [_waiting(*key) for key in keys]
                _describe(known, waiting, most, result)
                if isinstance(known, HalfPartition):
                    unnamed = [each.offset for each in result.records if each.half_id is None]
                    _name(result, (yield known.ids_of(unnamed)) if unnamed else {})
                room -= len(result.records)
            except CodedError as error:
                result.error_code, result.error_message = error.code, str(error)
            except OSError as error:
                result.error_code, result.error_message = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
        topics.append(response.DelayTopicResult(name=topic.name, partitions=results))
    request.reply_with_many(response(topics=topics), MOST_RECORDS - room)


def waiting_partition(request: Request, topic: str, index: int) -> CancellingPartition:
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


def _waiting(due_ms: int, offset: int) -> Described:
    return messages.DescribeDelaysResponse.DelayedRecord(offset=offset, due_ms=due_ms, state="waiting", half_id=None)


def _prepared(schedule: HalfSchedule, most: int, half_id: str | None) -> list[Described]:
    """The first that were prepared, or the one with this id."""
    found: Iterable[tuple[bytes, PreparedHalf]] = islice(schedule.prepared.items(), most)
    if half_id is not None:
        one = schedule.prepared.get(half_id.encode())
        found = [] if one is None else [(half_id.encode(), one)]
    return [
        messages.DescribeDelaysResponse.DelayedRecord(
            offset=each.offset,
            due_ms=each.timestamp,
            state="undecided" if each.is_undecided else "prepared",
            half_id=name.decode("utf-8", "replace"),
        )
        for name, each in found
    ]


def _name(result: Result, known: dict[int, tuple[str | None, int]]) -> None:
    """Half messages that are committed have no due time either: ids and times of all are those of the records."""
    for each in result.records:
        if each.half_id is None:
            each.half_id, each.due_ms = known.get(each.offset, (None, -1))


def _describe(known: CancellingPartition, waiting: list[Described], most: int, result: Result) -> None:
    record = messages.DescribeDelaysResponse.DelayedRecord
    schedule, start = known.schedule, known.log.log_start_offset
    result.target = known.target
    result.waiting_count = len(schedule)
    result.delivered_count = schedule.delivered_count
    result.malformed_count = len(schedule.malformed)
    result.stalled = known.stalled
    result.held_back_count = max(0, known.partition.high_watermark - known.partition.last_stable_offset)
    result.is_half = isinstance(schedule, HalfSchedule)
    if isinstance(schedule, HalfSchedule):
        result.waiting_count += len(schedule.prepared)
    parcel = schedule.parcel
    sent = [
        record(offset=at, due_ms=due, state="sent", half_id=None) for due, at in (() if parcel is None else parcel.keys)
    ]
    on_their_way = {each.offset for each in sent}
    stopped = [
        record(offset=at, due_ms=why.due_ms, state="stopped", reason=why.reason, half_id=None)
        for at, why in schedule.picture.stopped.items()
        if at not in on_their_way
    ]
    # There may be more of them than may be told of: they leave room for what waits.
    room = max(most - len(stopped) - len(sent) - len(waiting), most // 2)
    malformed = [
        record(offset=at, due_ms=-1, state="malformed", reason=why, half_id=None)
        for at, why in schedule.malformed.first(room)
    ]
    others = [*stopped, *malformed, *sent]
    told = {each.offset for each in others}  # it may have gone on its way since it was seen waiting
    found = [*others, *(each for each in waiting if each.offset not in told)]
    result.records = [each for each in found if each.offset >= start][:most]  # not what was deleted
