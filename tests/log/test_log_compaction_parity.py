"""The same log, compacted here and by Apache Kafka's own cleaner, has the same batches left, round after round."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from bench.systems.java import JavaShell
from compaction_kit import KEY, Compacted, stored_batches

from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.disk import SystemDisk
from tidelog.log.log import Log
from tidelog.log.producers import NOT_REQUIRED, AppendOrigin
from tidelog.wire.records import ABORT, COMMIT, EndTxnMarker, build_batch, build_end_txn_marker

pytestmark = pytest.mark.java

SETTINGS = {"segment.bytes": 1 << 20, "index.interval.bytes": 300, "delete.retention.ms": 1000}
DAY_MS = 86_400_000
START_MS = 1_800_000_000_000


@pytest.fixture(scope="module")
def shell() -> Iterator[JavaShell]:
    shell = JavaShell()
    yield shell
    shell.close()


def open_dirs(path: Path) -> LogDirs:
    config = LogConfig(
        cleanup_policy=("compact",),
        index_interval_bytes=300,
        delete_retention_ms=1000,
        min_cleanable_dirty_ratio=0.0,
        segment_bytes=1 << 20,
    )
    dirs = LogDirs([str(path)], SystemDisk(), lambda topic: config)
    dirs.open(1, "c", START_MS)
    return dirs


class Writers:
    """Producers of all kinds, the same for both logs."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.open: set[int] = set()
        self.count = 0

    def step(self, logs: list[Log]) -> None:
        chance = self.random.random()
        if chance < 0.08:
            for log in logs:
                log.roll(START_MS)
        elif chance < 0.2 and self.open:
            pid = self.random.choice(sorted(self.open))
            self.open.discard(pid)
            self.end(logs, pid)
        else:
            self.write(logs)

    def end(self, logs: list[Log], pid: int) -> None:
        marker = EndTxnMarker(self.random.choice([ABORT, COMMIT]), 0)
        if self.random.random() < 0.4:
            # As a coordinator of transaction version 2 does: the marker opens the next epoch.
            self.epochs[pid] = self.epochs.get(pid, 0) + 1
            self.sequences[pid] = 0
        for log in logs:
            batch = build_end_txn_marker(marker, pid, self.epochs.get(pid, 0), START_MS + self.count)
            log.append_as_leader(memoryview(batch), 0, START_MS, origin=AppendOrigin.COORDINATOR)
            log.producers.on_high_watermark(log.log_end_offset)

    def write(self, logs: list[Log]) -> None:
        random = self.random
        pid = random.choice([-1, 1, 2, 11, 12, 13])
        self.count += 1
        records: Any = []
        for i in range(random.randint(1, 6)):
            value = None if random.random() < 0.2 else b"%d-%d" % (self.count, i)
            headers = [("h", b"x")] if random.random() < 0.2 else None
            records.append((START_MS + random.randint(0, 5000), b"key%d" % random.randrange(25), value, headers))
        sequence = self.sequences.get(pid, 0) if pid > 0 else -1
        if pid > 0:
            self.sequences[pid] = sequence + len(records)
        if pid > 10:
            self.open.add(pid)
        batch = build_batch(
            records,
            codec=random.choice([0, 0, 1, 2, 3, 4]),
            producer_id=pid,
            producer_epoch=self.epochs.get(pid, 0) if pid > 0 else -1,
            base_sequence=sequence,
            transactional=pid > 10,
        )
        for log in logs:
            log.append_as_leader(memoryview(bytearray(batch)), 0, START_MS, guard=NOT_REQUIRED)


def left_in(log: Log) -> list[tuple[Any, ...]]:
    """What a reader or a restart can tell of the log. The base timestamp is only how record times are written down."""
    found = []
    for batch in stored_batches(log):
        header = batch.header
        fields = header._replace(length=0, crc=0, base_timestamp=header.delete_horizon_ms or 0)
        found.append((fields, batch.records))
    return found


def kafka_compacts(shell: JavaShell, path: Path, first_dirty_offset: int, now_ms: int) -> int:
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    arguments = [str(path / "t-0"), str(first_dirty_offset), str(now_ms), *settings]
    result = shell.run("tidelog.judge.CompactLog", *arguments).check().json()
    return int(result["end_offset"])


@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_is_what_apache_kafka_leaves(seed: int, tmp_path: Path, shell: JavaShell) -> None:
    paths = [tmp_path / "ours", tmp_path / "kafka"]
    writers = Writers(seed)
    cleaned = 0
    for turn in range(4):
        dirs = [open_dirs(path) for path in paths]
        logs = [each.logs.get(KEY) or each.create(KEY, START_MS, bytes(range(16))) for each in dirs]
        for _ in range(60):
            writers.step(logs)
        for pid in sorted(writers.open):
            writers.end(logs, pid)
        writers.open.clear()
        for log in logs:
            log.roll(START_MS)
        now_ms = START_MS + turn * (DAY_MS if turn % 2 else 1)
        ours = Compacted.over(dirs[0])
        assert logs[0].cleaned_offset == (cleaned or None)
        stats = ours.compact(now_ms)
        dirs[1].close()
        end = kafka_compacts(shell, paths[1], cleaned, now_ms)
        reopened = open_dirs(paths[1])
        assert len(stats) == 1 and stats[0].messages_written < stats[0].messages_read
        assert logs[0].cleaned_offset == end
        assert left_in(logs[0]) == left_in(reopened.logs[KEY])
        assert [s.base_offset for s in logs[0].segments] == [s.base_offset for s in reopened.logs[KEY].segments]
        assert [s.txn_index.entries() for s in logs[0].segments] == [
            s.txn_index.entries() for s in reopened.logs[KEY].segments
        ]
        for each in (dirs[0], reopened):
            each.close()
        cleaned = end
