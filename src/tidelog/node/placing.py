"""Partitions that are assigned to this broker but cannot be created, on a full disk or in a failed directory.

If this happens while a topic is created, the topic is removed again and its creation is refused
(`tidelog.node.topic_creation`). What cannot be undone (added partitions, or a store that is full as well) stays known
and offline: its requests are answered with a storage error. Partitions that were refused for lack of space, or because
the directories are cordoned, are tried again.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.control.errors import ApiError
from tidelog.control.model import Partition as Assignment
from tidelog.control.model import Topic
from tidelog.log.errors import LogDirCordoned, LogError, WriteRefused
from tidelog.node.cluster_view import ClusterView
from tidelog.timer.host import Host
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition


class Placing:
    """`bring_up` brings a partition into service, or raises LogError."""

    __slots__ = ("_bring_up", "_cluster", "_cordon_told", "_host", "_refused")

    def __init__(self, cluster: ClusterView, bring_up: Callable[[Topic, Assignment], None], host: Host) -> None:
        self._cluster = cluster
        self._bring_up = bring_up
        self._host = host
        self._refused: dict[TopicPartition, LogError] = {}
        self._cordon_told = False

    def place(self, topic: Topic, assigned: Assignment) -> None:
        """Brings a partition into service, or remembers why that is not possible."""
        key = TopicPartition(topic.name, assigned.partition_index)
        known = key in self._refused
        try:
            self._bring_up(topic, assigned)
        except LogError as error:
            self._refused[key] = error
            if not known:
                self._tell(f"{topic.name}-{assigned.partition_index}", error)
        except AssertionError as error:
            # What is wrong with one partition stops none of the others that follow.
            self._host.report(f"{topic.name}-{assigned.partition_index} cannot be taken up", error)
        else:
            self._refused.pop(key, None)
            self._cordon_told = False

    def _tell(self, name: str, error: LogError) -> None:
        # A full disk is told of once, for all that it refuses; and so is a cordon, since anybody may ask for a topic.
        if isinstance(error, LogDirCordoned):
            if not self._cordon_told:
                self._cordon_told = True
                self._host.notice(f"{name} cannot be created, and neither can other logs: {error}")
        elif not isinstance(error, WriteRefused):
            self._host.report(f"{name} cannot be opened", error)

    def forget(self, key: TopicPartition) -> None:
        self._refused.pop(key, None)

    def try_again(self) -> None:
        """Looks whether there is room by now."""
        for key, error in list(self._refused.items()):
            assigned = self._cluster.image.partition(*key)
            if assigned is not None and isinstance(error, WriteRefused | LogDirCordoned):
                self.place(self._cluster.image.topics[key[0]], assigned)

    def why_refused(self, topic: str) -> ApiError | None:
        """What is answered where a partition of the topic could not be made; None where all are there."""
        for (name, index), error in self._refused.items():
            if name == topic:
                # What Apache Kafka answers where every directory of every broker is cordoned.
                is_cordoned = isinstance(error, LogDirCordoned)
                code = ErrorCode.INVALID_REPLICATION_FACTOR if is_cordoned else ErrorCode.KAFKA_STORAGE_ERROR
                return ApiError(code, f"Partition {index} could not be created: {error}")
        return None
