"""The nouns of reading: a partition, what it holds, and a range of its offsets."""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.wire.partitions import TopicPartition

#: instead of an offset, in the pipeline file and in the options of Spark's connector
LATEST: Final = -1
EARLIEST: Final = -2


Offsets = dict[TopicPartition, int]


class Ends(NamedTuple):
    """What a partition holds: first <= offset < end."""

    first: int
    end: int


class OffsetRange(NamedTuple):
    """Part of one partition: start <= offset < until."""

    topic: str
    partition: int
    start: int
    until: int

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """How many offsets; none where the end lies before the start.

        It is at least the number of records: compaction and transaction markers leave offsets without any.
        """
        return max(self.until - self.start, 0)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.until})"
