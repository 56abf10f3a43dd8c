"""Partitions on disks in memory, for the tests of the replica room."""

from __future__ import annotations

from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.memory_disk import MemoryDisk
from tidelog.replica.partition import Partition
from tidelog.replica.replicas import Replicas
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import build_batch, iter_records

ID = bytes(range(16))
#: long enough that nobody lags by accident
LAG_MS = 1000


def replica(broker: int, config: LogConfig | None = None) -> Partition:
    """A replica of t-0 on a broker of its own."""
    dirs = LogDirs(["/a"], MemoryDisk(), lambda topic: config or LogConfig())
    dirs.open(broker, "cluster", 0)
    return Replicas(broker).place(ID, dirs.create(TopicPartition("t", 0), 0, ID), 0)


def leader(
    isr: tuple[int, ...] = (1, 2, 3), replicas: tuple[int, ...] = (1, 2, 3), min_insync: int = 1, now_ms: int = 0
) -> Partition:
    """Broker 1 leads, in leader epoch 5 and partition epoch 7."""
    partition = replica(1, LogConfig(min_insync_replicas=min_insync))
    partition.lead(5, 7, replicas, isr, now_ms)
    return partition


def follower(broker: int = 2, leader_epoch: int = 5) -> Partition:
    partition = replica(broker)
    partition.resign(1, leader_epoch, 7, (1, 2, 3), (1, 2, 3))
    return partition


def append(partition: Partition, records: int = 1, acks: int = 1, value: bytes = b"value") -> int:
    """Appends as a leader; where the log ends now."""
    partition.append(memoryview(build_batch([(0, None, value, None)] * records)), acks, 0)
    return partition.log.log_end_offset


def copy(source: Partition, target: Partition) -> None:
    """Has a follower append what it lacks of its leader, whose log it is the beginning of."""
    while target.log.log_end_offset < source.log.log_end_offset:
        piece = source.log.read(target.log.log_end_offset, 1 << 20, source.log.log_end_offset)
        assert piece is not None
        target.append_as_follower(memoryview(bytearray(piece.read())), 0)
    target.follow_watermarks(source.high_watermark, source.log.log_start_offset)


def content(partition: Partition, end_offset: int | None = None) -> bytes:
    """The bytes of a log up to an offset."""
    log = partition.log
    end = log.log_end_offset if end_offset is None else end_offset
    found, at = b"", log.log_start_offset
    while at < end and (piece := log.read(at, 1 << 20, end)) is not None:
        found += piece.read()
        at = piece.next_offset
    return found


def values(partition: Partition) -> list[bytes | None]:
    return [record.value for record in iter_records(content(partition))]
