"""Requests that no client sends: refused in a bounded way, and nothing of them is kept."""

from __future__ import annotations

import gc
import struct
import sys
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from types import TracebackType
from typing import Any

import pytest
from api_site import Exchange, Site, StillClock, Workers
from fastcrc.crc32 import iscsi as crc32c

from tidelog.api.produce import AtLength
from tidelog.api.routes import ROUTES
from tidelog.log.log_dir import PendingDeletion
from tidelog.wire.apis import ApiKey
from tidelog.wire.compression import GZIP, LZ4, SNAPPY, ZSTD
from tidelog.wire.errors import ErrorCode
from tidelog.wire.java_hash import java_hash
from tidelog.wire.records import build_batch

MIB = 1 << 20


@pytest.fixture
def left_behind() -> Iterator[list[Any]]:
    """After the test: the errors and tracebacks that only the cyclic collector would have freed."""
    gc.collect()
    gc.disable()
    found: list[Any] = []
    yield found
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        found += [thing for thing in gc.garbage if isinstance(thing, (BaseException, TracebackType))]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert found == []


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_refused_bomb_leaves_nothing_to_the_cyclic_collector(
    new_site: Any, left_behind: list[Any], codec: int
) -> None:
    site = new_site(**{"tidelog.max.decompressed.bytes": str(MIB)})
    site.topic("t")
    bomb = bytes(build_batch([(site.clock.wall_ms(), None, bytes(2 * MIB), None)], codec=codec))
    assert site.produce("t", bomb).error_code == ErrorCode.MESSAGE_TOO_LARGE
    two = [{"name": "t", "partition_data": [{"index": 0, "records": bomb}] * 2}]
    answer = site.ask(0, 9, acks=-1, timeout_ms=1000, topic_data=two)
    assert [p.error_code for p in answer.responses[0].partition_responses] == [ErrorCode.MESSAGE_TOO_LARGE] * 2


def test_refused_transactional_records_leave_nothing_to_the_cyclic_collector(
    site: Site, left_behind: list[Any]
) -> None:
    site.topic("t")
    record = (site.clock.wall_ms(), None, b"x", None)
    newer = build_batch([record], producer_id=7, producer_epoch=1, base_sequence=0)
    assert site.produce("t", bytes(newer)).error_code == 0
    older = build_batch([record], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    asked = [{"name": "t", "partition_data": [{"index": 0, "records": bytes(older)}]}]
    answer = site.ask(0, 11, transactional_id="x", acks=-1, timeout_ms=1000, topic_data=asked)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def sent_by_hand(site: Site, api_key: int, version: int) -> Exchange:
    exchange = Exchange(site.notices)
    frame = bytearray(struct.pack(">hhih", api_key, version, 41, 4) + b"test" + bytes(64))
    site.dispatch(exchange, memoryview(frame))  # type: ignore[arg-type]
    return exchange


@pytest.mark.parametrize("key", [key for key in ROUTES if key != ApiKey.API_VERSIONS])
def test_a_version_that_is_not_served_closes_the_connection_and_says_so(site: Site, key: int) -> None:
    route = ROUTES[key]
    unserved = [route.max_version + 1, *([route.min_version - 1] if route.min_version else [])]
    for version in unserved:
        exchange = sent_by_hand(site, key, version)
        assert exchange.closed and exchange.frame is None
        served = f"versions {route.min_version} to {route.max_version}"
        assert f"{ApiKey(key).name} v{version} from 'test'" in site.notices[-1]
        assert served in site.notices[-1]
    assert len(site.notices) == len(unserved)


def test_api_versions_of_a_version_to_come_is_answered_in_version_0(site: Site) -> None:
    exchange = sent_by_hand(site, ApiKey.API_VERSIONS, 99)
    assert exchange.frame is not None
    correlation_id, code, count = struct.unpack_from(">ihi", exchange.frame, 4)
    assert (correlation_id, code, count) == (41, ErrorCode.UNSUPPORTED_VERSION, len(ROUTES))


def answers_of(site: Site, api_key: int, version: int, **fields: Any) -> Any:
    """The answer, and in how many turns of the loop it was made."""
    before = site.workers.turns
    return site.ask(api_key, version, **fields), site.workers.turns - before


def test_metadata_of_many_topics_is_answered_in_slices_as_if_in_one(site: Site) -> None:
    site.topic("known")
    names = [*(f"unknown-{number}" for number in range(3_000)), "known"]
    asked = [{"name": name} for name in names]
    answer, turns = answers_of(site, 3, 9, topics=asked, allow_auto_topic_creation=False)
    codes = {topic.name: topic.error_code for topic in answer.topics}
    assert codes == {**dict.fromkeys(names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "known": 0}
    assert (len(answer.brokers), answer.controller_id) == (1, 0)
    assert turns > 10


def test_one_topic_with_many_partitions_is_cut_and_joined_again(site: Site) -> None:
    site.topic("t", 3)
    site.produce("t", 5, partition=2)
    indexes = list(range(2_000))
    asked = [{"name": "t", "partitions": [{"partition_index": index, "timestamp": -1} for index in indexes]}]
    answer, turns = answers_of(site, 2, 7, replica_id=-1, topics=asked)
    (topic,) = answer.topics
    assert [partition.partition_index for partition in topic.partitions] == indexes
    assert [partition.offset for partition in topic.partitions[:4]] == [0, 0, 5, -1]
    assert topic.partitions[1_999].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert turns > 5


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_a_fetch_of_many_partitions_takes_turns_and_finds_everything(site: Site, session_epoch: int) -> None:
    site.topic("t", 650)
    for index in (3, 600):
        site.produce("t", 2, partition=index)
    wanted = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1000} for index in range(650)]
    asked = [{"topic": "t", "partitions": wanted}]
    answer, turns = answers_of(
        site, 1, 12, replica_id=-1, max_wait_ms=500, min_bytes=1, session_epoch=session_epoch, topics=asked
    )
    (topic,) = answer.responses
    found = {p.partition_index: len(p.records) for p in topic.partitions if p.records}
    assert sorted(found) == [3, 600]
    assert len(topic.partitions) == 650
    assert turns > 4


