"""What a compaction keeps, what it takes, and what happens when the world changes while it runs."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from compaction_kit import (
    COMPACT,
    FACES,
    KERNEL,
    KEY,
    NOW_MS,
    Compacted,
    kernel_face,
    new_cleaner,
    run,
    visible,
)

from tidelog.log.checkpoints import CLEANED_OFFSETS, read_offsets
from tidelog.log.compaction import compaction_round
from tidelog.log.compaction.cleaner import CheckpointWork, Cleaner, CleaningFailed, CompactionWork
from tidelog.log.compaction.cleaner_throttle import Cancelled, Throttle
from tidelog.log.compaction.compaction_round import CleanerConfig
from tidelog.log.errors import StorageError
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.retention import delete_old_segments
from tidelog.wire.batch import HEADER_SIZE

A_DAY_MS = 86_400_000


@pytest.fixture(params=FACES)
def _face(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_round, "kernel", kernel_face(KERNEL, request.param))


def keys(it: Compacted) -> list[tuple[int, bytes | None]]:
    return [(offset, key) for offset, key, _ in it.records()]


# --- records


@pytest.mark.usefixtures("_face")
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_newest_value_of_each_key_stays_at_its_offset(codec: int) -> None:
    it = Compacted()
    for i in range(40):
        it.append((b"a%d" % (i % 3), b"%d" % i), (b"b%d" % (i % 7), b"%d" % i), codec=codec)
    expected = sorted({key: (offset, key, value) for offset, key, value in it.records()}.values())
    assert len(it.compact()) == 1
    assert it.records() == expected
    assert it.log.log_end_offset == 80
    # What is left is packed as it was.
    assert {batch.header.codec for batch in it.batches() if batch.records} == {codec}


def test_what_is_compacted_twice_stays_the_same() -> None:
    it = Compacted()
    for i in range(40):
        it.append((b"%d" % (i % 9), b"%d" % i))
    it.compact()
    once = [batch.data for batch in it.batches()]
    it.log.cleaned_offset = 0
    it.compact()
    assert [batch.data for batch in it.batches()] == once


def test_batches_that_lose_nothing_are_the_same_bytes() -> None:
    it = Compacted(replace(COMPACT, segment_bytes=2400))
    for i in range(12):
        it.append((b"key%d" % i, b"x" * 50), codec=i % 5, producer=(7, 0, i))
    it.append((b"key3", b"new"))
    before = {batch.header.base_offset: batch.data for batch in it.batches()}
    it.compact()
    after = {batch.header.base_offset: batch.data for batch in it.batches()}
    assert after == {offset: data for offset, data in before.items() if offset != 3}


def test_a_segment_of_which_nothing_goes_is_left_alone() -> None:
    it = Compacted(replace(COMPACT, segment_bytes=900))
    for i in range(40):
        it.append((b"key%d" % i, b"x" * 60))
    it.roll()
    segments = list(it.log.segments)
    stats = it.compact(roll=False)
    assert len(stats) == 1 and stats[0].messages_written == 40
    assert list(it.log.segments) == segments
    assert it.dirs.take_deletions() == []
    assert not [entry.name for entry in it.disk.list("/data/t-0") if entry.name.endswith(".cleaned")]


def test_records_without_a_key_go() -> None:
    it = Compacted()
    it.append((None, b"1"), (b"a", b"2"), (None, b"3"))
    it.append((b"b", b"4"))
    it.compact()
    assert keys(it) == [(1, b"a"), (3, b"b")]


def test_the_active_segment_is_not_touched() -> None:
    it = Compacted()
    it.append((b"a", b"1"))
    it.roll()
    it.append((b"a", b"2"))
    it.append((b"a", b"3"))
    it.compact(roll=False)
    assert keys(it) == [(0, b"a"), (1, b"a"), (2, b"a")]


def test_nothing_past_the_last_stable_offset_is_touched_or_counted() -> None:
    it = Compacted()
    for _ in range(3):
        it.append((b"a", b"1"), (b"a", b"2"))
        it.roll()
    run(new_cleaner(it.dirs, stable_offset=5))
    assert keys(it) == [(3, b"a"), (4, b"a"), (5, b"a")]
    assert it.log.cleaned_offset == 4


def test_log_append_time_stays_the_time_of_all_records() -> None:
    it = Compacted(replace(COMPACT, message_timestamp_type="LogAppendTime"))
    it.append((b"a", b"1"), (b"b", None), (b"c", b"3"))
    it.append((b"a", b"2"))
    it.compact()
    assert [record[:2] for batch in it.batches() for record in batch.records] == [(n, NOW_MS) for n in (1, 2, 3)]


# --- tombstones


@pytest.mark.usefixtures("_face")
@pytest.mark.parametrize("codec", [0, 3])
def test_a_tombstone_stays_for_delete_retention_ms_after_it_was_first_met(codec: int) -> None:
    it = Compacted()
    it.append((b"a", b"1"), (b"b", b"1"))
    it.append((b"a", None), (b"c", b"1"), codec=codec)
    it.compact(NOW_MS)
    assert keys(it) == [(1, b"b"), (2, b"a"), (3, b"c")]
    horizons = [batch.header.delete_horizon_ms for batch in it.batches() if batch.records]
    assert horizons == [None, NOW_MS + COMPACT.delete_retention_ms]
    it.append((b"d", b"1"))
    it.compact(NOW_MS + COMPACT.delete_retention_ms - 1)
    assert (2, b"a") in keys(it)
    it.append((b"e", b"1"))
    it.compact(NOW_MS + COMPACT.delete_retention_ms)
    assert keys(it) == [(1, b"b"), (3, b"c"), (4, b"d"), (5, b"e")]


def test_a_tombstone_past_the_end_of_the_map_gets_no_horizon_yet() -> None:
    it = Compacted(replace(COMPACT, segment_bytes=100_000), dedupe_buffer_size=16 * 16)
    it.append(*((b"key%d" % i, b"1") for i in range(14)))
    it.append((b"gone", None), (b"one more", b"1"))
    it.roll()
    work = it.cleaner.next_work(NOW_MS)
    assert isinstance(work, CompactionWork)
    while not work.compaction.finished:
        work()
        it.cleaner.done(work)
        work = it.cleaner.next_work(NOW_MS)
        if not isinstance(work, CompactionWork):
            break
    assert it.log.cleaned_offset == 14
    assert [batch.header.delete_horizon_ms for batch in it.batches()] == [None, None]


# --- producers


@pytest.mark.parametrize("codec", [0, 3])
def test_the_last_batch_of_a_producer_stays_as_a_header(codec: int) -> None:
    it = Compacted()
    it.append((b"a", b"1"), producer=(5, 2, 0))
    it.append((b"a", b"2"), (b"b", b"2"), producer=(5, 2, 1), codec=codec)
    it.append((b"a", b"3"), (b"b", b"3"))
    it.append((b"z", b"3"))
    it.compact()
    left = [(batch.header.base_offset, batch.header.record_count, batch.header.last_sequence) for batch in it.batches()]
    assert left == [(1, 0, 2), (3, 2, -1), (5, 1, -1)]
    assert len(it.batches()[0].data) == HEADER_SIZE
    for snapshot in list(it.log.snapshots.offsets):
        it.log.snapshots.remove(snapshot)
    it.dirs.close()
    for entry in it.disk.list("/data/t-0"):
        if entry.name.endswith(".snapshot"):
            it.disk.remove(f"/data/t-0/{entry.name}")
    it.disk.remove("/data/.kafka_cleanshutdown")
    it.reopen_after_crash()
    producer = it.log.producers.get(5)
    assert producer is not None and (producer.epoch, producer.last_sequence) == (2, 2)


def test_the_last_batch_of_a_round_stays_as_a_header() -> None:
    it = Compacted()
    it.append((b"a", b"1"))
    it.append((None, b"2"))
    it.compact()
    assert [(b.header.base_offset, b.header.record_count) for b in it.batches()] == [(0, 1), (1, 0)]
    assert it.log.segments[0].next_offset() == 2
    # When the log has gone on, another batch is the last.
    it.append((b"b", b"1"))
    it.compact()
    assert [(b.header.base_offset, b.header.record_count) for b in it.batches()] == [(0, 1), (2, 1)]


# --- transactions


@pytest.mark.usefixtures("_face")
@pytest.mark.parametrize("codec", [0, 4])
def test_records_of_an_aborted_transaction_go_and_supersede_nothing(codec: int) -> None:
    it = Compacted()
    it.append((b"a", b"good"))
    it.append((b"a", b"bad"), (b"b", b"bad"), producer=(11, 0, 0), transactional=True, codec=codec)
    it.append((b"c", b"good"), producer=(12, 0, 0), transactional=True, codec=codec)
    it.mark(11, 0, commit=False)
    it.mark(12, 0, commit=True)
    it.append((b"d", b"good"))
    it.compact()
    assert it.records() == [(0, b"a", b"good"), (3, b"c", b"good"), (6, b"d", b"good")]
    assert it.table() == {b"a": b"good", b"c": b"good", b"d": b"good"}


def test_a_transaction_aborted_behind_the_range_is_known_to_be_aborted() -> None:
    it = Compacted()
    it.append((b"a", b"good"))
    it.append((b"a", b"bad"), producer=(11, 0, 0), transactional=True)
    it.roll()
    it.mark(11, 0, commit=False)
    it.compact(roll=False)
    assert it.log.cleaned_offset == 2
    assert it.records() == [(0, b"a", b"good")]


def test_a_committed_transaction_after_an_aborted_one_of_the_same_producer_stays() -> None:
    it = Compacted()
    it.append((b"a", b"bad"), producer=(11, 0, 0), transactional=True)
    it.mark(11, 0, commit=False)
    it.append((b"b", b"good"), producer=(11, 0, 1), transactional=True)
    it.mark(11, 0, commit=True)
    it.compact()
    assert it.records() == [(2, b"b", b"good")]
    it.append((b"b", b"better"), producer=(11, 0, 2), transactional=True)
    it.mark(11, 0, commit=True)
    it.compact()
    assert it.records() == [(4, b"b", b"better")]


def markers(it: Compacted) -> list[tuple[int, int | None]]:
    return [
        (b.header.base_offset, b.header.delete_horizon_ms) for b in it.batches() if b.header.is_control and b.records
    ]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_goes_when_nothing_of_its_transaction_is_left_and_its_horizon_is_over(commit: bool) -> None:
    it = Compacted()
    it.append((b"a", b"1"), producer=(11, 0, 0), transactional=True)
    marker = it.mark(11, 0, commit)
    it.append((b"a", b"2"), producer=(11, 0, 1), transactional=True)
    it.mark(11, 0, commit=True)
    now_ms = NOW_MS
    found = []
    for _ in range(4):
        it.append((b"x", b""), producer=None)
        it.compact(now_ms)
        found.append(dict(markers(it)).get(marker, "gone"))
        now_ms += COMPACT.delete_retention_ms
    # Met with a batch, met without, and then its time is over.
    assert found == [None, NOW_MS + 2 * COMPACT.delete_retention_ms, "gone", "gone"]


def test_the_transaction_index_keeps_what_a_marker_needs() -> None:
    it = Compacted()
    it.append((b"a", b"bad"), producer=(11, 0, 0), transactional=True)
    it.append((b"b", b"good"), producer=(12, 0, 0), transactional=True)
    it.mark(11, 0, commit=False)
    it.mark(12, 0, commit=True)
    before = it.log.segments[0].txn_index.entries()
    it.compact()
    # The bare header of the aborted batch is the producer's last: it is still there, and so is the entry.
    assert it.log.segments[0].txn_index.entries() == before
    it.append((b"c", b"good"), producer=(11, 0, 1), transactional=True)
    it.mark(11, 0, commit=True)
    it.compact()
    it.append((b"d", b"good"))
    it.compact()
    assert [entry for segment in it.log.segments for entry in segment.txn_index.entries()] == []
    assert visible(it.log) == [(1, b"b", b"good"), (4, b"c", b"good"), (6, b"d", b"good")]


def test_a_marker_that_alone_tells_of_a_producer_stays_as_a_header() -> None:
    it = Compacted()
    it.append((b"a", b"1"), producer=(11, 0, 0), transactional=True)
    marker = it.mark(11, 1, commit=True)
    now_ms = NOW_MS
    for _ in range(4):
        it.append((b"a", b"2"))
        it.compact(now_ms)
        now_ms += COMPACT.delete_retention_ms
    (left,) = [batch for batch in it.batches() if batch.header.base_offset == marker]
    assert (left.header.record_count, len(left.data), left.header.producer_epoch) == (0, HEADER_SIZE, 1)


# --- rounds


def test_a_small_map_takes_several_rounds() -> None:
    it = Compacted(dedupe_buffer_size=16 * 20)
    for i in range(60):
        it.append((b"key%d" % i, b"1"), (b"key%d" % (i // 2), b"2"))
    expected = sorted({key: (offset, key, value) for offset, key, value in it.records()}.values())
    stats = it.compact()
    assert len(stats) > 2
    assert all(each.map_entries <= 18 for each in stats)
    assert it.records() == expected


def test_small_segments_become_one() -> None:
    it = Compacted(replace(COMPACT, segment_bytes=2000, segment_index_bytes=2000))
    for i in range(10):
        it.append((b"key%d" % (i % 4), b"%d" % i))
        it.roll()
    assert len(it.log.segments) == 11
    it.compact(roll=False)
    assert [segment.base_offset for segment in it.log.segments] == [0, 10]
    assert keys(it) == [(6, b"key2"), (7, b"key3"), (8, b"key0"), (9, b"key1")]
    assert [offset for offset in it.log.snapshots.offsets if 0 < offset < 10] == []


def test_small_segments_become_one_even_if_nothing_goes() -> None:
    it = Compacted(replace(COMPACT, segment_bytes=2000, segment_index_bytes=2000))
    for i in range(6):
        it.append((b"key%d" % i, b"1"))
        it.roll()
    it.compact(roll=False)
    assert [segment.base_offset for segment in it.log.segments] == [0, 6]
    assert len(keys(it)) == 6


def test_a_batch_larger_than_the_buffers_is_compacted() -> None:
    it = Compacted(replace(COMPACT, segment_bytes=1 << 20, max_message_bytes=1 << 20), io_buffer_size=1)
    it.append(*((b"%d" % i, b"") for i in range(20_000)))
    it.append(*((b"%d" % i, b"x" * 200) for i in range(0, 2000, 2)), codec=3)
    it.append((b"0", None))
    it.compact()
    assert len(it.records()) == 20_000
    assert it.records()[-1] == (21_000, b"0", None)


def test_old_files_go_after_the_delay_and_readers_keep_what_they_hold() -> None:
    it = Compacted()
    for i in range(20):
        it.append((b"a", b"%d" % i))
    held = it.log.read(0, 1 << 20, it.log.log_end_offset)
    assert held is not None
    before = held.read()
    it.compact()
    deletions = it.dirs.take_deletions()
    assert {deletion.delay_ms for deletion in deletions} == {COMPACT.file_delete_delay_ms}
    for deletion in deletions:
        deletion()
    assert held.read() == before
    assert not [entry.name for entry in it.disk.list("/data/t-0") if entry.name.endswith(".deleted")]


def test_the_new_file_is_as_old_as_what_it_was_made_of() -> None:
    disk = MemoryDisk()
    it = Compacted(disk=disk)
    disk.now_ms = 5000
    it.append((b"a", b"1"), (b"a", b"2"))
    it.roll()
    disk.now_ms = 9000
    it.compact(roll=False)
    assert disk.modified_ms(it.log.segments[0].log_path) == 5000


# --- the checkpoint


def test_how_far_each_log_has_come_survives_a_restart() -> None:
    it = Compacted()
    it.append((b"a", b"1"), (b"a", b"2"))
    it.compact()
    assert it.disk.open(f"/data/{CLEANED_OFFSETS}").pread(100, 0) == b"0\n1\nt 0 2\n"
    it.reopen()
    assert it.log.cleaned_offset == 2
    assert it.compact(roll=False) == []


def test_a_log_that_was_cut_is_dirty_again_from_there() -> None:
    it = Compacted()
    for i in range(6):
        it.append((b"a", b"%d" % i))
        it.roll()
    it.compact()
    it.log.truncate_to(3)
    assert it.log.cleaned_offset == 3
    run(it.cleaner)
    assert read_offsets(it.disk, f"/data/{CLEANED_OFFSETS}") == {KEY: 3}


def test_a_log_that_is_gone_is_not_in_the_checkpoint() -> None:
    it = Compacted()
    it.append((b"a", b"1"), (b"a", b"2"))
    it.compact()
    it.dirs.delete(KEY)
    it.dirs.create(KEY, NOW_MS)
    run(it.cleaner)
    assert read_offsets(it.disk, f"/data/{CLEANED_OFFSETS}") == {}


def test_a_checkpoint_that_cannot_be_written_takes_the_directory_offline() -> None:
    disk = MemoryDisk()
    it = Compacted(disk=disk)
    it.append((b"a", b"1"), (b"a", b"2"))
    it.roll()
    while not isinstance(work := it.cleaner.next_work(NOW_MS), CheckpointWork):
        assert work is not None
        work()
        it.cleaner.done(work)
    disk.fail("write")
    with pytest.raises(OSError) as caught:
        work()
    with pytest.raises(StorageError):
        it.cleaner.done(work, caught.value)
    assert it.log.directory.failure is not None


# --- while the world goes on


def half_done(it: Compacted) -> tuple[Cleaner, CompactionWork]:
    """A round that has made its first segment, which is not swapped in yet."""
    work = it.cleaner.next_work(NOW_MS)
    assert isinstance(work, CompactionWork)
    work()
    it.cleaner.done(work)
    assert it.cleaner.next_work(NOW_MS) is work
    work()
    assert work.compaction.result is not None
    return it.cleaner, work


def written(segments: int = 6) -> Compacted:
    it = Compacted(replace(COMPACT, segment_bytes=300, cleanup_policy=("compact", "delete"), retention_bytes=500))
    for i in range(segments):
        it.append((b"a", b"%d" % i), (b"k%d" % i, b"1"), (b"a", b"x" * 50))
        it.roll()
    return it


def leftovers(it: Compacted) -> list[str]:
    return [entry.name for entry in it.disk.list(it.log.path) if entry.name.endswith((".cleaned", ".swap"))]


def test_only_one_work_is_under_way() -> None:
    it = written()
    work = it.cleaner.next_work(NOW_MS)
    assert work is not None
    assert it.cleaner.next_work(NOW_MS) is None


def test_appends_go_on_meanwhile() -> None:
    it = written()
    cleaner, work = half_done(it)
    it.append((b"a", b"newer"))
    it.roll()
    it.append((b"a", b"newest"))
    cleaner.done(work)
    run(cleaner)
    assert it.records()[-1][2] == b"newest"
    assert [offset for offset, key in keys(it) if key == b"a"] == [18, 19]


def test_a_truncation_meanwhile_gives_the_round_up() -> None:
    it = written()
    cleaner, work = half_done(it)
    it.log.truncate_to(16)
    before = keys(it)
    assert cleaner.done(work) is None
    assert keys(it) == before
    assert leftovers(it) == []
    assert cleaner.next_work(NOW_MS) is None  # it rests once
    assert len(run(cleaner)) == 1


def test_a_log_deleted_meanwhile_is_left_alone() -> None:
    it = written()
    cleaner, work = half_done(it)
    it.dirs.delete(KEY)
    it.dirs.create(KEY, NOW_MS)
    assert cleaner.done(work) is None
    assert it.dirs.logs[KEY].size_bytes == 0
    assert [entry.name for entry in it.disk.list("/data/t-0") if "cleaned" in entry.name] == []


def test_segments_deleted_by_retention_meanwhile_do_not_come_back() -> None:
    it = written()
    cleaner, work = half_done(it)
    group = work.compaction.result[0]  # type: ignore[index]
    assert delete_old_segments(it.log, NOW_MS, it.log.log_end_offset) >= len(group)
    start = it.log.log_start_offset
    assert cleaner.done(work) is None
    assert leftovers(it) == []
    # The rest of the round goes on.
    assert len(run(cleaner)) == 1
    assert it.log.segments.first_base_offset == start
    assert all(offset >= start for offset, _ in keys(it))


def test_files_that_retention_took_from_under_a_step_end_the_round_quietly() -> None:
    it = written()
    cleaner = it.cleaner
    work = cleaner.next_work(NOW_MS)
    assert work is not None
    work()
    cleaner.done(work)
    assert delete_old_segments(it.log, NOW_MS, it.log.log_end_offset)
    assert cleaner.next_work(NOW_MS) is work
    with pytest.raises(FileNotFoundError) as caught:
        work()
    assert cleaner.done(work, caught.value) is None
    assert it.log.directory.failure is None
    assert leftovers(it) == []
    assert cleaner.next_work(NOW_MS) is None
    assert len(run(cleaner)) == 1


def test_a_topic_that_is_not_compacted_any_more_is_left_alone() -> None:
    it = written()
    cleaner, work = half_done(it)
    it.log.config = replace(it.config, cleanup_policy=("delete",))
    before = keys(it)
    assert cleaner.done(work) is None
    assert keys(it) == before
    assert cleaner.next_work(NOW_MS) is None
    assert run(cleaner) == []


def test_a_stop_gives_up_what_is_under_way() -> None:
    it = written()
    cleaner = it.cleaner
    work = cleaner.next_work(NOW_MS)
    assert work is not None
    cleaner.stop()
    with pytest.raises(Cancelled) as caught:
        work()
    assert cleaner.done(work, caught.value) is None
    assert cleaner.next_work(NOW_MS) is None


# --- what goes wrong


def test_a_full_disk_ends_the_round_but_not_the_log() -> None:
    disk = MemoryDisk()
    it = Compacted(disk=disk)
    for i in range(30):
        it.append((b"%d" % (i % 20), b"%d" % i))
    it.roll()
    before = it.records()
    disk.fail_writes_after(300)
    with pytest.raises(CleaningFailed, match="No space left"):
        run(it.cleaner)
    assert it.log.directory.failure is None
    assert leftovers(it) == []
    assert it.records() == before
    disk.room_bytes = None
    assert it.cleaner.next_work(NOW_MS) is None  # it rests once
    assert len(run(it.cleaner)) == 1


def test_too_little_memory_ends_the_round_but_not_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    it = written()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(compaction_round.mmap, "mmap", refuse)
        with pytest.raises(CleaningFailed, match="was not compacted"):
            run(it.cleaner)
    assert it.log.directory.failure is None
    assert it.cleaner.uncleanable == {}
    assert it.cleaner.next_work(NOW_MS) is None  # it rests once
    assert len(run(it.cleaner)) == 1


def test_a_checkpoint_that_finds_no_room_is_written_later() -> None:
    disk = MemoryDisk()
    it = Compacted(disk=disk)
    it.append((b"a", b"1"), (b"a", b"2"))
    it.roll()
    while not isinstance(work := it.cleaner.next_work(NOW_MS), CheckpointWork):
        assert work is not None
        work()
        it.cleaner.done(work)
    disk.fail("write", errno.ENOSPC)
    with pytest.raises(OSError) as caught:
        work()
    with pytest.raises(CleaningFailed):
        it.cleaner.done(work, caught.value)
    assert it.log.directory.failure is None
    assert it.cleaner.next_work(NOW_MS) is None  # it rests once
    run(it.cleaner)
    assert read_offsets(disk, f"/data/{CLEANED_OFFSETS}") == {KEY: 2}


@pytest.mark.parametrize("operation", ["pread", "write", "sync"])
def test_a_disk_error_takes_the_directory_offline(operation: str) -> None:
    disk = MemoryDisk()
    it = Compacted(disk=disk)
    it.append((b"a", b"1"), (b"a", b"2"))
    it.roll()
    work = it.cleaner.next_work(NOW_MS)
    assert work is not None
    if operation != "pread":
        work()
        it.cleaner.done(work)
        assert it.cleaner.next_work(NOW_MS) is work
    disk.fail(operation, errno.EIO)
    with pytest.raises(OSError) as caught:
        work()
    with pytest.raises(StorageError):
        it.cleaner.done(work, caught.value)
    assert it.log.directory.failure is not None


def test_a_swap_that_fails_takes_the_directory_offline() -> None:
    disk = MemoryDisk()
    it = Compacted(disk=disk)
    it.append((b"a", b"1"), (b"a", b"2"))
    it.roll()
    cleaner, work = half_done(it)
    disk.fail("rename", errno.EIO)
    with pytest.raises(StorageError):
        cleaner.done(work)
    assert it.log.directory.failure is not None


def test_a_log_with_a_damaged_batch_is_left_as_it_is() -> None:
    it = written()
    other = it.dirs.create(("u", 0), NOW_MS)
    path = it.log.segments[2].log_path
    disk = it.disk
    assert isinstance(disk, MemoryDisk)
    disk.content(path)[HEADER_SIZE + 5] ^= 1
    before = [bytes(disk.content(segment.log_path)) for segment in it.log.segments]
    with pytest.raises(CleaningFailed, match=r"00000006.log at position 0: the batch fails its CRC"):
        run(it.cleaner)
    assert list(it.cleaner.uncleanable) == [it.log]
    assert run(it.cleaner) == []
    assert [bytes(disk.content(segment.log_path)) for segment in it.log.segments] == before
    assert leftovers(it) == []
    assert other not in it.cleaner.uncleanable


def test_a_segment_that_ends_inside_a_batch_is_left_as_it_is() -> None:
    it = written()
    disk = it.disk
    assert isinstance(disk, MemoryDisk)
    segment = it.log.segments[1]
    del disk.content(segment.log_path)[-3:]
    segment.size -= 3
    with pytest.raises(CleaningFailed, match="ends inside a batch"):
        run(it.cleaner)


def test_a_transaction_index_that_cannot_be_right_is_written_anew() -> None:
    it = Compacted()
    it.append((b"a", b"good"))
    it.append((b"a", b"bad"), producer=(11, 0, 0), transactional=True)
    it.mark(11, 0, commit=False)
    it.roll()
    it.reopen()
    disk = it.disk
    assert isinstance(disk, MemoryDisk)
    disk.content("/data/t-0/00000000000000000000.txnindex")[0] ^= 0xFF
    run(it.cleaner)
    assert it.cleaner.uncleanable == {}
    assert len(run(it.cleaner)) == 1
    assert it.records() == [(0, b"a", b"good")]


# --- the throttle


class Ticking:
    """A clock that moves when somebody waits."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.set = False

    def is_set(self) -> bool:
        return self.set

    def wait(self, seconds: float) -> bool:
        self.now_ms += 1000 * seconds
        return self.set

    def monotonic_ms(self) -> int:
        return int(self.now_ms)


def throttled(rate: float) -> tuple[Throttle, Ticking]:
    clock = Ticking()
    throttle = Throttle(rate, clock.monotonic_ms)
    throttle.cancelled = clock  # type: ignore[assignment]
    return throttle, clock


def test_reading_and_writing_stay_below_the_rate() -> None:
    throttle, clock = throttled(1000)
    for _ in range(50):
        throttle(100)
    assert 4900 <= clock.now_ms <= 5100


def test_a_pause_is_not_made_up_for() -> None:
    throttle, clock = throttled(1000)
    clock.now_ms = 60_000
    throttle(1)
    before = clock.now_ms
    throttle(3000)
    assert clock.now_ms - before >= 2900


def test_whoever_waits_for_the_throttle_can_be_stopped() -> None:
    throttle, clock = throttled(1)
    clock.wait = lambda seconds: True  # type: ignore[method-assign]
    with pytest.raises(Cancelled):
        throttle(1000)


def test_the_rate_can_change_while_a_round_runs() -> None:
    it = written()
    it.cleaner.config = CleanerConfig(io_max_bytes_per_second=5.0)
    assert it.cleaner._throttle.bytes_per_second == 5.0
