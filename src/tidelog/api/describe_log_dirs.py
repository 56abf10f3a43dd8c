"""DescribeLogDirs, versions 1-5: what lies in each log directory, and how full its volume is.

`offset_lag` of a live log is how far it is behind its high watermark, 0 for a leader; of a future log, how far its copy
is behind the log that it will replace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: messages.DescribeLogDirsRequest, request: Request) -> messages.DescribeLogDirsResponse:
    wanted = None
    if body.topics is not None:
        wanted = {(topic.topic, index) for topic in body.topics for index in topic.partitions}
    response = messages.DescribeLogDirsResponse
    results = []
    for described in request.doors.data.logs.describe():
        result = response.DescribeLogDirsResult(log_dir=described.path)
        results.append(result)
        if described.failure is not None:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            continue
        if described.usage is not None:
            result.total_bytes, result.usable_bytes = described.usage.total_bytes, described.usage.usable_bytes
        topics: dict[str, messages.DescribeLogDirsResponse.DescribeLogDirsTopic] = {}
        for sizes, is_future in ((described.sizes_bytes, False), (described.future_sizes_bytes, True)):
            for (topic, index), size in sizes.items():
                if wanted is not None and (topic, index) not in wanted:
                    continue
                entry = topics.setdefault(topic, response.DescribeLogDirsTopic(name=topic))
                entry.partitions.append(
                    response.DescribeLogDirsPartition(
                        partition_index=index,
                        partition_size=size,
                        offset_lag=_lag(topic, index, is_future, request),
                        is_future_key=is_future,
                    )
                )
        result.topics = list(topics.values())
    return response(results=results)


def _lag(topic: str, index: int, is_future: bool, request: Request) -> int:
    doors = request.doors
    current = doors.data.logs.get(topic, index)
    if is_future:
        future = doors.data.logs.futures.get(TopicPartition(topic, index))
        return current.log_end_offset - future.log_end_offset if current is not None and future is not None else 0
    partition = doors.data.replicas.partitions.get((topic, index))
    return max(0, partition.high_watermark - partition.log.log_end_offset) if partition is not None else 0
