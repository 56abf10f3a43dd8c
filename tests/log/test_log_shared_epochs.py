"""The shared layout: after a crash leader epochs begin where the batches say, whatever the file says."""

from __future__ import annotations

from random import Random

import pytest
from logkit import append
from shared_kit import checkpointed, created, killed, opened

from tidelog.log.config import LogConfig
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.shared.queue_segment import QueueSegment

LONG_SEGMENTS = LogConfig(segment_bytes=1 << 20)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def written(log: Log, *epochs: int) -> None:
    for epoch in epochs:
        append(log, leader_epoch=epoch)


@pytest.mark.parametrize("seed", range(10))
def test_a_checkpoint_does_not_leave_epochs_behind_that_were_truncated(disk: MemoryDisk, seed: int) -> None:
    dirs = opened(disk)
    log = created(dirs)
    written(log, 0, 0, 0, 0, 1, 1)
    log.flush()
    log.truncate_to(2)
    written(log, 1, 1, 1, 1)
    checkpointed(dirs)
    disk.crash(Random(seed))
    assert opened(disk).logs[log.key].leader_epochs.entries() == [(0, 0), (1, 2)]


@pytest.mark.parametrize("counts", [[1], [3, 1], [1, 1, 1], [40, 1, 70, 200], [100, 100]])
def test_epochs_are_found_without_reading_every_entry(disk: MemoryDisk, counts: list[int]) -> None:
    dirs = opened(disk)
    log = created(dirs)
    log.config = LONG_SEGMENTS
    begins = []
    for at, count in enumerate(counts):
        begins.append((2 * at, log.log_end_offset))
        for _ in range(count):
            append(log, 2, leader_epoch=2 * at)
    checkpointed(dirs)
    again = killed(disk).logs[log.key]
    segment = again.segments.active
    assert isinstance(segment, QueueSegment)
    assert [(queued.leader_epoch, queued.base_offset) for queued in segment.epochs()] == begins
    assert again.leader_epochs.entries() == begins
