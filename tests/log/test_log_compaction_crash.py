"""A crash before any one of the operations of a compaction, and what the next opening makes of it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from compaction_kit import COMPACT, NOW_MS, Compacted, FragileDisk, PowerLoss, open_dirs, run, visible
from logkit import fetched, produced

from tidelog.log.checkpoints import RECOVERY_POINTS
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.retention import delete_old_segments

CONFIG = replace(COMPACT, segment_bytes=700, index_interval_bytes=100)


def written(disk: MemoryDisk) -> Compacted:
    """Several groups of segments, with everything in them that a compaction treats on its own; all on the device."""
    it = Compacted(CONFIG, disk)
    for i in range(24):
        it.append((b"a%d" % (i % 5), b"%d" % i), (b"b%d" % i, b"%d" % i), timestamp=1000 + 10 * i, codec=i % 3)
        if i % 4 == 0:
            it.append((b"a%d" % (i % 5), None), timestamp=1000 + 10 * i)
        if i % 6 == 0:
            it.append((b"a1", b"bad"), producer=(11, 0, i // 6), transactional=True)
            it.mark(11, 0, commit=i % 12 == 0)
            it.roll()
    it.roll()
    it.log.flush()
    it.dirs.checkpoint()
    return it


def left(it: Compacted) -> tuple[object, ...]:
    log = it.log
    stored = {
        offset: (timestamp, key, value) for batch in it.batches() for offset, timestamp, key, value in batch.records
    }
    for offset in range(log.log_end_offset):
        piece = log.read(offset, 1, log.log_end_offset)
        assert piece is None or piece.next_offset > offset
    for timestamp in range(1000, 1300, 5):
        expected = next(((t, o) for o, (t, _, _) in sorted(stored.items()) if t >= timestamp), None)
        found = log.offset_for_timestamp(timestamp)
        assert (None if found is None else found[:2]) == expected
    newest = {key: (offset, value) for offset, key, value in visible(log)}
    return log.log_end_offset, {key: value for key, (_, value) in newest.items()}


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
def test_a_crash_before_any_operation_loses_nothing(power: bool) -> None:
    expected = left(written(FragileDisk()))
    operations = 0
    completed = False
    while not completed:
        disk = FragileDisk()
        it = written(disk)
        before = {offset: key for offset, key, _ in it.records()}
        disk.operations_left = operations
        try:
            run(it.cleaner, NOW_MS)
            completed = True
        except PowerLoss:
            pass
        disk.operations_left = None
        it.log.abandon()
        if power:
            disk.crash(Random(operations))
        disk.locked.clear()
        it.adopt(open_dirs(disk, CONFIG))
        names = [entry.name for entry in disk.list("/data/t-0")]
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        assert left(it) == expected
        assert {offset: key for offset, key, _ in it.records()}.items() <= before.items()
        # Another attempt ends what this one began.
        run(it.cleaner, NOW_MS)
        assert left(it) == expected
        assert it.log.cleaned_offset == it.log.segments.active.base_offset
        keys = [key for _, key, _ in it.records()]
        assert len(set(keys)) == len(keys)
        operations += 1
    assert operations > 100


def test_a_crash_before_any_operation_forgets_no_producer_whose_records_are_gone() -> None:
    """Only the snapshot at the start of the first segment still knows of it."""
    operations = 0
    completed = False
    while not completed:
        disk = FragileDisk()
        it = Compacted(CONFIG, disk)
        it.append((b"a", b"0"), producer=(7, 3, 0))
        it.roll()
        gone = it.log.log_end_offset
        for number in range(1, 4):
            it.append((b"a", b"%d" % number), producer=(8, 0, number - 1))
            it.roll()
        it.log.advance_log_start_offset(gone)
        delete_old_segments(it.log, NOW_MS, it.log.log_end_offset)
        it.log.flush()
        known = {p.producer_id: (p.epoch, p.last_sequence) for p in it.log.producers}
        assert set(known) == {7, 8}
        disk.operations_left = operations
        try:
            completed = bool(run(it.cleaner, NOW_MS))
        except PowerLoss:
            pass
        disk.operations_left = None
        it.log.abandon()
        disk.crash(Random(operations))
        it.adopt(open_dirs(disk, CONFIG))
        assert {p.producer_id: (p.epoch, p.last_sequence) for p in it.log.producers} == known
        operations += 1
    assert operations > 20


class Renames(MemoryDisk):
    __slots__ = ("renames",)

    def __init__(self) -> None:
        super().__init__()
        self.renames: list[tuple[str, str]] = []

    def rename(self, path: str, new_path: str) -> None:
        super().rename(path, new_path)
        self.renames.append((path.removeprefix("/data/t-0/"), new_path.removeprefix("/data/t-0/")))


def test_files_are_renamed_in_the_order_that_apache_kafka_can_go_on_from() -> None:
    disk = Renames()
    it = Compacted(replace(COMPACT, segment_bytes=2000), disk)
    it.append((b"a", b"1"))
    it.append((b"b", b"1"), producer=(11, 0, 0), transactional=True)
    it.mark(11, 0, commit=False)
    it.roll()
    it.append((b"a", b"2"))
    it.roll()
    disk.renames.clear()
    work = it.cleaner.next_work(NOW_MS)
    assert work is not None
    for _ in range(2):
        work()
        it.cleaner.done(work)
        work = it.cleaner.next_work(NOW_MS)
    new = [f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex")]
    old = [*new, *(f"{3:020d}{suffix}" for suffix in (".log", ".index", ".timeindex"))]
    assert disk.renames == [
        # Whoever finds a swap that was not finished must know that the log may have gaps.
        ("tidelog-partition.tmp", "tidelog-partition"),
        *((f"{name}.cleaned", f"{name}.swap") for name in new),
        *((name, f"{name}.deleted") for name in old),
        *((f"{name}.swap", name) for name in new),
    ]


def test_a_log_that_was_compacted_once_is_not_taken_for_a_dense_one() -> None:
    """It was compacted, is not any more, and everything must be read through: gaps are no damage."""
    disk = MemoryDisk()
    it = Compacted(replace(COMPACT, segment_bytes=300), disk)
    for i in range(20):
        it.append((b"%d" % (i % 6), b"x" * 20))
    it.compact()
    it.append((b"last", b"1"))
    it.log.flush()
    expected = it.records()
    disk.remove(f"/data/{RECOVERY_POINTS}")
    it.config = replace(it.config, cleanup_policy=("delete",))
    it.reopen_after_crash()
    assert it.records() == expected


def test_a_log_whose_policy_changed_in_the_middle_of_a_round_is_whole_after_a_crash() -> None:
    """A part of it has gaps by then, and no checkpoint says that it was ever compacted."""
    disk = MemoryDisk()
    it = Compacted(replace(COMPACT, segment_bytes=300), disk, io_buffer_size=1)
    for number in range(40):
        it.append((b"%d" % (number % 3), b"x" * 20))
    it.roll()
    for _ in range(2):
        work = it.cleaner.next_work(NOW_MS)
        assert work is not None
        work()
        it.cleaner.done(work)
    it.config = it.log.config = replace(it.config, cleanup_policy=("delete",))
    run(it.cleaner)
    expected = it.records()
    assert it.log.cleaned_offset is None and 3 < len(expected) < 40
    it.reopen_after_crash()
    assert it.records() == expected and it.log.log_end_offset == 40


def test_a_log_that_was_copied_from_a_compacted_one_is_not_taken_for_a_dense_one() -> None:
    it = Compacted(replace(COMPACT, cleanup_policy=("delete",)))
    for offset in (0, 5, 6, 30):
        it.log.append_as_follower(fetched(offset, 0, produced(1)), NOW_MS)
    it.log.flush()
    it.reopen_after_crash()
    assert [offset for offset, _, _ in it.records()] == [0, 5, 6, 30]


def test_the_names_of_a_swap_are_on_the_device_before_what_it_replaced_is_gone() -> None:
    disk = FragileDisk()
    it = written(disk)
    it.log.flush()
    disk.sync_dir(it.log.path)
    run(it.cleaner, NOW_MS)
    assert it.log.path in disk.unsynced_dirs and it.log in it.log.directory.flushes
    it.log.flush()
    assert it.log.path not in disk.unsynced_dirs
    deletions = it.dirs.take_deletions()
    disk.fail("sync_dir")
    deletions[0]()
    left = [entry.name for entry in disk.list(it.log.path) if entry.name.endswith(".deleted")]
    for deletion in deletions:
        deletion()
    assert left and not [entry.name for entry in disk.list(it.log.path) if entry.name in left]
