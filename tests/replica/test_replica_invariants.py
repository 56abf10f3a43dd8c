"""What must always hold is asserted at the door, before anything has changed."""

from __future__ import annotations

import pytest

from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.memory_disk import MemoryDisk
from tidelog.replica.partition import Partition
from tidelog.replica.replicas import Replicas
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import build_batch

HERE, OTHER, STRANGER = 1, 2, 3
ID = bytes(range(16))


def led(isr: tuple[int, ...] = (HERE,)) -> Partition:
    dirs = LogDirs(["/a"], MemoryDisk(), lambda topic: LogConfig())
    dirs.open(HERE, "cluster", 0)
    partition = Replicas(HERE).place(ID, dirs.create(TopicPartition("t", 0), 0, ID), 0)
    partition.lead(5, 7, (HERE, OTHER), isr, 0)
    return partition


def append(partition: Partition, records: int = 1) -> None:
    batch = build_batch([(0, None, b"value", None)] * records)
    partition.append(memoryview(batch), 1, 0)


def test_the_high_watermark_stays_between_the_start_and_the_end_of_the_log() -> None:
    partition = led()
    append(partition, 3)
    partition.delete_records(2)
    for offset in (1, 4):
        with pytest.raises(AssertionError):
            partition.set_high_watermark(offset)
    assert partition.high_watermark == 3


def test_the_high_watermark_of_a_leader_never_falls() -> None:
    partition = led()
    append(partition, 3)
    with pytest.raises(AssertionError):
        partition.set_high_watermark(2)
    partition.resign(OTHER, 6, 8, (HERE, OTHER), (OTHER,))
    partition.set_high_watermark(2)


def test_nothing_is_written_to_a_log_that_is_shorter_than_what_was_promised() -> None:
    partition = led()
    append(partition)
    partition.high_watermark = 2
    with pytest.raises(AssertionError):
        append(partition)
    assert partition.log.log_end_offset == 1


@pytest.mark.parametrize("isr", [(OTHER,), (HERE, STRANGER), ()])
def test_the_leader_is_in_sync_and_those_in_sync_are_replicas(isr: tuple[int, ...]) -> None:
    partition = led()
    with pytest.raises(AssertionError):
        partition.lead(6, 8, (HERE, OTHER), isr, 0)
    assert (partition.leader_epoch, partition.isr) == (5, (HERE,))


def test_the_partition_epoch_never_falls_within_a_leader_epoch() -> None:
    partition = led()
    partition.lead(5, 6, (HERE, OTHER), (HERE, OTHER), 0)
    partition.resign(OTHER, 5, 6, (HERE, OTHER), (OTHER,))
    assert (partition.leader_id, partition.partition_epoch, partition.isr) == (HERE, 7, (HERE,))


def test_appends_never_go_back_to_an_older_leader_epoch() -> None:
    log = led().log
    before = log.leader_epochs.entries()
    with pytest.raises(AssertionError):
        log.append_as_leader(memoryview(build_batch([(0, None, b"value", None)])), 4, 0)
    assert (log.log_end_offset, log.leader_epochs.entries()) == (0, before)
