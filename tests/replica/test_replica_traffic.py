"""What is counted of partitions: shared by those of a topic, kept when they go."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.memory_disk import MemoryDisk
from tidelog.replica.partition import Partition
from tidelog.replica.replicas import Replicas
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import build_batch

HERE, OTHER = 1, 2
ID = bytes(range(16))


class Assigned(NamedTuple):
    isr: tuple[int, ...]
    partition_epoch: int
    leader: int = HERE
    leader_epoch: int = 5
    replicas: tuple[int, ...] = (HERE, OTHER)


class Site:
    def __init__(self) -> None:
        self.replicas = Replicas(HERE)
        self._dirs = LogDirs(["/a"], MemoryDisk(), lambda topic: LogConfig())
        self._dirs.open(HERE, "cluster", 0)

    def lead(self, topic: str, index: int = 0) -> Partition:
        partition = self.replicas.place(ID, self._dirs.create(TopicPartition(topic, index), 0, ID), 0)
        self.replicas.follow_assignment(partition, Assigned((HERE, OTHER), 0), 0)
        return partition


def append(partition: Partition, records: int) -> None:
    partition.append(memoryview(build_batch([(0, None, b"value", None)] * records)), 1, 0)


def test_a_partition_that_leaves_takes_nothing_from_its_topic() -> None:
    site = Site()
    for index in range(2):
        append(site.lead("t", index), 3)
    site.replicas.remove("t", 0)
    assert site.replicas.traffic["t"].messages_in == 6
    site.replicas.remove("t", 1)
    assert not site.replicas.traffic and site.replicas.past.messages_in == 6
