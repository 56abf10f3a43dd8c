"""An append that meets a broken invariant is a failed append: whoever waits for it is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from api_site import Asked, Site, batch

from tidelog.wire.errors import ErrorCode

OK = 0
BROKEN = ErrorCode.UNKNOWN_SERVER_ERROR
OFFSETS = "__consumer_offsets"


@pytest.fixture
def site(new_site: Callable[..., Site]) -> Site:
    made = new_site(**{"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"})
    made.topic("t", 2)
    for kind in (0, 1):
        made.ask(10, 4, key_type=kind, coordinator_keys=["g"])
    return made


def break_invariant(site: Site, topic: str, index: int = 0) -> Callable[[], None]:
    """Nothing can be appended until what this gives is called."""
    partition = site.broker.data.partition(topic, index)
    partition.high_watermark += 1_000

    def mend() -> None:
        partition.high_watermark -= 1_000
        assert site.reports
        assert all(isinstance(error, AssertionError) for _, error in site.reports)
        site.reports.clear()

    return mend


def join(site: Site, member_id: str) -> Asked:
    protocols = [{"name": "range", "metadata": b"m"}]
    group = {"group_id": "g", "protocol_type": "consumer", "protocols": protocols, "member_id": member_id}
    return site.send(11, 3, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, **group)


def sync(site: Site, member_id: str, generation: int, *assigned: str) -> Asked:
    assignments = [{"member_id": each, "assignment": b"a"} for each in assigned]
    return site.send(14, 3, group_id="g", generation_id=generation, member_id=member_id, assignments=assignments)


def commit(site: Site) -> int:
    asked = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 5}]}]
    code: int = site.ask(8, 8, group_id="simple", topics=asked).topics[0].partitions[0].error_code
    return code


def committed(site: Site) -> tuple[int, int]:
    asked = [{"name": "t", "partition_indexes": [0]}]
    (found,) = site.ask(9, 8, groups=[{"group_id": "simple", "topics": asked}]).groups
    return found.error_code, found.topics[0].partitions[0].committed_offset if found.topics else -1


def test_members_who_wait_for_an_assignment_that_cannot_be_stored_are_answered(site: Site) -> None:
    founding = join(site, "")
    site.pass_time(1)
    first = founding.answer.member_id
    joining = join(site, "")
    generation = join(site, first).answer.generation_id
    second = joining.answer.member_id
    waiting = sync(site, second, generation)
    assert not waiting.exchange.answered
    mend = break_invariant(site, OFFSETS)
    leading = sync(site, first, generation, first, second)
    assert (leading.answer.error_code, waiting.answer.error_code) == (BROKEN, BROKEN)
    mend()
    assert commit(site) == OK


def test_a_transaction_ends_once_its_markers_can_be_written(site: Site) -> None:
    who = site.ask(22, 4, transactional_id="x", transaction_timeout_ms=60_000)
    identity = {"transactional_id": "x", "producer_id": who.producer_id, "producer_epoch": who.producer_epoch}
    site.ask(
        24,
        3,
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.producer_epoch,
        v3_and_below_topics=[{"name": "t", "partitions": [0, 1]}],
    )
    mend = break_invariant(site, "t", 0)
    assert site.ask(26, 3, committed=True, **identity).error_code == OK
    mend()
    site.pass_time(10_000)
    (described,) = site.ask(65, 0, transactional_ids=["x"]).transaction_states
    assert described.transaction_state == "CompleteCommit"


def test_of_a_produce_to_several_partitions_only_the_broken_one_fails(site: Site) -> None:
    mend = break_invariant(site, "t", 1)
    data = [{"index": index, "records": batch()} for index in (0, 1)]
    asked = [{"name": "t", "partition_data": data}]
    (topic,) = site.ask(0, 9, acks=-1, timeout_ms=1000, topic_data=asked).responses
    assert [each.error_code for each in topic.partition_responses] == [OK, BROKEN]
    mend()


def test_a_coordinator_that_could_not_take_in_what_is_written_decides_nothing_until_it_is_loaded(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> None:
        raise ZeroDivisionError

    room = site.broker.groups.room
    monkeypatch.setattr(room, "replay", broken)
    assert commit(site) == BROKEN
    monkeypatch.undo()
    assert isinstance(site.reports.pop()[1], ZeroDivisionError)
    assert [line for line in site.notices if f"{OFFSETS}-0 holds records" in line and "Restart" in line]
    assert committed(site)[0] == ErrorCode.NOT_COORDINATOR
    site.stop()
    site.start()
    assert committed(site) == (OK, 5)
