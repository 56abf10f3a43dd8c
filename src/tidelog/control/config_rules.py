"""What the controller must know of configurations: which values a resource may have. The config room knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tidelog.config import alter
from tidelog.config.definitions import GROUP_KEYS, TOPIC_KEYS, broker_key
from tidelog.config.errors import ConfigError
from tidelog.config.values import default_value, to_text
from tidelog.control.errors import ApiError
from tidelog.control.model import ConfigResource, ResourceType

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.config.definitions import ConfigKey


class Rules:
    """`tidelog.control.configs.ConfigRules` over a broker's configuration; `is_registered` knows the other brokers,
    whose settings the controller decides too."""

    __slots__ = ("_config", "_is_registered")

    def __init__(self, config: BrokerConfig, is_registered: Callable[[int], bool] = lambda broker_id: False) -> None:
        self._config = config
        self._is_registered = is_registered

    def validate(
        self, resource: ConfigResource, values: Mapping[str, str], before: Mapping[str, str]
    ) -> ApiError | None:
        name = resource.name
        try:
            if resource.type == ResourceType.BROKER and name.isdecimal() and self._is_registered(int(name)):
                self._config.check_dynamic(values, per_broker=True)
            else:
                alter.check(resource.type, name, values, self._config)
        except ConfigError as error:
            return ApiError(error.code, str(error))
        return None

    def is_list(self, resource: ConfigResource, name: str) -> bool:
        key = _key(resource, name)
        return key is not None and key.type == "list"

    def default(self, resource: ConfigResource, name: str) -> str | None:
        if resource.type == ResourceType.TOPIC and name in TOPIC_KEYS:
            return to_text(self._config.topic_defaults()[name])
        key = _key(resource, name)
        return None if key is None else to_text(default_value(key))


def _key(resource: ConfigResource, name: str) -> ConfigKey | None:
    if resource.type == ResourceType.TOPIC:
        return TOPIC_KEYS.get(name)
    if resource.type == ResourceType.GROUP:
        return GROUP_KEYS.get(name)
    return broker_key(name) if resource.type == ResourceType.BROKER else None
