"""How fast a compaction may read and write, and that it can be told to stop: asked before every piece of work."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Final

#: a rate is kept over periods of this length; a pause before one is not made up for by haste in it
_PERIOD_MS: Final = 1000


class Cancelled(Exception):
    """The broker stops, or the log is gone: the work is given up."""


class Throttle:
    __slots__ = ("_began_ms", "_bytes", "_monotonic_ms", "bytes_per_second", "cancelled")

    def __init__(self, bytes_per_second: float, monotonic_ms: Callable[[], int]) -> None:
        self.bytes_per_second = bytes_per_second
        self._monotonic_ms = monotonic_ms
        self._began_ms = monotonic_ms()
        self._bytes = 0
        #: set by another thread
        self.cancelled = Event()

    def __call__(self, size_bytes: int) -> None:
        """So many bytes were, or will be, read or written; waits where that is too many for the time."""
        if self.cancelled.is_set():
            raise Cancelled
        self._bytes += size_bytes
        elapsed_ms = self._monotonic_ms() - self._began_ms
        due_ms = 1000 * self._bytes / self.bytes_per_second
        if due_ms - elapsed_ms >= 1 and self.cancelled.wait((due_ms - elapsed_ms) / 1000):
            raise Cancelled
        if max(elapsed_ms, due_ms) >= _PERIOD_MS:
            self._began_ms = self._monotonic_ms()
            self._bytes = 0
