"""Things to do one after the other, each of which says itself when it is through."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


def always() -> bool:
    """Whoever asked waits for the answer."""
    return True


class Steps:
    def __init__(self) -> None:
        self._queue: deque[Callable[[], None]] = deque()
        self.is_busy = False
        self._turning = False

    def add(self, step: Callable[[], None]) -> None:
        """Begins it when its turn comes; it calls `next` when it is through."""
        self._queue.append(step)
        self._turn()

    def next(self) -> None:
        self.is_busy = False
        self._turn()

    def _turn(self) -> None:
        # A loop, not a recursion: a store that answers at once would otherwise build a stack as high as the queue.
        if self._turning:
            return
        self._turning = True
        try:
            while self._queue and not self.is_busy:
                self.is_busy = True
                self._queue.popleft()()
        finally:
            self._turning = False
