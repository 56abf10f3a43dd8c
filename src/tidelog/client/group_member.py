"""A member of a consumer group, for the protocol in which the broker assigns partitions (KIP-848).

    member.poll()      sends a heartbeat if one is due; returns whether the assignment has changed
    member.accept()    gives up revoked partitions and tells the broker
    member.commit(…)   commits the position under the member's epoch
    member.leave()     leaves the group, so that the others take over at once

Everything happens in the caller's thread: a member that does not poll for the group's session timeout is considered
dead. It then loses its partitions, and joins again at the next poll.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Final

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError, check
from tidelog.client.groups import Groups
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import uuid_to_base64
from tidelog.wire.partitions import TopicPartition

JOINING: Final = 0
LEAVING: Final = -1
REBALANCE_TIMEOUT_MS: Final = 60_000
#: the group went on without us
_FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})

Assignment = frozenset[TopicPartition]


class GroupMember:
    def __init__(self, cluster: Cluster, group_id: str, topics: list[str]) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._topics = topics
        self._member_id = uuid_to_base64(os.urandom(16))
        self._epoch = JOINING
        self._next_s = 0.0
        self._target: Assignment = frozenset()
        #: what this member reads
        self.assignment: Assignment = frozenset()

    @property
    def due_in_s(self) -> float:
        return max(0.0, self._next_s - time.monotonic())

    def poll(self) -> bool:
        """A heartbeat, if one is due; whether `accept` would change what is read."""
        if self.due_in_s == 0:
            joining = self._epoch == JOINING
            self._beat(owned=frozenset() if joining else None, introduce=joining)
        return self._target != self.assignment

    def accept(self) -> None:
        """Takes over what the broker assigned. What was read of the rest should be committed before."""
        self.assignment = self._target
        if self._epoch != JOINING:
            self._beat(owned=self.assignment)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        own = {where: offset for where, offset in offsets.items() if where in self.assignment}
        if own and self._epoch == JOINING:
            raise ClientError(f"group {self._group_id} has removed this member, which sent no heartbeat for too long")
        if own:
            Groups(self._cluster).commit(self._group_id, own, self._member_id, self._epoch)

    def leave(self) -> None:
        if self._epoch != JOINING:
            self._epoch = LEAVING
            self._beat(owned=None)

    def _beat(self, owned: Assignment | None, introduce: bool = False) -> None:
        request = messages.ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=self._epoch
        )
        if introduce:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = self._topics
        if owned is not None:
            request.topic_partitions = self._by_id(owned)

        def attempt() -> messages.ConsumerGroupHeartbeatResponse:
            connection = self._cluster.coordinator(self._group_id)
            if ApiKey.CONSUMER_GROUP_HEARTBEAT not in connection.versions:
                raise ClientError(
                    f"{connection.address} does not support the consumer group protocol (KIP-848)",
                    hint="Apache Kafka supports it since 4.0; read without a group, or with another client",
                )
            answer = connection.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
            if answer.error_code not in _FENCED:
                check(answer.error_code, f"group {self._group_id}", answer.error_message)
            return answer

        answer = self._cluster.retrying(attempt)
        if answer.error_code:
            self._epoch, self._target, self._next_s = JOINING, frozenset(), 0.0
            return
        self._epoch = answer.member_epoch
        self._next_s = time.monotonic() + answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            self._target = self._by_name(answer.assignment.topic_partitions)

    def _by_id(self, owned: Assignment) -> list[messages.ConsumerGroupHeartbeatRequest.TopicPartitions]:
        partitions: dict[bytes, list[int]] = {}
        for topic, partition in sorted(owned):
            partitions.setdefault(self._cluster.known_topic(topic).topic_id, []).append(partition)
        shape = messages.ConsumerGroupHeartbeatRequest.TopicPartitions
        return [shape(topic_id=topic_id, partitions=indexes) for topic_id, indexes in partitions.items()]

    def _by_name(self, assigned: list[messages.ConsumerGroupHeartbeatResponse.TopicPartitions]) -> Assignment:
        names = {self._cluster.known_topic(topic).topic_id: topic for topic in self._topics}
        return frozenset(
            TopicPartition(names[entry.topic_id], partition)
            for entry in assigned
            # A topic that was created again since is known under its new id only.
            if entry.topic_id in names
            for partition in entry.partitions
        )
