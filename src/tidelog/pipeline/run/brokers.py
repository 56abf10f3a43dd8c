"""What the brokers say: which partitions a pipeline reads, what they hold; and the group that shows how far it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, Self

from tidelog.client import Client
from tidelog.client.errors import NotFound
from tidelog.pipeline.offset_ranges import Ends
from tidelog.pipeline.options.source_options import is_meant_by_patterns
from tidelog.pipeline.spec import Source
from tidelog.wire.partitions import TopicPartition

CLIENT_ID: Final = "tidelog-pipeline"


class Brokers:
    def __init__(self, source: Source, timeout_s: float) -> None:
        self._source = source
        self._client = Client(source.bootstrap, CLIENT_ID, timeout_s)
        #: which topics those of `partitions` are, as far as brokers tell: one that is created again has another number
        self.topic_ids: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def partitions(self) -> list[TopicPartition]:
        """The partitions that there are now of the topics that the file names; NotFound where one does not exist."""
        if self._source.topic_pattern is None:
            topics = self._client.describe(self._source.topics).topics
        else:
            pattern = re.compile(self._source.topic_pattern)
            found = self._client.describe().topics
            topics = {name: t for name, t in found.items() if is_meant_by_patterns(t) and pattern.fullmatch(name)}
        # As much of an id as a version of Delta's can hold.
        self.topic_ids = {
            name: int.from_bytes(topic.topic_id[:8], "big") >> 1
            for name, topic in topics.items()
            if any(topic.topic_id)
        }
        return sorted(
            TopicPartition(topic.name, partition) for topic in topics.values() for partition in topic.partitions
        )

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Ends]:
        """What each partition holds, as far as the isolation lets one read."""
        found: dict[TopicPartition, Ends] = {}
        for topic, numbers in _by_topic(partitions).items():
            first = self._client.offsets(topic, numbers, "earliest")
            end = self._client.offsets(topic, numbers, "latest", self._source.isolation)
            for number in numbers:
                # A transaction that was open at the first question may have ended before the second.
                found[TopicPartition(topic, number)] = Ends(
                    first[number].offset, max(first[number].offset, end[number].offset)
                )
        return found

    def commit_group(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._client.groups.commit(group, offsets)

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """What the group has committed; nothing where there is no such group."""
        try:
            return {
                TopicPartition(*at): committed.offset for at, committed in self._client.groups.offsets(group).items()
            }
        except NotFound:
            return {}


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found
