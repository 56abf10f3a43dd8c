"""Every setting says truly whether it does anything."""

from __future__ import annotations

import pytest
from setting_readers import settings_read

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.definitions import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    FIXED,
    GROUP_KEYS,
    REFUSED,
    TOPIC_KEYS,
    UNSUPPORTED,
    WORKS,
    ConfigKey,
)
from tidelog.config.effects import ASKED, REASONS, effect_of, without_effect
from tidelog.config.sources import load
from tidelog.net.limits import ListenerLimits
from tidelog.server import limits_of

ALL_KEYS = [key for table in (BROKER_KEYS, TOPIC_KEYS, GROUP_KEYS, CLIENT_METRICS_KEYS) for key in table.values()]


@pytest.fixture(scope="module")
def read() -> dict[str, set[str]]:
    return dict(zip(("broker", "topic", "group"), settings_read(), strict=True))


def keys(kind: str) -> dict[str, ConfigKey]:
    return {"broker": BROKER_KEYS, "topic": TOPIC_KEYS, "group": GROUP_KEYS}[kind]


@pytest.mark.parametrize("kind", ["broker", "topic", "group"])
def test_a_setting_that_works_is_read_somewhere(kind: str, read: dict[str, set[str]]) -> None:
    working = {name for name, key in keys(kind).items() if key.effect == WORKS}
    assert working - read[kind] == set(), "marked as working, and nothing reads them"


@pytest.mark.parametrize("kind", ["broker", "topic", "group"])
def test_a_setting_without_effect_is_read_nowhere(kind: str, read: dict[str, set[str]]) -> None:
    idle = {name for name, key in keys(kind).items() if key.effect != WORKS}
    assert idle & read[kind] == set(), "marked as without effect, and something reads them"


def test_every_effect_is_a_known_kind_with_a_known_reason() -> None:
    for key in ALL_KEYS:
        reasons = {WORKS: ("",), FIXED: REASONS, UNSUPPORTED: REASONS, REFUSED: ASKED}[key.effect]
        assert key.reason in reasons, key.name
    used = {key.reason for key in ALL_KEYS}
    assert used == {"", *REASONS, *ASKED} - {"listener"}  # that is for a listener's own settings


@pytest.mark.parametrize(
    ("name", "text", "effect"),
    [
        ("num.partitions", "3", "yes"),
        ("num.io.threads", "8", "none"),
        ("log.cleaner.threads", "1", "always so"),
        ("log.cleaner.threads", " 1 ", "always so"),
        ("log.cleaner.threads", "2", "none"),
        ("unstable.api.versions.enable", "False", "always so"),
        ("unstable.api.versions.enable", "true", "none"),
        ("ssl.client.auth", "none", "always so"),
        ("listener.name.x.max.connections", "3", "yes"),
        ("listener.name.x.num.network.threads", "3", "none"),
    ],
)
def test_the_effect_of_a_setting_depends_on_its_kind_and_value(name: str, text: str, effect: str) -> None:
    assert effect_of(name, text) == effect
    assert without_effect({name: text}) == ([name] if effect == "none" else [])


def test_one_line_names_the_settings_of_all_sources_that_have_no_effect() -> None:
    settings = load([], {"KAFKA_NUM_IO_THREADS": "3", "KAFKA_NUM_PARTITIONS": "3"}, ["num.network.threads=2"])
    assert settings.warnings == [
        "accepted without effect: num.io.threads, num.network.threads (`tidelog config explain NAME` says why)"
    ]


def test_a_listeners_own_limits_reach_the_network_and_follow_changes() -> None:
    config = BrokerConfig.of(
        {
            "listeners": "IN://:9092,OUT://:9093",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            "listener.name.out.max.connections": "3",
        }
    )
    assert limits_of(config).of_listeners == {"IN": ListenerLimits(-1, -1), "OUT": ListenerLimits(3, -1)}
    config.load_dynamic({"listener.name.in.max.connection.creation.rate": "7"}, per_broker=False)
    assert limits_of(config).of_listeners == {"IN": ListenerLimits(-1, 7), "OUT": ListenerLimits(3, -1)}
