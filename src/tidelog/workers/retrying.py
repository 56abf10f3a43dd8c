"""When a message that failed is tried again: each time after twice as long, until the attempts are used up."""

from __future__ import annotations

import heapq
import itertools
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")


class Backoff(NamedTuple):
    attempts: int = 5
    first_s: float = 1.0
    most_s: float = 60.0

    def delay_s(self, attempt: int) -> float | None:
        """How long to wait after so many failed attempts; None if that were enough."""
        if attempt >= self.attempts:
            return None
        # The exponent is bounded: two to the ten-thousandth is no float.
        return min(self.most_s, self.first_s * 2.0 ** min(attempt - 1, 60))


class RetrySchedule(Generic[Item]):
    """Items and the times at which they are due; those of the same time in the order in which they came."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Item]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, due: float, item: Item) -> None:
        heapq.heappush(self._heap, (due, next(self._numbers), item))

    def take_due(self, now: float) -> list[Item]:
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        return due
