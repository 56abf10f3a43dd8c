"""Topics, partitions, elections, configurations: what the controller decided, as a client reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from api_site import UNKNOWN_ID, Site

from tidelog.wire.errors import ErrorCode

OK = 0
NO_ID = bytes(16)
SERVER_DEFAULT, TOPIC_CONFIG = 5, 1


def delete_by_ref(site: Site, *topics: dict[str, Any]) -> list[tuple[str | None, int]]:
    answer = site.ask(20, 6, topics=list(topics), timeout_ms=0)
    return [(r.name, r.error_code) for r in answer.responses]


# --- topics -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 8))
def test_a_created_topic_is_usable_when_it_is_answered(site: Site, version: int) -> None:
    wanted = {"name": "t", "num_partitions": 2, "replication_factor": 1}
    (created,) = site.ask(19, version, topics=[wanted], timeout_ms=0).topics
    assert created.error_code == OK
    assert site.produce("t", partition=1).error_code == OK
    if version >= 7:
        assert created.topic_id == site.broker.cluster.topic_id("t")
    if version >= 5:
        assert (created.num_partitions, created.replication_factor) == (2, 1)
        assert {c.name: c.config_source for c in created.configs}["retention.ms"] == SERVER_DEFAULT


def test_validating_creates_nothing(site: Site) -> None:
    wanted = {"name": "t", "num_partitions": -1, "replication_factor": -1}
    (created,) = site.ask(19, 7, topics=[wanted], timeout_ms=0, validate_only=True).topics
    assert created.error_code == OK
    assert "t" not in site.broker.cluster.image.topics


def test_names_that_differ_in_dots_and_underscores_collide_within_a_request(site: Site) -> None:
    names = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("a.b", "a_b")]
    first, second = site.ask(19, 7, topics=names, timeout_ms=0).topics
    assert (first.error_code, second.error_code) == (OK, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_a_topic_named_by_both_its_name_and_its_id_is_not_deleted(site: Site) -> None:
    topic_id = site.topic("t")
    by_both = ({"name": None, "topic_id": topic_id}, {"name": "t", "topic_id": NO_ID})
    assert delete_by_ref(site, *by_both) == [("t", ErrorCode.INVALID_REQUEST)]
    assert "t" in site.broker.cluster.image.topics
    assert delete_by_ref(site, by_both[0]) == [("t", OK)]
    assert delete_by_ref(site, by_both[0]) == [(None, ErrorCode.UNKNOWN_TOPIC_ID)]


def test_a_refused_deletion_says_why(site: Site) -> None:
    (refused,) = site.ask(20, 5, topic_names=["nope"], timeout_ms=0).responses
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused.error_message


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_a_broker_that_does_not_delete_says_so_in_words_that_the_client_knows(
    new_site: Callable[..., Site], version: int, code: int
) -> None:
    site = new_site(**{"delete.topic.enable": "false"})
    site.topic("t")
    (refused,) = site.ask(20, version, topic_names=["t"], timeout_ms=0).responses
    assert (refused.name, refused.error_code) == ("t", code)
    assert "t" in site.broker.cluster.image.topics


# --- elections --------------------------------------------------------------------------------------


def test_an_election_that_is_not_needed_says_so_and_every_topic_asked_for_is_named(site: Site) -> None:
    site.topic("t", 2)
    site.topic("u")
    asked = [{"topic": "t", "partitions": [0, 9]}, {"topic": "u", "partitions": []}]
    t, u = site.ask(43, 2, election_type=0, topic_partitions=asked, timeout_ms=0).replica_election_results
    codes = [(p.partition_id, p.error_code, bool(p.error_message)) for p in t.partition_result]
    assert codes == [(0, ErrorCode.ELECTION_NOT_NEEDED, True), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)]
    assert (u.topic, u.partition_result) == ("u", [])


def test_electing_everything_names_all_topics_and_no_partition_that_needed_none(site: Site) -> None:
    site.topic("t", 2)
    answer = site.ask(43, 2, election_type=0, topic_partitions=None, timeout_ms=0)
    assert [(r.topic, r.partition_result) for r in answer.replica_election_results] == [("t", [])]


def test_an_unknown_kind_of_election_is_refused_at_the_top_and_on_each_partition(site: Site) -> None:
    site.topic("t")
    asked = [{"topic": "t", "partitions": [0]}]
    answer = site.ask(43, 1, election_type=5, topic_partitions=asked, timeout_ms=0)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.replica_election_results[0].partition_result[0].error_code == ErrorCode.INVALID_REQUEST


# --- metadata ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [10, 11])
def test_topics_are_not_asked_for_by_id_before_version_12(site: Site, version: int) -> None:
    topic_id = site.topic("t")
    (topic,) = site.ask(3, version, topics=[{"name": None, "topic_id": topic_id}]).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.INVALID_REQUEST, "", topic_id)


def test_a_topic_without_a_name_and_an_id_is_refused(site: Site) -> None:
    answer = site.ask(3, 13, topics=[{"name": None, "topic_id": NO_ID}])
    assert (answer.error_code, answer.topics[0].error_code) == (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST)


def test_an_unknown_id_is_answered_without_a_name(site: Site) -> None:
    (topic,) = site.ask(3, 12, topics=[{"name": None, "topic_id": UNKNOWN_ID}]).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, UNKNOWN_ID)


def test_no_list_means_all_topics_and_an_empty_one_none_except_in_version_0(site: Site) -> None:
    site.topic("t")
    assert [t.name for t in site.ask(3, 0, topics=[]).topics] == ["t"]
    assert site.ask(3, 1, topics=[]).topics == []
    assert [t.name for t in site.ask(3, 1, topics=None).topics] == ["t"]


def test_a_leader_that_is_gone_or_does_not_listen_here_is_told_as_none_with_its_epoch(site: Site) -> None:
    site.topic("t")
    image = site.broker.cluster.image
    partition = image.topics["t"].partitions[0] = image.topics["t"].partitions[0]._replace(leader_epoch=7)
    (own,) = image.brokers.values()

    def told(version: int) -> tuple[int, int, int, list[int]]:
        (topic,) = site.ask(3, version, topics=[{"name": "t"}]).topics
        (found,) = topic.partitions
        (same,) = site.ask(75, 0, topics=[{"name": "t"}], response_partition_limit=9).topics[0].partitions
        assert (same.leader_id, same.leader_epoch) == (found.leader_id, found.leader_epoch)
        return found.error_code, found.leader_id, found.leader_epoch, found.offline_replicas

    assert told(12) == (OK, own.broker_id, 7, [])
    elsewhere = own.endpoints[0]._replace(listener="INSIDE")
    image.brokers[own.broker_id] = own._replace(endpoints=(elsewhere,))
    assert told(12) == (ErrorCode.LISTENER_NOT_FOUND, -1, 7, [own.broker_id])
    assert told(7)[0] == ErrorCode.LISTENER_NOT_FOUND
    image.topics["t"].partitions[0] = partition._replace(leader=-1)
    assert told(12)[:3] == (ErrorCode.LEADER_NOT_AVAILABLE, -1, 7)
    image.brokers[own.broker_id] = own


def test_a_client_that_knows_no_such_error_is_told_that_a_leader_which_does_not_listen_here_is_not_available(
    site: Site,
) -> None:
    site.topic("t")
    brokers = site.broker.cluster.image.brokers
    (own,) = brokers.values()
    brokers[own.broker_id] = own._replace(endpoints=(own.endpoints[0]._replace(listener="INSIDE"),))
    (topic,) = site.ask(3, 5, topics=[{"name": "t"}]).topics
    assert topic.partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    brokers[own.broker_id] = own


def test_an_unknown_topic_is_created_only_where_the_request_allows_it(site: Site) -> None:
    (topic,) = site.ask(3, 4, topics=[{"name": "t"}], allow_auto_topic_creation=False).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # It is made, and told of from the next request on, as clients of Apache Kafka expect.
    (topic,) = site.ask(3, 4, topics=[{"name": "t"}], allow_auto_topic_creation=True).topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    (topic,) = site.ask(3, 4, topics=[{"name": "t"}], allow_auto_topic_creation=False).topics
    assert (topic.error_code, len(topic.partitions)) == (OK, 1)
    (topic,) = site.ask(3, 4, topics=[{"name": "a/b"}], allow_auto_topic_creation=True).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_deleted_topic_is_unknown_to_the_request_that_makes_it_again(site: Site) -> None:
    site.topic("t")
    site.ask(20, 6, topics=[{"name": "t"}], timeout_ms=1000)
    (topic,) = site.ask(3, 1, topics=[{"name": "t"}]).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_feature_stays_at_the_level_that_it_is_announced_at(site: Site, version: int) -> None:
    how = {"allow_downgrade": True} if version == 0 else {"upgrade_type": 2}
    lower = [{"feature": "transaction.version", "max_version_level": 1, **how}]
    refused = site.ask(57, version, feature_updates=lower)
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "transaction.version cannot be at level 1: it runs at level 2" in refused.error_message
    who = {"client_software_name": "x", "client_software_version": "1"}
    finalized = {f.name: f.max_version_level for f in site.ask(18, 4, **who).finalized_features}
    assert finalized == {"group.version": 1, "transaction.version": 2}


def test_features_that_may_be_at_level_zero_are_hidden_from_clients_that_do_not_know_that(site: Site) -> None:
    who = {"client_software_name": "x", "client_software_version": "1"}
    assert site.ask(18, 3, **who).supported_features == []
    supported = {f.name: (f.min_version, f.max_version) for f in site.ask(18, 4, **who).supported_features}
    assert supported == {"group.version": (0, 1), "transaction.version": (0, 2)}
    finalized = {f.name: f.max_version_level for f in site.ask(18, 3, **who).finalized_features}
    assert finalized == {"group.version": 1, "transaction.version": 2}
    assert site.ask(18, 0).error_code == OK


@pytest.mark.parametrize("name", ["", "a b", "-x", "x-"])
def test_a_client_that_names_itself_badly_is_refused(site: Site, name: str) -> None:
    answer = site.ask(18, 3, client_software_name=name, client_software_version="1")
    assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])


# --- SCRAM ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("users", [None, []])
def test_no_user_has_scram_credentials(site: Site, users: list[object] | None) -> None:
    answer = site.ask(50, 0, users=users)
    assert (answer.error_code, answer.results) == (OK, [])


def test_a_user_without_scram_credentials_does_not_exist_and_is_asked_for_once(site: Site) -> None:
    answer = site.ask(50, 0, users=[{"name": name} for name in ("a", "b", "a")])
    told = {result.user: (result.error_code, result.credential_infos) for result in answer.results}
    assert told == {"a": (ErrorCode.DUPLICATE_RESOURCE, []), "b": (ErrorCode.RESOURCE_NOT_FOUND, [])}


# --- pages of partitions ----------------------------------------------------------------------------


def page(site: Site, *topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    names = [{"name": name} for name in topics]
    return site.ask(75, 0, topics=names, response_partition_limit=limit, cursor=at)


def shown(answer: Any) -> list[tuple[str, list[int]]]:
    return [(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics]


def test_pages_cover_every_partition_once_and_in_order(site: Site) -> None:
    for name, count in (("b", 3), ("a", 2), ("c", 1)):
        site.topic(name, count)
    for limit in (-1, 0, 1, 2, 3, 4, 6, 7):
        seen: list[tuple[str, int]] = []
        cursor = None
        while True:
            answer = page(site, limit=limit, cursor=cursor)
            seen += [(name, index) for name, indexes in shown(answer) for index in indexes]
            if answer.next_cursor is None:
                break
            cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
        assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


def test_a_full_page_goes_on_with_the_next_topic_even_if_it_does_not_exist(site: Site) -> None:
    site.topic("a", 2)
    answer = page(site, "a", "nope", limit=2)
    assert shown(answer) == [("a", [0, 1])]
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("nope", 0)


@pytest.mark.parametrize("cursor", [("a", -1), ("b", 0), ("z", 0)])
def test_a_cursor_that_does_not_fit_is_refused_on_every_topic(site: Site, cursor: tuple[str, int]) -> None:
    site.topic("a")
    answer = page(site, "a", "nope", cursor=cursor)
    assert [(t.name, t.error_code) for t in answer.topics] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("nope", ErrorCode.INVALID_REQUEST),
    ]


# --- configurations ---------------------------------------------------------------------------------


def test_documentation_comes_only_when_it_is_asked_for(site: Site) -> None:
    site.topic("t")

    def documentation(wanted: bool) -> str | None:
        resources = [{"resource_type": 2, "resource_name": "t", "configuration_keys": ["retention.ms"]}]
        (result,) = site.ask(32, 4, resources=resources, include_documentation=wanted).results
        text: str | None = result.configs[0].documentation
        return text

    assert documentation(False) is None
    assert documentation(True)


def test_an_altered_topic_is_described_and_its_log_obeys(site: Site) -> None:
    site.topic("t")
    change = [{"name": "retention.ms", "config_operation": 0, "value": "77"}]
    resources = [{"resource_type": 2, "resource_name": "t", "configs": change}]
    assert site.ask(44, 1, resources=resources).responses[0].error_code == OK
    keys = [{"resource_type": 2, "resource_name": "t", "configuration_keys": None}]
    (result,) = site.ask(32, 4, resources=keys).results
    assert ("77", TOPIC_CONFIG) in [(c.value, c.config_source) for c in result.configs if c.name == "retention.ms"]
    assert site.broker.data.partition("t", 0).log.config.retention_ms == 77


def test_the_same_resource_twice_is_refused(site: Site) -> None:
    site.topic("t")
    resources = [{"resource_type": 2, "resource_name": "t", "configs": []}] * 2
    assert [r.error_code for r in site.ask(33, 2, resources=resources).responses] == [ErrorCode.INVALID_REQUEST] * 2


# --- loggers ------------------------------------------------------------------------------------------


def described_loggers(site: Site, name: str, keys: list[str] | None = None) -> tuple[int, list[tuple[str, str, int]]]:
    asked = [{"resource_type": 8, "resource_name": name, "configuration_keys": keys}]
    (result,) = site.ask(32, 4, resources=asked).results
    return result.error_code, [(entry.name, entry.value, entry.config_source) for entry in result.configs]


def altered_logger(site: Site, logger: str, operation: int, value: str | None, name: str = "0", **how: bool) -> int:
    change = [{"name": logger, "config_operation": operation, "value": value}]
    asked = [{"resource_type": 8, "resource_name": name, "configs": change}]
    (result,) = site.ask(44, 1, resources=asked, **how).responses
    code: int = result.error_code
    return code


def test_how_much_a_broker_says_can_be_asked_and_altered(site: Site) -> None:
    told: list[str] = []
    site.broker.log_level.on_change = told.append
    assert described_loggers(site, "0") == (0, [("root", "INFO", 6)])
    assert altered_logger(site, "root", 0, "DEBUG", validate_only=True) == 0
    assert (told, described_loggers(site, "0")) == ([], (0, [("root", "INFO", 6)]))
    assert altered_logger(site, "root", 0, "DEBUG") == 0
    assert (told, described_loggers(site, "0", ["root"])) == (["DEBUG"], (0, [("root", "DEBUG", 6)]))
    assert described_loggers(site, "0", ["kafka.server"]) == (0, [])


def test_a_logger_that_is_not_there_and_a_level_that_is_none_are_refused(site: Site) -> None:
    assert described_loggers(site, "7")[0] == ErrorCode.INVALID_REQUEST
    assert altered_logger(site, "root", 0, "DEBUG", name="7") == ErrorCode.INVALID_REQUEST
    assert altered_logger(site, "root", 1, None) == ErrorCode.INVALID_REQUEST
    assert altered_logger(site, "root", 2, "DEBUG") == ErrorCode.INVALID_REQUEST
    assert altered_logger(site, "root", 0, "LOUD") == ErrorCode.INVALID_CONFIG
    assert altered_logger(site, "kafka.server", 0, "DEBUG") == ErrorCode.INVALID_CONFIG
    assert described_loggers(site, "0") == (0, [("root", "INFO", 6)])


def test_loggers_and_other_resources_are_altered_by_one_request(site: Site) -> None:
    site.topic("t")
    asked = [
        {
            "resource_type": 8,
            "resource_name": "0",
            "configs": [{"name": "root", "config_operation": 0, "value": "WARN"}],
        },
        {
            "resource_type": 2,
            "resource_name": "t",
            "configs": [{"name": "retention.ms", "config_operation": 0, "value": "5"}],
        },
    ]
    answers = site.ask(44, 1, resources=asked).responses
    assert {(a.resource_type, a.resource_name, a.error_code) for a in answers} == {(8, "0", 0), (2, "t", 0)}
    assert described_loggers(site, "0") == (0, [("root", "WARN", 6)])