def test_a_fetch_of_many_partitions_waits_and_is_answered_once_something_comes(site: Site) -> None:
    site.topic("t", 400)
    wanted = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1000} for index in range(400)]
    fields = {"replica_id": -1, "max_wait_ms": 500, "min_bytes": 1, "session_epoch": -1}
    waiting = site.send(1, 12, **fields, topics=[{"topic": "t", "partitions": wanted}])
    assert not waiting.exchange.answered
    site.produce("t", 1, partition=399)
    assert [p.partition_index for p in waiting.answer.responses[0].partitions if p.records] == [399]
    expiring = site.send(1, 12, **fields, topics=[{"topic": "t", "partitions": wanted[:-1]}])
    site.pass_time(501)
    assert len(expiring.answer.responses[0].partitions) == 399
    assert len(site.broker.data.parking) == 0


def test_sessions_keep_no_more_partitions_than_all_of_them_may(site: Site) -> None:
    site.broker.data.fetch_sessions.max_partitions = 500
    wanted = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1000} for index in range(400)]
    fields = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "topics": [{"topic": "t", "partitions": wanted}]}
    first = site.ask(1, 12, session_epoch=0, **fields)
    second = site.ask(1, 12, session_epoch=0, **fields)
    assert first.session_id != 0
    assert second.session_id == 0
    assert len(second.responses[0].partitions) == 400
    more = [{"topic": "u", "partitions": wanted}]
    grown = site.ask(1, 12, **{**fields, "topics": more}, session_id=first.session_id, session_epoch=1)
    assert grown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(site.broker.data.fetch_sessions) == 0


