"""ListOffsets, versions 1-11: the offset at a timestamp, or at one of the special places.

timestamp   first version   answers
-1          1               latest: high watermark, or last stable offset under read_committed
-2          1               earliest: log start offset
-3          7               the offset of the largest timestamp
-4          8               earliest local: log start offset, as nothing is tiered
-5          9               latest tiered: unknown, as nothing is tiered
-6          11              earliest pending upload: unknown, as nothing is tiered
t >= 0      1               the first record at or after t; none is offset -1, timestamp -1
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tidelog.replica.partition import CONSUMER_REPLICA, DEBUG_REPLICA, READ_COMMITTED
from tidelog.wire import messages
from tidelog.wire.errors import CodedError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request

READ_UNCOMMITTED: Final = 0
#: before this version clients do not know OFFSET_NOT_AVAILABLE
FIRST_VERSION_WITH_NOT_AVAILABLE: Final = 5
#: special timestamp -> first version that may ask for it
FIRST_VERSION_OF: Final = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}


def handle(body: messages.ListOffsetsRequest, request: Request) -> messages.ListOffsetsResponse:
    if body.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no isolation level {body.isolation_level}")
    response = messages.ListOffsetsResponse
    asked = Counter((topic.name, p.partition_index) for topic in body.topics for p in topic.partitions)
    #: a partition that is asked for more than once is answered once, with an error
    answers: dict[str, dict[int, messages.ListOffsetsResponse.ListOffsetsPartitionResponse]] = {}
    for topic in body.topics:
        for partition in topic.partitions:
            index = partition.partition_index
            answer = response.ListOffsetsPartitionResponse.of(partition_index=index)
            try:
                if asked[topic.name, index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                answer.timestamp, answer.offset, answer.leader_epoch = _look_up(body, topic.name, partition, request)
            except CodedError as error:
                answer.error_code = error.code
            answers.setdefault(topic.name, {})[index] = answer
    return response.of(
        topics=[
            response.ListOffsetsTopicResponse.of(name=name, partitions=list(partitions.values()))
            for name, partitions in answers.items()
        ]
    )


def _look_up(
    body: messages.ListOffsetsRequest,
    topic: str,
    wanted: messages.ListOffsetsRequest.ListOffsetsPartition,
    request: Request,
) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch); an offset of -1 says that there is none."""
    timestamp = wanted.timestamp
    if request.version < FIRST_VERSION_OF.get(timestamp, 1 if timestamp >= 0 else 2**15):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    partition = request.doors.data.partition(topic, wanted.partition_index)
    partition.check_leader(wanted.current_leader_epoch, leader_only=body.replica_id != DEBUG_REPLICA)
    isolation_level = body.isolation_level if body.replica_id == CONSUMER_REPLICA else None
    try:
        return partition.offset_for_timestamp(timestamp, isolation_level)
    except KafkaError as error:
        if error.code == ErrorCode.OFFSET_NOT_AVAILABLE and request.version < FIRST_VERSION_WITH_NOT_AVAILABLE:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE) from error
        raise
