"""What `zookeeper.connect` and its companions come to."""

from __future__ import annotations

import pytest

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.errors import ConfigError
from tidelog.config.sources import load
from tidelog.config.zookeeper_settings import ZooKeeperSettings, zookeeper_settings


def settings_of(**texts: str) -> ZooKeeperSettings | None:
    return zookeeper_settings(BrokerConfig.of({name.replace("_", "."): text for name, text in texts.items()}))


def connected(text: str) -> ZooKeeperSettings:
    settings = settings_of(zookeeper_connect=text)
    assert settings is not None
    return settings


def test_the_environment_names_the_servers() -> None:
    config = BrokerConfig(load(environ={"KAFKA_ZOOKEEPER_CONNECT": "zk:2181/kafka"}))
    assert str(zookeeper_settings(config)) == "zk:2181/kafka"


def test_without_a_server_there_are_no_settings() -> None:
    assert settings_of() is None
    assert settings_of(zookeeper_connect=" ") is None


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("zk", (("zk", 2181),), ""),
        ("zk:2182", (("zk", 2182),), ""),
        ("zk:2182/", (("zk", 2182),), ""),
        ("a:1,b:2, c.example.com/kafka", (("a", 1), ("b", 2), ("c.example.com", 2181)), "/kafka"),
        ("127.0.0.1:2181/a/b-c/ünï/", (("127.0.0.1", 2181),), "/a/b-c/ünï"),
        ("[::1]:2181,[fe80::1%eth0]/x", (("::1", 2181), ("fe80::1%eth0", 2181)), "/x"),
    ],
)
def test_servers_and_chroot_are_read(text: str, servers: tuple[tuple[str, int], ...], chroot: str) -> None:
    settings = connected(text)
    assert (settings.servers, settings.chroot) == (servers, chroot)
    assert connected(str(settings)) == settings


@pytest.mark.parametrize(
    "text",
    [",", "zk:", "zk:0", "zk:65536", "zk:port", "zk zk", "::1:1", "zk,/x", "zk//x", "zk/a//b", "zk/../x", "/x"],
)
def test_what_cannot_be_read_is_an_error_that_shows_the_form(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        connected(text)
    assert text in str(raised.value) and "host:port" in raised.value.explain()


def test_the_companions_have_kafkas_defaults_and_their_values() -> None:
    settings = connected("zk")
    assert settings.session_timeout_ms == settings.connection_timeout_ms == 18000
    assert settings.max_in_flight_requests == 10
    settings = settings_of(
        zookeeper_connect="zk",
        zookeeper_session_timeout_ms="6000",
        zookeeper_connection_timeout_ms="500",
        zookeeper_max_in_flight_requests="50",
    )
    assert settings is not None
    assert (settings.session_timeout_ms, settings.connection_timeout_ms) == (6000, 500)
    assert settings.max_in_flight_requests == 50
    # As Kafka: as long as a session, where nobody says otherwise.
    settings = settings_of(zookeeper_connect="zk", zookeeper_session_timeout_ms="6000")
    assert settings is not None and settings.connection_timeout_ms == 6000


@pytest.mark.parametrize("name", ["zookeeper_session_timeout_ms", "zookeeper_connection_timeout_ms"])
def test_a_timeout_that_is_no_time_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match=name.replace("_", ".")):
        settings_of(zookeeper_connect="zk", **{name: "0"})
