"""Which configurations may be stored for a resource.

`check` raises ConfigError, whose `code` and text go to the client. Nothing is changed here: the controller works
out and stores the new values, and brokers load them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.errors import ConfigError
from tidelog.config.group_config import check_client_metrics, check_group
from tidelog.config.topic_config import MAX_TEXT_LENGTH, check_overrides
from tidelog.wire.errors import ErrorCode

# Resource types as the protocol numbers them.
TOPIC = 2
BROKER = 4
CLIENT_METRICS = 16
GROUP = 32

# Operations of IncrementalAlterConfigs.


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
