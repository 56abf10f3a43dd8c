"""The configuration of a group, and of a client metrics subscription: their own values override the broker's.

When they are set, the values of a group must lie within the broker's bounds. If the bounds are narrowed later, they cap
the stored values, as in Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.definitions import CLIENT_METRICS_KEYS, GROUP_KEYS, GROUP_SYNONYMS, ConfigKey
from tidelog.config.errors import ConfigError, unknown_key
from tidelog.config.values import Value, default_value, parse
from tidelog.wire.errors import ErrorCode

_MATCH_NAMES = frozenset(
    (
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    )
)
MIN_INTERVAL_MS = 100
MAX_INTERVAL_MS = 3_600_000


def effective_group(overrides: Mapping[str, str], config: BrokerConfig) -> dict[str, Value]:
    """Every setting of a group in force, typed, capped to the broker's bounds."""
    values: dict[str, Value] = {}
    for name, key in GROUP_KEYS.items():
        synonym = GROUP_SYNONYMS.get(name)
        values[name] = default_value(key) if synonym is None else config.get(synonym)
        if name in overrides:
            try:
                values[name] = _capped(name, parse(key, overrides[name]), config)
            except ConfigError:
                continue
    return values


def check_group(overrides: Mapping[str, str | None], config: BrokerConfig) -> None:
    """Whether these may be a group's own values; ConfigError where not."""
    texts = _without_nulls(overrides, "group")
    values = effective_group({}, config)
    for name, text in texts.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            raise unknown_key(name, GROUP_KEYS, "group config")
        values[name] = parse(key, text)
    for name in texts:
        for bound, capped in _bounds(name):
            if capped(values[name], config.get(bound)) != values[name]:
                relation = "less than or equal to" if capped is min else "greater than or equal to"
                raise ConfigError(f"{name} must be {relation} {bound}", name=name)
    for kind in ("consumer", "share", "streams"):
        heartbeat, session = values[f"{kind}.heartbeat.interval.ms"], values[f"{kind}.session.timeout.ms"]
        assert isinstance(heartbeat, int) and isinstance(session, int)
        if session <= heartbeat:
            message = f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms"
            raise ConfigError(message, name=f"{kind}.session.timeout.ms")


def check_client_metrics(overrides: Mapping[str, str | None]) -> None:
    """Whether these may be a subscription's values; ConfigError where not."""
    texts = _without_nulls(overrides, "client metrics")
    for name, text in texts.items():
        key = CLIENT_METRICS_KEYS.get(name)
        if key is None:
            error = unknown_key(name, CLIENT_METRICS_KEYS, "client metrics config")
            error.code = ErrorCode.INVALID_REQUEST
            raise error
        _check_subscription(key, parse(key, text))


def _check_subscription(key: ConfigKey, value: Value) -> None:
    if key.name == "interval.ms" and isinstance(value, int) and not MIN_INTERVAL_MS <= value <= MAX_INTERVAL_MS:
        message = (
            f"Invalid value {value} for interval.ms, interval must be between {MIN_INTERVAL_MS} and {MAX_INTERVAL_MS}"
        )
        raise ConfigError(message, name=key.name, code=ErrorCode.INVALID_REQUEST)
    if key.name == "match" and isinstance(value, tuple):
        for item in value:
            name, equals, pattern = item.partition("=")
            if not equals or name.strip() not in _MATCH_NAMES or "=" in pattern or not _is_pattern(pattern):
                raise ConfigError(f"Illegal client matching pattern: {item}", name=key.name)


def _is_pattern(pattern: str) -> bool:
    try:
        re.compile(pattern.strip())
    except re.error:
        return False
    return bool(pattern.strip())


def _bounds(name: str) -> list[tuple[str, Callable[[Any, Any], Any]]]:
    """The broker's bounds of a group's value, each with the function that keeps a value within it."""
    if name == "streams.num.standby.replicas":
        return [("group.streams.max.standby.replicas", min)]
    if name not in GROUP_SYNONYMS or name == "streams.initial.rebalance.delay.ms":
        return []
    kind, _, what = name.partition(".")
    return [(f"group.{kind}.min.{what}", max), (f"group.{kind}.max.{what}", min)]


def _capped(name: str, value: Value, config: BrokerConfig) -> Value:
    for bound, capped in _bounds(name):
        value = capped(value, config.get(bound))
    return value


def _without_nulls(overrides: Mapping[str, str | None], what: str) -> dict[str, str]:
    nulls = [name for name, text in overrides.items() if text is None]
    if nulls:
        raise ConfigError(f"Null value not supported for {what} configs: {','.join(nulls)}", name=nulls[0])
    return {name: text for name, text in overrides.items() if text is not None}
