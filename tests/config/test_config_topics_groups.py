"""Topics and groups: overrides over the broker's values, what is refused, what is altered and how."""

from __future__ import annotations

import pytest

from tidelog.config.alter import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    check,
)
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.definitions import TOPIC_KEYS
from tidelog.config.errors import ConfigError
from tidelog.config.group_config import check_client_metrics, check_group, effective_group
from tidelog.config.topic_config import check_overrides, effective, fields
from tidelog.wire.errors import ErrorCode


def test_a_topic_has_the_brokers_values_and_its_own_over_them() -> None:
    config = BrokerConfig.of({"log.retention.hours": "1", "message.max.bytes": "2000", "log.cleanup.policy": "compact"})
    values = effective({"max.message.bytes": "500", "segment.bytes": "2097152"}, config)
    assert values["retention.ms"] == 3_600_000
    assert values["max.message.bytes"] == 500
    assert values["segment.bytes"] == 2097152
    assert values["cleanup.policy"] == ("compact",)
    assert values.keys() == TOPIC_KEYS.keys()
    assert effective({}, config)["max.message.bytes"] == 2000


def test_topics_follow_a_change_of_the_broker_unless_they_have_their_own() -> None:
    config = BrokerConfig()
    own = {"retention.ms": "5"}
    config.load_dynamic({"log.retention.ms": "9", "compression.type": "zstd"}, per_broker=False)
    assert (effective(own, config)["retention.ms"], effective({}, config)["retention.ms"]) == (5, 9)
    assert effective(own, config)["compression.type"] == "zstd"


def test_fields_are_snake_case_and_only_those_asked_for() -> None:
    config = BrokerConfig()
    named = fields({"cleanup.policy": "compact,delete"}, config)
    assert named["cleanup_policy"] == ("compact", "delete")
    assert named["segment_ms"] == 604_800_000 and named["min_cleanable_dirty_ratio"] == 0.5
    assert named["local_retention_ms"] == named["retention_ms"]
    assert fields({"retention.ms": "1"}, config, ("retention_ms", "flush_ms")) == {
        "retention_ms": 1,
        "flush_ms": 2**63 - 1,
    }


def test_the_internal_segment_size_stands_in_for_the_public_one() -> None:
    overrides = {"internal.segment.bytes": "1000"}
    check_overrides(overrides, BrokerConfig())
    assert fields(overrides, BrokerConfig())["segment_bytes"] == 1000


