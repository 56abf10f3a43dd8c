"""Replicas between log directories: what lies where, and moving it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from api_site import Site, batch

from tidelog.wire.errors import ErrorCode

OK = 0


@pytest.fixture
def two(new_site: Callable[..., Site]) -> Site:
    return new_site(dirs=2)


def path(site: Site, at: int) -> str:
    return site.broker.data.logs.dirs[at].path


def where(site: Site, topic: str, index: int = 0) -> int:
    found = site.broker.data.partition(topic, index).log.directory.path
    return [directory.path for directory in site.broker.data.logs.dirs].index(found)


def move(site: Site, to: str, topic: str = "t", index: int = 0, version: int = 2) -> int:
    dirs = [{"path": to, "topics": [{"name": topic, "partitions": [index]}]}]
    (result,) = site.ask(34, version, dirs=dirs).results
    assert (result.topic_name, result.partitions[0].partition_index) == (topic, index)
    code: int = result.partitions[0].error_code
    return code


def logs_shown(site: Site) -> list[tuple[int, str, int, bool]]:
    """(directory, topic, partition, is a future log) of everything that DescribeLogDirs shows."""
    found = []
    for at, result in enumerate(site.ask(35, 4, topics=None).results):
        assert result.error_code == OK
        found += [(at, t.name, p.partition_index, p.is_future_key) for t in result.topics for p in t.partitions]
    return found


def all_records(site: Site, topic: str = "t") -> bytes:
    asked = [{"topic": topic, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 24}]}]
    answer = site.ask(1, 11, replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 24, topics=asked)
    return bytes(answer.responses[0].partitions[0].records)


@pytest.mark.parametrize("version", [1, 2])
def test_a_moved_replica_keeps_its_records_and_goes_on(two: Site, version: int) -> None:
    two.topic("t")
    for _ in range(5):
        two.produce("t", 3)
    before = all_records(two)
    to = 1 - where(two, "t")
    assert move(two, path(two, to), version=version) == OK
    assert where(two, "t") == to
    assert logs_shown(two) == [(to, "t", 0, False)]
    assert all_records(two) == before
    assert two.produce("t").base_offset == 15
    assert two.broker.data.partition("t", 0).high_watermark == 16


def test_what_is_produced_while_a_replica_moves_moves_with_it(two: Site) -> None:
    two.topic("t")
    two.produce("t", 3)
    origin = where(two, "t")
    with two.workers.held():
        assert move(two, path(two, 1 - origin)) == OK
        assert where(two, "t") == origin
        assert sorted(logs_shown(two)) == sorted([(origin, "t", 0, False), (1 - origin, "t", 0, True)])
        assert two.produce("t", 2).base_offset == 3
    assert where(two, "t") == 1 - origin
    assert two.produce("t").base_offset == 5
    assert len(all_records(two)) == len(batch(3)) + len(batch(2)) + len(batch(1))


def test_a_repeated_sequence_is_known_after_the_move(two: Site) -> None:
    two.topic("t")
    sent = batch(2, producer_id=5, producer_epoch=0, base_sequence=0)
    assert two.produce("t", sent).base_offset == 0
    move(two, path(two, 1 - where(two, "t")))
    assert two.produce("t", sent).base_offset == 0
    assert two.broker.data.partition("t", 0).log.log_end_offset == 2


def test_moving_back_where_it_is_gives_the_move_up(two: Site) -> None:
    two.topic("t")
    two.produce("t", 3)
    origin = where(two, "t")
    with two.workers.held():
        move(two, path(two, 1 - origin))
        move(two, path(two, origin))
        assert logs_shown(two) == [(origin, "t", 0, False)]
    assert where(two, "t") == origin
    assert two.produce("t").base_offset == 3


def test_a_deleted_topic_ends_its_move(two: Site) -> None:
    two.topic("t")
    two.produce("t", 3)
    with two.workers.held():
        move(two, path(two, 1 - where(two, "t")))
        two.ask(20, 4, topic_names=["t"], timeout_ms=0)
    assert logs_shown(two) == []


def test_an_interrupted_move_begins_anew_with_the_next_start(two: Site) -> None:
    two.topic("t")
    two.produce("t", 3)
    origin = where(two, "t")
    two.workers._held = []  # the worker never comes back
    move(two, path(two, 1 - origin))
    two.stop()
    two.start()
    assert where(two, "t") == 1 - origin
    assert two.produce("t").base_offset == 3


def test_copying_is_held_back_to_the_rate_that_is_allowed(new_site: Callable[..., Site]) -> None:
    site = new_site(dirs=2)
    change = [{"name": "replica.alter.log.dirs.io.max.bytes.per.second", "config_operation": 0, "value": "100"}]
    resources = [{"resource_type": 4, "resource_name": "0", "configs": change}]
    assert site.ask(44, 1, resources=resources).responses[0].error_code == OK
    site.topic("t")
    sent = batch(3)
    site.produce("t", sent)
    origin = where(site, "t")
    move(site, path(site, 1 - origin))
    site.pass_time(len(sent) * 10 - 100)
    assert where(site, "t") == origin
    site.pass_time(200)
    assert where(site, "t") == 1 - origin


@pytest.mark.parametrize(
    ("to", "topic", "index", "code"),
    [
        ("/nowhere", "t", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        (None, "nope", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, "t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_move_that_cannot_be_is_refused(two: Site, to: str | None, topic: str, index: int, code: int) -> None:
    two.topic("t")
    assert move(two, to or path(two, 0), topic, index) == code


def test_a_move_to_a_failed_directory_is_refused(two: Site) -> None:
    two.topic("t")
    to = 1 - where(two, "t")
    two.broker.data.logs.dirs[to].fail(OSError("gone"))
    assert move(two, path(two, to)) == ErrorCode.KAFKA_STORAGE_ERROR


# --- producers --------------------------------------------------------------------------------------


def producers(site: Site, topic: str, index: int = 0) -> Any:
    (answer,) = site.ask(61, 0, topics=[{"name": topic, "partition_indexes": [index]}]).topics
    assert answer.name == topic
    return answer.partitions[0]


def test_active_producers_are_described(site: Site) -> None:
    site.topic("t")
    site.produce("t", batch(3, producer_id=5, producer_epoch=1, base_sequence=0))
    site.produce("t", 1)
    (producer,) = producers(site, "t").active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 1, 2)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert producer.last_timestamp > 0


def test_producers_of_what_is_not_there_are_not_described(site: Site) -> None:
    site.topic("t")
    assert producers(site, "nope").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producers(site, "t", 3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producers(site, "a/b").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def alter(site: Site, name: str, value: str | None) -> int:
    configs = [{"name": name, "config_operation": 0 if value is not None else 1, "value": value}]
    resources = [{"resource_type": 4, "resource_name": "0", "configs": configs}]
    (result,) = site.ask(44, 1, resources=resources, validate_only=False).responses
    code: int = result.error_code
    return code


def test_a_cordoned_directory_gets_no_new_partitions_and_takes_no_moves(two: Site) -> None:
    two.topic("t")
    origin = where(two, "t")
    assert alter(two, "cordoned.log.dirs", path(two, 1 - origin)) == OK
    two.topic("u", partitions=3)
    assert [where(two, "u", index) for index in range(3)] == [origin] * 3
    assert move(two, path(two, 1 - origin)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert two.produce("t").base_offset == 0
    assert alter(two, "cordoned.log.dirs", None) == OK
    assert move(two, path(two, 1 - origin)) == OK


def test_with_all_directories_cordoned_topics_and_partitions_are_refused_before_anything_is_written(two: Site) -> None:
    two.topic("t")
    assert alter(two, "cordoned.log.dirs", "*") == OK
    wanted = [{"name": "u", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}]
    (result,) = two.ask(19, 7, topics=wanted, timeout_ms=1000, validate_only=False).topics
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR and "cordoned.log.dirs" in result.error_message
    more = [{"name": "t", "count": 2, "assignments": None}]
    (result,) = two.ask(37, 3, topics=more, timeout_ms=1000, validate_only=False).results
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR and "cordoned.log.dirs" in result.error_message
    assert len(two.broker.cluster.image.topics["t"].partitions) == 1 and not two.notices
    assert alter(two, "cordoned.log.dirs", None) == OK
    two.topic("u")


def test_with_every_directory_named_as_cordoned_topics_are_refused_and_new_partitions_wait(two: Site) -> None:
    two.topic("t")
    assert alter(two, "cordoned.log.dirs", f"{path(two, 0)},{path(two, 1)}") == OK
    wanted = [{"name": "u", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}]
    (result,) = two.ask(19, 7, topics=wanted, timeout_ms=1000, validate_only=False).topics
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR and "cordoned.log.dirs" in result.error_message
    assert "u" not in two.broker.cluster.image.topics
    more = [{"name": "t", "count": 2, "assignments": None}]
    two.ask(37, 3, topics=more, timeout_ms=1000, validate_only=False)
    assert logs_shown(two) == [(where(two, "t"), "t", 0, False)]
    assert alter(two, "cordoned.log.dirs", None) == OK
    two.broker.assignments.placing.try_again()
    assert {shown[1:3] for shown in logs_shown(two)} == {("t", 0), ("t", 1)}


def test_a_cordon_is_told_of_once_however_often_a_topic_is_asked_for(two: Site) -> None:
    two.topic("t")
    assert alter(two, "cordoned.log.dirs", f"{path(two, 0)},{path(two, 1)}") == OK
    wanted = [{"name": "u", "num_partitions": 5, "replication_factor": 1, "assignments": [], "configs": []}]
    for _ in range(3):
        (result,) = two.ask(19, 7, topics=wanted, timeout_ms=1000, validate_only=False).topics
        assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert len([line for line in two.notices if "cordoned.log.dirs" in line]) == 1
    assert alter(two, "cordoned.log.dirs", None) == OK
    two.topic("u")
    assert alter(two, "cordoned.log.dirs", f"{path(two, 0)},{path(two, 1)}") == OK
    wanted[0]["name"] = "v"
    two.ask(19, 7, topics=wanted, timeout_ms=1000, validate_only=False)
    assert len([line for line in two.notices if "cordoned.log.dirs" in line]) == 2
