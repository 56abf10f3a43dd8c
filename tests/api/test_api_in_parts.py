"""Requests of many items are decided some hundreds at a time, and answered as if they had been decided at once."""

from __future__ import annotations

from typing import Any

import pytest
from api_site import Site

from tidelog.control.parts import PART_ITEMS
from tidelog.wire.errors import ErrorCode

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS = 19, 20, 37, 44
FIND_COORDINATOR, DELETE_GROUPS, ELECT_LEADERS = 10, 42, 43
NAMES = [f"t{at}" for at in range(3 * PART_ITEMS)]
OK = ErrorCode.NONE


@pytest.fixture
def site(site: Site) -> Site:
    """Keeps the size of the largest decision that the store is handed."""
    submit = site.store.submit
    site.largest = 0  # type: ignore[attr-defined]

    def submitted(ops: Any, done: Any) -> None:
        site.largest = max(site.largest, len(ops))  # type: ignore[attr-defined]
        submit(ops, done)

    site.store.submit = submitted  # type: ignore[method-assign]
    return site


def create(site: Site, names: list[str]) -> list[tuple[str, int]]:
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    answer = site.ask(CREATE_TOPICS, 7, topics=topics, timeout_ms=1000)
    return [(topic.name, topic.error_code) for topic in answer.topics]


def test_many_topics_are_created_and_deleted_in_parts_and_answered_in_order(site: Site) -> None:
    assert create(site, NAMES[:10]) == [(name, OK) for name in NAMES[:10]]
    per_topic = site.largest / 10  # type: ignore[attr-defined]
    assert create(site, NAMES[10:]) == [(name, OK) for name in NAMES[10:]]
    assert site.largest <= (per_topic + 1) * PART_ITEMS  # type: ignore[attr-defined]
    site.largest = 0  # type: ignore[attr-defined]
    answer = site.ask(DELETE_TOPICS, 6, topics=[{"name": name} for name in NAMES], timeout_ms=1000)
    assert [(each.name, each.error_code) for each in answer.responses] == [(name, OK) for name in NAMES]
    assert 0 < site.largest <= (per_topic + 1) * PART_ITEMS  # type: ignore[attr-defined]
    assert not site.broker.cluster.image.topics


def test_a_name_that_stands_twice_in_a_long_request_is_refused_wherever_it_stands(site: Site) -> None:
    found = dict(create(site, [*NAMES, NAMES[0]]))
    assert found.pop(NAMES[0]) == ErrorCode.INVALID_REQUEST
    assert set(found.values()) == {OK} and len(found) == len(NAMES) - 1


def test_names_that_collide_are_refused_wherever_they_stand_in_a_long_request(site: Site) -> None:
    found = dict(create(site, ["a.b", *NAMES, "a_b"]))
    assert (found["a.b"], found["a_b"]) == (OK, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_a_topic_that_a_long_request_names_in_two_ways_is_not_deleted(site: Site) -> None:
    create(site, NAMES)
    twice = {"name": None, "topic_id": site.broker.cluster.topic_id(NAMES[0])}
    site.ask(DELETE_TOPICS, 6, topics=[*({"name": name} for name in NAMES), twice], timeout_ms=1000)
    assert set(site.broker.cluster.image.topics) == {NAMES[0]}


def test_too_many_partitions_in_one_request_are_refused_as_a_whole(site: Site) -> None:
    topics = [{"name": name, "num_partitions": 20, "replication_factor": 1} for name in NAMES]
    answer = site.ask(CREATE_TOPICS, 7, topics=topics, timeout_ms=1000)
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.POLICY_VIOLATION}


def test_partitions_and_settings_of_many_topics_change_in_parts(site: Site) -> None:
    create(site, NAMES)
    site.largest = 0  # type: ignore[attr-defined]
    wanted = [{"name": name, "count": 2, "assignments": None} for name in NAMES]
    grown = site.ask(CREATE_PARTITIONS, 3, topics=wanted, timeout_ms=1000)
    assert [(each.name, each.error_code) for each in grown.results] == [(name, OK) for name in NAMES]
    change = [{"name": "retention.ms", "config_operation": 0, "value": "77"}]
    resources = [{"resource_type": 2, "resource_name": name, "configs": change} for name in NAMES]
    altered = site.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=resources)
    assert [(each.resource_name, each.error_code) for each in altered.responses] == [(name, OK) for name in NAMES]
    assert 0 < site.largest <= 8 * PART_ITEMS  # type: ignore[attr-defined]
    assert {site.broker.data.partition(name, 1).log.config.retention_ms for name in NAMES} == {77}


def test_names_that_collide_are_found_where_a_long_request_is_only_validated(site: Site) -> None:
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ["a.b", *NAMES, "a_b"]]
    answer = site.ask(CREATE_TOPICS, 7, topics=topics, timeout_ms=1000, validate_only=True)
    found = {topic.name: topic.error_code for topic in answer.topics}
    assert (found["a.b"], found["a_b"], found["t7"]) == (OK, ErrorCode.INVALID_TOPIC_EXCEPTION, OK)
    assert not site.broker.cluster.image.topics


def test_coordinators_of_many_groups_are_looked_for_in_parts(site: Site) -> None:
    keys = [f"group-{at}" * 5 for at in range(1000)]
    turns = site.workers.turns
    found = site.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=keys).coordinators
    assert [each.key for each in found] == keys and {each.error_code for each in found} == {OK}
    assert site.workers.turns - turns >= 5


def test_many_groups_are_deleted_in_parts_and_each_is_answered_once(site: Site) -> None:
    site.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    topic = {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 3}]}
    site.topic("t")
    groups = [f"group-{at}" * 5 for at in range(1000)]
    for group in groups[:3]:
        site.ask(8, 8, group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic])
    turns = site.workers.turns
    answer = site.ask(DELETE_GROUPS, 2, groups_names=[*groups, groups[0]])
    codes = {each.group_id: each.error_code for each in answer.results}
    assert len(answer.results) == len(groups)
    assert [codes[group] for group in groups[:4]] == [OK, OK, OK, ErrorCode.GROUP_ID_NOT_FOUND]
    assert site.workers.turns - turns >= 5


def test_elections_of_many_partitions_are_held_in_parts(site: Site) -> None:
    create(site, NAMES)
    wanted = [{"topic": name, "partitions": [0, 1, 2, 3]} for name in NAMES]
    answer = site.ask(ELECT_LEADERS, 2, election_type=0, topic_partitions=wanted, timeout_ms=1000)
    found = {each.topic: [p.error_code for p in each.partition_result] for each in answer.replica_election_results}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(found) == set(NAMES)
    assert all(codes == [ErrorCode.ELECTION_NOT_NEEDED, unknown, unknown, unknown] for codes in found.values())
