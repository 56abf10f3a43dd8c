"""The configuration of a topic: its own overrides on top of the broker's values.

Overrides are kept as text, under Kafka's names, in the controller's store. A broker turns them into typed values with
`effective` when it creates a log and when anything changes; `fields` returns the same in snake case, for the log's own
configuration. `check_overrides` checks overrides before they are stored, so `effective` skips values that it cannot
parse only for the sake of stores written by another release.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.definitions import TOPIC_KEYS
from tidelog.config.errors import ConfigError, unknown_key
from tidelog.config.values import Value, parse

_FIELDS = {name: name.replace(".", "_") for name in TOPIC_KEYS}
MAX_TEXT_LENGTH = 32767


def effective(overrides: Mapping[str, str], config: BrokerConfig) -> Mapping[str, Value]:
    """Every topic setting in force, typed, by Kafka's names; not to be changed by the caller."""
    defaults = config.topic_defaults()
    if not overrides:
        return defaults
    values = dict(defaults)
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is not None:
            try:
                values[name] = parse(key, text)
            except ConfigError:
                continue
    return values


def fields(overrides: Mapping[str, str], config: BrokerConfig, names: Container[str] | None = None) -> dict[str, Value]:
    """`effective` in snake case: `{"retention_ms": 604800000, "cleanup_policy": ("delete",), ...}`.

    `names` are the fields that the caller has, None for all. A set `internal.segment.bytes` stands in for
    segment.bytes, and a local retention of -2 is the retention that it refers to.
    """
    named = {_FIELDS[name]: value for name, value in effective(overrides, config).items()}
    if named["internal_segment_bytes"] is not None:
        named["segment_bytes"] = named["internal_segment_bytes"]
    for what in ("ms", "bytes"):
        if named[f"local_retention_{what}"] == -2:
            named[f"local_retention_{what}"] = named[f"retention_{what}"]
    return named if names is None else {name: value for name, value in named.items() if name in names}


def check_overrides(overrides: Mapping[str, str | None], config: BrokerConfig) -> None:
    """Whether these may be a topic's overrides; ConfigError (ErrorCode.INVALID_CONFIG) where not."""
    nulls = [name for name, text in overrides.items() if text is None]
    if nulls:
        raise ConfigError(f"Null value not supported for topic configs: {','.join(nulls)}", name=nulls[0])
    values = dict(config.topic_defaults())
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            raise unknown_key(name, TOPIC_KEYS, "topic config")
        assert text is not None
        if len(text) > MAX_TEXT_LENGTH:
            raise ConfigError(f"The value of {name} is longer than {MAX_TEXT_LENGTH} bytes.", name=name)
        values[name] = parse(key, text)
    _check_together(values)


def _check_together(values: Mapping[str, Value]) -> None:
    least_ms, greatest_ms = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(least_ms, int) and isinstance(greatest_ms, int)
    if least_ms > greatest_ms:
        message = (
            f"conflict topic config setting min.compaction.lag.ms ({least_ms}) > max.compaction.lag.ms ({greatest_ms})"
        )
        raise ConfigError(message, name="min.compaction.lag.ms")
    delays, halves = values["tidelog.delay.target"], values["tidelog.half.target"]
    policy = values["cleanup.policy"]
    if (delays or halves) and isinstance(policy, tuple) and "compact" in policy:
        message = "Messages that wait cannot be compacted: one would be lost to a later one with its key."
        raise ConfigError(message, name="cleanup.policy")
    if delays and halves:
        message = "A topic has tidelog.delay.target or tidelog.half.target, not both."
        raise ConfigError(message, name="tidelog.half.target")
    if values["remote.storage.enable"]:
        message = "Tiered storage is disabled in the broker. Topic cannot be configured with remote log storage."
        raise ConfigError(message, name="remote.storage.enable")
