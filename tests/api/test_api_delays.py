"""Delay topics in a whole broker: what is produced to them arrives in their target when its time comes, once."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from api_site import Site, Workers

from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import Record, build_batch, iter_records

DELAY_CONFIG = {"tidelog_delay_target": "orders"}


@pytest.fixture
def site(new_site: Callable[..., Site]) -> Site:
    made = new_site()
    made.topic("orders")
    made.topic("later", **DELAY_CONFIG)
    return made


def put(site: Site, value: bytes, topic: str = "later", partition: int = 0, **headers: object) -> int:
    """Produces one record now; a header's name has a dash for each underscore."""
    named = [(name.replace("_", "-"), str(text).encode()) for name, text in headers.items()]
    batch = bytes(build_batch([(site.clock.wall_ms(), b"key", value, named)]))
    answer = site.produce(topic, batch, partition)
    assert answer.error_code == 0
    offset: int = answer.base_offset
    return offset


def arrived(site: Site, topic: str = "orders", partition: int = 0) -> list[Record]:
    log = site.broker.data.partition(topic, partition).log
    records: list[Record] = []
    offset = log.log_start_offset
    while (piece := log.read(offset, 1 << 20, log.log_end_offset)) is not None:
        records += iter_records(piece.read())
        offset = piece.next_offset
    return records


def values(site: Site, topic: str = "orders", partition: int = 0) -> list[bytes | None]:
    return [record.value for record in arrived(site, topic, partition)]


def pass_seconds(site: Site, seconds: float) -> None:
    for _ in range(round(seconds * 20)):
        site.pass_time(50)


def restart(site: Site, clean: bool = True) -> None:
    site.stop(clean)
    site.start()


def test_a_record_arrives_when_its_delay_is_over_and_not_before(site: Site) -> None:
    put(site, b"a", tidelog_delay=1000)
    pass_seconds(site, 0.9)
    assert values(site) == []
    pass_seconds(site, 0.2)
    assert values(site) == [b"a"]


def test_key_headers_and_original_place_arrive_with_the_record(site: Site) -> None:
    produced_ms = site.clock.wall_ms()
    put(site, b"a", colour="red", tidelog_deliver_at=produced_ms + 500)
    pass_seconds(site, 1)
    (record,) = arrived(site)
    assert record.key == b"key"
    assert record.headers[0] == ("colour", b"red")
    headers = dict(record.headers)
    assert headers["tidelog-deliver-at"] == str(produced_ms + 500).encode()
    assert headers["tidelog-origin-topic"] == b"later"
    assert headers["tidelog-origin-partition"] == b"0"
    assert headers["tidelog-origin-offset"] == b"1"
    assert headers["tidelog-origin-timestamp"] == str(produced_ms).encode()
    assert produced_ms + 500 <= record.timestamp <= site.clock.wall_ms()


def test_records_arrive_in_order_of_due_time_in_the_partition_that_they_were_in(new_site: Callable[..., Site]) -> None:
    site = new_site()
    site.topic("orders", partitions=2)
    site.topic("later", partitions=2, **DELAY_CONFIG)
    for delay, value in ((900, b"c"), (300, b"a"), (600, b"b")):
        put(site, value, partition=1, tidelog_delay=delay)
    put(site, b"other", partition=0, tidelog_delay=100)
    pass_seconds(site, 2)
    assert values(site, partition=1) == [b"a", b"b", b"c"]
    assert values(site, partition=0) == [b"other"]


def test_the_topics_delay_applies_to_records_without_headers(new_site: Callable[..., Site]) -> None:
    site = new_site()
    site.topic("orders")
    site.topic("later", **DELAY_CONFIG, tidelog_delay_ms="2000")
    put(site, b"a")
    pass_seconds(site, 1.9)
    assert values(site) == []
    pass_seconds(site, 0.3)
    assert values(site) == [b"a"]


@pytest.mark.parametrize("clean", [True, False])
def test_what_waits_survives_a_restart_and_what_was_delivered_is_not_delivered_again(site: Site, clean: bool) -> None:
    put(site, b"far", tidelog_delay=60_000)
    put(site, b"soon", tidelog_delay=100)
    pass_seconds(site, 1)
    assert values(site) == [b"soon"]
    restart(site, clean)
    pass_seconds(site, 1)
    assert values(site) == [b"soon"]
    pass_seconds(site, 60)
    restart(site, clean)
    pass_seconds(site, 1)
    assert values(site) == [b"soon", b"far"]


