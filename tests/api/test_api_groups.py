"""What the broker does around its coordinators: their topics, their settings, a partition that cannot be loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from api_site import Site, batch

from tidelog.group.records import offset_key
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import build_batch

pytestmark = pytest.mark.layouts

OK = 0
OFFSETS, STATE = "__consumer_offsets", "__transaction_state"
NO_OPERATIONS = -(2**31)


def find(site: Site, *groups: str, kind: int = 0) -> list[int]:
    found = site.ask(10, 4, key_type=kind, coordinator_keys=list(groups))
    return [coordinator.error_code for coordinator in found.coordinators]


def commit(site: Site, group: str, offset: int, topic: str = "t", partitions: int = 1) -> list[int]:
    wanted = [{"partition_index": at, "committed_offset": offset} for at in range(partitions)]
    answer = site.ask(
        8, 8, group_id=group, generation_id_or_member_epoch=-1, topics=[{"name": topic, "partitions": wanted}]
    )
    return [p.error_code for t in answer.topics for p in t.partitions]


def committed(site: Site, group: str, topic: str = "t", partition: int = 0) -> int:
    asked = [{"name": topic, "partition_indexes": [partition]}]
    (found,) = site.ask(9, 8, groups=[{"group_id": group, "topics": asked}]).groups
    assert found.error_code == OK
    offset: int = found.topics[0].partitions[0].committed_offset
    return offset


def partitions_of(site: Site, topic: str) -> int:
    (found,) = site.ask(3, 12, topics=[{"name": topic}]).topics
    return len(found.partitions)


# --- their topics -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("topic", "kind", "count"), [(OFFSETS, 0, 2), (STATE, 1, 50)])
def test_a_consumer_that_names_an_internal_topic_first_makes_it_what_its_coordinator_needs(
    site: Site, topic: str, kind: int, count: int
) -> None:
    site.ask(3, 12, topics=[{"name": topic}], allow_auto_topic_creation=True)
    (made,) = site.ask(3, 12, topics=[{"name": topic}], allow_auto_topic_creation=True).topics
    assert (made.error_code, made.is_internal, partitions_of(site, topic)) == (OK, True, count)
    asked = [{"resource_type": 2, "resource_name": topic, "configuration_keys": ["cleanup.policy"]}]
    (described,) = site.ask(32, 4, resources=asked).results
    assert [entry.value for entry in described.configs] == ["compact"]
    assert find(site, *"abcdefgh", kind=kind) == [OK] * 8


def test_what_a_group_committed_is_found_whatever_the_settings_say_of_partitions_by_now(
    new_site: Callable[..., Site],
) -> None:
    site = new_site(**{"offsets.topic.num.partitions": "3"})
    site.topic("t")
    groups = [f"group-{n}" for n in range(12)]
    find(site, "any")
    assert [commit(site, group, n) for n, group in enumerate(groups)] == [[OK]] * 12
    site.stop()
    site._settings["offsets.topic.num.partitions"] = "50"
    site.start()
    assert find(site, *groups) == [OK] * 12
    assert [committed(site, group) for group in groups] == list(range(12))


# --- a partition that cannot be loaded ----------------------------------------------------------------


def unreadable() -> bytes:
    return bytes(build_batch([(1, offset_key("lost", "t", 0), b"\0\4not a value", None)]))


def test_groups_on_a_partition_that_cannot_be_read_have_no_coordinator_and_the_others_go_on(site: Site) -> None:
    site.topic("t")
    find(site, "any")
    groups = [f"group-{n}" for n in range(8)]
    for group in groups:
        assert commit(site, group, 5) == [OK]
    broken = site.broker.groups.room.partition_for("group-0")
    lost = [group for group in groups if site.broker.groups.room.partition_for(group) == broken]
    assert 0 < len(lost) < len(groups)
    site.broker.data.partition(OFFSETS, broken).append(memoryview(bytearray(unreadable())), -1, site.clock.wall_ms())
    site.stop()
    site.start()
    (told,) = [notice for notice in site.notices if "cannot be loaded" in notice]
    assert told.startswith(f"{OFFSETS}-{broken} cannot be loaded from offset 0 (") and "tidelog doctor" in told
    listed = site.ask(16, 5)
    assert listed.error_code == OK
    assert sorted(group.group_id for group in listed.groups) == sorted(set(groups) - set(lost))
    beat: dict[str, Any] = {"generation_id": 1, "member_id": "m"}
    assert site.ask(12, 4, group_id=lost[0], **beat).error_code == ErrorCode.NOT_COORDINATOR
    for group in set(groups) - set(lost):
        assert committed(site, group) == 5


def test_a_partition_whose_bytes_cannot_be_read_is_given_up_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.topic("t")
    find(site, "any")
    assert commit(site, "g", 5) == [OK]
    site.stop()

    def torn(*_: Any) -> None:
        raise OSError(5, "torn")

    monkeypatch.setattr("tidelog.coordinator.coordination.parse", torn)
    site.start()
    assert [notice for notice in site.notices if "cannot be loaded" in notice and "torn" in notice]
    assert site.ask(16, 5).error_code == OK
    assert commit(site, "g", 6) == [ErrorCode.NOT_COORDINATOR]


# --- many tombstones ----------------------------------------------------------------------------------


def test_more_offsets_than_fit_into_a_batch_go_with_their_topic(new_site: Callable[..., Site]) -> None:
    site = new_site(**{"offsets.topic.num.partitions": "1", "message.max.bytes": "400000"})
    site.topic("t", 100)
    find(site, "any")
    groups = [f"{'g' * 60}-{n}" for n in range(60)]
    for group in groups:
        assert commit(site, group, 7, partitions=100) == [OK] * 100
    (deleted,) = site.ask(20, 6, topics=[{"name": "t"}], timeout_ms=1000).responses
    assert deleted.error_code == OK
    site.topic("t", 100)
    assert {committed(site, group, partition=at) for group in groups for at in (0, 99)} == {-1}


# --- answers ------------------------------------------------------------------------------------------


def test_deleting_offsets_of_what_does_not_exist_says_so_beside_what_does(site: Site) -> None:
    site.topic("t", 2)
    find(site, "g")
    assert commit(site, "g", 3, partitions=2) == [OK, OK]
    wanted = [
        {"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 9}]},
        {"name": "missing", "partitions": [{"partition_index": 0}]},
    ]
    answer = site.ask(47, 0, group_id="g", topics=wanted)
    codes = {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (answer.error_code, codes) == (OK, {("t", 0): OK, ("t", 9): unknown, ("missing", 0): unknown})
    assert (committed(site, "g"), committed(site, "g", partition=1)) == (-1, 3)
    refused = site.ask(47, 0, group_id="nobody", topics=wanted)
    assert (refused.error_code, list(refused.topics)) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


def test_a_broker_without_the_consumer_protocol_refuses_its_requests(new_site: Callable[..., Site]) -> None:
    site = new_site(**{"group.coordinator.rebalance.protocols": "classic"})
    site.topic("t")
    find(site, "g")
    beat = site.ask(68, 0, group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"])
    assert beat.error_code == ErrorCode.UNSUPPORTED_VERSION
    (described,) = site.ask(69, 0, group_ids=["g"]).groups
    assert described.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_what_may_be_done_is_told_only_of_groups_that_are_found(site: Site) -> None:
    find(site, "g")
    (classic,) = site.ask(15, 6, groups=["g"], include_authorized_operations=True).groups
    (consumer,) = site.ask(69, 0, group_ids=["g"], include_authorized_operations=True).groups
    for group in (classic, consumer):
        assert (group.error_code, group.authorized_operations) == (ErrorCode.GROUP_ID_NOT_FOUND, NO_OPERATIONS)


# --- settings -----------------------------------------------------------------------------------------


def test_the_assignment_interval_follows_what_is_set_while_it_runs(site: Site) -> None:
    assert site.broker.groups.room._around.config.consumer_assignment_interval_ms == 1000
    change = [{"name": "group.consumer.assignment.interval.ms", "config_operation": 0, "value": "0"}]
    (altered,) = site.ask(44, 1, resources=[{"resource_type": 4, "resource_name": "", "configs": change}]).responses
    assert altered.error_code == OK
    assert site.broker.groups.room._around.config.consumer_assignment_interval_ms == 0


def transactional(site: Site, version: int) -> int:
    """The answer to a produce of a transaction that was never begun."""
    producer = site.ask(22, 4, transactional_id="tx", transaction_timeout_ms=60_000)
    assert producer.error_code == OK
    data = batch(
        producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=0, transactional=True
    )
    asked = [{"name": "t", "partition_data": [{"index": 0, "records": data}]}]
    answer = site.ask(0, version, transactional_id="tx", acks=-1, timeout_ms=1000, topic_data=asked)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


@pytest.mark.parametrize(("setting", "code"), [("true", ErrorCode.INVALID_TXN_STATE), ("false", OK)])
def test_a_partition_that_is_not_in_the_transaction_is_refused_unless_that_is_switched_off(
    new_site: Callable[..., Site], setting: str, code: int
) -> None:
    site = new_site(**{"transaction.partition.verification.enable": setting})
    site.topic("t")
    find(site, "tx", kind=1)
    assert transactional(site, 9) == code
