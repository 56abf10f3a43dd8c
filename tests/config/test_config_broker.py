"""A broker's configuration: layers, what may change while it runs, what contradicts itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.config.broker_config import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    STATIC_BROKER_CONFIG,
    BrokerConfig,
)
from tidelog.config.checks import connection_overrides
from tidelog.config.definitions import BROKER_KEYS
from tidelog.config.errors import ConfigError
from tidelog.config.listeners import advertised_listeners, bound_listeners, inter_broker_listener
from tidelog.config.sources import load
from tidelog.server import limits_of
from tidelog.wire.errors import ErrorCode


def test_defaults_are_typed() -> None:
    config = BrokerConfig()
    assert config.get("log.retention.hours") == 168
    assert config.get("auto.create.topics.enable") is True
    assert config.get("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.get("log.retention.ms") is None
    assert config.get("sasl.enabled.mechanisms") == ("GSSAPI",)
    assert config.get("tidelog.max.decompressed.bytes") == 134217728
    for name in BROKER_KEYS:
        config.get(name)


def test_values_are_attributes_and_follow_changes() -> None:
    config = BrokerConfig.of({"fetch.max.bytes": "4096"})
    values = config.values
    assert values.fetch_max_bytes == 4096 and values.message_max_bytes == 1048588
    config.load_dynamic({"message.max.bytes": "2000"}, per_broker=False)
    assert values is config.values and values.message_max_bytes == 2000
    with pytest.raises(AttributeError, match="fetch_maxbytes"):
        _ = values.fetch_maxbytes


def test_an_unknown_name_is_an_error_wherever_it_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"did you mean num\.partitions"):
        BrokerConfig().get("num.partition")
    with pytest.raises(ConfigError, match="Unknown config name"):
        BrokerConfig.of({"no.such": "1"})


def test_a_broker_without_a_number_is_0_and_never_the_one_that_means_no_leader() -> None:
    for texts in ({}, {"zookeeper.connect": "zk:2181"}, {"broker.id": "-1"}):
        assert BrokerConfig.of(texts).broker_id == 0
    for name in ("broker.id", "node.id"):
        config = BrokerConfig.of({name: "7"})
        assert (config.broker_id, config.get("broker.id"), config.get("node.id")) == (7, 7, 7)
    with pytest.raises(ConfigError, match="must be the same"):
        BrokerConfig.of({"broker.id": "1", "node.id": "2"})


def test_a_value_settled_at_start_counts_as_static() -> None:
    config = BrokerConfig.of({"log.dirs": "/a"})
    config.settle("broker.id", "1001")
    config.settle("log.dir", "/b")
    assert config.broker_id == 1001 and config.source("node.id") == STATIC_BROKER_CONFIG
    assert config.log_dirs == ("/b",)


def test_the_strongest_layer_gives_the_value_and_falling_away_uncovers_the_next() -> None:
    name = "log.retention.ms"
    config = BrokerConfig.of({name: "1000"})
    assert (config.get(name), config.source(name)) == (1000, STATIC_BROKER_CONFIG)
    config.load_dynamic({name: "2000"}, per_broker=False)
    assert (config.get(name), config.source(name)) == (2000, DYNAMIC_DEFAULT_BROKER_CONFIG)
    config.load_dynamic({name: "3000"}, per_broker=True)
    assert (config.get(name), config.source(name)) == (3000, DYNAMIC_BROKER_CONFIG)
    assert config.where(name) == "set for this broker"
    config.load_dynamic({}, per_broker=True)
    config.load_dynamic({}, per_broker=False)
    assert (config.get(name), config.source(name), config.where(name)) == (1000, STATIC_BROKER_CONFIG, name)
    assert config.source("log.retention.bytes") == DEFAULT_CONFIG


def test_altered_milliseconds_win_over_static_hours() -> None:
    config = BrokerConfig.of({"log.roll.hours": "1", "log.retention.minutes": "5"})
    assert config.topic_defaults()["segment.ms"] == 3_600_000
    assert config.topic_defaults()["retention.ms"] == 300_000
    config.load_dynamic({"log.roll.ms": "9", "log.retention.ms": "-1"}, per_broker=False)
    assert config.topic_defaults()["segment.ms"] == 9
    assert config.topic_defaults()["retention.ms"] == -1
    assert not config.is_set("log.roll.hours")


def test_any_negative_retention_is_unlimited() -> None:
    assert BrokerConfig.of({"log.retention.hours": "-5"}).topic_defaults()["retention.ms"] == -1
    with pytest.raises(ConfigError, match="unlimited"):
        BrokerConfig.of({"log.retention.minutes": "0"})


@pytest.mark.parametrize(
    ("texts", "per_broker", "message"),
    [
        ({"num.partitions": "3"}, True, r"Cannot update these configs dynamically: num\.partitions"),
        ({"log.retention.hours": "3"}, False, "Cannot update these configs dynamically"),
        ({"unstable.api.versions.enable": "true"}, True, "Cannot update these configs dynamically"),
        ({"listeners": "PLAINTEXT://:1"}, False, "a broker ID must be given"),
        ({"listeners": "PLAINTEXT://:1"}, True, "set them when the broker starts: listeners"),
        ({"listener.name.x.ssl.keystore.location": "/k"}, False, "a broker ID must be given"),
        ({"ssl.keystore.location": "/k"}, True, "only with a listener prefix"),
        ({"listener.name.x.ssl.keystore.location": "/k"}, True, "does not support what these settings ask for"),
        ({"listeners": "SASL_SSL://:1"}, True, "does not support what these settings ask for: listeners"),
        ({"listener.security.protocol.map": "PLAINTEXT:SSL"}, True, "does not support what these settings ask for"),
        ({"principal.builder.class": "acme.Builder"}, True, "does not support what these settings ask for"),
        ({"log.retention.ms": "x"}, True, "Not a number of type LONG"),
        ({"log.retenton.ms": "1"}, True, r"did you mean log\.retention\.ms"),
        ({"log.retention.ms": "0"}, True, "unlimited"),
        ({"log.cleaner.threads": "1000"}, False, "1 MiB per cleaner thread"),
        ({"log.local.retention.ms": "-1"}, False, "must not be -1"),
        ({"log.local.retention.ms": "604800001"}, False, "must not be more than"),
    ],
)
def test_what_may_not_be_altered_is_refused_as_an_invalid_request(
    texts: dict[str, str], per_broker: bool, message: str
) -> None:
    config = BrokerConfig()
    with pytest.raises(ConfigError, match=message) as caught:
        config.check_dynamic(texts, per_broker=per_broker)
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert config.names_set() == []


@pytest.mark.parametrize(
    ("texts", "per_broker"),
    [
        ({"log.retention.ms": "5"}, True),
        ({"message.max.bytes": "5", "compression.type": "lz4"}, False),
        ({"listener.name.x.max.connections": "5"}, False),
    ],
)
def test_what_is_dynamic_may_be_altered(texts: dict[str, str], per_broker: bool) -> None:
    config = BrokerConfig()
    config.check_dynamic(texts, per_broker=per_broker)
    assert config.load_dynamic(texts, per_broker=per_broker) == []
    assert config.names_set() == sorted(texts)


def test_what_is_dynamic_in_kafka_and_has_no_effect_here_may_be_altered_and_is_told() -> None:
    texts = {
        "background.threads": "9",
        "listener.name.x.num.network.threads": "5",
        "num.io.threads": "9",
    }
    config = BrokerConfig()
    config.check_dynamic(texts, per_broker=False)
    (told,) = config.load_dynamic(texts, per_broker=False)
    assert told.startswith(f"accepted without effect: {', '.join(sorted(texts))} (")
    assert config.names_set() == sorted(texts)


def test_what_another_release_stored_is_passed_over_and_told() -> None:
    config = BrokerConfig()
    stored = {"num.partitions": "3", "no.such.name": "1", "log.retention.ms": "x", "log.retention.bytes": "7"}
    warnings = config.load_dynamic(stored, per_broker=True)
    assert len(warnings) == 3 and config.names_set() == ["log.retention.bytes"]
    contradiction = config.load_dynamic({"log.cleaner.threads": "1000"}, per_broker=False)
    assert len(contradiction) == 1 and not config.is_set("log.cleaner.threads")


def test_listeners_hear_of_what_changed_and_only_of_what_they_asked_for() -> None:
    config = BrokerConfig()
    heard: list[frozenset[str]] = []
    config.on_change(("log.retention.ms", "message.max.bytes"), heard.append)
    config.load_dynamic({"log.retention.ms": "5", "log.retention.bytes": "6"}, per_broker=False)
    config.load_dynamic({"log.retention.ms": " 5 ", "log.retention.bytes": "7"}, per_broker=False)
    config.load_dynamic({"message.max.bytes": "5"}, per_broker=True)
    assert heard == [{"log.retention.ms"}, {"message.max.bytes"}]


def test_a_guard_may_refuse_a_change_before_it_is_made() -> None:
    config = BrokerConfig()

    def guard(to_be: BrokerConfig) -> None:
        if to_be.get("max.connections") < 5:
            raise ConfigError("too few")

    config.on_change(("max.connections",), lambda changed: None, guard)
    with pytest.raises(ConfigError, match="too few"):
        config.check_dynamic({"max.connections": "4"}, per_broker=False)
    assert config.load_dynamic({"max.connections": "4"}, per_broker=False) != []
    assert config.get("max.connections") == 10000
    config.check_dynamic({"max.connections": "6"}, per_broker=False)


def test_an_altered_interval_is_kept_within_the_bounds_of_the_broker() -> None:
    config = BrokerConfig.of({"group.consumer.max.assignment.interval.ms": "2000"})
    config.load_dynamic({"group.consumer.assignment.interval.ms": "5000"}, per_broker=False)
    assert config.get("group.consumer.assignment.interval.ms") == 2000


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"replica.fetch.wait.max.ms": "40000"}, r"less than or equal to replica\.socket\.timeout\.ms"),
        ({"group.consumer.session.timeout.ms": "70000"}, r"group\.consumer\.max\.session\.timeout\.ms"),
        ({"group.consumer.min.heartbeat.interval.ms": "9000"}, "heartbeat"),
        ({"group.share.max.share.sessions": "100"}, r"group\.share\.max\.size"),
        ({"queued.max.request.bytes": "1000"}, r"socket\.request\.max\.bytes"),
        ({"connections.max.idle.ms": "100"}, "authentication"),
        ({"max.connections.per.ip": "0"}, "only with"),
        ({"max.connections.per.ip.overrides": "host"}, "not host:number"),
        ({"log.roll.ms": "0"}, "at least 1"),
        ({"log.roll.jitter.ms": "-1"}, "at least 0"),
        ({"cordoned.log.dirs": "/x"}, "must be in log.dirs"),
        ({"cordoned.log.dirs": "*,/x"}, "anything else"),
        ({"log.dirs": "dd,./dd"}, r"dd and \./dd are the same directory: name it once"),
        ({"log.dir": "/a,/b/../a/"}, "/a and /b/../a/ are the same directory"),
        ({"group.consumer.assignors": "uniform,acme.Assignor"}, "must be one of uniform, range, not acme.Assignor"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "classic"),
        ({"broker.id": "-3"}, "at least"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.of(texts)


def test_a_contradiction_names_what_was_given() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.of({"replica.fetch.wait.max.ms": "40000"})
    assert "given: replica.fetch.wait.max.ms=40000" in caught.value.explain()


def test_internal_topics_are_no_wider_than_the_cluster_unless_somebody_says_so() -> None:
    name = "offsets.topic.replication.factor"
    assert BrokerConfig().internal_topic(name, at_most=1) == 1
    assert BrokerConfig().internal_topic(name, at_most=5) == 3
    assert BrokerConfig.of({name: "3"}).internal_topic(name, at_most=1) == 3


def test_connection_overrides_are_host_and_number() -> None:
    config = BrokerConfig.of({"max.connections.per.ip.overrides": "a:1, ::1:2 ,10.0.0.1:3"})
    assert connection_overrides(config) == {"a": 1, "::1": 2, "10.0.0.1": 3}


# -- listeners


def test_listeners_have_a_name_a_protocol_a_host_and_a_port() -> None:
    config = BrokerConfig.of(
        {
            "listeners": "plaintext://:9092, INSIDE://[::1]:0,TLS://0.0.0.0:9093",
            "advertised.listeners": "TLS://kafka.example:443,PLAINTEXT://localhost:9092",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,TLS:SSL",
            "inter.broker.listener.name": "tls",
        }
    )
    assert [str(endpoint) for endpoint in bound_listeners(config)] == [
        "PLAINTEXT(PLAINTEXT)://:9092",
        "INSIDE(PLAINTEXT)://[::1]:0",
        "TLS(SSL)://0.0.0.0:9093",
    ]
    assert [str(endpoint) for endpoint in advertised_listeners(config)] == [
        "TLS(SSL)://kafka.example:443",
        "PLAINTEXT(PLAINTEXT)://localhost:9092",
    ]
    assert inter_broker_listener(config) == "TLS"
    assert inter_broker_listener(BrokerConfig()) == "PLAINTEXT"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"listeners": "PLAINTEXT:9092"}, "not a listener"),
        ({"listeners": "PLAINTEXT://h:99999"}, "not a listener"),
        ({"listeners": "MINE://h:1"}, "no security protocol"),
        ({"listeners": "PLAINTEXT://h:1,SSL://h:1"}, "same port"),
        ({"listeners": "PLAINTEXT://h:1,plaintext://h:2"}, "named PLAINTEXT"),
        ({"listeners": "PLAINTEXT://h:1", "advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, r"0\.0\.0\.0"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1", "zookeeper.connect": "zk:2181"}, r"0\.0\.0\.0"),
        ({"listeners": "PLAINTEXT://[::]:1", "zookeeper.connect": "zk:2181"}, "connect to ::"),
        ({"advertised.listeners": "SSL://h:1"}, "not in listeners"),
        ({"inter.broker.listener.name": "SSL"}, "not in advertised.listeners"),
        (
            {
                "listeners": "CLIENTS://127.0.0.1:9092,INSIDE://127.0.0.1:9093",
                "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INSIDE:PLAINTEXT",
                "zookeeper.connect": "127.0.0.1:2181",
            },
            "would look for a listener PLAINTEXT",
        ),
        ({"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"}, "only one"),
        ({"listener.security.protocol.map": "PLAINTEXT:CLEAR"}, "not a valid entry"),
        ({"controller.listener.names": "PLAINTEXT"}, "at least one listener"),
    ],
)
def test_listeners_that_cannot_work_are_refused_with_a_reason(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.of(texts)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", ""])
def test_a_single_broker_may_listen_everywhere_without_saying_what_to_advertise(host: str) -> None:
    config = BrokerConfig.of({"listeners": f"PLAINTEXT://{host}:9092"})
    assert [str(endpoint) for endpoint in advertised_listeners(config)] == [f"PLAINTEXT(PLAINTEXT)://{host}:9092"]


def test_one_port_may_serve_both_families() -> None:
    config = BrokerConfig.of({"listeners": "PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092"})
    assert [endpoint.port for endpoint in bound_listeners(config)] == [9092, 9092]


def test_a_start_without_mistakes_imports_nothing_that_only_mistakes_need() -> None:
    program = (
        "import sys\n"
        "from tidelog.config.broker_config import BrokerConfig\n"
        "from tidelog.config.sources import load\n"
        "BrokerConfig(load(environ={'KAFKA_NUM_PARTITIONS': '2'}, flags=['broker.rack=a']))\n"
        "print(sorted({'asyncio', 'dataclasses', 'difflib', 'json', 'tomllib'} & set(sys.modules)))\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.strip() == "[]"


def test_a_value_that_cannot_be_settled_changes_nothing() -> None:
    config = BrokerConfig.of({"broker.id": "4"})
    with pytest.raises(ConfigError):
        config.settle("broker.id", "-9")
    assert config.broker_id == 4 and config.get("node.id") == 4


def test_as_many_connections_wait_as_is_set_and_many_by_default() -> None:
    assert limits_of(BrokerConfig()).socket_listen_backlog_size == 1024
    config = BrokerConfig(load(flags=["socket.listen.backlog.size=50"]))
    assert limits_of(config).socket_listen_backlog_size == 50


def test_a_listeners_own_value_is_checked_as_the_brokers_is() -> None:
    with pytest.raises(ConfigError, match=r"listener\.name\.x\.ssl\.client\.auth"):
        BrokerConfig.of({"listener.name.x.ssl.client.auth": "perhaps"})


def test_one_stored_setting_that_does_not_fit_any_more_leaves_the_others_in_force() -> None:
    config = BrokerConfig.of({"log.dirs": "/a"})
    stored = {"cordoned.log.dirs": "/b", "message.max.bytes": "400", "log.retention.ms": "77"}
    (told,) = config.load_dynamic(stored, per_broker=True)
    assert told.startswith("stored configuration cordoned.log.dirs is ignored: ")
    assert (config.get("message.max.bytes"), config.get("log.retention.ms")) == (400, 77)
    assert config.get("cordoned.log.dirs") == ()


def test_a_log_directory_that_is_named_a_second_time_by_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with pytest.raises(ConfigError, match="are the same directory"):
        BrokerConfig.of({"log.dirs": f"{tmp_path}/data,{tmp_path}/link"})
