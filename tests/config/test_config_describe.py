"""What DescribeConfigs tells: every value, its source, its synonyms, and no secret."""

from __future__ import annotations

from tidelog.config.broker_config import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    STATIC_BROKER_CONFIG,
    BrokerConfig,
)
from tidelog.config.definitions import BROKER_KEYS, DYNAMIC_ONLY, TOPIC_KEYS
from tidelog.config.describe import (
    DYNAMIC_CLIENT_METRICS_CONFIG,
    DYNAMIC_GROUP_CONFIG,
    DescribedConfig,
    describe_all_brokers,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_topic,
)


def by_name(entries: list[DescribedConfig]) -> dict[str, DescribedConfig]:
    names = [entry.name for entry in entries]
    assert names == sorted(set(names))
    return {entry.name: entry for entry in entries}


def test_a_topic_tells_every_setting_but_the_internal_ones() -> None:
    entries = by_name(describe_topic({}, BrokerConfig()))
    assert entries.keys() == {name for name, key in TOPIC_KEYS.items() if not key.internal}
    assert not any(entry.read_only or not entry.documentation for entry in entries.values())
    assert [name for name, entry in entries.items() if not entry.is_default] == ["min.insync.replicas"]
    assert entries["retention.ms"].value == "604800000" and entries["retention.ms"].config_type == 5
    assert entries["cleanup.policy"].value == "delete" and entries["cleanup.policy"].config_type == 7
    assert entries["min.cleanable.dirty.ratio"].value == "0.5" and entries["preallocate"].config_type == 1


def test_a_set_internal_setting_is_told() -> None:
    entries = by_name(describe_topic({"internal.segment.bytes": "1000"}, BrokerConfig()))
    assert entries["internal.segment.bytes"].value == "1000"


