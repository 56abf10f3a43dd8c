"""A broker does not start with settings that ask for protection, or for a cluster, that it does not have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.definitions import BROKER_KEYS
from tidelog.config.errors import ConfigError
from tidelog.config.sources import load
from tidelog.config.unkept import refuse_unkept
from tidelog.config.zookeeper_settings import zookeeper_settings
from tidelog.server import configure

# What Apache Kafka 3 brings as config/server.properties, without the comments.
KAFKA_3 = """\
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""


def refusal(texts: Mapping[str, str], port: int | None = None, environ: Mapping[str, str] | None = None) -> str | None:
    """What a start with a file of these settings is answered; None where it is not refused."""
    with TemporaryDirectory() as directory:
        path = Path(directory, "server.properties")
        path.write_text("".join(f"{name}={text}\n" for name, text in texts.items()))
        try:
            configure(load([str(path)], environ or {}), directory, None, port)
        except ConfigError as error:
            return error.explain()
    return None


@pytest.mark.parametrize("port", [None, 9999], ids=["as listeners say", "with --port"])
@pytest.mark.parametrize(
    "texts",
    [
        {"listeners": "SASL_SSL://0.0.0.0:9093"},
        {"listeners": "PLAINTEXT://:9092,SSL://:9093"},
        {"listeners": "sasl_plaintext://:9093"},
        {"listeners": "INSIDE://:9092", "listener.security.protocol.map": "INSIDE:SASL_SSL"},
        {"listener.security.protocol.map": "PLAINTEXT:SSL"},
        {"listeners": "SSL://:9093", "advertised.listeners": "SSL://kafka.example:9093"},
    ],
    ids=str,
)
def test_a_listener_that_is_to_be_secured_stops_the_start_and_is_not_replaced(
    texts: dict[str, str], port: int | None
) -> None:
    told = refusal(texts, port)
    assert told is not None and "server.properties:1: " in told and "plain text" in told and "Remove" in told


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ssl.keystore.location", "/k.pem"),
        ("SSL.keystore.location", "/k.pem"),
        ("Authorizer.Class.Name", "acme.Authorizer"),
        ("ssl.client.auth", "required"),
        ("sasl.enabled.mechanisms", "SCRAM-SHA-512"),
        ("sasl.jaas.config", "s3cret"),
        ("listener.name.x.ssl.truststore.location", "/t"),
        ("listener.name.x.scram-sha-256.sasl.jaas.config", "s3cret"),
        ("listener.name.x.y.sasl.some.plugin", "s3cret"),
        ("listener.name.x.connections.max.reauth.ms", "1"),
        ("listener.name.x.principal.builder.class", "acme.Builder"),
        ("security.inter.broker.protocol", "SASL_SSL"),
        ("security.providers", "acme.Provider"),
        ("delegation.token.secret.key", "s3cret"),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("authorizer.rules.file", "/rules"),
        ("super.users", "User:admin"),
        ("allow.everyone.if.no.acl.found", "false"),
        ("principal.builder.class", "acme.Builder"),
        ("create.topic.policy.class.name", "acme.Policy"),
        ("alter.config.policy.class.name", "acme.Policy"),
        ("client.quota.callback.class", "acme.Quota"),
        ("zookeeper.set.acl", "true"),
        ("remote.log.storage.system.enable", "true"),
        ("listener.name.plaintext.num.network.threads", "5"),
        ("listener.name.plaintext.socket.send.buffer.bytes", "5"),
        ("listener.name.outside.max.connections", "5"),
        ("process.roles", "broker"),
        ("process.roles", "controller"),
        ("controller.quorum.voters", "1@kafka-1:9093,2@kafka-2:9093"),
        ("controller.quorum.voters", "7@kafka-7:9093"),
        ("controller.quorum.bootstrap.servers", "kafka-7.example:9093"),
    ],
)
def test_what_asks_for_protection_or_a_cluster_stops_the_start_and_is_named(name: str, text: str) -> None:
    told = refusal({"num.partitions": "1", name: text})
    assert told is not None and f"server.properties:2: {name}" in told and "remove" in told.lower()
    assert "s3cret" not in told