@pytest.mark.parametrize(
    ("api_key", "version", "fields"),
    [
        (1, 12, {"topics": [{"topic": "t", "partitions": [{"partition": 0}] * 40_000}]}),
        (3, 9, {"topics": [{"name": "t"}] * 110_000}),
        (0, 9, {"acks": 1, "topic_data": [{"name": "t", "partition_data": [{"index": 0}] * 30_000}]}),
        (9, 7, {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0] * 110_000}]}),
        (11, 5, {"group_id": "g", "protocols": [{"name": "range", "metadata": bytes(9 * MIB)}]}),
        (8, 8, {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 0}] * 40_000}]}),
        (19, 5, {"topics": [{"name": "t"}] * 10_001, "validate_only": True}),
        (20, 3, {"topic_names": ["t"] * 10_001}),
        (20, 6, {"topics": [{"name": "t"}] * 10_001}),
        (32, 3, {"resources": [{"resource_type": 2, "resource_name": "t"}] * 10_001}),
        (33, 1, {"resources": [{"resource_type": 2, "resource_name": "topic-t"}] * 10_001}),
        (37, 2, {"topics": [{"name": "t"}] * 10_001}),
        (44, 1, {"resources": [{"resource_type": 32, "resource_name": "group-g"}] * 10_001}),
    ],
    ids=[
        "fetch",
        "metadata",
        "produce",
        "offset fetch",
        "join",
        "offset commit",
        "create topics",
        "delete topics by name",
        "delete topics by id",
        "describe configurations",
        "replace configurations",
        "create partitions",
        "alter configurations",
    ],
)
def test_what_no_client_asks_for_closes_the_connection_and_says_why(
    site: Site, api_key: int, version: int, fields: dict[str, Any]
) -> None:
    asked = site.send(api_key, version, **fields)
    assert asked.exchange.closed
    assert "more elements than are read" in site.notices[-1] or "are not read" in site.notices[-1]


def test_long_requests_that_wait_for_each_other_hold_a_bounded_memory(site: Site) -> None:
    site.broker.doors.slices.most_bytes = 300_000
    names = [{"name": "x" * 200 + str(number)} for number in range(500)]
    with site.workers.held():
        sent = [site.send(3, 9, topics=names, allow_auto_topic_creation=False) for _ in range(10)]
        refused = [asked.exchange.closed for asked in sent]
        assert site.broker.doors.slices.held_bytes <= 300_000
    assert refused[0] is False and refused[-1] is True
    assert all(asked.exchange.frame is not None for asked in sent if not asked.exchange.closed)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_a_batch_that_unpacks_to_much_is_checked_beside_the_loop(site: Site, codec: int) -> None:
    site.topic("t")
    large = bytes(build_batch([(site.clock.wall_ms(), None, bytes(3 * MIB), None)], codec=codec))
    asked = [{"name": "t", "partition_data": [{"index": 0, "records": large}]}]
    with site.workers.held():
        first = site.send(0, 9, acks=-1, timeout_ms=1000, topic_data=asked)
        assert not first.exchange.answered
        assert site.produce("t").base_offset == 0
    (answer,) = first.answer.responses[0].partition_responses
    assert (answer.error_code, answer.base_offset) == (0, 1)


class BusyWithMuch(Workers):
    """They do at once what they are asked, but nothing that unpacks to more than a few megabytes."""

    def __init__(self) -> None:
        super().__init__()
        self.much: list[tuple[Any, Any]] = []

    def in_worker(self, work: Any, done: Any) -> None:
        if isinstance(work, AtLength):
            self.much.append((work, done))
        else:
            super().in_worker(work, done)


def test_a_batch_that_unpacks_to_little_does_not_wait_behind_those_that_unpack_to_much(new_site: Any) -> None:
    site = new_site()
    site.topic("t")
    site.stop()
    workers = BusyWithMuch()
    site.start(workers)

    def send(unpacked_bytes: int, codec: int) -> Any:
        records = bytes(build_batch([(site.clock.wall_ms(), None, bytes(unpacked_bytes), None)], codec=codec))
        topics = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
        return site.send(0, 9, acks=-1, timeout_ms=1000, topic_data=topics)

    bombs = [send(20 * MIB, codec) for codec in (GZIP, LZ4, ZSTD, GZIP)]
    small = send(3 * MIB, GZIP)
    assert small.answer.responses[0].partition_responses[0].base_offset == 0
    assert not any(bomb.exchange.answered for bomb in bombs)
    assert len(workers.much) == 1  # and one of them at a time is in memory
    while workers.much:
        workers._do(*workers.much.pop())
    offsets = [bomb.answer.responses[0].partition_responses[0].base_offset for bomb in bombs]
    assert offsets == [1, 2, 3, 4]


