"""One partition, as clients name it."""

from __future__ import annotations

from typing import NamedTuple


class LogPlace(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
