"""The partitions that this broker has a replica of, and what the controller last said of each."""

from __future__ import annotations

from typing import Protocol

from tidelog.log.log import Log
from tidelog.replica.partition import Partition
from tidelog.wire.partitions import TopicPartition


class Assignment(Protocol):
    """What the controller says of a partition, as far as a replica follows it."""

    @property
    def leader(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def partition_epoch(self) -> int: ...

    @property
    def replicas(self) -> tuple[int, ...]: ...

    @property
    def isr(self) -> tuple[int, ...]: ...


class Replicas:
    __slots__ = ("local_id", "partitions")

    def __init__(self, local_id: int) -> None:
        self.local_id = local_id
        #: the hot paths look here, with plain tuples
        self.partitions: dict[tuple[str, int], Partition] = {}

    def place(self, topic_id: bytes, log: Log, high_watermark: int) -> Partition:
        """A partition with a log on this broker; `high_watermark` is what was last checkpointed for it."""
        partition = Partition(log.topic, topic_id, log.partition, log, self.local_id)
        partition.set_high_watermark(max(log.log_start_offset, min(high_watermark, log.log_end_offset)))
        self.partitions[partition.key] = partition
        return partition

    def follow_assignment(self, partition: Partition, assigned: Assignment, now_ms: int) -> None:
        """The controller's word on who leads; one that is older than what is known changes nothing."""
        if assigned.leader == self.local_id:
            partition.lead(assigned.leader_epoch, assigned.partition_epoch, assigned.replicas, assigned.isr, now_ms)
        else:
            partition.resign(
                assigned.leader, assigned.leader_epoch, assigned.partition_epoch, assigned.replicas, assigned.isr
            )

    def remove(self, topic: str, index: int) -> Partition | None:
        return self.partitions.pop((topic, index), None)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {partition.key: partition.high_watermark for partition in self.partitions.values()}