def test_of_a_batch_that_says_it_is_large_nothing_is_unpacked_while_others_wait(site: Site) -> None:
    site.topic("t")
    records = bytes(build_batch([(site.clock.wall_ms(), None, bytes(2 * MIB), None)], codec=GZIP))
    torn = bytearray(records)
    torn[61 + 10 : 61 + 20] = b"no deflate"  # to unpack any of it would end with another error
    struct.pack_into(">I", torn, 17, crc32c(bytes(torn[21:])))
    asked = [{"name": "t", "partition_data": [{"index": 0, "records": bytes(torn)}]}]
    with site.workers.held():
        sent = site.send(0, 9, acks=-1, timeout_ms=1000, topic_data=asked)
        assert not sent.exchange.answered
    assert sent.answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD


def test_a_topic_deleted_while_its_batch_is_unpacked_is_unknown(site: Site) -> None:
    site.topic("t")
    large = bytes(build_batch([(site.clock.wall_ms(), None, bytes(3 * MIB), None)], codec=GZIP))
    asked = [{"name": "t", "partition_data": [{"index": 0, "records": large}]}]
    with site.workers.held():
        first = site.send(0, 9, acks=-1, timeout_ms=1000, topic_data=asked)
        site.ask(20, 3, topic_names=["t"], timeout_ms=1000)
    (answer,) = first.answer.responses[0].partition_responses
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_refusal_names_only_the_first_of_many_faulty_records(site: Site) -> None:
    site.topic("t", cleanup_policy="compact")
    keyless = bytes(build_batch([(site.clock.wall_ms(), None, b"", None)] * 60_000))
    refused = site.produce("t", keyless)
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == list(range(1_000))
    assert "1000 or more" in refused.error_message


def test_created_topics_of_one_request_are_told_their_own_configuration(site: Site) -> None:
    wanted = [
        {
            "name": f"t{number}",
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": "retention.ms", "value": str(1_000 * (1 + number % 2))}],
        }
        for number in range(300)
    ]
    answer = site.ask(19, 7, topics=wanted, timeout_ms=1000)
    told = [next(c.value for c in topic.configs if c.name == "retention.ms") for topic in answer.topics]
    assert told == ["1000", "2000"] * 150
    assert site.broker.data.logs.get("t1", 0).config.retention_ms == 2000  # type: ignore[union-attr]


def test_a_change_of_the_brokers_defaults_reaches_topics_configured_alike(site: Site) -> None:
    site.topic("before")
    change = {"config_operation": 0, "name": "log.retention.ms", "value": "7000"}
    altered = site.ask(44, 1, resources=[{"resource_type": 4, "resource_name": "", "configs": [change]}])
    assert altered.responses[0].error_code == 0
    site.topic("after")
    logs = site.broker.data.logs
    assert [logs.get(name, 0).config.retention_ms for name in ("before", "after")] == [7000, 7000]  # type: ignore[union-attr]


