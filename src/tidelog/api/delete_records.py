"""DeleteRecords, versions 0-2: moves a partition's log start offset up. -1 means up to the high watermark.

Only leaders do it; whole segments below the new start are removed later, by retention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.control.topic_names import INTERNAL_TOPICS
from tidelog.wire import messages
from tidelog.wire.errors import CodedError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: messages.DeleteRecordsRequest, request: Request) -> messages.DeleteRecordsResponse:
    response = messages.DeleteRecordsResponse
    #: of a partition that is named more than once, the last offset counts
    wanted: dict[str, dict[int, int]] = {}
    for topic in body.topics:
        for partition in topic.partitions:
            wanted.setdefault(topic.name, {})[partition.partition_index] = partition.offset
    topics = []
    for name, offsets in wanted.items():
        results = []
        for index, offset in offsets.items():
            result = response.DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
            try:
                result.low_watermark = _delete(name, index, offset, request)
            except CodedError as error:
                result.error_code = error.code
            results.append(result)
        topics.append(response.DeleteRecordsTopicResult(name=name, partitions=results))
    return response(topics=topics)


def _delete(topic: str, index: int, offset: int, request: Request) -> int:
    doors = request.doors
    partition = doors.data.partition(topic, index)
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition.check_leader()
    if not partition.log.config.delete and partition.log.config.compact:
        # A compacted topic keeps its newest value per key: cutting it from the start would lose them.
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    return partition.delete_records(offset)
