"""The minimum level of this broker's log messages, under Apache Kafka's names; it lasts as long as the broker runs."""

from __future__ import annotations

from collections.abc import Callable


class LogLevel:
    __slots__ = ("_level", "on_change")

    def __init__(self) -> None:
        self._level = "INFO"
        self.on_change: Callable[[str], None] = lambda level: None

    @property
    def level(self) -> str:
        return self._level

    def set(self, level: str) -> None:
        self._level = level
        self.on_change(level)