def test_what_fell_due_while_the_broker_was_down_arrives_within_a_second_of_its_start(site: Site) -> None:
    for at in range(30):
        put(site, b"%d" % at, tidelog_delay=1000 + 10 * (29 - at))
    pass_seconds(site, 0.2)
    site.stop(clean=False)
    site.clock.now_ms += 100_000
    site.start()
    pass_seconds(site, 1)
    assert values(site) == [b"%d" % at for at in reversed(range(30))]


def test_a_delivery_that_was_not_noted_before_a_crash_is_not_repeated(new_site: Callable[..., Site]) -> None:
    """The broker dies after each step of a delivery. Flushes are steps: before that of the target is done, the record
    is there and nobody knows."""
    site = new_site()
    site.topic("orders", flush_messages="1")
    site.topic("later", **DELAY_CONFIG, flush_messages="1")
    for step in range(16):
        value = b"%d" % step
        put(site, value, tidelog_delay=100)
        site.workers._held = []
        for _ in range(4):
            site.pass_time(50)
        for _ in range(step):
            site.workers.step()
        site.stop(clean=False)
        site.start()
        pass_seconds(site, 2)
        assert values(site)[-1:] == [value]
    assert values(site) == [b"%d" % step for step in range(16)]


@pytest.mark.parametrize("crashes", range(1, 9))
def test_a_delivery_of_which_records_were_deleted_before_it_was_noted_is_not_repeated(
    new_site: Callable[..., Site], crashes: int
) -> None:
    """The broker dies some steps after three records fell due, and the first of them is deleted."""
    site = new_site()
    site.topic("orders", flush_messages="1")
    site.topic("later", **DELAY_CONFIG, flush_messages="1")
    put(site, b"before")
    pass_seconds(site, 1)
    first, *_ = [put(site, value, tidelog_delay=100) for value in (b"a", b"b", b"c")]
    site.workers._held = []
    for _ in range(4):
        site.pass_time(50)
    for _ in range(crashes):
        site.workers.step()
    site.stop(clean=False)
    site.start(Workers(idle=True))
    asked = [{"name": "later", "partitions": [{"partition_index": 0, "offset": first + 1}]}]
    answer = site.ask(21, 2, topics=asked, timeout_ms=1000)
    assert answer.topics[0].partitions[0].error_code == 0
    held, site.workers._held = site.workers._held or [], None
    for work, done in held:
        site.workers.in_worker(work, done)
    pass_seconds(site, 2)
    put(site, b"next", tidelog_delay=100)
    pass_seconds(site, 1)
    assert values(site) in ([b"before", b"b", b"c", b"next"], [b"before", b"a", b"b", b"c", b"next"])


def test_what_follows_records_that_were_deleted_on_their_way_is_not_taken_for_them(
    new_site: Callable[..., Site],
) -> None:
    """Somebody deletes everything, and the broker dies, after each step of a delivery."""
    site = new_site()
    site.topic("orders", flush_messages="1")
    site.topic("later", **DELAY_CONFIG, flush_messages="1")
    codes = set()
    for step in range(16):
        put(site, b"%d" % step, tidelog_delay=100)
        site.workers._held = []
        for _ in range(4):
            site.pass_time(50)
        for _ in range(step):
            site.workers.step()
        codes.add(delete_all(site, "later"))
        site.stop(clean=False)
        site.start()
        put(site, b"after %d" % step, tidelog_delay=100)
        pass_seconds(site, 2)
    found = values(site)
    assert [value for value in found if value and value.startswith(b"after")] == [b"after %d" % n for n in range(16)]
    assert len(found) == len(set(found))
    assert codes == {ErrorCode.NONE}


