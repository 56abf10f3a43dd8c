"""Converting a log directory from one layout to the other: nothing is lost and nothing doubled, whatever happens."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from compaction_kit import FragileDisk, PowerLoss
from logkit import NOW_MS, append, produced

from tidelog.log.append import AppendInfo
from tidelog.log.checkpoints import META_PROPERTIES
from tidelog.log.config import LogConfig
from tidelog.log.conversion.converter import ConversionOutcome, convert, preview
from tidelog.log.conversion.planning import CannotConvert, ConversionPlan
from tidelog.log.directories.layout import LAYOUTS, PARTITIONED, SHARED, layout_of, other_than
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.errors import LogDirInUse, StorageError
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.producers import NOT_REQUIRED, AppendOrigin
from tidelog.log.shared import COMMIT_DIRECTORY
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import ABORT, COMMIT, EndTxnMarker, build_batch, build_end_txn_marker

CONFIG = LogConfig(segment_bytes=700, max_message_bytes=700, index_interval_bytes=100)
COMPACTED = replace(CONFIG, cleanup_policy=("compact",))
COMMIT_BYTES = 1500
TOPICS = ("compacted", "__consumer_offsets", "orders", "payments")


def config_for(topic: str) -> LogConfig:
    return COMPACTED if topic == "compacted" else CONFIG


def is_kept(topic: str) -> bool:
    return topic == "compacted"


def opened(disk: MemoryDisk, layout: str) -> LogDirs:
    commit_bytes = COMMIT_BYTES if layout == SHARED else None
    dirs = LogDirs(["/data"], disk, config_for, lambda: bytes(15) + b"\1", commit_bytes)
    dirs.open(node_id=1, cluster_id="c", now_ms=NOW_MS)
    return dirs


def converted(disk: MemoryDisk, to: str) -> ConversionOutcome:
    return convert(disk, "/data", to, is_kept, COMMIT_BYTES, NOW_MS, lambda what, done, total: None)


def in_transaction(log: Log, producer_id: int, sequence: int) -> AppendInfo:
    batch = build_batch(
        [(2000, None, b"in", None)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    return log.append_as_leader(memoryview(batch), log.leader_epochs.latest, NOW_MS, guard=NOT_REQUIRED)


def transact(log: Log, producer_id: int, sequence: int, outcome: int | None) -> None:
    in_transaction(log, producer_id, sequence)
    if outcome is not None:
        marker = build_end_txn_marker(EndTxnMarker(outcome, 0), producer_id, 0, 2000)
        log.append_as_leader(memoryview(marker), log.leader_epochs.latest, NOW_MS, origin=AppendOrigin.COORDINATOR)


def written(disk: MemoryDisk, layout: str) -> LogDirs:
    """Partitions with everything in them that a conversion must keep; not stopped yet."""
    dirs = opened(disk, layout)
    for topic in TOPICS:
        for partition in range(2):
            log = dirs.create(TopicPartition(topic, partition), NOW_MS, topic.encode()[:16].ljust(16, b"."))
            log.begin_leader_epoch(0)
            for number in range(8 if partition else 25):
                batch = produced(1 + number % 3, 1000 + number, b"%s %d" % (topic.encode(), number), key=b"key")
                log.append_as_leader(batch, log.leader_epochs.latest, NOW_MS)
                if number == 10:
                    log.begin_leader_epoch(3)
            if topic == "orders":
                transact(log, 7, 0, COMMIT)
                transact(log, 8, 0, ABORT)
                transact(log, 7, 1, None)
    dirs.create(TopicPartition("empty", 0), NOW_MS, b"e" * 16)
    dirs.logs[TopicPartition("payments", 0)].advance_log_start_offset(20)
    dirs.checkpoint({key: log.log_end_offset - 1 for key, log in dirs.logs.items()})
    return dirs


def stopped(disk: MemoryDisk, layout: str) -> None:
    written(disk, layout).close(broker_epoch=42)


def state(dirs: LogDirs) -> dict[TopicPartition, tuple[object, ...]]:
    """All that readers, writers and followers of the logs can see."""
    return {key: tuple(seen(log)) for key, log in dirs.logs.items()}


def seen(log: Log) -> Iterator[object]:
    yield log.log_start_offset, log.log_end_offset, log.topic_id, log.notes
    yield [(segment.base_offset, segment.read(0, segment.size)) for segment in log.segments]
    yield [segment.txn_index.entries() for segment in log.segments]
    yield [(segment.largest.timestamp, segment.begins_ms()) for segment in log.segments]
    yield log.leader_epochs.format()
    yield log.producers.snapshot()
    yield [log.offset_for_timestamp(timestamp) for timestamp in range(995, 1030)]
    found = []
    at = log.log_start_offset
    while (piece := log.read(at, 200, log.log_end_offset)) is not None:
        found.append(piece.read())
        at = piece.next_offset
    yield b"".join(found)


def reopened(disk: MemoryDisk, layout: str) -> dict[TopicPartition, tuple[object, ...]]:
    """The state of what is there, which is then stopped again."""
    dirs = opened(disk, layout)
    assert dirs.take_notices() == []
    found = state(dirs)
    dirs.close(broker_epoch=dirs.clean_broker_epoch)
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_start_with_the_other_layout_is_refused_with_the_command_that_converts(layout: str) -> None:
    disk = MemoryDisk()
    stopped(disk, layout)
    with pytest.raises(StorageError, match=f"tidelog storage convert --to {other_than(layout)} /data"):
        opened(disk, other_than(layout))
    opened(disk, layout)


def test_a_new_directory_takes_either_layout_and_remembers_it() -> None:
    for layout in LAYOUTS:
        disk = MemoryDisk()
        opened(disk, layout).close()
        assert layout_of(disk, "/data") == layout
        assert disk.exists(f"/data/{META_PROPERTIES}")
        disk.crash(Random(1))
        with pytest.raises(StorageError, match=f"is in the {layout} layout"):
            opened(disk, other_than(layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_logs_are_there_in_the_other_layout_and_back(layout: str) -> None:
    disk = MemoryDisk()
    stopped(disk, layout)
    expected = reopened(disk, layout)
    done = converted(disk, other_than(layout))
    # Those of orders and payments, and the empty one.
    assert (done.done, done.partitions) == ("converted", 5)
    assert layout_of(disk, "/data") == other_than(layout)
    assert reopened(disk, other_than(layout)) == expected
    assert converted(disk, layout).partitions == 5
    assert reopened(disk, layout) == expected
    assert converted(disk, layout).done == "unchanged"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_file_of_the_old_layout_is_left_and_a_clean_stop_stays_one(layout: str) -> None:
    disk = MemoryDisk()
    stopped(disk, layout)
    converted(disk, other_than(layout))
    topics = {path.split("/")[2].rpartition("-")[0] for path in disk.paths(".log")}
    queued = {path.split("/")[2].rpartition("-")[0] for path in disk.paths(".queue")}
    files_of_their_own = {"compacted", "__consumer_offsets"}
    if layout == PARTITIONED:
        assert topics == files_of_their_own and queued == {"orders", "payments", "empty"}
    else:
        assert topics == {*files_of_their_own, "orders", "payments", "empty"} and not queued
        assert not disk.exists(f"/data/{COMMIT_DIRECTORY}")
    assert not [path for path in disk.paths("") if "convers" in path or "converting" in path]
    dirs = opened(disk, other_than(layout))
    assert dirs.clean_broker_epoch == 42
    key = TopicPartition("orders", 1)
    assert dirs.high_watermarks[key] == dirs.logs[key].log_end_offset - 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_logs_go_on_where_they_ended(layout: str) -> None:
    disk = MemoryDisk()
    stopped(disk, layout)
    converted(disk, other_than(layout))
    dirs = opened(disk, other_than(layout))
    log = dirs.logs[TopicPartition("orders", 0)]
    end = log.log_end_offset
    append(log, value=b"after")
    assert in_transaction(log, 7, 1).duplicate
    assert log.log_end_offset == end + 1
    log.flush()
    expected = state(dirs)
    disk.crash(Random(3))
    assert state(opened(disk, other_than(layout))) == expected


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_directory_is_recovered_first_where_its_broker_was_killed(layout: str) -> None:
    disk = MemoryDisk()
    written(disk, layout)
    disk.outlive()
    recovered = MemoryDisk()
    written(recovered, layout)
    recovered.outlive()
    assert converted(disk, other_than(layout)).done == "converted"
    assert state(opened(disk, other_than(layout))) == state(opened(recovered, layout))


def test_a_directory_in_use_is_not_converted() -> None:
    disk = MemoryDisk()
    written(disk, PARTITIONED)
    with pytest.raises(LogDirInUse, match="in use"):
        converted(disk, SHARED)


def test_a_damaged_batch_is_not_converted_and_nothing_is_changed() -> None:
    disk = MemoryDisk()
    stopped(disk, PARTITIONED)
    path = disk.paths("orders-0/00000000000000000000.log")[0]
    disk.flip(path, 90, 3)
    with pytest.raises(CannotConvert, match=r"orders-0/.*log is damaged at byte 79 \(offset 1\)"):
        converted(disk, SHARED)
    with pytest.raises(StorageError, match="undo it with `tidelog storage convert --to partitioned /data`"):
        opened(disk, PARTITIONED)
    assert converted(disk, PARTITIONED).done == "undone"
    disk.flip(path, 90, 3)
    assert converted(disk, SHARED).done == "converted"


def test_too_little_space_is_told_before_anything_is_written() -> None:
    disk = MemoryDisk()
    stopped(disk, PARTITIONED)
    before = disk.paths("")
    disk.fail_writes_after(2000)
    with pytest.raises(CannotConvert, match="free some space"):
        converted(disk, SHARED)
    assert disk.paths("") == before


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("room_bytes", range(0, 6000, 400))
def test_want_of_space_is_told_where_a_broker_was_killed_on_a_full_disk(layout: str, room_bytes: int) -> None:
    disk = MemoryDisk()
    dirs = written(disk, layout)
    for directory in dirs.dirs:
        if directory.commit is not None:
            directory.commit.reserve.give()
    disk.outlive()
    disk.room_bytes = room_bytes
    with pytest.raises(CannotConvert, match=r"[Nn]o space left|free some space"):
        converted(disk, other_than(layout))
    disk.room_bytes = None
    disk.outlive()
    assert converted(disk, other_than(layout)).done == "converted"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_disk_that_becomes_full_costs_nothing(layout: str) -> None:
    disk = MemoryDisk()
    stopped(disk, layout)
    expected = reopened(disk, layout)
    plan = preview(disk, "/data", other_than(layout), is_kept)
    assert isinstance(plan, ConversionPlan) and plan.fits
    disk.fail("write", errno.ENOSPC, after=10)
    with pytest.raises(CannotConvert, match="free some and run"):
        converted(disk, other_than(layout))
    assert converted(disk, other_than(layout)).done == "resumed"
    assert reopened(disk, other_than(layout)) == expected


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("stride", [23, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
def test_a_crash_before_any_operation_loses_nothing_and_the_conversion_goes_on(
    layout: str, power: bool, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.log.conversion.building._GROUP", 2)
    to = other_than(layout)
    disk = FragileDisk()
    stopped(disk, layout)
    expected = reopened(disk, layout)
    done, operations = "", 0
    while done != "converted":
        disk = FragileDisk()
        stopped(disk, layout)
        disk.operations_left = operations
        try:
            done = converted(disk, to).done
        except PowerLoss:
            pass
        disk.operations_left = None
        if power:
            disk.crash(Random(operations))
        disk.outlive()
        if operations % 5 == 0 and done != "converted":
            _goes_back(disk, layout, expected)
        assert converted(disk, to).done in ("converted", "resumed", "finished", "unchanged")
        assert reopened(disk, to) == expected
        operations += stride
    assert operations > 300


def _goes_back(disk: MemoryDisk, layout: str, expected: object) -> None:
    """What was begun is taken back, or ended and converted back: the old layout is there again."""
    assert converted(disk, layout).done in ("undone", "unchanged", "converted")
    assert reopened(disk, layout) == expected
