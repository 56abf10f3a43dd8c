"""Positions of share groups (KIP-932), from the outside.

A share group has no committed offsets but a start offset per partition: everything before it is done with, and what
lies after it is delivered, acknowledged and delivered again record by record. It can be moved only while the group has
no members, and forgotten only for whole topics. Members and deletion are those of any group: see `groups.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.errors import check
from tidelog.client.groups import by_topic
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.partitions import TopicPartition


class StartOffset(NamedTuple):
    offset: int
    #: records that are not done with; -1 where the broker does not tell
    lag: int


class ShareGroups:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def offsets(self, group_id: str) -> dict[TopicPartition, StartOffset]:
        """A partition of which the group has read nothing yet is left out."""
        request = messages.DescribeShareGroupOffsetsRequest
        wanted = request.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)

        def attempt() -> dict[TopicPartition, StartOffset]:
            connection = self._cluster.coordinator(group_id)
            answer = connection.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request(groups=[wanted]))
            group = answer.groups[0]
            check(group.error_code, f"the start offsets of group {group_id}", group.error_message)
            found = {}
            for topic in group.topics:
                for p in topic.partitions:
                    what = f"the start offset of group {group_id} in {topic.topic_name}-{p.partition_index}"
                    check(p.error_code, what, p.error_message)
                    if p.start_offset >= 0:
                        found[TopicPartition(topic.topic_name, p.partition_index)] = StartOffset(p.start_offset, p.lag)
            return dict(sorted(found.items()))

        return self._cluster.retrying(attempt)

    def move(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        request = messages.AlterShareGroupOffsetsRequest
        partition_of = request.AlterShareGroupOffsetsRequestPartition
        topics = [
            request.AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    partition_of(partition_index=p, start_offset=offsets[TopicPartition(topic, p)]) for p in partitions
                ],
            )
            for topic, partitions in by_topic(offsets).items()
        ]

        def attempt() -> None:
            connection = self._cluster.coordinator(group_id)
            answer = connection.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, request(group_id=group_id, topics=topics))
            check(answer.error_code, f"moving group {group_id}", answer.error_message)
            for topic in answer.responses:
                for p in topic.partitions:
                    what = f"moving group {group_id} in {topic.topic_name}-{p.partition_index}"
                    check(p.error_code, what, p.error_message)

        self._cluster.retrying(attempt)

    def forget(self, group_id: str, topics: Iterable[str]) -> None:
        """Forgets where the group stands in whole topics."""
        request = messages.DeleteShareGroupOffsetsRequest
        wanted = [request.DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]

        def attempt() -> None:
            connection = self._cluster.coordinator(group_id)
            answer = connection.call(ApiKey.DELETE_SHARE_GROUP_OFFSETS, request(group_id=group_id, topics=wanted))
            check(answer.error_code, f"deleting offsets of group {group_id}", answer.error_message)
            for topic in answer.responses:
                what = f"deleting the offsets of group {group_id} in {topic.topic_name}"
                check(topic.error_code, what, topic.error_message)

        self._cluster.retrying(attempt)
