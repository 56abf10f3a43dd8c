"""Compacted logs for tests: what was written to one, what must be left of it, and disks that lose power on the way."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from logkit import KEY, NOW_MS

import tidelog.log
from tidelog.log.compaction.cleaner import Cleaner
from tidelog.log.compaction.compaction_round import CleanerConfig, CleanerStats
from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.disk import Disk
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.producers import NOT_REQUIRED, AppendOrigin
from tidelog.wire.batch import BatchHeader, iter_headers
from tidelog.wire.records import ABORT, COMMIT, EndTxnMarker, build_batch, build_end_txn_marker, read_records

COMPACT = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=1200,
    segment_index_bytes=240,
    index_interval_bytes=150,
    max_message_bytes=1200,
    min_cleanable_dirty_ratio=0.0001,
    delete_retention_ms=1000,
)
HOUR_MS = 3_600_000
KERNEL = Path(tidelog.log.__file__).parent / "kernel.py"


def _faces() -> tuple[tuple[str, ...], Callable[[Path, str], ModuleType]]:
    path = Path(__file__).parents[1] / "wire" / "wire_kernels.py"
    spec = importlib.util.spec_from_file_location("wire_kernels_of_log", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FACES, module.kernel_face


FACES, kernel_face = _faces()


class StoppedClock:
    def wall_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 0


class PowerLoss(BaseException):
    """Not an Exception: nothing may take it for an error that it can handle."""


class FragileDisk(MemoryDisk):
    """Loses power before one of its next operations."""

    __slots__ = ("operations_left",)

    def __init__(self) -> None:
        super().__init__()
        self.operations_left: int | None = None

    def count(self, operation: str, path: str) -> None:
        if self.operations_left is not None:
            self.operations_left -= 1
            if self.operations_left < 0:
                raise PowerLoss(f"{operation} {path}")
        super().count(operation, path)


def open_dirs(disk: Disk, config: LogConfig = COMPACT) -> LogDirs:
    dirs = LogDirs(["/data"], disk, lambda topic: config, lambda: bytes(15) + b"\1")
    dirs.open(node_id=1, cluster_id="c", now_ms=NOW_MS)
    return dirs


def new_cleaner(dirs: LogDirs, config: CleanerConfig | None = None, stable_offset: int | None = None) -> Cleaner:
    def stable(key: tuple[str, int]) -> int:
        log = dirs.logs[key]
        unstable = log.first_unstable_offset
        end = log.log_end_offset if stable_offset is None else stable_offset
        return end if unstable is None else min(unstable, end)

    return Cleaner(dirs, stable, StoppedClock(), config)


def run(cleaner: Cleaner, now_ms: int = NOW_MS) -> list[CleanerStats]:
    """All that the cleaner finds to do."""
    rounds = []
    while (work := cleaner.next_work(now_ms)) is not None:
        error: BaseException | None = None
        try:
            work()
        except Exception as raised:
            error = raised
        stats = cleaner.done(work, error)
        if stats is not None:
            rounds.append(stats)
    return rounds


class Compacted:
    """A compacted log in memory with a cleaner."""

    def __init__(self, config: LogConfig = COMPACT, disk: Disk | None = None, **cleaner: int | float) -> None:
        self.disk = disk or MemoryDisk()
        self.config = config
        self.cleaner_config = CleanerConfig(**cleaner)  # type: ignore[arg-type]
        self.dirs = open_dirs(self.disk, config)
        self.log: Log = self.dirs.create(KEY, NOW_MS, bytes(range(16)))
        self.cleaner = new_cleaner(self.dirs, self.cleaner_config)

    @classmethod
    def over(cls, dirs: LogDirs, **cleaner: int | float) -> Compacted:
        """A log that exists already."""
        compacted = cls.__new__(cls)
        compacted.disk = dirs.disk
        compacted.config = dirs.logs[KEY].config
        compacted.cleaner_config = CleanerConfig(**cleaner)  # type: ignore[arg-type]
        compacted.adopt(dirs)
        return compacted

    def reopen(self) -> None:
        """As after a clean stop."""
        self.dirs.close()
        self.adopt(open_dirs(self.disk, self.config))

    def reopen_after_crash(self) -> None:
        """As after the process was killed, or ended without a word."""
        self.log.abandon()
        if isinstance(self.disk, MemoryDisk):
            self.disk.locked.clear()
        self.adopt(open_dirs(self.disk, self.config))

    def adopt(self, dirs: LogDirs) -> None:
        self.dirs = dirs
        self.log = dirs.logs[KEY]
        self.cleaner = new_cleaner(dirs, self.cleaner_config)

    def append(
        self,
        *records: tuple[bytes | None, bytes | None],
        timestamp: int = 1000,
        codec: int = 0,
        producer: tuple[int, int, int] | None = None,
        transactional: bool = False,
    ) -> int:
        """One batch; returns its base offset. `producer` is id, epoch and first sequence number."""
        pid, epoch, sequence = producer or (-1, -1, -1)
        batch = build_batch(
            [(timestamp + i, key, value, [("h", b"x")] if i % 2 else None) for i, (key, value) in enumerate(records)],
            codec=codec,
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        if any(key is None for key, _ in records):
            # Only a topic that was not compacted at the time can have such records.
            self.log.config = replace(self.config, cleanup_policy=("delete",))
        info = self.log.append_as_leader(memoryview(batch), 0, NOW_MS, guard=NOT_REQUIRED)
        self.log.config = self.config
        return info.first_offset

    def mark(self, pid: int, epoch: int, commit: bool, timestamp: int = 1000) -> int:
        """The marker that ends a transaction."""
        marker = EndTxnMarker(COMMIT if commit else ABORT, 0)
        batch = build_end_txn_marker(marker, pid, epoch, timestamp)
        info = self.log.append_as_leader(memoryview(batch), 0, NOW_MS, origin=AppendOrigin.COORDINATOR)
        self.log.producers.on_high_watermark(self.log.log_end_offset)
        return info.first_offset

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def compact(self, now_ms: int = NOW_MS, roll: bool = True) -> list[CleanerStats]:
        """Rolls, so that all of the log may be compacted, and has it compacted until nothing is due."""
        if roll:
            self.roll()
        return run(self.cleaner, now_ms)

    def batches(self) -> list[StoredBatch]:
        return stored_batches(self.log)

    def records(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """(offset, key, value) of all records but those of control batches."""
        return [
            (offset, key, value)
            for batch in self.batches()
            if not batch.header.is_control
            for offset, _, key, value in batch.records
        ]

    def table(self) -> dict[bytes, bytes]:
        """What somebody has who has read the log from its start, under read_committed."""
        return table_of(visible(self.log))


class StoredBatch(NamedTuple):
    header: BatchHeader
    data: bytes
    #: (offset, timestamp, key, value)
    records: list[tuple[int, int, bytes | None, bytes | None]]


def stored_batches(log: Log) -> list[StoredBatch]:
    """All batches of all segments, their CRCs checked."""
    found = []
    for segment in log.segments:
        for _, header, data in segment.batches(0):
            records = [(r.offset, r.timestamp, r.key, r.value) for r in read_records(data)]
            found.append(StoredBatch(header, bytes(data), records))
    return found


def visible(log: Log) -> list[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) as a consumer under read_committed gets them, fetch by fetch."""
    found: list[tuple[int, bytes, bytes | None]] = []
    at = log.log_start_offset
    while at < log.log_end_offset:
        piece = log.read(at, 400, log.log_end_offset)
        if piece is None:
            break
        pending = sorted(log.aborted_transactions(at, piece.next_offset), key=lambda txn: txn.first_offset)
        aborted: set[int] = set()
        data = memoryview(piece.read())
        for position, header in iter_headers(data):
            while pending and pending[0].first_offset <= header.last_offset:
                aborted.add(pending.pop(0).producer_id)
            batch = data[position : position + header.size_bytes]
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                records = [record for record in read_records(batch) if record.offset >= at]
                found += [(record.offset, record.key or b"", record.value) for record in records]
        at = piece.next_offset
    return found


def table_of(records: Iterable[tuple[int, bytes, bytes | None]]) -> dict[bytes, bytes]:
    table: dict[bytes, bytes] = {}
    for _, key, value in records:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table
