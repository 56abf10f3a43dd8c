"""Half messages in a whole broker: invisible until they are committed, delivered once, asked about in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from api_site import Site

from tidelog.wire.records import Record, build_batch, iter_records

CONFIG = {
    "tidelog_half_target": "orders",
    "tidelog_half_check_topic": "questions",
    "tidelog_half_check_ms": "1000",
    "tidelog_half_check_max": "2",
    "tidelog_half_undecided_topic": "undecided",
}


@pytest.fixture
def site(new_site: Callable[..., Site]) -> Site:
    made = new_site()
    for name in ("orders", "questions", "undecided"):
        made.topic(name)
    made.topic("halves", **CONFIG)
    return made


def put(site: Site, value: bytes | None, half_id: str, end: str | None = None) -> int:
    headers = [("tidelog-half-id", half_id.encode())] + ([] if end is None else [("tidelog-half-end", end.encode())])
    answer = site.produce("halves", bytes(build_batch([(site.clock.wall_ms(), b"key", value, headers)])))
    assert answer.error_code == 0
    offset: int = answer.base_offset
    return offset


def records(site: Site, topic: str) -> list[Record]:
    log = site.broker.data.partition(topic, 0).log
    found: list[Record] = []
    offset = log.log_start_offset
    while (piece := log.read(offset, 1 << 20, log.log_end_offset)) is not None:
        found += iter_records(piece.read())
        offset = piece.next_offset
    return found


def values(site: Site, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in records(site, topic)]


def pass_seconds(site: Site, seconds: float) -> None:
    for _ in range(round(seconds * 20)):
        site.pass_time(50)


def listed(site: Site) -> list[tuple[str, str]]:
    asked = [{"name": "halves", "partition_indexes": [0]}]
    answer = site.ask(10002, 0, topics=asked, max_records=100)
    found: list[Any] = answer.topics[0].partitions[0].records
    return [(each.half_id, each.state) for each in found]


def test_a_half_message_is_delivered_when_it_is_committed_and_never_when_it_is_rolled_back(site: Site) -> None:
    put(site, b"one", "1")
    put(site, b"two", "2")
    pass_seconds(site, 0.5)
    assert values(site) == []
    assert listed(site) == [("1", "prepared"), ("2", "prepared")]
    put(site, None, "2", end="commit")
    put(site, None, "1", end="rollback")
    pass_seconds(site, 0.5)
    assert values(site) == [b"two"]
    assert listed(site) == []


@pytest.mark.parametrize("clean", [True, False])
def test_what_is_prepared_survives_a_restart_and_what_was_delivered_is_not_delivered_again(
    site: Site, clean: bool
) -> None:
    put(site, b"one", "1")
    put(site, b"two", "2")
    put(site, None, "1", end="commit")
    pass_seconds(site, 0.5)
    for _ in range(2):
        site.stop(clean)
        site.start()
        pass_seconds(site, 0.5)
    assert values(site) == [b"one"]
    put(site, None, "1", end="commit")
    put(site, None, "2", end="commit")
    pass_seconds(site, 0.5)
    assert values(site) == [b"one", b"two"]


def test_the_sender_is_asked_by_id_until_it_answers(site: Site) -> None:
    offset = put(site, b"one", "1")
    pass_seconds(site, 1.5)
    (question,) = records(site, "questions")
    assert (question.key, question.value) == (b"1", b"one")
    headers = dict(question.headers)
    assert (headers["tidelog-half-id"], headers["tidelog-half-check"]) == (b"1", b"1")
    assert headers["tidelog-origin-topic"] == b"halves"
    assert headers["tidelog-origin-offset"] == b"%d" % offset
    put(site, None, "1", end="commit")
    pass_seconds(site, 5)
    assert len(records(site, "questions")) == 1
    assert values(site) == [b"one"]


def test_a_message_whose_sender_never_answers_is_undecided_until_somebody_ends_it(site: Site) -> None:
    put(site, b"one", "1")
    pass_seconds(site, 6)
    assert len(records(site, "questions")) == 2
    assert values(site, "undecided") == [b"one"]
    assert listed(site) == [("1", "undecided")]
    put(site, None, "1", end="commit")
    pass_seconds(site, 0.5)
    assert values(site) == [b"one"]
    assert listed(site) == []


def test_nobody_is_asked_about_a_message_that_was_deleted(site: Site) -> None:
    put(site, b"one", "1")
    two = put(site, b"two", "2")
    pass_seconds(site, 0.5)
    asked = [{"name": "halves", "partitions": [{"partition_index": 0, "offset": two}]}]
    assert site.ask(21, 2, topics=asked, timeout_ms=1000).topics[0].partitions[0].error_code == 0
    pass_seconds(site, 1)
    assert values(site, "questions") == [b"two"]
    assert listed(site) == [("2", "prepared")]


def test_a_half_message_is_found_by_its_id_among_any_number(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.api.describe_delays.MOST_RECORDS", 3)
    offsets = [put(site, b"%d" % at, str(at)) for at in range(6)]
    pass_seconds(site, 0.5)
    asked = [{"name": "halves", "partition_indexes": [0]}]
    (found,) = site.ask(10002, 0, topics=asked, max_records=100, half_id="5").topics[0].partitions[0].records
    assert (found.half_id, found.offset) == ("5", offsets[5])
    assert site.ask(10002, 0, topics=asked, max_records=100, half_id="x").topics[0].partitions[0].records == []
    assert [half_id for half_id, _ in listed(site)] == ["0", "1", "2"]


def test_records_that_mean_nothing_stop_no_other(site: Site) -> None:
    site.produce("halves", bytes(build_batch([(site.clock.wall_ms(), None, b"plain", None)])))
    put(site, b"one", "1")
    put(site, None, "1", end="perhaps")
    put(site, None, "1", end="commit")
    pass_seconds(site, 0.5)
    assert values(site) == [b"one"]
    (half,) = site.broker.delays.partitions.values()
    assert len(half.schedule.malformed) == 2


def test_a_missing_topic_of_questions_is_told_of_and_used_when_it_is_there(new_site: Callable[..., Site]) -> None:
    site = new_site()
    site.topic("orders")
    site.topic("halves", **CONFIG)
    put(site, b"one", "1")
    pass_seconds(site, 2)
    (half,) = site.broker.delays.partitions.values()
    assert half.stalled is not None and "questions" in half.stalled
    site.topic("questions")
    pass_seconds(site, 1.2)
    assert values(site, "questions") == [b"one"]
    assert half.stalled is None


def cancel(site: Site, *offsets: int) -> dict[int, str | None]:
    answer = site.ask(10003, 0, topic="halves", partition_index=0, offsets=list(offsets))
    assert answer.error_code == 0
    return {each.offset: each.refusal for each in answer.results}


def test_half_messages_are_rolled_back_and_not_cancelled(site: Site) -> None:
    offset = put(site, b"one", "1")
    pass_seconds(site, 0.5)
    refusal = cancel(site, offset)[offset]
    assert refusal is not None and "tidelog half rollback" in refusal
    assert listed(site) == [("1", "prepared")]


@pytest.mark.parametrize("restarts", [True, False])
def test_a_committed_message_that_is_stopped_is_shown_with_its_id_and_can_be_cancelled(
    new_site: Callable[..., Site], restarts: bool
) -> None:
    site = new_site()
    site.topic("orders", max_message_bytes="1000")
    site.topic("halves", tidelog_half_target="orders")
    prepared_ms = site.clock.wall_ms()
    large = put(site, b"x" * 2000, "large")
    put(site, b"small", "small")
    put(site, None, "large", end="commit")
    pass_seconds(site, 0.5)
    asked = [{"name": "halves", "partition_indexes": [0]}]
    result = site.ask(10002, 0, topics=asked, max_records=100).topics[0].partitions[0]
    assert result.is_half
    stopped, _ = result.records
    assert (stopped.state, stopped.half_id, stopped.due_ms) == ("stopped", "large", prepared_ms)
    assert "max.message.bytes" in stopped.reason
    assert cancel(site, large) == {large: None}
    if restarts:
        site.stop(clean=False)
        site.start()
        pass_seconds(site, 0.5)
    assert listed(site) == [("small", "prepared")]
    put(site, None, "small", end="commit")
    pass_seconds(site, 0.5)
    assert values(site) == [b"small"]


@pytest.mark.parametrize("restarts", [True, False])
def test_records_that_mean_nothing_are_listed_with_their_reason_and_can_be_cancelled(
    site: Site, restarts: bool
) -> None:
    one = put(site, b"one", "1")
    plain = site.produce("halves", bytes(build_batch([(-1, None, b"plain", None)]))).base_offset
    again = put(site, b"again", "1")
    pass_seconds(site, 0.5)
    asked = [{"name": "halves", "partition_indexes": [0]}]
    found = site.ask(10002, 0, topics=asked, max_records=100).topics[0].partitions[0].records
    assert [(each.offset, each.half_id, each.due_ms < 0, bool(each.reason)) for each in found] == [
        (plain, None, True, True),
        (again, "1", False, True),
        (one, "1", False, False),
    ]
    assert cancel(site, plain, again) == {plain: None, again: None}
    if restarts:
        site.stop(clean=False)
        site.start()
        pass_seconds(site, 0.5)
    assert listed(site) == [("1", "prepared")]


def test_the_copy_of_an_undecided_message_is_the_message_itself_with_its_id_in_a_header(site: Site) -> None:
    headers = [("colour", b"red"), ("tidelog-half-id", b"1")]
    site.produce("halves", bytes(build_batch([(site.clock.wall_ms(), b"key", b"one", headers)])))
    pass_seconds(site, 6)
    (copy,) = records(site, "undecided")
    assert (copy.key, copy.value) == (b"key", b"one")
    found = dict(copy.headers)
    assert (found["colour"], found["tidelog-half-id"], found["tidelog-half-check"]) == (b"red", b"1", b"2")


def test_a_delivery_that_was_not_noted_before_a_crash_is_not_repeated(site: Site) -> None:
    for step in range(10):
        put(site, b"%d" % step, str(step))
        put(site, None, str(step), end="commit")
        site.workers._held = []
        site.pass_time(50)
        for _ in range(step):
            site.workers.step()
        site.stop(clean=False)
        site.start()
        pass_seconds(site, 0.5)
    assert values(site) == [b"%d" % step for step in range(10)]