def delete_all(site: Site, topic: str) -> int:
    partitions = [{"partition_index": 0, "offset": -1}]
    answer = site.ask(21, 2, topics=[{"name": topic, "partitions": partitions}], timeout_ms=0)
    code: int = answer.topics[0].partitions[0].error_code
    return code


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("steps", range(3, 10))
def test_a_delivery_that_the_target_refuses_when_it_is_repeated_arrives_once(
    new_site: Callable[..., Site], steps: int, count: int
) -> None:
    """The broker dies some steps after the records fell due, and then the target takes none that are so large."""
    site = new_site()
    site.topic("orders", flush_messages="1")
    site.topic("later", **DELAY_CONFIG, flush_messages="1")
    put(site, b"before")
    pass_seconds(site, 1)
    large = [b"%d" % at * 2000 for at in range(count)]
    for value in large:
        put(site, value, tidelog_delay=100)
    site.workers._held = []
    for _ in range(4):
        site.pass_time(50)
    for _ in range(steps):
        site.workers.step()
    has_arrived = len(values(site)) > 1
    site.stop(clean=False)
    site.start(Workers(idle=True))
    alter(site, "orders", "max.message.bytes", "1000")
    held, site.workers._held = site.workers._held or [], None
    for work, done in held:
        site.workers.in_worker(work, done)
    pass_seconds(site, 2)
    put(site, b"next", tidelog_delay=100)
    pass_seconds(site, 1)
    assert len(values(site)) == 2 + count * has_arrived
    assert bool(describe(site).records) == (not has_arrived)
    alter(site, "orders", "max.message.bytes", "100000")
    pass_seconds(site, 1)
    assert sorted(values(site), key=str) == sorted([b"before", *large, b"next"], key=str)
    assert describe(site).records == []


def test_a_client_that_repeats_what_the_topic_refuses_by_now_is_refused_as_by_kafka(site: Site) -> None:
    """Apache Kafka looks at the records before it looks for duplicates."""
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    batch = bytes(build_batch([(site.clock.wall_ms(), b"key", b"x" * 500, None)], **producer))
    assert site.produce("orders", batch).error_code == ErrorCode.NONE
    alter(site, "orders", "max.message.bytes", "300")
    assert site.produce("orders", batch).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_stopped_records_go_to_the_new_target_of_their_topic(new_site: Callable[..., Site]) -> None:
    site = new_site()
    site.topic("orders", cleanup_policy="compact")
    site.topic("others")
    site.topic("later", **DELAY_CONFIG)
    keyless = build_batch([(site.clock.wall_ms(), None, b"%d" % at, [("tidelog-delay", b"20")]) for at in range(5)])
    site.produce("later", bytes(keyless))
    pass_seconds(site, 1)
    assert [each.state for each in describe(site).records] == ["stopped"] * 5
    alter(site, "later", "tidelog.delay.target", "others")
    pass_seconds(site, 1)
    assert values(site, "others") == [b"%d" % at for at in range(5)]
    assert describe(site).records == [] and values(site) == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_read_that_fails_once_is_tried_again(site: Site, restarts: bool) -> None:
    """When what was produced is read, or when the last picture is looked for."""
    put(site, b"a", tidelog_delay=1000)
    if restarts:
        pass_seconds(site, 0.5)
        site.stop(clean=True)
        site.disk.fail("pread", errno.EIO)
        site.start()
    else:
        site.disk.fail("pread", errno.EIO)
    pass_seconds(site, 10)
    assert values(site) == [b"a"]


def test_a_delay_topic_whose_directory_has_failed_does_not_keep_the_broker_busy(new_site: Callable[..., Site]) -> None:
    site = new_site(dirs=2)
    site.topic("orders")
    site.topic("later", **DELAY_CONFIG)
    put(site, b"a", tidelog_delay=1000)
    site.broker.data.partition("later", 0).log.directory.fail(OSError("gone"))
    pass_seconds(site, 2)
    assert values(site) == []
    assert "has failed" in site.reports.pop()[0]


def test_only_committed_records_of_transactions_are_delivered(site: Site) -> None:
    def begin(name: str) -> tuple[int, int]:
        site.ask(10, 4, key_type=1, coordinator_keys=[name])
        answer = site.ask(22, 4, transactional_id=name, transaction_timeout_ms=60_000)
        return answer.producer_id, answer.producer_epoch

    def write(name: str, producer: tuple[int, int], value: bytes) -> None:
        batch = build_batch(
            [(site.clock.wall_ms(), None, value, None)],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=0,
            transactional=True,
        )
        asked = [{"name": "later", "partition_data": [{"index": 0, "records": bytes(batch)}]}]
        answer = site.ask(0, 12, transactional_id=name, acks=-1, timeout_ms=1000, topic_data=asked)
        assert answer.responses[0].partition_responses[0].error_code == 0

    good, bad = begin("good"), begin("bad")
    write("good", good, b"committed")
    write("bad", bad, b"aborted")
    pass_seconds(site, 1)
    assert values(site) == []
    for name, producer, commit in (("bad", bad, False), ("good", good, True)):
        site.ask(26, 4, transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commit)
    pass_seconds(site, 1)
    restart(site)
    pass_seconds(site, 1)
    assert values(site) == [b"committed"]


