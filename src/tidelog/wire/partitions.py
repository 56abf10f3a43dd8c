"""The name of a partition: its topic's, and its number."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """Equal to the plain tuple `(topic, partition)`, and hashed as it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