def test_commits_for_many_unknown_partitions_are_answered_in_order(site: Site) -> None:
    site.topic("t")
    site.ask(10, 3, key="g", key_type=0)
    wanted = [{"partition_index": index, "committed_offset": 1} for index in range(2_000)]
    answer = site.ask(8, 8, group_id="g", topics=[{"name": "t", "partitions": wanted}])
    codes = {p.partition_index: p.error_code for p in answer.topics[0].partitions}
    assert codes.pop(0) == 0
    assert set(codes.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_settings_asked_for_again_and_again_are_told_once(site: Site) -> None:
    asked = [{"resource_type": 4, "resource_name": "0", "configuration_keys": None}] * 1_000
    answer = site.ask(32, 3, resources=asked, include_synonyms=True, include_documentation=True)
    (told,) = answer.results
    assert (told.resource_type, told.resource_name, told.error_code) == (4, "0", 0)
    assert len(told.configs) > 100


def test_resources_configured_alike_are_described_once_and_others_by_themselves(site: Site) -> None:
    site.topic("other", retention_ms="7000")
    topics = [f"t{number}" for number in range(30)]
    for name in topics:
        site.topic(name)
    asked = [{"resource_type": 2, "resource_name": name} for name in (*topics, "other", "unknown")]
    answer = site.ask(32, 3, resources=[{**resource, "configuration_keys": None} for resource in asked])
    told = {r.resource_name: {c.name: c.value for c in r.configs or ()}.get("retention.ms") for r in answer.results}
    assert told == {**dict.fromkeys(topics, "604800000"), "other": "7000", "unknown": None}
    assert answer.results[-1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("times", [1, 20])
def test_a_resource_that_is_named_again_is_told_all_keys_that_were_asked_of_it(site: Site, times: int) -> None:
    asked = [
        {"resource_type": 4, "resource_name": "0", "configuration_keys": keys}
        for keys in (["log.retention.ms"], ["num.partitions", "log.retention.ms"])
    ]
    (told,) = site.ask(32, 3, resources=asked * times).results
    assert sorted(config.name for config in told.configs) == ["log.retention.ms", "num.partitions"]
    asked.append({"resource_type": 4, "resource_name": "0", "configuration_keys": None})
    (told,) = site.ask(32, 3, resources=asked * times).results
    assert len(told.configs) > 100


def groups_to_describe(count: int) -> list[dict[str, Any]]:
    return [{"resource_type": 32, "resource_name": f"g{n}", "configuration_keys": None} for n in range(count)]


def test_settings_of_many_resources_are_told_a_few_in_each_turn(site: Site) -> None:
    answer, turns = answers_of(site, 32, 3, resources=groups_to_describe(200), include_documentation=True)
    assert [told.resource_name for told in answer.results] == [f"g{number}" for number in range(200)]
    assert turns >= 20


def test_nothing_more_is_described_for_a_client_that_has_gone(site: Site) -> None:
    before = site.workers.turns
    with site.workers.held():
        asked = site.send(32, 3, resources=groups_to_describe(200))
        asked.exchange.connection.closed = True
    assert asked.exchange.frame is None
    assert site.workers.turns - before < 5


def test_altering_as_many_resources_as_may_be_is_answered_for_each(site: Site) -> None:
    change = {"config_operation": 0, "name": "consumer.session.timeout.ms", "value": "50000"}
    names = [f"group-{number}" for number in range(2_000)]
    asked = [{"resource_type": 32, "resource_name": name, "configs": [change]} for name in names]
    answer = site.ask(44, 1, resources=asked, validate_only=True)
    assert [(told.resource_name, told.error_code) for told in answer.responses] == [(name, 0) for name in names]


def test_deleting_as_many_topics_as_may_be_is_answered_for_each(site: Site) -> None:
    names = [f"unknown-{number}" for number in range(10_000)]
    answer = site.ask(20, 3, topic_names=names, timeout_ms=1000)
    assert {told.name: told.error_code for told in answer.responses} == dict.fromkeys(
        names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


def test_of_groups_that_were_made_and_deleted_no_object_is_left(site: Site) -> None:
    site.topic("t")
    site.ask(10, 3, key="g", key_type=0)

    def make_and_delete(names: list[str]) -> int:
        for name in names:
            committed = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
            answer = site.ask(8, 8, group_id=name, topics=committed)
            assert answer.topics[0].partitions[0].error_code == 0
        told = site.ask(42, 2, groups_names=names).results
        assert {result.error_code for result in told} == {0}
        java_hash.cache_clear()  # bounded, and not what is counted here
        gc.collect()
        return sys.getallocatedblocks()

    before = make_and_delete([f"first-{number}" for number in range(500)])
    after = make_and_delete([f"second-{number}" for number in range(500)])
    assert after - before < 200


class HurryingClock(StillClock):
    """A millisecond goes by whenever somebody looks."""

    def monotonic_ms(self) -> int:
        self.now_ms += 1
        return self.now_ms


class PatientWorkers(Workers):
    """Turns are taken when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: deque[Any] = deque()

    def call_soon(self, callback: Any) -> None:
        self.waiting.append(callback)

    def turn(self) -> None:
        self.turns += 1
        self.waiting.popleft()()


@pytest.fixture
def hurried(site: Site) -> Site:
    """A site where nothing that takes more than a few milliseconds is done in one turn, and turns do not come alone."""
    site.topic("old")
    site.stop()
    site.clock = HurryingClock()
    site.clock.now_ms = 2_000_000
    workers = PatientWorkers()
    site.start(workers)
    assert not workers.waiting
    return site


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.files
def test_a_start_takes_up_all_partitions_before_anybody_is_served(site: Site, clean: bool) -> None:
    site.topic("t", 50)
    site.stop(clean)
    site.clock = HurryingClock()
    site.clock.now_ms = 2_000_000
    workers = PatientWorkers()
    site.start(workers)
    assert not workers.waiting
    assert [site.produce("t", partition=index).error_code for index in (0, 49)] == [0, 0]


def test_many_partitions_are_made_and_dropped_a_few_in_each_turn(hurried: Site) -> None:
    site, workers = hurried, hurried.workers
    wanted = {"name": "t", "num_partitions": 50, "replication_factor": 1}
    created = site.send(19, 5, topics=[wanted], timeout_ms=1000)
    made = [len(site.broker.data.logs.logs)]
    while workers.waiting:  # type: ignore[attr-defined]
        assert not created.exchange.answered
        workers.turn()  # type: ignore[attr-defined]
        made.append(len(site.broker.data.logs.logs))
    assert created.answer.topics[0].error_code == 0
    assert made[-1] == 51 and max(after - before for before, after in pairwise(made)) <= 10
    deleted = site.send(20, 3, topic_names=["t"], timeout_ms=1000)
    while workers.waiting:  # type: ignore[attr-defined]
        assert not deleted.exchange.answered
        workers.turn()  # type: ignore[attr-defined]
    assert deleted.answer.responses[0].error_code == 0
    assert list(site.broker.data.logs.logs) == [("old", 0)]
    assert site.reports == []


@pytest.mark.files
def test_a_partition_that_is_still_to_be_made_has_no_leader_here_yet(hurried: Site) -> None:
    site, workers = hurried, hurried.workers
    wanted = {"name": "t", "num_partitions": 50, "replication_factor": 1}
    created = site.send(19, 5, topics=[wanted], timeout_ms=1000)
    assert not created.exchange.answered
    assert site.produce("t", partition=0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert site.produce("t", partition=50).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert site.produce("t", partition=49).error_code == 0
    assert site.produce("old").error_code == 0
    while workers.waiting:  # type: ignore[attr-defined]
        workers.turn()  # type: ignore[attr-defined]
    assert site.produce("t", partition=0).error_code == 0


def test_what_comes_after_a_creation_is_decided_when_that_is_carried_out(hurried: Site) -> None:
    site, workers = hurried, hurried.workers
    wanted = {"name": "t", "num_partitions": 50, "replication_factor": 1}
    created = site.send(19, 5, topics=[wanted], timeout_ms=1000)
    deleted = site.send(20, 3, topic_names=["t"], timeout_ms=1000)
    again = site.send(19, 5, topics=[wanted], timeout_ms=1000)
    while workers.waiting:  # type: ignore[attr-defined]
        workers.turn()  # type: ignore[attr-defined]
    assert [asked.answer.topics[0].error_code for asked in (created, again)] == [0, 0]
    assert deleted.answer.responses[0].error_code == 0
    assert len(site.broker.data.logs.logs) == 51


def test_files_of_many_partitions_that_are_due_together_are_removed_by_one_worker(site: Site) -> None:
    site.topic("t", 50)
    site.ask(20, 3, topic_names=["t"], timeout_ms=1000)
    with site.workers.held():
        site.pass_time(100_000)
        assert len([work for work, _ in site.workers._held or () if isinstance(work, PendingDeletion)]) == 1
    assert not [path for path in site.disk.list(f"{site.directory}/data-0") if path.name.endswith("-delete")]
