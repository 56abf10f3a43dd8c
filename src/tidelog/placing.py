"""Partitions that are assigned to this broker and cannot be made on it: on a full disk, or in a directory that failed.

A topic whose creation ends so is taken back, and its creation refused. What cannot be taken back (partitions that were
added, or a store that is full as well) stays known and offline: its requests are answered with a storage error, and
what was refused for want of room, or because the directories are cordoned, is tried again until there is some.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.control.errors import ApiError
from tidelog.control.topics import NewTopic, TopicCreation, TopicRef
from tidelog.log.errors import LogDirCordoned, LogError, WriteRefused
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker import Broker
    from tidelog.control.model import Partition as Assignment
    from tidelog.control.model import Topic
    from tidelog.log.checkpoints import TopicPartition


class Placing:
    __slots__ = ("_broker", "_refused")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._refused: dict[TopicPartition, LogError] = {}

    def place(self, topic: Topic, assigned: Assignment) -> None:
        """Brings a partition into service, or remembers why that is not possible."""
        key = (topic.name, assigned.partition_index)
        known = key in self._refused
        try:
            self._broker.place(topic, assigned)
        except LogError as error:
            self._refused[key] = error
            if not known:
                self._tell(f"{topic.name}-{assigned.partition_index}", error)
        else:
            self._refused.pop(key, None)

    def _tell(self, name: str, error: LogError) -> None:
        if isinstance(error, LogDirCordoned):
            self._broker.notice(f"{name} cannot be made: {error}")
        elif not isinstance(error, WriteRefused):
            # A full disk is told of once, for all that it refuses.
            self._broker.report(f"{name} cannot be opened", error)

    def forget(self, key: TopicPartition) -> None:
        self._refused.pop(key, None)

    def try_again(self) -> None:
        """Looks whether there is room by now."""
        for key, error in list(self._refused.items()):
            assigned = self._broker.image.partition(*key)
            if assigned is not None and isinstance(error, WriteRefused | LogDirCordoned):
                self.place(self._broker.image.topics[key[0]], assigned)

    def why_refused(self, topic: str) -> ApiError | None:
        """What is answered where a partition of the topic could not be made; None where all are there."""
        for (name, index), error in self._refused.items():
            if name == topic:
                # What Apache Kafka answers where every directory of every broker is cordoned.
                is_cordoned = isinstance(error, LogDirCordoned)
                code = ErrorCode.INVALID_REPLICATION_FACTOR if is_cordoned else ErrorCode.KAFKA_STORAGE_ERROR
                return ApiError(code, f"Partition {index} could not be made: {error}")
        return None

    def create_topics(
        self, wanted: list[NewTopic], done: Callable[[list[TopicCreation]], None], validate_only: bool = False
    ) -> None:
        """Creates topics; one whose partitions cannot be made here is deleted again and refused."""

        def created(results: list[TopicCreation]) -> None:
            answers = [self._judge(result) for result in results]
            broken = [TopicRef(at.name) for at, result in zip(answers, results, strict=True) if at is not result]
            if broken:
                self._broker.decide(
                    lambda controller: controller.delete_topics(broken), lambda deletions: done(answers)
                )
            else:
                done(answers)

        self._broker.decide(lambda controller: controller.create_topics(wanted, validate_only=validate_only), created)

    def _judge(self, result: TopicCreation) -> TopicCreation:
        why = None if result.error.is_failure or not self._refused else self.why_refused(result.name)
        return result if why is None else TopicCreation(result.name, why)
