"""DescribeTopicPartitions, version 0: topics with their partitions, in pages.

Topics come in the order of their names. A page ends at `response_partition_limit` partitions, or at
`max.request.partition.size.limit` if that is less, and names the partition to go on with; a request may begin at such a
cursor. Without names it describes every topic.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from tidelog.api.operations import TOPIC_OPERATIONS
from tidelog.control.model import NO_LEADER, Partition
from tidelog.control.topic_names import INTERNAL_TOPICS
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: messages.DescribeTopicPartitionsRequest, request: Request) -> messages.DescribeTopicPartitionsResponse:
    doors = request.doors
    response = messages.DescribeTopicPartitionsResponse
    cursor = body.cursor
    names = sorted({topic.name for topic in body.topics} or doors.cluster.image.topics)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        if body.topics and cursor.topic_name not in names[:1]:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor's topic {cursor.topic_name} is not asked for")
        if cursor.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a cursor's partition index is not negative")
    remaining = max(1, min(body.response_partition_limit, doors.config.values.max_request_partition_size_limit))
    answer = response(topics=[])
    reachable = {node.id for node in doors.cluster.nodes(request.exchange.connection)}
    for name in names:
        if not remaining:
            answer.next_cursor = response.Cursor(topic_name=name, partition_index=0)
            break
        topic = doors.cluster.image.topics.get(name)
        described = response.DescribeTopicPartitionsResponseTopic(
            name=name, is_internal=name in INTERNAL_TOPICS, topic_authorized_operations=TOPIC_OPERATIONS
        )
        answer.topics.append(described)
        if topic is None:
            described.error_code = doors.cluster.unknown_topic_error(name)
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        page = topic.partitions[first : first + remaining]
        described.topic_id = topic.topic_id
        described.partitions = [_describe(partition, reachable) for partition in page]
        remaining -= len(page)
        if first + len(page) < len(topic.partitions):
            answer.next_cursor = response.Cursor(topic_name=name, partition_index=first + len(page))
            break
    return answer


def _describe(
    partition: Partition, reachable: Container[int]
) -> messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition:
    return messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition(
        partition_index=partition.partition_index,
        leader_id=partition.leader if partition.leader in reachable else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[replica for replica in partition.replicas if replica not in reachable],
    )
