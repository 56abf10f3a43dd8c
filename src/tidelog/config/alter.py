"""Altering: AlterConfigs replaces all values of a resource, IncrementalAlterConfigs changes some of them.

`incremental` applies a list of operations to the stored texts of a resource and returns the new texts; `check` decides
whether texts may be stored. Both raise ConfigError, whose `error_code` and text go to the client. Nothing is changed
here: the controller stores the result, and brokers load it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.definitions import CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, ConfigKey, broker_key
from tidelog.config.errors import ConfigError
from tidelog.config.group_config import check_client_metrics, check_group
from tidelog.config.topic_config import MAX_TEXT_LENGTH, check_overrides
from tidelog.wire.errors import ErrorCode

# Resource types as the protocol numbers them.
TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32

# Operations of IncrementalAlterConfigs.
SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3


def incremental(
    resource_type: int, stored: Mapping[str, str], operations: Iterable[tuple[str, int, str | None]]
) -> dict[str, str]:
    """`stored` after (name, operation, value) each; a list starts from its default where nothing is stored."""
    texts = dict(stored)
    seen: set[str] = set()
    for name, operation, value in operations:
        if name in seen:
            raise ConfigError("Error due to duplicate config keys", name=name, code=ErrorCode.INVALID_REQUEST)
        seen.add(name)
        if operation == DELETE:
            texts.pop(name, None)
            continue
        if operation not in (SET, APPEND, SUBTRACT):
            raise ConfigError(f"Unknown operations type {operation}", name=name, code=ErrorCode.INVALID_REQUEST)
        if value is None:
            raise ConfigError(f"Null value not supported for : {name}", name=name, code=ErrorCode.INVALID_REQUEST)
        texts[name] = value if operation == SET else _with_items(resource_type, name, operation, value, texts)
    return texts


def replacement(items: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """The new texts of a resource after the older AlterConfigs: exactly what it was given."""
    texts: dict[str, str] = {}
    for name, value in items:
        if name in texts:
            raise ConfigError("Error due to duplicate config keys", name=name, code=ErrorCode.INVALID_REQUEST)
        if value is None:
            raise ConfigError(f"Null value not supported for : {name}", name=name, code=ErrorCode.INVALID_REQUEST)
        texts[name] = value
    return texts


def check(resource_type: int, resource_name: str, texts: Mapping[str, str], config: BrokerConfig) -> None:
    """Whether `texts` may be stored for the resource; whether a topic exists is the controller's to know."""
    for name, text in texts.items():
        if len(text) > MAX_TEXT_LENGTH:
            raise ConfigError(f"The value of {name} is longer than {MAX_TEXT_LENGTH} bytes.", name=name)
    if resource_type == TOPIC:
        if not resource_name:
            raise ConfigError("Default topic resources are not allowed.", code=ErrorCode.INVALID_REQUEST)
        check_overrides(texts, config)
    elif resource_type == BROKER:
        check_broker_name(resource_name, config)
        config.check_dynamic(texts, per_broker=bool(resource_name))
    elif resource_type == GROUP:
        if not resource_name:
            raise ConfigError("Default group resources are not allowed.", code=ErrorCode.INVALID_REQUEST)
        check_group(texts, config)
    elif resource_type == CLIENT_METRICS:
        if not resource_name:
            raise ConfigError("Subscription name can't be empty", code=ErrorCode.INVALID_REQUEST)
        check_client_metrics(texts)
    else:
        raise ConfigError(f"Unknown resource type {resource_type}", code=ErrorCode.INVALID_REQUEST)


def check_broker_name(name: str, config: BrokerConfig) -> None:
    """A broker answers for itself (its id) and for all brokers together (the empty name)."""
    if not name:
        return
    if not name.lstrip("-").isdecimal():
        raise ConfigError(f"Node id must be an integer, but it is: {name}", code=ErrorCode.INVALID_REQUEST)
    if int(name) != config.broker_id:
        message = f"Unexpected broker id, expected {config.broker_id}, but received {name}"
        raise ConfigError(message, code=ErrorCode.INVALID_REQUEST)


def _with_items(resource_type: int, name: str, operation: int, value: str, texts: Mapping[str, str]) -> str:
    key = _key(resource_type, name)
    word = "APPEND" if operation == APPEND else "SUBTRACT"
    if key is None or key.type != "list":
        raise ConfigError(f"Can't {word} to key {name} because its type is not LIST.", name=name)
    present = texts.get(name, key.default) or ""
    items = [item for item in present.split(",") if item]
    for item in value.split(","):
        if operation == APPEND and item not in items:
            items.append(item)
        elif operation == SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


def _key(resource_type: int, name: str) -> ConfigKey | None:
    if resource_type == BROKER:
        return broker_key(name)
    tables = {TOPIC: TOPIC_KEYS, GROUP: GROUP_KEYS, CLIENT_METRICS: CLIENT_METRICS_KEYS}
    return tables.get(resource_type, {}).get(name)
