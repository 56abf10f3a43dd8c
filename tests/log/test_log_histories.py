"""Several logs in one directory against lists in memory, through crashes, lost power and queues that somebody removed.

After a crash of the process a log is what it was. After a loss of power it is the beginning of what it was at some
moment, with everything in it that was flushed and not truncated since. Where queues were removed besides, they are made
anew, and nothing comes back that had been truncated. In all cases its offsets are dense.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import NamedTuple

import pytest
from logkit import NOW_MS, fetched, stamped
from shared_kit import checkpointed, deleted, reclaimed

from seeds import seeds
from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.retention import delete_old_segments
from tidelog.log.shared import QUEUE
from tidelog.wire.batch import read_header
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import read_records

CONFIG = LogConfig(
    segment_bytes=1500, segment_index_bytes=120, max_message_bytes=1500, retention_ms=-1, retention_bytes=6000
)
STEPS = 50
RUNS = 20


class Batch(NamedTuple):
    base_offset: int
    last_offset: int
    leader_epoch: int
    value: bytes | None


class Truth:
    """What one log should hold."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        #: as it was before it was truncated, or before the power went
        self.versions: list[list[Batch]] = []
        self.epoch = 0


class History:
    """One run: everything that happens is drawn from the seed."""

    def __init__(self, seed: int, is_shared: bool = True, removes_queues: bool = False) -> None:
        self.random = random = Random(seed)
        self.disk = MemoryDisk()
        self.commit_bytes = random.choice([1500, 3000, 6000]) if is_shared else None
        self.written = 0
        self.dirs = self._open()
        self.logs: dict[TopicPartition, Log] = {}
        for partition in range(random.choice([1, 2, 3])):
            key = TopicPartition("t", partition)
            self.logs[key] = self.dirs.create(key, NOW_MS, bytes([partition + 1]) * 16)
            self.logs[key].flush()
        self.truths = {key: Truth() for key in self.logs}
        #: how often each of them happens
        self.steps: dict[Callable[[TopicPartition], None], float] = {
            self.append: 10,
            self.replicate: 4,
            self.truncate: 4,
            self.begin_anew: 0.4,
            self.delete_records: 0.7,
            self.retain: 1,
            self.roll: 1.5,
            self.flush: 2,
            self.checkpoint: 2.5,
            self.remove_files: 1,
            self.reclaim: 1.5,
            self.kill: 1.2,
            self.lose_power: 3,
            self.stop: 0.6,
        }
        if removes_queues:
            self.steps |= {self.kill_and_remove_queues: 1.2, self.stop_and_remove_queues: 0.8}

    def run(self) -> None:
        for _ in range(STEPS):
            (step,) = self.random.choices(list(self.steps), list(self.steps.values()))
            step(self.random.choice(list(self.logs)))
            for key in self.logs:
                self._look(key)

    def _open(self) -> LogDirs:
        dirs = LogDirs(["/data"], self.disk, lambda topic: CONFIG, lambda: bytes(15) + b"\1", self.commit_bytes)
        dirs.open(node_id=1, cluster_id="c", now_ms=NOW_MS)
        return dirs

    # --- writing

    def _next(self, key: TopicPartition, base_offset: int) -> tuple[Batch, memoryview]:
        random, truth = self.random, self.truths[key]
        truth.epoch += random.random() < 0.3
        self.written += 1
        value = b"%06d" % self.written + bytes(random.randint(0, 300))
        timestamps = [random.randint(0, 1000) for _ in range(random.randint(1, 4))]
        batch = Batch(base_offset, base_offset + len(timestamps) - 1, truth.epoch, value)
        return batch, stamped(timestamps, value)

    def append(self, key: TopicPartition) -> None:
        batch, sent = self._next(key, self.logs[key].log_end_offset)
        self.logs[key].append_as_leader(sent, batch.leader_epoch, NOW_MS)
        self.truths[key].batches.append(batch)

    def replicate(self, key: TopicPartition) -> None:
        sent, offset = bytearray(), self.logs[key].log_end_offset
        for _ in range(self.random.randint(1, 4)):
            batch, data = self._next(key, offset)
            sent += fetched(offset, batch.leader_epoch, data)
            self.truths[key].batches.append(batch)
            offset = batch.last_offset + 1
        self.logs[key].append_as_follower(memoryview(sent), NOW_MS)

    def truncate(self, key: TopicPartition) -> None:
        log, truth = self.logs[key], self.truths[key]
        if log.log_start_offset == log.log_end_offset:
            return
        truth.versions.append(truth.batches)
        log.truncate_to(self.random.randint(log.log_start_offset, log.log_end_offset), NOW_MS)
        # Where the batch goes with which the log begins, those before it go, too.
        kept = truth.batches if log.size_bytes else []
        truth.batches = [batch for batch in kept if batch.last_offset < log.log_end_offset]

    def begin_anew(self, key: TopicPartition) -> None:
        log, truth = self.logs[key], self.truths[key]
        truth.versions.append(truth.batches)
        truth.batches = []
        log.truncate_fully_and_start_at(log.log_end_offset + self.random.randint(0, 9), NOW_MS)

    def delete_records(self, key: TopicPartition) -> None:
        self.logs[key].advance_log_start_offset(self.random.randint(0, self.logs[key].log_end_offset))

    def retain(self, key: TopicPartition) -> None:
        delete_old_segments(self.logs[key], NOW_MS, self.logs[key].log_end_offset)

    def roll(self, key: TopicPartition) -> None:
        self.logs[key].roll(NOW_MS)

    # --- upkeep

    def flush(self, key: TopicPartition) -> None:
        self.logs[key].flush()

    def checkpoint(self, key: TopicPartition) -> None:
        self.dirs.checkpoint({key: log.log_end_offset for key, log in self.logs.items()})
        checkpointed(self.dirs)

    def remove_files(self, key: TopicPartition) -> None:
        deleted(self.dirs)

    def reclaim(self, key: TopicPartition) -> None:
        reclaimed(self.dirs)

    # --- ends

    def kill(self, key: TopicPartition) -> None:
        self._die()
        self.disk.outlive()
        self._start_as_before()

    def kill_and_remove_queues(self, key: TopicPartition) -> None:
        self.dirs.checkpoint({key: log.log_end_offset for key, log in self.logs.items()})
        self._die()
        self.disk.outlive()
        self._remove_queues()
        self._start_as_before()

    def stop(self, key: TopicPartition) -> None:
        self.dirs.close(broker_epoch=7)
        self._start_as_before()

    def stop_and_remove_queues(self, key: TopicPartition) -> None:
        self.dirs.close(broker_epoch=7)
        self._remove_queues()
        self._start_as_before()

    def _die(self) -> None:
        for log in self.logs.values():
            log.abandon()

    def _remove_queues(self) -> None:
        if any(self.disk.paths(f"{QUEUE}.deleted")):
            # Nobody could tell them from those that retention takes.
            return
        queues = self.disk.paths(QUEUE)
        for path in self.random.sample(queues, self.random.randint(1, len(queues))):
            self.disk.remove(path)

    def lose_power(self, key: TopicPartition) -> None:
        flushed = {key: log.recovery_point for key, log in self.logs.items()}
        starts = {key: log.log_start_offset for key, log in self.logs.items()}
        self._die()
        self.disk.crash(self.random)
        self.dirs = self._open()
        for key, truth in self.truths.items():
            log = self.logs[key] = self.dirs.logs[key]
            found = self._found(log)
            assert log.log_start_offset <= starts[key]
            # What retention had taken may be there again.
            begins = max([log.log_start_offset, *(batch.base_offset for batch in truth.batches[:1])])
            versions = [self._since(begins, each) for each in (truth.batches, *truth.versions)]
            stored = self._since(begins, found)
            assert any(stored == version[: len(stored)] for version in versions)
            lasting = [batch for batch in versions[0] if batch.last_offset < flushed[key]]
            assert stored[: len(lasting)] == lasting
            truth.versions = [truth.batches, *truth.versions]
            truth.batches = found

    def _start_as_before(self) -> None:
        starts = {key: log.log_start_offset for key, log in self.logs.items()}
        self.dirs = self._open()
        for key, truth in self.truths.items():
            log = self.logs[key] = self.dirs.logs[key]
            found = self._found(log)
            assert log.log_start_offset <= starts[key]
            assert self._since(starts[key], found) == self._since(starts[key], truth.batches)
            truth.batches = found

    # --- looking

    @staticmethod
    def _since(offset: int, batches: list[Batch]) -> list[Batch]:
        return [batch for batch in batches if batch.last_offset >= offset]

    def _found(self, log: Log) -> list[Batch]:
        """All that is stored, of which offsets must be dense, within segments and across them."""
        found = []
        for segment in log.segments:
            for _, header, data in segment.batches(0):
                value = next(iter(read_records(data))).value
                found.append(Batch(header.base_offset, header.last_offset, header.leader_epoch, value))
        assert all(later.base_offset == earlier.last_offset + 1 for earlier, later in pairwise(found))
        assert all(segment.next_offset() == after.base_offset for segment, after in pairwise(log.segments))
        assert log.segments.active.next_offset() == log.log_end_offset
        return found

    def _look(self, key: TopicPartition) -> None:
        log, truth = self.logs[key], self.truths[key]
        if truth.batches:
            assert log.log_end_offset == truth.batches[-1].last_offset + 1
        if log.log_start_offset == log.log_end_offset:
            return
        offset = self.random.randrange(log.log_start_offset, log.log_end_offset)
        piece = log.read(offset, 1, log.log_end_offset)
        assert piece is not None
        header = read_header(memoryview(piece.read()))
        (wanted,) = [batch for batch in truth.batches if batch.base_offset <= offset <= batch.last_offset]
        assert (header.base_offset, header.last_offset, header.leader_epoch) == wanted[:3]


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("seed", seeds((2936607347, 1800268793), fresh=4))
def test_logs_survive_crashes_and_lost_power(seed: int, is_shared: bool) -> None:
    for run in range(RUNS):
        History(seed + run, is_shared).run()


@pytest.mark.parametrize("seed", seeds((), fresh=4))
def test_queues_are_made_anew_as_they_were(seed: int) -> None:
    for run in range(RUNS):
        History(seed + run, removes_queues=True).run()
