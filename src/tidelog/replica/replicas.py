"""The partitions that this broker has a replica of, and what the controller last said of each."""

from __future__ import annotations

from typing import Protocol

from tidelog.log.log import Log
from tidelog.replica.partition import Partition
from tidelog.replica.traffic import Traffic
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
    __slots__ = ("local_id", "partitions", "past", "traffic")

    def __init__(self, local_id: int) -> None:
        self.local_id = local_id
        #: the hot paths look here, with plain tuples
        self.partitions: dict[tuple[str, int], Partition] = {}
        #: by topic; and of topics that are gone, or never were
        self.traffic: dict[str, Traffic] = {}
        self.past = Traffic()

    def place(self, topic_id: bytes, log: Log, high_watermark: int) -> Partition:
        """A partition with a log on this broker; `high_watermark` is what was last checkpointed for it."""
        traffic = self.traffic.setdefault(log.topic, Traffic())
        traffic.partitions += 1
        partition = Partition(log.topic, topic_id, log.partition, log, self.local_id, traffic)
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
        partition = self.partitions.pop((topic, index), None)
        if partition is not None:
            partition.traffic.partitions -= 1
            if not partition.traffic.partitions:
                self.past.add(self.traffic.pop(topic))
        return partition

    def traffic_of(self, topic: str) -> Traffic:
        """Where a request that names the topic is counted."""
        return self.traffic.get(topic, self.past)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {partition.key: partition.high_watermark for partition in self.partitions.values()}