def test_overrides_that_another_release_stored_do_not_stop_a_log() -> None:
    values = effective({"retention.ms": "x", "no.such": "1", "flush.ms": "7"}, BrokerConfig())
    assert (values["retention.ms"], values["flush.ms"]) == (604_800_000, 7)
    assert "no.such" not in values


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention": "1"}, "Unknown topic config name: retention"),
        ({"retention.msx": "1"}, r"did you mean retention\.ms"),
        ({"retention.ms": "-2"}, "at least -1"),
        ({"retention.ms": None}, r"Null value not supported for topic configs: retention\.ms"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, r"min\.compaction\.lag\.ms \(2\) > max"),
        ({"max.message.bytes": "-1"}, "at least 0"),
        ({"remote.storage.enable": "true"}, "remote log storage"),
        ({"follower.replication.throttled.replicas": "x" * 40000}, "longer than"),
    ],
)
def test_overrides_that_cannot_be_are_an_invalid_config(overrides: dict[str, str | None], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        check_overrides(overrides, BrokerConfig())
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_an_override_may_contradict_what_the_broker_gives() -> None:
    config = BrokerConfig.of({"log.cleaner.max.compaction.lag.ms": "10"})
    with pytest.raises(ConfigError, match="conflict"):
        check_overrides({"min.compaction.lag.ms": "11"}, config)
    check_overrides({"min.compaction.lag.ms": "11", "max.compaction.lag.ms": "12"}, config)


# -- groups


def test_a_group_has_the_brokers_values_and_its_own_within_bounds() -> None:
    config = BrokerConfig.of({"group.consumer.session.timeout.ms": "50000"})
    assert effective_group({}, config)["consumer.session.timeout.ms"] == 50000
    values = effective_group({"consumer.session.timeout.ms": "999999", "share.auto.offset.reset": "earliest"}, config)
    assert values["consumer.session.timeout.ms"] == 60000  # capped: the bound may be newer than the value
    assert values["share.auto.offset.reset"] == "earliest"
    assert values["share.renew.acknowledge.enable"] is True


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"consumer.session.timeout.ms": "70000"}, r"less than or equal to group\.consumer\.max\.session\.timeout\.ms"),
        ({"consumer.session.timeout.ms": "1000"}, r"greater than or equal to group\.consumer\.min\.session"),
        ({"share.delivery.count.limit": "11"}, r"group\.share\.max\.delivery\.count\.limit"),
        ({"streams.num.standby.replicas": "3"}, r"group\.streams\.max\.standby\.replicas"),
        ({"share.auto.offset.reset": "by_duration:-PT1H"}, "by_duration"),
        ({"consumer.sesion.timeout.ms": "45000"}, r"did you mean consumer\.session\.timeout\.ms"),
        ({"share.isolation.level": None}, "Null value"),
    ],
)
def test_group_values_that_cannot_be_are_refused(overrides: dict[str, str | None], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_group(overrides, BrokerConfig())


def test_a_groups_session_is_longer_than_its_heartbeat() -> None:
    config = BrokerConfig.of({"group.consumer.min.session.timeout.ms": "6000"})
    with pytest.raises(ConfigError, match="must be greater than"):
        check_group({"consumer.session.timeout.ms": "9000", "consumer.heartbeat.interval.ms": "9000"}, config)
    check_group({"consumer.session.timeout.ms": "9001", "consumer.heartbeat.interval.ms": "9000"}, config)


@pytest.mark.parametrize(
    ("overrides", "code"),
    [
        ({"interval.ms": "99"}, ErrorCode.INVALID_REQUEST),
        ({"intervall.ms": "100"}, ErrorCode.INVALID_REQUEST),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=[a"}, ErrorCode.INVALID_CONFIG),
        ({"match": "colour=red"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_client_metrics_that_cannot_be_are_refused(overrides: dict[str, str | None], code: int) -> None:
    with pytest.raises(ConfigError) as caught:
        check_client_metrics(overrides)
    assert caught.value.code == code
    check_client_metrics({"interval.ms": "100", "match": "client_id=a.*,client_software_name=x", "metrics": "*"})


# -- altering


@pytest.mark.parametrize(
    ("resource", "name", "texts", "code"),
    [
        (TOPIC, "", {}, ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", {"x": "1"}, ErrorCode.INVALID_CONFIG),
        (BROKER, "nobody", {}, ErrorCode.INVALID_REQUEST),
        (BROKER, "8", {}, ErrorCode.INVALID_REQUEST),
        (BROKER, "7", {"num.partitions": "2"}, ErrorCode.INVALID_REQUEST),
        (GROUP, "", {}, ErrorCode.INVALID_REQUEST),
        (GROUP, "g", {"consumer.session.timeout.ms": "1"}, ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "", {}, ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "s", {"interval.ms": "1"}, ErrorCode.INVALID_REQUEST),
        (8, "7", {}, ErrorCode.INVALID_REQUEST),
        (99, "x", {}, ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "s", {"metrics": "x" * 40000}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_each_kind_of_resource_is_checked_by_its_own_rules(
    resource: int, name: str, texts: dict[str, str], code: int
) -> None:
    with pytest.raises(ConfigError) as caught:
        check(resource, name, texts, BrokerConfig.of({"broker.id": "7"}))
    assert caught.value.code == code


def test_valid_texts_of_each_kind_of_resource_pass() -> None:
    config = BrokerConfig.of({"broker.id": "7"})
    check(TOPIC, "t", {"retention.ms": "1"}, config)
    check(BROKER, "7", {"log.retention.ms": "1"}, config)
    check(BROKER, "", {"log.retention.ms": "1"}, config)
    check(GROUP, "g", {"share.isolation.level": "read_committed"}, config)
    check(CLIENT_METRICS, "s", {"interval.ms": "1000"}, config)