@pytest.mark.parametrize("text", ["soon", "-5", "", "99999999999999999", "1e3"])
def test_a_header_that_names_no_time_stops_its_record_and_no_other(site: Site, text: str) -> None:
    odd = put(site, b"odd", tidelog_delay=text)
    put(site, b"good", tidelog_delay=100)
    pass_seconds(site, 1)
    assert values(site) == [b"good"]
    (delayed,) = site.broker.delays.partitions.values()
    assert [at for at, _ in delayed.schedule.malformed.first(9)] == [odd]


def test_a_missing_target_stops_the_records_until_it_is_there(new_site: Callable[..., Site]) -> None:
    site = new_site()
    site.topic("later", **DELAY_CONFIG)
    put(site, b"a", tidelog_delay=10)
    pass_seconds(site, 2)
    (delayed,) = site.broker.delays.partitions.values()
    assert delayed.stalled is not None and "no topic orders" in delayed.stalled
    site.topic("orders")
    pass_seconds(site, 6)
    assert values(site) == [b"a"]
    assert delayed.stalled is None


def test_a_record_that_is_too_large_for_the_target_stops_alone_until_the_target_takes_it(
    new_site: Callable[..., Site],
) -> None:
    site = new_site()
    site.topic("orders", max_message_bytes="1000")
    site.topic("later", **DELAY_CONFIG)
    large = put(site, b"x" * 2000, tidelog_delay=10)
    put(site, b"small", tidelog_delay=20)
    pass_seconds(site, 1)
    assert values(site) == [b"small"]
    (delayed,) = site.broker.delays.partitions.values()
    assert list(delayed.schedule.picture.stopped) == [large]
    alter(site, "orders", "max.message.bytes", "100000")
    pass_seconds(site, 1)
    assert [len(value or b"") for value in values(site)] == [5, 2000]
    assert not delayed.schedule.picture.stopped


def test_a_record_without_a_key_stops_alone_where_the_target_is_compacted(new_site: Callable[..., Site]) -> None:
    site = new_site()
    site.topic("orders", cleanup_policy="compact")
    site.topic("later", **DELAY_CONFIG)
    put(site, b"first", tidelog_delay=10)
    keyless = build_batch([(site.clock.wall_ms(), None, b"keyless", [("tidelog-delay", b"20")])])
    site.produce("later", bytes(keyless))
    put(site, b"last", tidelog_delay=30)
    pass_seconds(site, 1)
    assert values(site) == [b"first", b"last"]
    (delayed,) = site.broker.delays.partitions.values()
    assert len(delayed.schedule.picture.stopped) == 1


def test_what_is_stopped_is_tried_again_from_time_to_time(new_site: Callable[..., Site]) -> None:
    """The target may take it by now for a reason that nobody hears of."""
    site = new_site()
    site.topic("orders", cleanup_policy="compact")
    site.topic("later", **DELAY_CONFIG)
    site.produce("later", bytes(build_batch([(site.clock.wall_ms(), None, b"keyless", [("tidelog-delay", b"20")])])))
    pass_seconds(site, 1)
    log = site.broker.data.partition("later", 0).log
    tried = log.log_end_offset
    for _ in range(50):
        site.pass_time(10_000)
    assert log.log_end_offset == tried
    for _ in range(20):
        site.pass_time(10_000)
    assert log.log_end_offset > tried
    (delayed,) = site.broker.delays.partitions.values()
    assert len(delayed.schedule.picture.stopped) == 1


def test_a_delivery_that_comes_too_late_for_its_timestamp_is_stamped_anew(new_site: Callable[..., Site]) -> None:
    site = new_site()
    site.topic("orders", message_timestamp_before_max_ms="300000")
    site.topic("later", **DELAY_CONFIG, flush_messages="1")
    put(site, b"before")
    pass_seconds(site, 1)
    put(site, b"v", tidelog_delay=100)
    (delayed,) = site.broker.delays.partitions.values()
    with site.workers.held():
        for _ in range(4):
            site.pass_time(50)
        while delayed.schedule.parcel is None:
            site.workers.step()
        assert values(site) == [b"before"]
        site.pass_time(3_600_000)
    pass_seconds(site, 1)
    record = arrived(site)[-1]
    assert (record.value, record.timestamp >= site.clock.wall_ms() - 2_000) == (b"v", True)


