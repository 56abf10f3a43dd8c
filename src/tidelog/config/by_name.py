"""A broker's configuration as a mapping of Kafka's names to typed values, for rooms that read theirs by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.definitions import BROKER_KEYS


class ByName(Mapping[str, Any]):
    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def __getitem__(self, name: str) -> Any:
        if name not in BROKER_KEYS:
            raise KeyError(name)
        return self._config.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(BROKER_KEYS)

    def __len__(self) -> int:
        return len(BROKER_KEYS)
