"""The shared layout: what damage to queues and to files of the commit log costs, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from logkit import NOW_MS, append, fetched, produced, values
from shared_kit import (
    COMMIT,
    CONFIG,
    checkpointed,
    commit_files,
    created,
    deleted,
    killed,
    long_and_short,
    opened,
    reclaimed,
)

from tidelog.log.config import LogConfig
from tidelog.log.conversion.converter import convert
from tidelog.log.conversion.planning import CannotConvert
from tidelog.log.directories.layout import PARTITIONED
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.errors import CorruptMessage, StorageError
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.retention import delete_old_segments
from tidelog.log.shared import COMMIT_DIRECTORY
from tidelog.log.shared.commit_entry import EntryKind
from tidelog.log.shared.queue import ENTRY_SIZE
from tidelog.log.shared.queue_segment import QueueSegment
from tidelog.node.checkup import damaged_batches
from tidelog.wire.batch import iter_headers

_PLACE_AT, _SIZE_AT = 8, 32


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def two_logs(dirs: LogDirs, count: int = 20) -> tuple[Log, Log]:
    """Whose batches lie among one another, and whose queues are written."""
    logs = created(dirs, 0), created(dirs, 1)
    for at in range(count):
        for log in logs:
            append(log, value=b"%d" % at)
    checkpointed(dirs)
    return logs


def queue_of(disk: MemoryDisk, log: Log, at: int = 0) -> bytearray:
    for segment in log.segments:
        assert isinstance(segment, QueueSegment)
        segment.queue.park()
    return disk.content(log.segments[at].log_path)


def read_offsets(log: Log, offset: int) -> list[int]:
    """As a consumer reads them, up to an error."""
    found: list[int] = []
    while offset < log.log_end_offset:
        try:
            piece = log.read(offset, 1 << 20, log.log_end_offset)
        except CorruptMessage:
            return found
        assert piece is not None
        found += [header.base_offset for _, header in iter_headers(piece.read())]
        offset = piece.next_offset
    return found


def test_no_file_goes_on_the_word_of_a_damaged_queue_entry(disk: MemoryDisk) -> None:
    dirs = opened(disk, 2000, LogConfig())
    log, other = two_logs(dirs)
    kept = commit_files(disk)
    queue_of(disk, log)[_PLACE_AT + 2] ^= 1
    other.truncate_fully_and_start_at(20, NOW_MS)
    for _ in range(3):
        checkpointed(dirs)
        reclaimed(dirs)
        deleted(dirs)
    assert set(kept) <= set(commit_files(disk))
    (notice,) = dirs.take_notices()
    assert "entry 1 of" in notice and "not made smaller" in notice


def test_no_segment_goes_on_the_word_of_a_damaged_queue_entry(disk: MemoryDisk) -> None:
    dirs = opened(disk, 1 << 20)
    log, _ = two_logs(dirs, 60)
    count, newest = len(log.segments), log.segments[0].largest_timestamp()
    disk.set_modified_ms(log.segments[0].log_path, newest)
    content = queue_of(disk, log)
    # The newest time of the first segment, as if it were long ago.
    content[len(content) - ENTRY_SIZE + 16 : len(content) - ENTRY_SIZE + 24] = (1).to_bytes(8, "big")
    log.config = replace(CONFIG, retention_ms=1000)
    assert count > 1 and delete_old_segments(log, newest + 500, log.log_end_offset) == 0


def test_an_impossible_queue_entry_is_damage_of_its_partition_and_of_no_other(disk: MemoryDisk) -> None:
    dirs = opened(disk, config=LogConfig())
    log, other = two_logs(dirs)
    queue_of(disk, log)[ENTRY_SIZE * 7 + _SIZE_AT] ^= 0x80
    assert read_offsets(log, 0) == [*range(7)]
    with pytest.raises(CorruptMessage, match="entry 8 of"):
        log.read(7, 1 << 20, 20)
    assert read_offsets(log, 8) == [*range(8, 20)]
    assert "partition 0 of topic t cannot be read there: entry 8 of" in "".join(dirs.take_notices())
    assert dirs.dirs[0].failure is None and len(values(other)) == 20
    append(log, value=b"more")
    assert log.log_end_offset == 21


@pytest.mark.parametrize("damage", ["zeroed", "swapped", "flipped"])
def test_no_batch_is_passed_over_because_its_queue_entry_is_damaged(disk: MemoryDisk, damage: str) -> None:
    dirs = opened(disk, config=LogConfig())
    log, _ = two_logs(dirs)
    for at in (0, 5, 10, 18):
        content = queue_of(disk, log)
        whole = bytes(content)
        first, second = at * ENTRY_SIZE, (at + 1) * ENTRY_SIZE
        if damage == "zeroed":
            content[first : second + ENTRY_SIZE] = bytes(2 * ENTRY_SIZE)
        elif damage == "swapped":
            content[first : second + ENTRY_SIZE] = whole[second : second + ENTRY_SIZE] + whole[first:second]
        else:
            content[first + 6] ^= 4
        log.segments.forget()
        for offset in range(20):
            log.segments.forget()
            read = read_offsets(log, offset)
            assert read == [*range(offset, offset + len(read))], (damage, at, offset)
        queue_of(disk, log)[:] = whole
    assert read_offsets(log, 0) == [*range(20)]


def test_what_comes_before_an_unreadable_batch_is_read_first(disk: MemoryDisk) -> None:
    dirs = opened(disk, 2000, LogConfig())
    log, _ = two_logs(dirs)
    dirs.close()
    segment = log.segments[0]
    assert isinstance(segment, QueueSegment)
    disk.remove(f"/data/{COMMIT_DIRECTORY}/{commit_files(disk)[1]}")
    log = killed(disk, 2000).logs[log.key]
    read = read_offsets(log, 0)
    assert read == [*range(len(read))] and 0 < len(read) < 20


@pytest.mark.parametrize("how", ["removed", "cut", "zeroed", "emptied"])
@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_a_queue_that_is_gone_or_damaged_is_made_anew_from_the_commit_log(
    disk: MemoryDisk, how: str, stop: str
) -> None:
    dirs = opened(disk, 2000)
    log, _ = two_logs(dirs, 60)
    dirs.dirs[0].checkpoint({log.key: 60})
    expected, paths = values(log), [segment.log_path for segment in log.segments]
    assert len(paths) > 2
    if stop == "clean":
        dirs.close()
    disk.outlive()
    for path in paths:
        if how == "removed":
            disk.remove(path)
        elif how == "zeroed":
            disk.content(path)[ENTRY_SIZE:] = bytes(len(disk.content(path)) - ENTRY_SIZE)
        else:
            del disk.content(path)[ENTRY_SIZE if how == "cut" else 0 :]
    dirs = opened(disk, 2000)
    again = dirs.logs[log.key]
    append(again, value=b"more")
    checkpointed(dirs)
    deleted(dirs)
    assert values(again) == [*expected, (60, b"more")] and dirs.take_notices() == []
    again = killed(disk, 2000).logs[log.key]
    assert values(again) == [*expected, (60, b"more")]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_one_queue_that_is_gone_is_made_anew(disk: MemoryDisk, at: int) -> None:
    dirs = opened(disk, 2000)
    log, _ = two_logs(dirs, 60)
    expected, path = values(log), log.segments[at].log_path
    dirs.close()
    disk.remove(path)
    dirs = killed(disk, 2000)
    assert values(dirs.logs[log.key]) == expected and dirs.take_notices() == []


def test_the_queue_of_another_partition_is_known_as_that(disk: MemoryDisk) -> None:
    dirs = opened(disk, config=LogConfig())
    log, other = two_logs(dirs)
    dirs.close()
    one, another = (each.segments[0].log_path for each in (log, other))
    disk.content(one)[:] = disk.content(another)
    dirs = killed(disk)
    damaged = [*damaged_batches(dirs.logs[log.key])]
    assert len(damaged) == 1 and "offsets 0 to 19 of partition 0 of topic t are damaged: " in damaged[0]
    assert [*damaged_batches(dirs.logs[other.key])] == []
    dirs.close()
    with pytest.raises(CannotConvert, match="another partition"):
        convert(disk, "/data", PARTITIONED, lambda topic: False, 2000, NOW_MS, lambda size: None)


def test_a_queue_is_made_anew_of_batches_that_were_moved(disk: MemoryDisk) -> None:
    dirs = opened(disk, 2000)
    long, _ = long_and_short(dirs)
    deleted(dirs)
    reclaimed(dirs)
    deleted(dirs)
    expected, paths = values(long), [segment.log_path for segment in long.segments]
    dirs.close()
    for path in paths:
        disk.remove(path)
    dirs = killed(disk, 2000)
    assert values(dirs.logs[long.key]) == expected and dirs.take_notices() == []


@pytest.mark.parametrize("how", ["cut", "removed"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_commit_file_in_between_that_is_short_or_missing_is_told_with_the_offsets_that_are_lost(
    disk: MemoryDisk, how: str, at: int
) -> None:
    dirs = opened(disk, 2000)
    logs = two_logs(dirs, 1)
    for value in range(40):
        for log in logs:
            append(log, value=b"%d" % value)
    path = f"/data/{COMMIT_DIRECTORY}/{commit_files(disk)[at]}"
    disk.outlive()
    if how == "removed":
        disk.remove(path)
    else:
        del disk.content(path)[-300:]
    with pytest.raises(CannotConvert, match="short or missing"):
        convert(disk, "/data", PARTITIONED, lambda topic: False, 2000, NOW_MS, lambda size: None)
    dirs = opened(disk, 2000)
    notices = dirs.take_notices()
    assert "short or missing" in notices[0]
    for log in logs:
        end = dirs.logs[log.key].log_end_offset
        told = [notice for notice in notices if f"partition {log.partition} of topic t has lost" in notice]
        assert end < 41 and f"offsets {end} to 40:" in told[-1]
        # Where a queue points into the missing file, what it held is told, too.
        begins = dirs.logs[log.key].log_start_offset
        assert [f"offsets 0 to {begins - 1}:" in notice for notice in told[:-1]] == [True] * (begins > 0)


def test_what_a_damaged_entry_past_the_checkpoint_costs_is_told_of_its_partition(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    hit, other = created(dirs, 0), created(dirs, 1)
    for _ in range(5):
        append(hit)
        append(other)
    segment = hit.segments.active
    assert isinstance(segment, QueueSegment)
    disk.content(COMMIT)[segment.queue.entry(1).place + 65] ^= 1
    dirs = killed(disk)
    (told,) = [notice for notice in dirs.take_notices() if "has lost" in notice]
    assert "partition 0 of topic t has lost offsets 1 to 4: " in told
    assert (dirs.logs[hit.key].log_end_offset, dirs.logs[other.key].log_end_offset) == (1, 5)


def test_a_commit_log_that_is_missing_is_named_and_no_conversion_is_proposed(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    two_logs(dirs)
    dirs.close()
    for entry in disk.list(f"/data/{COMMIT_DIRECTORY}"):
        disk.remove(f"/data/{COMMIT_DIRECTORY}/{entry.name}")
    disk.remove_dir(f"/data/{COMMIT_DIRECTORY}")
    with pytest.raises(StorageError, match="its commit log /data/tidelog-commit is missing"):
        killed(disk)


def followed_by_nothing(log: Log) -> None:
    append(log, value=b"DAMAGE")


def followed_by_a_copy(log: Log) -> None:
    append(log, value=b"DAMAGE")
    assert log.store is not None
    copied = fetched(0, 0, produced(1, value=b"zero"))
    log.store.commit.append(log.store.owner, EntryKind.MOVED, 0, 0, -1, copied)


def followed_by_a_cut_within(log: Log) -> None:
    both = bytes(fetched(1, 0, produced(1, value=b"DAMAGE"))) + bytes(fetched(2, 0, produced(1, value=b"two")))
    log.append_as_follower(memoryview(bytearray(both)), NOW_MS)
    log.truncate_to(2, NOW_MS)


@pytest.mark.parametrize("write", [followed_by_nothing, followed_by_a_copy, followed_by_a_cut_within])
def test_a_log_whose_last_entry_is_damaged_is_known_to_be(disk: MemoryDisk, write: Callable[[Log], None]) -> None:
    dirs = opened(disk)
    log, other = created(dirs, 0), created(dirs, 1)
    append(log, value=b"zero")
    checkpointed(dirs)
    write(log)
    append(other, value=b"other")
    disk.outlive()
    file = disk.open(COMMIT)
    file.write(b"?", file.pread(1 << 20, 0).index(b"DAMAGE"))
    dirs = opened(disk)
    again = dirs.logs[log.key]
    assert (again.log_end_offset, again.notes.damaged) == (1, True)
    assert not dirs.logs[other.key].notes.damaged
    append(again, value=b"in its place")
    again = killed(disk).logs[log.key]
    again.note(again.notes._replace(damaged=False))
    assert not killed(disk).logs[log.key].notes.damaged, "what was written since is whole"