def alter(site: Site, topic: str, name: str, value: str) -> None:
    resource = {
        "resource_type": 2,
        "resource_name": topic,
        "configs": [{"name": name, "config_operation": 0, "value": value}],
    }
    (answer,) = site.ask(44, 1, resources=[resource]).responses
    assert answer.error_code == 0, answer


def test_a_topic_becomes_a_delay_topic_while_it_is_used(site: Site) -> None:
    site.topic("plain")
    put(site, b"before", topic="plain")
    alter(site, "plain", "tidelog.delay.target", "orders")
    put(site, b"after", topic="plain")
    pass_seconds(site, 1)
    assert values(site) == [b"before", b"after"]


def test_a_changed_delay_does_not_deliver_anything_twice(site: Site) -> None:
    put(site, b"a")
    pass_seconds(site, 1)
    alter(site, "later", "tidelog.delay.ms", "5000")
    put(site, b"b")
    restart(site)
    pass_seconds(site, 4)
    assert values(site) == [b"a"]
    pass_seconds(site, 2)
    assert values(site) == [b"a", b"b"]


def test_a_compacted_topic_cannot_be_a_delay_topic(site: Site) -> None:
    configs = [{"name": "tidelog.delay.target", "value": "orders"}, {"name": "cleanup.policy", "value": "compact"}]
    wanted = {"name": "odd", "num_partitions": 1, "replication_factor": 1, "configs": configs}
    (answer,) = site.ask(19, 7, topics=[wanted], timeout_ms=1000).topics
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert "compacted" in answer.error_message


def test_retention_leaves_what_waits_and_the_last_picture(new_site: Callable[..., Site]) -> None:
    site = new_site()
    site.topic("orders")
    site.topic("later", **DELAY_CONFIG, retention_ms="1000", segment_bytes="1048576")
    put(site, b"old", tidelog_delay=10)
    far = put(site, b"far", tidelog_delay=3_600_000)
    for _ in range(5):
        put(site, b"x" * 500_000, tidelog_delay=10)
    pass_seconds(site, 2)
    assert len(values(site)) == 6
    log = site.broker.data.partition("later", 0).log
    site.clock.now_ms += 600_000
    site.housekeeping.retain()
    assert log.log_start_offset <= far
    site.clock.now_ms += 3_600_000
    pass_seconds(site, 1)
    assert values(site)[-1] == b"far"
    for _ in range(2):
        site.clock.now_ms += 600_000
        site.housekeeping.retain()
    assert log.log_start_offset > far
    restart(site)
    put(site, b"next", tidelog_delay=10)
    pass_seconds(site, 1)
    assert [value for value in values(site) if value and len(value) < 10] == [b"old", b"far", b"next"]


def test_a_delivery_begun_by_one_life_is_finished_by_the_next_while_workers_are_slow(site: Site) -> None:
    put(site, b"a", tidelog_delay=10)
    site.stop(clean=False)
    site.start(Workers(idle=True))
    for _ in range(40):
        site.pass_time(50)
        site.workers.step()
    assert values(site) == [b"a"]


def describe(site: Site, most: int = 100) -> Any:
    asked = [{"name": "later", "partition_indexes": [0]}]
    return site.ask(10002, 0, topics=asked, max_records=most).topics[0].partitions[0]


def cancel(site: Site, *offsets: int) -> dict[int, str | None]:
    answer = site.ask(10003, 0, topic="later", partition_index=0, offsets=list(offsets))
    assert answer.error_code == 0
    return {each.offset: each.refusal for each in answer.results}


def test_what_waits_is_listed_in_order_of_due_time(site: Site) -> None:
    far, near = put(site, b"far", tidelog_delay=9000), put(site, b"near", tidelog_delay=5000)
    odd = put(site, b"odd", tidelog_delay="x")
    pass_seconds(site, 1)
    described = describe(site)
    assert (described.target, described.waiting_count, described.malformed_count) == ("orders", 2, 1)
    assert [(each.offset, each.state) for each in described.records] == [
        (odd, "malformed"),
        (near, "waiting"),
        (far, "waiting"),
    ]
    assert describe(site, most=0).records == []