def test_every_security_setting_of_the_table_stops_the_start() -> None:
    security = [n for n in BROKER_KEYS if n.startswith(("ssl.", "sasl.", "security.", "authorizer.", "delegation."))]
    assert len(security) > 50
    for name in security:
        with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
            refuse_unkept(load(flags=[f"{name}=4711"]).by_name)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("KAFKA_LISTENERS", "SASL_SSL://:9093"),
        ("KAFKA_SECURITY_INTER_BROKER_PROTOCOL", "SSL"),
        ("KAFKA_SSL_KEYSTORE_FILENAME", "kafka.jks"),
        ("KAFKA_SASL_ENABLED_MECHANISMS", "PLAIN"),
        ("KAFKA_CFG_SASL_ENABLED_MECHANISMS", "PLAIN"),
        ("KAFKA_LISTENER_NAME_X_PLAIN_SASL_JAAS_CONFIG", "login"),
        ("KAFKA_AUTHORIZER_CLASS_NAME", "acme.Authorizer"),
        ("KAFKA_SUPER_USERS", "User:admin"),
        ("KAFKA_OPTS", "-Xmx1g -Djava.security.auth.login.config=/etc/kafka/jaas.conf"),
    ],
)
def test_a_variable_of_the_environment_stops_the_start_as_well(variable: str, text: str) -> None:
    told = refusal({}, environ={variable: text})
    assert told is not None and f"{variable}: " in told


@pytest.mark.parametrize(
    "texts",
    [
        {"listeners": "PLAINTEXT://:9092", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL"},
        {"listeners": "INSIDE://127.0.0.1:9092", "listener.security.protocol.map": "INSIDE:PLAINTEXT"},
        {"authorizer.class.name": "", "super.users": "", "allow.everyone.if.no.acl.found": "true"},
        {"security.inter.broker.protocol": "PLAINTEXT", "ssl.client.auth": "none", "ssl.keystore.type": "JKS"},
        {"ssl.endpoint.identification.algorithm": ""},
        {
            "listeners": "X://:9092",
            "listener.security.protocol.map": "X:PLAINTEXT",
            "listener.name.x.max.connections": "5",
            "listener.name.x.max.connection.creation.rate": "5",
            "listener.name.x.ssl.client.auth": "none",
        },
        {"remote.log.storage.system.enable": "False"},
        {"process.roles": "controller, broker", "node.id": "3", "controller.quorum.voters": "3@kafka:9093"},
        {"zookeeper.connect": ""},
        {"zookeeper.connect": "zk:2181/kafka"},
    ],
    ids=str,
)
def test_what_asks_for_nothing_does_not_stop_the_start(texts: dict[str, str]) -> None:
    assert refusal(texts) is None


def test_all_that_is_refused_is_told_at_once() -> None:
    told = refusal({"listeners": "SASL_SSL://:9093", "super.users": "User:a", "process.roles": "broker"})
    assert told is not None
    assert [f"server.properties:{line}: " in told for line in (1, 2, 3)] == [True] * 3
    assert told.count("Remove these settings") == 2


def test_a_setting_of_one_listener_is_refused_with_what_it_may_have() -> None:
    told = refusal({"listener.name.plaintext.num.network.threads": "5", "listener.name.outside.max.connections": "5"})
    assert told is not None
    assert "num.network.threads asks for a setting for one listener that exists only for the whole broker" in told
    assert "max.connections asks for something for a listener that does not exist" in told
    assert "A listener can have its own max.connections and max.connection.creation.rate" in told
    assert "Correct the listener's name" in told


def test_a_replaced_plaintext_listener_is_told() -> None:
    settings = load(flags=["listeners=PLAINTEXT://:9092", "advertised.listeners=PLAINTEXT://kafka.example:9092"])
    configure(settings, None, None, 9999)
    assert [warning.partition(": ")[2] for warning in settings.warnings] == [
        "listeners=PLAINTEXT://:9092 is replaced by --host and --port",
        "advertised.listeners=PLAINTEXT://kafka.example:9092 is advertised to clients despite --host and --port",
    ]


def test_the_file_that_comes_with_kafka_3_starts_a_broker_on_its_zookeeper() -> None:
    texts = dict(line.split("=", 1) for line in KAFKA_3.splitlines())
    assert refusal(texts) is None
    settings = zookeeper_settings(BrokerConfig.of(texts))
    assert settings is not None and (str(settings), settings.connection_timeout_ms) == ("localhost:2181", 18000)


def test_a_lag_in_messages_is_refused_with_the_reason_wherever_it_is_set() -> None:
    told = refusal({"replica.lag.max.messages": "4000"})
    assert told is not None and "a burst of messages took healthy followers out of the ISR" in told
    assert "server.properties:1" in told and "replica.lag.time.max.ms" in told
    environ = {"KAFKA_REPLICA_LAG_MAX_MESSAGES": "4000"}
    assert "KAFKA_REPLICA_LAG_MAX_MESSAGES" in (refusal({}, environ=environ) or "")
    with pytest.raises(ConfigError, match=r"there is no replica\.lag\.max\.messages") as caught:
        load(flags=["replica.lag.max.messages=4000"])
    assert caught.value.hint is not None and "replica.lag.time.max.ms" in caught.value.hint
