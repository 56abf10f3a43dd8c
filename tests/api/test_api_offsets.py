"""Offsets by time and place, records deleted from the start, producer ids."""

from __future__ import annotations

import pytest
from api_site import START_MS, Site, batch

from tidelog.wire.errors import ErrorCode

OK = 0
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def list_offset(site: Site, version: int, timestamp: int, **request: int) -> tuple[int, int, int]:
    asked = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    answer = site.ask(2, version, **{"replica_id": -1, **request}, topics=asked)
    (found,) = answer.topics[0].partitions
    return found.error_code, found.offset, found.timestamp


@pytest.fixture
def filled(site: Site) -> Site:
    site.topic("t")
    site.produce("t", batch(3, START_MS))
    site.produce("t", batch(3, START_MS + 100, codec=1))
    return site


@pytest.mark.parametrize("version", range(1, 12))
def test_a_time_finds_the_first_record_at_or_after_it_inside_a_batch(filled: Site, version: int) -> None:
    assert list_offset(filled, version, START_MS + 1) == (OK, 1, START_MS + 1)
    assert list_offset(filled, version, START_MS + 3) == (OK, 3, START_MS + 100)
    assert list_offset(filled, version, START_MS + 102) == (OK, 5, START_MS + 102)
    assert list_offset(filled, version, START_MS + 103) == (OK, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "first_version", "offset"),
    [(LATEST, 1, 6), (EARLIEST, 1, 0), (MAX_TIMESTAMP, 7, 5), (EARLIEST_LOCAL, 8, 0), (LATEST_TIERED, 9, -1)],
)
def test_special_places_are_known_from_their_version_on(
    filled: Site, timestamp: int, first_version: int, offset: int
) -> None:
    for version in range(1, 12):
        code, found, _ = list_offset(filled, version, timestamp)
        expected = (OK, offset) if version >= first_version else (ErrorCode.UNSUPPORTED_VERSION, -1)
        assert (code, found) == expected


def test_a_partition_asked_for_twice_is_refused_once_and_the_others_are_answered(filled: Site) -> None:
    filled.topic("u")
    twice = [{"partition_index": 0, "timestamp": LATEST}, {"partition_index": 0, "timestamp": EARLIEST}]
    once = [{"partition_index": 0, "timestamp": LATEST}]
    asked = [{"name": "t", "partitions": twice}, {"name": "u", "partitions": once}, {"name": "v", "partitions": []}]
    t, u = filled.ask(2, 7, replica_id=-1, topics=asked).topics
    assert [(p.partition_index, p.error_code) for p in t.partitions] == [(0, ErrorCode.INVALID_REQUEST)]
    assert [(p.partition_index, p.error_code, p.offset) for p in u.partitions] == [(0, OK, 0)]


def test_an_isolation_level_that_does_not_exist_is_refused(filled: Site) -> None:
    assert list_offset(filled, 5, LATEST, isolation_level=2)[0] == ErrorCode.INVALID_REQUEST


def delete_records(site: Site, topic: str, *offsets: tuple[int, int]) -> list[tuple[int, int, int]]:
    asked = [{"partition_index": index, "offset": offset} for index, offset in offsets]
    answer = site.ask(21, 2, topics=[{"name": topic, "partitions": asked}], timeout_ms=0)
    return [(p.partition_index, p.error_code, p.low_watermark) for p in answer.topics[0].partitions]


def test_records_are_deleted_up_to_an_offset_or_to_the_high_watermark(filled: Site) -> None:
    assert delete_records(filled, "t", (0, 2)) == [(0, OK, 2)]
    assert delete_records(filled, "t", (0, 1)) == [(0, OK, 2)]
    assert delete_records(filled, "t", (0, 7)) == [(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert delete_records(filled, "t", (0, -2)) == [(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert delete_records(filled, "t", (0, -1)) == [(0, OK, 6)]


def test_of_a_partition_named_twice_the_last_offset_counts(filled: Site) -> None:
    assert delete_records(filled, "t", (0, 2), (0, 4)) == [(0, OK, 4)]


def test_a_compacted_topic_and_an_internal_one_keep_their_records(site: Site) -> None:
    site.topic("c", cleanup_policy="compact")
    assert delete_records(site, "c", (0, 0)) == [(0, ErrorCode.POLICY_VIOLATION, -1)]
    site.ask(10, 4, key_type=0, coordinator_keys=["g"])
    assert delete_records(site, "__consumer_offsets", (0, 0)) == [(0, ErrorCode.INVALID_TOPIC_EXCEPTION, -1)]


@pytest.mark.parametrize("version", range(6))
def test_an_idempotent_producer_gets_a_fresh_id_each_time(site: Site, version: int) -> None:
    first, second = (site.ask(22, version, transactional_id=None, transaction_timeout_ms=0) for _ in range(2))
    assert (first.error_code, first.producer_epoch, second.producer_epoch) == (OK, 0, 0)
    assert first.producer_id != second.producer_id


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
def test_an_id_without_an_epoch_and_the_reverse_are_refused(site: Site, producer_id: int, epoch: int) -> None:
    asked = {"transactional_id": None, "transaction_timeout_ms": 0, "producer_id": producer_id, "producer_epoch": epoch}
    answer = site.ask(22, 4, **asked)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_an_empty_transactional_id_is_refused(site: Site) -> None:
    answer = site.ask(22, 4, transactional_id="", transaction_timeout_ms=0)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_the_end_of_an_epoch_is_told_up_to_the_one_asked_for(filled: Site) -> None:
    def end(epoch: int, current: int = -1) -> tuple[int, int, int]:
        asked = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
        answer = filled.ask(23, 4, replica_id=-1, topics=[{"topic": "t", "partitions": [asked]}])
        (found,) = answer.topics[0].partitions
        return found.error_code, found.leader_epoch, found.end_offset

    assert end(0) == (OK, 0, 6)
    assert end(5) == (OK, -1, -1)
    assert end(0, current=1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
