"""AlterReplicaLogDirs, versions 1-2: moves replicas of this broker to another of its log directories.

Answered as soon as the copy has begun; DescribeLogDirs shows the copy as a future log until it takes the place of the
partition. A second request for the same partition replaces the first; one that names the directory where the partition
is gives the copy up. A partition of which this broker has no replica is refused, and its directory is not remembered
for later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.wire import messages
from tidelog.wire.errors import CodedError, ErrorCode
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: messages.AlterReplicaLogDirsRequest, request: Request) -> messages.AlterReplicaLogDirsResponse:
    response = messages.AlterReplicaLogDirsResponse
    #: of a partition that is named more than once, the last directory counts
    wanted: dict[str, dict[int, str]] = {}
    for directory in body.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                wanted.setdefault(topic.name, {})[index] = directory.path
    return response(
        results=[
            response.AlterReplicaLogDirTopicResult(
                topic_name=topic,
                partitions=[
                    response.AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=_move(topic, index, path, request)
                    )
                    for index, path in paths.items()
                ],
            )
            for topic, paths in wanted.items()
        ]
    )


def _move(topic: str, index: int, path: str, request: Request) -> int:
    doors = request.doors
    try:
        doors.data.logs.directory(path)
        doors.data.partition(topic, index)
        doors.moves.begin(TopicPartition(topic, index), path)
    except CodedError as error:
        # Older clients know this error only.
        missing = error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.REPLICA_NOT_AVAILABLE if missing else error.code
    return ErrorCode.NONE