def test_synonyms_go_from_the_topic_through_the_brokers_layers_to_the_default() -> None:
    config = BrokerConfig.of({"message.max.bytes": "4"})
    config.load_dynamic({"message.max.bytes": "3"}, per_broker=False)
    config.load_dynamic({"message.max.bytes": "2"}, per_broker=True)
    entry = by_name(describe_topic({"max.message.bytes": "1"}, config))["max.message.bytes"]
    assert (entry.value, entry.source, entry.is_default) == ("1", DYNAMIC_TOPIC_CONFIG, False)
    assert entry.synonyms == [
        ("max.message.bytes", "1", DYNAMIC_TOPIC_CONFIG),
        ("message.max.bytes", "2", DYNAMIC_BROKER_CONFIG),
        ("message.max.bytes", "3", DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("message.max.bytes", "4", STATIC_BROKER_CONFIG),
        ("message.max.bytes", "1048588", DEFAULT_CONFIG),
    ]


def test_a_value_from_another_unit_tells_its_source() -> None:
    from_default = by_name(describe_topic({}, BrokerConfig()))["retention.ms"]
    assert (from_default.source, from_default.synonyms) == (DEFAULT_CONFIG, [])
    from_file = by_name(describe_topic({}, BrokerConfig.of({"log.retention.hours": "1"})))["retention.ms"]
    assert (from_file.value, from_file.source) == ("3600000", STATIC_BROKER_CONFIG)
    assert from_file.synonyms[0] == ("log.retention.hours", "1", STATIC_BROKER_CONFIG)
    both = BrokerConfig.of({"log.retention.hours": "1", "log.retention.ms": "5"})
    assert by_name(describe_topic({}, both))["retention.ms"].synonyms == [
        ("log.retention.ms", "5", STATIC_BROKER_CONFIG),
        ("log.retention.hours", "1", STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", DEFAULT_CONFIG),
    ]


def test_a_broker_tells_every_setting_and_which_may_change() -> None:
    config = BrokerConfig.of({"num.partitions": " 3 ", "log.initial.task.delay.ms": "5"})
    entries = by_name(describe_broker(config))
    public = {name for name, key in BROKER_KEYS.items() if not key.internal} - DYNAMIC_ONLY
    assert entries.keys() == public | {"log.initial.task.delay.ms"}
    partitions = entries["num.partitions"]
    assert (partitions.value, partitions.source, partitions.read_only) == ("3", STATIC_BROKER_CONFIG, True)
    assert partitions.synonyms == [
        ("num.partitions", " 3 ", STATIC_BROKER_CONFIG),
        ("num.partitions", "1", DEFAULT_CONFIG),
    ]
    assert not entries["log.retention.ms"].read_only and entries["log.retention.ms"].value is None
    assert entries["compression.type"].config_type == 2 and entries["offsets.topic.replication.factor"].config_type == 4


def test_a_throttle_is_told_only_while_it_is_set() -> None:
    config = BrokerConfig()
    assert describe_broker(config, ["leader.replication.throttled.rate"]) == []
    config.load_dynamic({"leader.replication.throttled.rate": "1000"}, per_broker=True)
    (entry,) = describe_broker(config, ["leader.replication.throttled.rate"])
    assert (entry.value, entry.source) == ("1000", DYNAMIC_BROKER_CONFIG)


def test_secrets_and_their_synonyms_are_never_told() -> None:
    name = "listener.name.x.plain.sasl.jaas.config"
    config = BrokerConfig.of({"ssl.key.password": "s3cret", name: "s3cret", "delegation.token.secret.key": "s3cret"})
    config.load_dynamic({"listener.name.x.ssl.keystore.password": "s3cret"}, per_broker=True)
    entries = by_name(describe_broker(config))
    assert "s3cret" not in repr([(entry.value, entry.synonyms) for entry in entries.values()])
    assert (
        entries[name].is_sensitive and entries[name].source == STATIC_BROKER_CONFIG and entries[name].config_type == 9
    )
    assert entries["listener.name.x.ssl.keystore.password"].source == DYNAMIC_BROKER_CONFIG


def test_a_listeners_own_setting_lists_the_brokers_as_synonym() -> None:
    config = BrokerConfig.of({"listener.name.x.ssl.client.auth": "none", "ssl.client.auth": "required"})
    entry = by_name(describe_broker(config))["listener.name.x.ssl.client.auth"]
    assert entry.synonyms == [
        ("listener.name.x.ssl.client.auth", "none", STATIC_BROKER_CONFIG),
        ("ssl.client.auth", "required", STATIC_BROKER_CONFIG),
        ("ssl.client.auth", "none", DEFAULT_CONFIG),
    ]


def test_all_brokers_together_tell_only_what_was_altered_for_all() -> None:
    config = BrokerConfig.of({"log.retention.ms": "1"})
    assert [entry.name for entry in describe_all_brokers(config)] == ["min.insync.replicas"]
    config.load_dynamic({"log.retention.ms": "2"}, per_broker=False)
    config.load_dynamic({"log.retention.ms": "3", "log.retention.bytes": "4"}, per_broker=True)
    (entry, _) = describe_all_brokers(config)
    assert (entry.name, entry.value, entry.source) == ("log.retention.ms", "2", DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert entry.synonyms == [("log.retention.ms", "2", DYNAMIC_DEFAULT_BROKER_CONFIG)]


def test_the_least_number_of_replicas_in_sync_is_told_as_holding_for_the_whole_cluster() -> None:
    name = "min.insync.replicas"
    config = BrokerConfig.of({name: "2"})
    (entry,) = describe_all_brokers(config)
    assert (entry.name, entry.value, entry.source) == (name, "2", DYNAMIC_DEFAULT_BROKER_CONFIG)
    layers = [
        (name, "2", DYNAMIC_DEFAULT_BROKER_CONFIG),
        (name, "2", STATIC_BROKER_CONFIG),
        (name, "1", DEFAULT_CONFIG),
    ]
    assert by_name(describe_broker(config))[name].synonyms == layers
    assert by_name(describe_topic({}, config))[name].synonyms == layers
    config.load_dynamic({name: "3"}, per_broker=False)
    (entry,) = describe_all_brokers(config)
    assert (entry.value, entry.synonyms) == ("3", [(name, "3", DYNAMIC_DEFAULT_BROKER_CONFIG)])


def test_only_the_names_asked_for_are_told() -> None:
    config = BrokerConfig()
    names = ["retention.ms", "flush.ms", "no.such"]
    assert [entry.name for entry in describe_topic({}, config, names)] == ["flush.ms", "retention.ms"]
    assert [entry.name for entry in describe_broker(config, ["num.partitions"])] == ["num.partitions"]
    assert len(describe_broker(config, [])) == len(describe_broker(config))


def test_groups_and_subscriptions_tell_their_own_source() -> None:
    config = BrokerConfig()
    group = by_name(describe_group({"consumer.session.timeout.ms": "50000"}, config))
    session = group["consumer.session.timeout.ms"]
    assert (session.value, session.source) == ("50000", DYNAMIC_GROUP_CONFIG)
    assert session.synonyms == [
        ("consumer.session.timeout.ms", "50000", DYNAMIC_GROUP_CONFIG),
        ("group.consumer.session.timeout.ms", "45000", DEFAULT_CONFIG),
    ]
    assert group["share.auto.offset.reset"].synonyms == [("share.auto.offset.reset", "latest", DEFAULT_CONFIG)]
    subscription = by_name(describe_client_metrics({"interval.ms": "1000"}))
    assert (subscription["interval.ms"].value, subscription["interval.ms"].source) == (
        "1000",
        DYNAMIC_CLIENT_METRICS_CONFIG,
    )
    assert subscription["metrics"].value == "" and subscription["metrics"].is_default
