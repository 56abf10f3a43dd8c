"""DescribeTopicPartitions, version 0: topics with their partitions, in pages.

Topics come in the order of their names. A page ends at `response_partition_limit` partitions (2,000 at most) and
names the partition to go on with; a request may begin at such a cursor. Without names it describes every topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.api.operations import TOPIC_OPERATIONS
from tidelog.control.model import NO_LEADER, Partition
from tidelog.control.names import INTERNAL_TOPICS
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request

MAX_PARTITIONS: Final = 2000


def handle(body: Any, request: Request) -> Any:
    broker = request.broker
    response = messages.DescribeTopicPartitionsResponse
    cursor = body.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a cursor's partition index is not negative")
    limit = min(body.response_partition_limit, broker.max_partitions_per_page)
    names = sorted({topic.name for topic in body.topics} or broker.image.topics)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    answer = response(topics=[])
    remaining = limit
    for name in names:
        topic = broker.image.topics.get(name)
        if topic is None:
            answer.topics.append(
                response.DescribeTopicPartitionsResponseTopic(
                    name=name, error_code=broker.unknown_topic_error(name), is_internal=name in INTERNAL_TOPICS
                )
            )
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        page = topic.partitions[first : first + remaining]
        remaining -= len(page)
        if page or first >= len(topic.partitions):
            answer.topics.append(
                response.DescribeTopicPartitionsResponseTopic(
                    name=name,
                    topic_id=topic.topic_id,
                    is_internal=topic.is_internal,
                    partitions=[_describe(partition, broker.image.brokers, response) for partition in page],
                    topic_authorized_operations=TOPIC_OPERATIONS,
                )
            )
        if first + len(page) < len(topic.partitions):
            answer.next_cursor = response.Cursor(topic_name=name, partition_index=first + len(page))
            break
    return answer


def _describe(partition: Partition, alive: Any, response: Any) -> Any:
    has_leader = partition.leader != NO_LEADER and partition.leader in alive
    return response.DescribeTopicPartitionsResponsePartition(
        error_code=0 if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.partition_index,
        leader_id=partition.leader if has_leader else NO_LEADER,
        leader_epoch=partition.leader_epoch if has_leader else -1,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[replica for replica in partition.replicas if replica not in alive],
    )
