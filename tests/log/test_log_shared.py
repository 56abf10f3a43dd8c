"""The shared layout: one commit log for all partitions, and queues that point into it."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from random import Random

import pytest
from logkit import NOW_MS, append, produced, values
from shared_kit import (
    COMMIT,
    CONFIG,
    checkpointed,
    commit_files,
    commit_of,
    created,
    deleted,
    killed,
    long_and_short,
    opened,
    owner,
    reclaimed,
)

from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.errors import StorageError
from tidelog.log.file_segment import FileSegment
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.retention import delete_old_segments
from tidelog.log.segment import FileSlice
from tidelog.log.shared import upkeep
from tidelog.log.shared.commit_entry import HEAD_SIZE, MAGIC, EntryKind, pack_head
from tidelog.log.shared.commit_log import CommitLog
from tidelog.log.shared.queue_segment import QueueSegment
from tidelog.log.shared.upkeep import Slices
from tidelog.wire.batch import iter_headers
from tidelog.wire.records import build_batch


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def test_appends_of_all_partitions_are_one_write_each_to_one_file(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    logs = [created(dirs, partition) for partition in range(5)]
    writes, size = disk.counts["write"], len(disk.content(COMMIT))
    for log in logs:
        append(log)
    assert disk.counts["write"] - writes == 5
    assert len(disk.content(COMMIT)) - size == 5 * (72 + len(produced()))


def test_one_sync_is_enough_for_all_partitions_that_wait(disk: MemoryDisk) -> None:
    dirs = opened(disk, config=replace(CONFIG, flush_messages=1))
    logs = [created(dirs, partition) for partition in range(20)]
    for log in logs:
        append(log)
        log.flush()
    works = []
    for log in logs:
        append(log, value=b"flushed")
        works.append(log.flush_work())
    syncs = disk.counts["sync"]
    for log, work in zip(logs, works, strict=True):
        assert work is not None
        work()
        log.flush_done(work)
    assert disk.counts["sync"] - syncs == 1
    disk.crash(Random(1))
    dirs = opened(disk)
    assert all(values(dirs.logs[log.key]) == [(0, b"value"), (1, b"flushed")] for log in logs)


def test_a_sync_covers_what_was_appended_before_it_began(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    first, second = created(dirs, 0), created(dirs, 1)
    append(first)
    work = first.flush_work()
    append(second)
    assert work is not None
    work()
    later = second.flush_work()
    syncs = disk.counts["sync"]
    assert later is not None and second.segments.active.sync_work()() is None
    assert disk.counts["sync"] == syncs


def test_compacted_and_internal_topics_keep_files_of_their_own(disk: MemoryDisk) -> None:
    configs = {"compacted": replace(CONFIG, cleanup_policy=("compact",))}
    dirs = LogDirs(["/data"], disk, lambda topic: configs.get(topic, CONFIG), lambda: bytes(15) + b"\1", 1 << 20)
    dirs.open(node_id=1, cluster_id="c", now_ms=NOW_MS)
    kinds = {topic: type(created(dirs, 0, topic).segments.active) for topic in ("t", "compacted", "__offsets")}
    assert kinds == {"t": QueueSegment, "compacted": FileSegment, "__offsets": FileSegment}


def test_neighbours_are_one_slice_of_a_file_and_scattered_batches_are_gathered(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log, other = created(dirs, 0), created(dirs, 1)
    append(log)
    append(other)
    append(log)
    piece = log.read(0, 1 << 20, 2)
    assert piece is not None and [header.base_offset for _, header in iter_headers(piece.read())] == [0, 1]
    assert piece.part() == piece.read()
    fetched = memoryview(bytearray(piece.read()))
    follower = created(dirs, 2)
    follower.append_as_follower(fetched, NOW_MS)
    run = follower.read(0, 1 << 20, 2)
    assert isinstance(run, FileSlice) and run.read() == piece.read()


@pytest.mark.parametrize("crash", ["kill", "power", "stop"])
def test_what_was_flushed_is_there_again(disk: MemoryDisk, crash: str) -> None:
    dirs = opened(disk, commit_bytes=1000)
    logs = [created(dirs, partition) for partition in range(3)]
    for at in range(30):
        append(logs[at % 3], value=b"%d" % at)
        if at == 15:
            checkpointed(dirs)
    expected = [values(log) for log in logs]
    if crash == "stop":
        dirs.close()
    elif crash == "power":
        for log in logs:
            log.flush()
        disk.crash(Random(2))
    dirs = killed(disk, 1000)
    assert [values(dirs.logs[log.key]) for log in logs] == expected
    assert dirs.take_notices() == []


def test_only_what_follows_the_checkpoint_is_read(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    for _ in range(300):
        append(log)
    checkpointed(dirs)
    position = dirs.dirs[0].commit.end  # type: ignore[union-attr]
    append(log)
    content = disk.content(COMMIT)
    content[:position] = bytes(position)
    dirs = killed(disk)
    log = dirs.logs[log.key]
    assert log.log_end_offset == 301 and values(log, 300) == [(300, b"value")]


def test_a_commit_log_that_ends_before_its_checkpoint_costs_what_it_lacks_and_nothing_later(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    for _ in range(10):
        append(log)
    checkpointed(dirs)
    segment = log.segments.active
    assert isinstance(segment, QueueSegment)
    del disk.content(COMMIT)[segment.queue.entry(6).place + 20 :]
    dirs = killed(disk)
    log = dirs.logs[log.key]
    assert log.log_end_offset == 6 and "ends at" in "".join(dirs.take_notices())
    append(log, value=b"again")
    assert values(killed(disk).logs[log.key])[5:] == [(5, b"value"), (6, b"again")]


def test_a_cut_that_nothing_followed_is_not_undone_by_a_crash(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    for _ in range(40):
        append(log)
    log.truncate_to(7)
    assert killed(disk).logs[log.key].log_end_offset == 7


def test_a_new_start_is_not_undone_by_a_crash(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    append(log, 3)
    log.truncate_fully_and_start_at(100, NOW_MS)
    append(log)
    log = killed(disk).logs[log.key]
    assert (log.segments.first_base_offset, values(log, 100)) == (100, [(100, b"value")])


def test_a_damaged_entry_costs_its_partition_what_follows_and_the_others_nothing(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    hit, other = created(dirs, 0), created(dirs, 1)
    for _ in range(3):
        append(hit)
        append(other)
    segment = hit.segments.active
    assert isinstance(segment, QueueSegment)
    disk.content(COMMIT)[segment.queue.entry(1).place + 65] ^= 1
    dirs = killed(disk)
    assert (dirs.logs[hit.key].log_end_offset, dirs.logs[other.key].log_end_offset) == (1, 3)
    assert "is damaged" in "".join(dirs.take_notices())


def test_every_flipped_bit_of_an_entry_is_found(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    append(log)
    begin = len(disk.content(COMMIT))
    append(log)
    whole = bytes(disk.content(COMMIT))
    for at in range(begin, len(whole)):
        disk.outlive()
        disk.content(COMMIT)[:] = whole
        disk.content(COMMIT)[at] ^= 1 << (at % 8)
        again = opened(disk).logs[log.key]
        assert again.log_end_offset == 1, f"byte {at - begin} of the entry"


def test_the_bytes_of_an_entry_inside_a_record_do_not_pass_for_one(disk: MemoryDisk) -> None:
    dirs = opened(disk)
    log = created(dirs)
    append(log)
    false = bytes(pack_head(owner(0), EntryKind.START, 12345, 0, 0, -1, b""))
    place = dirs.dirs[0].commit.end  # type: ignore[union-attr]
    append(log, value=false)
    append(log)
    disk.content(COMMIT)[place + 9] ^= 1
    assert killed(disk).logs[log.key].log_end_offset == 1


def test_a_file_of_the_commit_log_goes_when_nothing_in_it_is_alive(disk: MemoryDisk) -> None:
    dirs = opened(disk, commit_bytes=2000)
    short, long = created(dirs, 0), created(dirs, 1)
    append(long, 1, value=bytes(500))
    for _ in range(40):
        append(short, value=bytes(300))
    checkpointed(dirs)
    assert len(commit_files(disk)) > 5
    short.config = replace(CONFIG, retention_bytes=0)
    delete_old_segments(short, NOW_MS, short.log_end_offset)
    for deletion in dirs.take_deletions():
        deletion()
    assert len(commit_files(disk)) > 5
    long.advance_log_start_offset(1)
    long.roll(NOW_MS)
    delete_old_segments(long, NOW_MS, 1)
    for deletion in dirs.take_deletions():
        deletion()
    assert len(commit_files(disk)) == 1
    dirs = killed(disk, 2000)
    assert (dirs.logs[long.key].log_end_offset, dirs.logs[short.key].log_end_offset) == (1, 40)
    assert dirs.take_notices() == []


@pytest.mark.parametrize("room", [0, 50, 100])
def test_a_full_disk_leaves_nothing_half_written(disk: MemoryDisk, room: int) -> None:
    dirs = opened(disk)
    log = created(dirs)
    append(log)
    disk.fail_writes_after(room)
    with pytest.raises(StorageError):
        append(log)
    disk.room_bytes = None
    append(log, value=b"after")
    assert values(log) == [(0, b"value"), (1, b"after")]
    assert values(killed(disk).logs[log.key]) == values(log)


def test_what_is_alive_in_old_files_is_moved_so_that_they_can_go(disk: MemoryDisk) -> None:
    dirs = opened(disk, 2000)
    long, _ = long_and_short(dirs)
    deleted(dirs)
    kept, expected = len(commit_files(disk)), values(long)
    for _ in range(kept):
        for work in dirs.reclaim():
            if work is not None:
                work()
        # The new places are on the device before the old ones go.
        assert long.path not in disk.unsynced_dirs
        deleted(dirs)
    assert (kept > 8, len(commit_files(disk)) < 3) == (True, True)
    append(long, value=b"more")
    assert values(long) == [*expected, (6, b"more")]
    assert values(killed(disk, 2000).logs[long.key]) == values(long)


def test_batches_that_are_smaller_than_the_heads_of_their_entries_are_not_moved_for_ever(disk: MemoryDisk) -> None:
    dirs = opened(disk, 2000)
    log = created(dirs)
    for _ in range(60):
        log.append_as_leader(memoryview(build_batch([(1000, None, None, None)])), 0, NOW_MS)
    assert log.size_bytes < 60 * HEAD_SIZE
    checkpointed(dirs)
    end = commit_of(dirs).end
    reclaimed(dirs)
    assert commit_of(dirs).end == end, "all of them are alive"
    log.advance_log_start_offset(50)
    delete_old_segments(log, NOW_MS, log.log_end_offset)
    for _ in range(5):
        deleted(dirs)
        end = commit_of(dirs).end
        reclaimed(dirs)
    assert commit_of(dirs).end == end
    assert commit_of(dirs).size_bytes < 8000


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_any_step_of_reclaiming_loses_nothing(power: bool) -> None:
    steps = 0
    for crash_at in range(200):
        disk = MemoryDisk()
        dirs = opened(disk, 2000)
        long, _ = long_and_short(dirs)
        long.flush()
        expected = values(long)
        steps = 0
        for _ in range(20):
            for work in dirs.reclaim():
                steps += 1
                if steps == crash_at:
                    break
                if work is not None:
                    work()
            if steps == crash_at:
                break
            deleted(dirs)
        if power:
            disk.crash(Random(crash_at))
        dirs = killed(disk, 2000)
        assert values(dirs.logs[long.key]) == expected, f"step {crash_at}"
        assert [notice for notice in dirs.take_notices() if "lost" in notice] == []
        if steps < crash_at:
            return
    raise AssertionError(f"reclaiming has more than {steps} steps")


def test_a_partition_that_was_set_aside_holds_only_what_it_points_at(disk: MemoryDisk) -> None:
    dirs = opened(disk, 2000)
    stray, _ = long_and_short(dirs)
    expected = values(stray)
    dirs.mark_stray(stray.key)
    for _ in range(2):
        deleted(dirs)
        reclaimed(dirs)
        deleted(dirs)
        assert len(commit_files(disk)) < 5
        # In the next life as in this one.
        checkpointed(dirs)
        dirs = killed(disk, 2000)
    assert values(dirs.dirs[0].strays[0]) == expected


def test_what_was_set_aside_can_be_removed_at_any_time(disk: MemoryDisk) -> None:
    dirs = opened(disk, 2000)
    stray, _ = long_and_short(dirs)
    append(stray)
    dirs.mark_stray(stray.key)
    for entry in disk.list(stray.path):
        disk.remove(f"{stray.path}/{entry.name}")
    disk.remove_dir(stray.path)
    checkpointed(dirs)
    deleted(dirs)
    reclaimed(dirs)
    assert dirs.dirs[0].failure is None and dirs.dirs[0].strays == [] and len(commit_files(disk)) < 3


def test_a_partition_that_comes_back_has_nothing_of_what_was_set_aside(disk: MemoryDisk) -> None:
    dirs = opened(disk, 2000)
    stray, _ = long_and_short(dirs)
    dirs.mark_stray(stray.key)
    log = created(dirs, 0)
    append(log, value=b"new")
    deleted(dirs)
    reclaimed(dirs)
    deleted(dirs)
    assert values(log) == [(0, b"new")] and len(values(stray)) == 6
    assert values(killed(disk, 2000).logs[log.key]) == [(0, b"new")]


def test_a_damaged_batch_does_not_hold_its_file_for_ever(disk: MemoryDisk) -> None:
    dirs = opened(disk, 2000)
    long, _ = long_and_short(dirs)
    segment = long.segments[0]
    assert isinstance(segment, QueueSegment)
    disk.flip(COMMIT, segment.queue.entry(0).place + 65, 1)
    expected = [header.base_offset for _, header in iter_headers(segment.read(0, segment.size))]
    for _ in range(3):
        reclaimed(dirs)
        deleted(dirs)
    assert len(commit_files(disk)) < 3
    segment = long.segments[0]
    assert isinstance(segment, QueueSegment)
    assert [header.base_offset for _, header in iter_headers(segment.read(0, segment.size))] == expected
    # And it is no better for it.
    assert [queued.base_offset for queued, _, _ in segment.damaged()] == [0]


def test_a_start_does_not_hold_in_memory_what_follows_the_checkpoint(disk: MemoryDisk) -> None:
    dirs = opened(disk, 1 << 30, LogConfig())
    log = created(dirs)
    for _ in range(4000):
        append(log)
    commit = CommitLog(disk, "/data", 1 << 30)
    tracemalloc.start()
    tail = commit.tail()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 4000 * 30
    assert sum(len(entry.batches) for entry in tail.of(owner(0))) == 4000


def test_damage_among_what_looks_like_entries_is_passed_over_without_reading_it_again_and_again(
    disk: MemoryDisk,
) -> None:
    dirs = opened(disk, 1 << 30, LogConfig())
    log, other = created(dirs, 0), created(dirs, 1)
    place = commit_of(dirs).end
    append(log, value=MAGIC.to_bytes(4, "big") * 100_000)
    append(other)
    disk.flip(COMMIT, place + 200, 1)
    disk.outlive()
    reads = disk.counts.get("pread", 0)
    assert opened(disk, 1 << 30, LogConfig()).logs[other.key].log_end_offset == 1
    assert disk.counts["pread"] - reads < 100


def test_a_full_disk_stops_reclaiming_until_there_is_room(disk: MemoryDisk) -> None:
    dirs = opened(disk, 2000)
    long, _ = long_and_short(dirs)
    deleted(dirs)
    expected, kept = values(long), len(commit_files(disk))
    disk.fail_writes_after(100)
    for work in dirs.reclaim():
        if work is not None:
            work()
    assert values(long) == expected and dirs.dirs[0].failure is None
    disk.room_bytes = None
    for _ in range(kept):
        for work in dirs.reclaim():
            if work is not None:
                work()
        deleted(dirs)
    assert len(commit_files(disk)) < 3
    assert values(killed(disk, 2000).logs[long.key]) == expected


class Written:
    """What was written to a partition: all versions of it, and what must be there after a crash."""

    def __init__(self) -> None:
        self.now: list[bytes] = []
        self.versions: list[list[bytes]] = []
        self.flushed = 0
        #: so many were written, and not only put off
        self.written = 0


@pytest.mark.parametrize("seed", range(40))
def test_after_any_crash_every_partition_is_a_prefix_that_holds_what_was_flushed(
    disk: MemoryDisk, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_SLICE", 1)
    random = Random(seed)
    puts_off = bool(seed % 2)
    dirs = opened(disk, 3000, puts_off=puts_off)
    keys = [created(dirs, partition).key for partition in range(4)]
    written = {key: Written() for key in keys}
    upkeeping: Slices | None = None
    for step in range(300):
        key = random.choice(keys)
        log, model = dirs.logs[key], written[key]
        action = random.choices(
            ["append", "flush", "cut", "roll", "upkeep", "delete", "power", "kill"], [60, 8, 4, 4, 25, 3, 2, 2]
        )[0]
        if action == "append":
            model.now.append(b"%d" % step)
            append(log, value=model.now[-1])
            if not puts_off or random.random() < 0.3:
                # The turn of the loop ends.
                commit_of(dirs).write_out()
                for each in written.values():
                    each.written = len(each.now)
        elif action == "flush":
            log.flush()
            model.flushed = model.written = len(model.now)
        elif action == "cut" and model.now:
            model.versions.append(list(model.now))
            offset = random.randrange(max(log.segments.first_base_offset, log.log_start_offset), len(model.now) + 1)
            log.truncate_to(offset)
            del model.now[offset:]
            model.flushed, model.written = min(model.flushed, offset), offset
        elif action == "roll":
            log.roll(NOW_MS)
        elif action == "upkeep":
            # Others are served between its slices.
            if upkeeping is None:
                upkeeping = random.choice([dirs.checkpoint_queues(), dirs.reclaim()])
            work = next(upkeeping, "done")
            if callable(work):
                work()
            elif work == "done":
                upkeeping = None
        elif action == "delete":
            for deletion in dirs.take_deletions():
                deletion()
        elif action in ("power", "kill"):
            if action == "power":
                disk.crash(random)
            else:
                disk.outlive()
            dirs, upkeeping = opened(disk, 3000, puts_off=puts_off), None
            for each in keys:
                if each not in dirs.logs:
                    created(dirs, each.partition)
                _adopt(dirs.logs[each], written[each], action == "power")
    for key in keys:
        assert [value for _, value in values(dirs.logs[key])] == written[key].now


def _adopt(log: Log, model: Written, power: bool) -> None:
    found = [value for _, value in values(log)]
    assert found[: model.flushed] == model.now[: model.flushed]
    if power:
        assert any(found == version[: len(found)] for version in [model.now, *model.versions])
    else:
        assert found == model.now[: len(found)] and len(found) >= model.written
    model.now = found
    model.written = len(found)
    if power:
        # Until then a cut that was not flushed may be undone, even after other starts.
        model.versions = []
    model.flushed = min(model.flushed, len(found))
    if log.topic_id is None:
        log.assign_topic_id(b"t".ljust(16, b"."))
