"""A full disk refuses writes, serves reads, frees what it can, says so once, and recovers by itself."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from api_site import START_MS, Site, batch

from tidelog.wire.errors import ErrorCode

OK = 0
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


def create(site: Site, name: str, partitions: int = 1) -> Any:
    wanted = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    (result,) = site.ask(19, 7, topics=[wanted], timeout_ms=1000).topics
    return result


def fetched_bytes(site: Site, topic: str) -> int:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    answer = site.ask(1, 11, max_bytes=1 << 20, topics=[{"topic": topic, "partitions": partitions}])
    (partition,) = answer.responses[0].partitions
    assert partition.error_code == OK
    return len(partition.records or b"")


def no_directory_failed(site: Site) -> bool:
    return all(directory.failure is None for directory in site.broker.data.logs.dirs)


@pytest.mark.files
def test_writes_are_refused_and_reads_served_until_there_is_room_and_both_turns_are_said_once(site: Site) -> None:
    site.topic("t")
    site.produce("t", 3)
    site.disk.fail_writes_after(0)
    for _ in range(10):
        assert site.produce("t", 3).error_code == STORAGE
        site.pass_time(1000)
    assert fetched_bytes(site, "t") > 0
    (notice,) = site.notices
    assert "is full" in notice and "data-0" in notice
    site.disk.room_bytes = None
    assert site.produce("t", 3).error_code == OK
    for _ in range(10):
        site.pass_time(1000)
    assert len(site.notices) == 2 and "space again" in site.notices[1]
    assert no_directory_failed(site)


def test_a_stop_without_room_for_its_checkpoints_says_that_the_next_start_recovers(site: Site) -> None:
    site.topic("t")
    site.produce("t", 3)
    site.disk.fail_writes_after(0)
    site.stop()
    (notice,) = site.notices
    assert "data-0 could not be shut down cleanly" in notice and "the next start recovers its logs" in notice
    site.disk.room_bytes = None
    site.start()
    assert fetched_bytes(site, "t") > 0


def test_a_topic_for_whose_partitions_there_is_no_room_is_refused_and_not_there(site: Site) -> None:
    site.topic("old")
    for room in range(0, 300, 30):
        site.disk.fail_writes_after(room)
        refused = create(site, "new", 8)
        assert refused.error_code == STORAGE, room
        assert "new" not in site.broker.cluster.image.topics
        assert site.disk.list(str(site.directory / "data-0")) != []
        assert not [key for key in site.broker.data.logs.logs if key[0] == "new"]
    site.disk.room_bytes = None
    site.pass_time(1000)
    assert create(site, "new", 8).error_code == OK
    assert [site.produce("new", partition=at).error_code for at in range(8)] == [OK] * 8
    assert site.produce("old").error_code == OK
    assert no_directory_failed(site)


def test_partitions_that_could_not_be_added_for_want_of_room_are_there_once_there_is_some(site: Site) -> None:
    site.topic("t")
    site.disk.fail_writes_after(0)
    (result,) = site.ask(37, 3, topics=[{"name": "t", "count": 3, "assignments": None}], timeout_ms=1000).results
    assert result.error_code == STORAGE
    assert site.produce("t", partition=2).error_code == STORAGE
    site.disk.room_bytes = None
    site.pass_time(1000)
    assert site.produce("t", partition=2).error_code == OK
    (result,) = site.ask(37, 3, topics=[{"name": "t", "count": 4, "assignments": None}], timeout_ms=1000).results
    assert result.error_code == OK


def test_the_offsets_topic_waits_for_room(site: Site) -> None:
    site.topic("t")
    site.disk.fail_writes_after(0)

    def found() -> int:
        (coordinator,) = site.ask(10, 4, coordinator_keys=["g"], key_type=0).coordinators
        code: int = coordinator.error_code
        return code

    assert found() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert no_directory_failed(site)
    site.disk.room_bytes = None
    assert found() == OK
    commit = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    answer = site.ask(8, 7, group_id="g", generation_id_or_member_epoch=-1, topics=commit)
    assert answer.topics[0].partitions[0].error_code == OK
    site.disk.fail_writes_after(0)
    answer = site.ask(8, 7, group_id="g", generation_id_or_member_epoch=-1, topics=commit)
    assert answer.topics[0].partitions[0].error_code != OK
    site.disk.room_bytes = None


@pytest.mark.files
def test_retention_frees_a_full_disk_although_it_has_to_roll_first(new_site: Callable[..., Site]) -> None:
    site = new_site(**{"log.retention.ms": "1000", "log.segment.delete.delay.ms": "0"})
    site.topic("t")
    site.produce("t", batch(5, timestamp_ms=START_MS - 10_000))
    site.disk.fail_writes_after(0)
    assert site.produce("t").error_code == STORAGE
    site.housekeeping.retain()
    site.pass_time(1)
    assert site.broker.data.partition("t", 0).log.size_bytes == 0
    assert no_directory_failed(site)
    site.disk.room_bytes = None
    assert site.produce("t").base_offset == 5


def test_a_disk_that_fails_under_one_log_leaves_the_retention_and_flushes_of_others_alone(
    new_site: Callable[..., Site],
) -> None:
    site = new_site(dirs=2, **{"log.retention.ms": "1000"})
    for name in ("a", "b"):
        site.topic(name)
        site.produce(name, batch(5, timestamp_ms=START_MS - 10_000))
    site.stop()
    site.start()
    logs = [site.broker.data.partition(name, 0).log for name in ("a", "b")]
    assert logs[0].directory is not logs[1].directory
    site.disk.fail("open", errno.EIO)
    site.housekeeping.retain()
    assert logs[0].directory.failure is not None and logs[1].directory.failure is None
    assert logs[1].log_start_offset == 5
    assert len(site.reports) == 1
    site.reports.clear()


@pytest.mark.files
def test_a_flush_that_cannot_begin_leaves_those_behind_it_alone(new_site: Callable[..., Site]) -> None:
    site = new_site(dirs=2)
    for name in ("a", "b"):
        site.topic(name)
        site.produce(name)
    logs = [site.broker.data.partition(name, 0).log for name in ("a", "b")]
    for log in logs:
        log.segments.active.park()
        log.directory.flushes.add(log)
    site.disk.fail("open", errno.EIO)
    site.housekeeping.flush()
    assert logs[0].directory.failure is not None and logs[0].recovery_point == 0
    assert logs[1].recovery_point == 1
    assert len(site.reports) == 1
    site.reports.clear()


def test_a_damaged_log_does_not_end_the_compaction_of_others(new_site: Callable[..., Site]) -> None:
    site = new_site(**{"log.segment.bytes": "1048576", "log.cleaner.backoff.ms": "10"})
    for name in ("bad", "good"):
        site.topic(name, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        log = site.broker.data.partition(name, 0).log
        for _ in range(3):
            site.produce(name, 20)
            log.roll(site.clock.wall_ms())
    site.broker.data.partition("bad", 0).log.segments[0].file.write((7).to_bytes(4, "big"), 8)
    cleaning = site.broker.cleaning
    cleaning.start()
    for _ in range(5):
        site.pass_time(50)
    good = site.broker.data.partition("good", 0).log
    assert good.cleaned_offset == 60 and sum(segment.size for segment in good.segments) < 500
    assert [notice for notice in site.notices if "bad-0" in notice and "no longer compacted" in notice]
    cleaning.stop()


def test_compaction_that_cannot_begin_is_tried_again(new_site: Callable[..., Site]) -> None:
    site = new_site(**{"log.cleaner.backoff.ms": "10"})
    site.topic("t", cleanup_policy="compact")
    site.produce("t")
    cleaning = site.broker.cleaning
    cleaning.start()
    site.pass_time(50)
    assert cleaning._cleaner is None, "only a segment that has ended is compacted: nothing is imported for it yet"
    site.broker.data.partition("t", 0).log.roll(site.clock.wall_ms())
    # It is imported for the first time, and there may be no descriptor for that.
    begin = cleaning._made_cleaner
    cleaning._made_cleaner = lambda: (_ for _ in ()).throw(OSError(errno.EMFILE, "too many"))  # type: ignore[method-assign]
    site.pass_time(50)
    assert site.reports
    site.reports.clear()
    cleaning._made_cleaner = begin  # type: ignore[method-assign]
    site.pass_time(50)
    assert cleaning._cleaner is not None
    cleaning.stop()


@pytest.mark.files
def test_a_file_that_disappears_is_named_and_costs_its_partition_only(site: Site) -> None:
    for name in ("t", "other"):
        site.topic(name)
        site.produce(name)
    log = site.broker.data.partition("t", 0).log
    path = log.segments.active.log_path
    log.segments.active.park()
    site.disk.remove(path)
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    answer = site.ask(1, 11, max_bytes=1 << 20, topics=[{"topic": "t", "partitions": partitions}])
    assert answer.responses[0].partitions[0].error_code == STORAGE
    site.pass_time(1000)
    assert [notice for notice in site.notices if path in notice]
    assert site.produce("other").error_code == OK and fetched_bytes(site, "other") > 0
    log.directory.logs.pop(("t", 0))


@pytest.mark.files
def test_a_broker_that_stops_for_its_directories_says_what_was_wrong_with_them(site: Site) -> None:
    site.topic("t")
    reasons: list[str] = []
    site.broker.on_fatal = reasons.append
    site.disk.fail("rename", errno.EIO)
    site.housekeeping.checkpoint()
    assert "Input/output error" in reasons[0] and "recovery-point-offset-checkpoint" in reasons[0]
    assert "recovery-point-offset-checkpoint" in site.reports[0][0]
    site.reports.clear()
