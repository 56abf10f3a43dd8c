"""OffsetForLeaderEpoch, versions 2-4: where a leader epoch ended, so that a reader can find where it diverged.

Answers with the largest epoch known that is not above the one asked for, and the offset at which it ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.replica.partition import DEBUG_REPLICA
from tidelog.wire import messages
from tidelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: messages.OffsetForLeaderEpochRequest, request: Request) -> messages.OffsetForLeaderEpochResponse:
    response = messages.OffsetForLeaderEpochResponse
    topics = []
    for topic in body.topics:
        partitions = []
        for wanted in topic.partitions:
            answer = response.EpochEndOffset(partition=wanted.partition)
            try:
                partition = request.doors.data.partition(topic.topic, wanted.partition)
                partition.check_leader(wanted.current_leader_epoch, leader_only=body.replica_id != DEBUG_REPLICA)
                end = partition.end_offset_for_epoch(wanted.leader_epoch)
                if end is not None:
                    answer.leader_epoch, answer.end_offset = end
            except KafkaError as error:
                answer.error_code = error.code
            partitions.append(answer)
        topics.append(response.OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return response(topics=topics)