def test_listing_what_waits_is_done_by_a_worker_and_tells_of_what_waited_when_it_was_asked(site: Site) -> None:
    (delayed,) = site.broker.delays.partitions.values()
    delayed.schedule.waiting._most_in_memory = 8
    delays = {put(site, b"%d" % at, tidelog_delay=5_000 + 7_919 * at % 997 * 1_000): at for at in range(50)}
    pass_seconds(site, 1)
    assert any(bucket.spilled for bucket in delayed.schedule.waiting._buckets.values())
    cancelled = list(delays)[7]
    assert cancel(site, cancelled) == {cancelled: None}
    order = [
        offset for offset in sorted(delays, key=lambda offset: 7_919 * delays[offset] % 997) if offset != cancelled
    ]
    with site.workers.held():
        asked = [{"name": "later", "partition_indexes": [0]}]
        sent = site.send(10002, 0, topics=asked, max_records=20)
        assert not sent.exchange.answered
        pass_seconds(site, 20)
    result = sent.answer.topics[0].partitions[0]
    assert [each.offset for each in result.records] == order[:20]
    assert result.waiting_count == len(order)


def test_what_waits_is_not_told_before_it_was_read_again_after_a_restart(site: Site) -> None:
    put(site, b"far", tidelog_delay=60_000)
    pass_seconds(site, 1)
    site.stop()
    site.start(Workers(idle=True))
    asked = [{"name": "later", "partition_indexes": [0]}]
    codes = []
    for _ in range(12):
        site.workers.step()
        sent = site.send(10002, 0, topics=asked, max_records=0)
        site.workers.step()
        result = sent.answer.topics[0].partitions[0]
        codes.append(ErrorCode(result.error_code))
        assert result.waiting_count == (codes[-1] is ErrorCode.NONE)
    assert codes[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and codes[-1] is ErrorCode.NONE


def test_what_was_cancelled_is_not_delivered_after_a_restart_however_much_is_overdue(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is read in many pieces, and there is enough to deliver before the cancellation is read."""
    monkeypatch.setattr("tidelog.coordinator.waiting_partition.CHUNK_BYTES", 1)
    monkeypatch.setattr("tidelog.coordinator.waiting_partition.ENOUGH", 3)
    first, *_ = [put(site, b"%d" % at, tidelog_delay=5_000) for at in range(10)]
    pass_seconds(site, 1)
    assert cancel(site, first) == {first: None}
    site.stop(clean=False)
    site.clock.now_ms += 60_000
    site.start()
    pass_seconds(site, 2)
    assert values(site) == [b"%d" % at for at in range(1, 10)]


def test_a_record_is_read_and_delivered_however_many_were_read_by_a_clock_that_was_ahead(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.coordinator.waiting_partition.ENOUGH", 3)
    true_ms = site.clock.wall_ms
    monkeypatch.setattr(site.clock, "wall_ms", lambda: true_ms() + 86_400_000)
    site.pass_time(1024 - site.clock.wall_ms() % 1024)
    for at in range(5):
        put(site, b"%d" % at, tidelog_delay=700)
        site.pass_time(10)
    monkeypatch.setattr(site.clock, "wall_ms", true_ms)
    put(site, b"soon", tidelog_delay=200)
    pass_seconds(site, 0.5)
    assert values(site) == [b"soon"]
    site.clock.now_ms += 86_400_000
    pass_seconds(site, 2)
    assert values(site) == [b"soon", b"0", b"1", b"2", b"3", b"4"]


def test_many_records_are_cancelled_with_one_request(site: Site) -> None:
    offsets = [put(site, b"%d" % at, tidelog_delay=5_000) for at in range(1_000)]
    pass_seconds(site, 1)
    said = cancel(site, *offsets, *offsets[:5], 12_345)
    assert said == {**dict.fromkeys(offsets), 12_345: "nothing waits there"}
    pass_seconds(site, 6)
    assert values(site) == []


@pytest.mark.parametrize("restarts", [True, False])
def test_a_cancelled_record_is_not_delivered(site: Site, restarts: bool) -> None:
    first, second = put(site, b"a", tidelog_delay=2000), put(site, b"b", tidelog_delay=2000)
    pass_seconds(site, 1)
    assert cancel(site, first) == {first: None}
    assert [each.offset for each in describe(site).records] == [second]
    assert cancel(site, first) == {first: "it was cancelled before"}
    if restarts:
        restart(site, clean=False)
    pass_seconds(site, 3)
    assert values(site) == [b"b"]
    assert describe(site).waiting_count == 0


@pytest.mark.parametrize("again", [False, True], ids=["the first", "one that says it again"])
def test_a_cancel_is_not_acknowledged_before_it_is_flushed(new_site: Callable[..., Site], again: bool) -> None:
    site = new_site()
    site.topic("orders")
    site.topic("later", **DELAY_CONFIG, flush_messages="1")
    offset = put(site, b"a", tidelog_delay=2000)
    pass_seconds(site, 1)
    log = site.broker.data.partition("later", 0).log
    with site.workers.held():
        asked = [
            site.send(10003, 0, topic="later", partition_index=0, offsets=[offset]) for _ in range(2 if again else 1)
        ]
        site.workers.step()  # the records were read
        assert log.recovery_point < log.log_end_offset
        assert not any(each.exchange.answered for each in asked)
    assert log.recovery_point == log.log_end_offset
    refusals = [each.answer.results[0].refusal for each in asked]
    assert refusals == [None, "it was cancelled before"][: len(asked)]


def test_a_cancel_that_cannot_be_flushed_is_answered_as_not_certain(new_site: Callable[..., Site]) -> None:
    site = new_site()
    site.topic("orders")
    site.topic("later", **DELAY_CONFIG, flush_messages="1")
    offset = put(site, b"a", tidelog_delay=2000)
    pass_seconds(site, 1)
    with site.workers.held():
        asked = site.send(10003, 0, topic="later", partition_index=0, offsets=[offset])
        site.workers.step()
        site.disk.fail("sync")
    assert "not certain" in asked.answer.results[0].refusal
    assert site.reports
    site.reports.clear()


def test_what_was_delivered_or_never_waited_cannot_be_cancelled(site: Site) -> None:
    gone = put(site, b"a", tidelog_delay=10)
    pass_seconds(site, 1)
    said = cancel(site, gone, 1234)
    assert said[1234] == "nothing waits there"
    assert said[gone] == "it was delivered, or is being delivered"


def test_a_stopped_record_can_be_cancelled(new_site: Callable[..., Site]) -> None:
    site = new_site()
    site.topic("orders", max_message_bytes="1000")
    site.topic("later", **DELAY_CONFIG)
    large = put(site, b"x" * 2000, tidelog_delay=10)
    pass_seconds(site, 1)
    assert [each.state for each in describe(site).records] == ["stopped"]
    assert cancel(site, large) == {large: None}
    restart(site)
    pass_seconds(site, 1)
    assert describe(site).records == []


def test_a_stopped_record_that_was_cancelled_is_not_tried_again_after_a_restart(
    new_site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.coordinator.waiting_partition.CHUNK_BYTES", 1)
    site = new_site()
    site.topic("orders", max_message_bytes="1000")
    site.topic("later", **DELAY_CONFIG)
    large = put(site, b"x" * 2000, tidelog_delay=10)
    pass_seconds(site, 1)
    assert cancel(site, large) == {large: None}
    alter(site, "orders", "max.message.bytes", "100000")
    restart(site, clean=False)
    pass_seconds(site, 1)
    assert values(site) == []
    assert describe(site).records == []


def test_a_topic_that_delays_nothing_is_told_from_a_delay_topic(site: Site) -> None:
    asked = [{"name": "orders", "partition_indexes": [0, 7]}]
    plain, missing = site.ask(10002, 0, topics=asked, max_records=1).topics[0].partitions
    assert plain.error_code == ErrorCode.INVALID_REQUEST
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_all_stopped_records_are_tried_again_when_the_target_is_mended(new_site: Callable[..., Site]) -> None:
    site = new_site()
    site.topic("orders", max_message_bytes="1000")
    site.topic("later", **DELAY_CONFIG)
    for size in range(2000, 2005):
        put(site, b"x" * size, tidelog_delay=10)
    pass_seconds(site, 1)
    assert len(describe(site).records) == 5
    alter(site, "orders", "max.message.bytes", "100000")
    pass_seconds(site, 1)
    assert [len(value or b"") for value in values(site)] == list(range(2000, 2005))
    assert describe(site).records == []


def test_stopped_records_that_were_deleted_hold_up_nothing_and_are_not_listed(
    new_site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.deliver.schedule.MOST_STOPPED", 3)
    site = new_site()
    site.topic("orders", max_message_bytes="1000")
    site.topic("later", **DELAY_CONFIG)
    for _ in range(3):
        put(site, b"x" * 2000, tidelog_delay=10)
    put(site, b"odd", tidelog_delay="soon")
    pass_seconds(site, 1)
    assert delete_all(site, "later") == 0
    put(site, b"small", tidelog_delay=10)
    assert [each.state for each in describe(site).records if each.state != "waiting"] == []
    pass_seconds(site, 1)
    assert values(site) == [b"small"]
    described = describe(site)
    assert (described.records, described.malformed_count, described.stalled) == ([], 0, None)
    restart(site)
    pass_seconds(site, 1)
    assert describe(site).records == []


def test_a_stopped_record_that_is_just_being_tried_again_cannot_be_cancelled(new_site: Callable[..., Site]) -> None:
    site = new_site()
    site.topic("orders", max_message_bytes="1000")
    site.topic("later", **DELAY_CONFIG)
    first, second = (put(site, b"x" * 2000, tidelog_delay=10) for _ in range(2))
    pass_seconds(site, 1)
    with site.workers.held():
        asked = site.send(10003, 0, topic="later", partition_index=0, offsets=[first, second])
        alter(site, "orders", "max.message.bytes", "100000")
        (delayed,) = site.broker.delays.partitions.values()
        assert [offset for _, offset in delayed.schedule._chosen] == [first, second]
    refusals = {each.offset: each.refusal for each in asked.answer.results}
    pass_seconds(site, 1)
    assert len(values(site)) == 2
    assert refusals[first] is not None and refusals[second] is not None


@pytest.mark.parametrize("restarts", [True, False])
def test_a_record_that_names_no_time_can_be_cancelled(site: Site, restarts: bool) -> None:
    far = put(site, b"far", tidelog_delay=60_000)
    first, second = put(site, b"odd", tidelog_delay="soon"), put(site, b"odd", tidelog_delay="later")
    pass_seconds(site, 1)
    assert cancel(site, first) == {first: None}
    assert cancel(site, first) == {first: "it was cancelled before"}
    if restarts:
        restart(site, clean=False)
        pass_seconds(site, 1)
    described = describe(site)
    assert [(each.offset, each.state) for each in described.records] == [(second, "malformed"), (far, "waiting")]
    assert (described.waiting_count, described.malformed_count) == (1, 1)


def test_every_malformed_record_is_listed_and_leaves_room_for_what_waits(site: Site) -> None:
    odd = [(site.clock.wall_ms(), b"key", b"odd", [("tidelog-delay", b"soon")])] * 150
    site.produce("later", bytes(build_batch(odd)))
    far = put(site, b"far", tidelog_delay=60_000)
    pass_seconds(site, 1)
    described = describe(site, 1000)
    assert described.malformed_count == 150
    assert [each.state for each in described.records] == ["malformed"] * 150 + ["waiting"]
    few = describe(site, 20).records
    assert [each.state for each in few] == ["malformed"] * 19 + ["waiting"] and few[-1].offset == far
    last = described.records[149].offset
    assert cancel(site, last) == {last: None}
    assert describe(site).malformed_count == 149
    assert delete_all(site, "later") == 0
    pass_seconds(site, 1)
    assert describe(site).malformed_count == 0


def test_a_number_that_is_too_large_is_told_from_what_is_no_number(site: Site) -> None:
    put(site, b"odd", tidelog_delay="9" * 30)
    put(site, b"odd", tidelog_deliver_at="9" * 30)
    put(site, b"odd", tidelog_delay="soon")
    pass_seconds(site, 1)
    assert [each.reason for each in describe(site).records] == [
        "tidelog-delay is more than a year",
        "tidelog-deliver-at is more than a year after the record's timestamp",
        "tidelog-delay is not a number of milliseconds",
    ]


def test_what_an_open_transaction_holds_back_is_told(site: Site) -> None:
    site.ask(10, 4, key_type=1, coordinator_keys=["open"])
    begun = site.ask(22, 4, transactional_id="open", transaction_timeout_ms=60_000)
    rows = [(site.clock.wall_ms(), None, b"first", None)]
    named = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch, "base_sequence": 0}
    batch = bytes(build_batch(rows, **named, transactional=True))
    asked = [{"name": "later", "partition_data": [{"index": 0, "records": batch}]}]
    site.ask(0, 12, transactional_id="open", acks=-1, timeout_ms=1000, topic_data=asked)
    put(site, b"second", tidelog_delay=5_000)
    pass_seconds(site, 1)
    assert (describe(site).waiting_count, describe(site).held_back_count) == (0, 2)
