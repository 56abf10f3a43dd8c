"""Large requests are admitted one by one, so that what they hold together is bounded.

Such a request reserves its announced size before more than its beginning is read, and waits in line, unread, while
others have reserved too much. The reservation is only a number; memory still follows what arrives. One request is
always admitted, so a limit smaller than a request delays but does not refuse it. Where others wait, the one that was
admitted first has a time to arrive: whoever sends half of a request and rests must not keep the others out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.net.connection import Connection
    from tidelog.net.limits import Limits
    from tidelog.net.loop import Loop
    from tidelog.timer import TimerTask


class Admission:
    """`most_bytes()` is what requests may have reserved together; it is asked each time, as limits change."""

    __slots__ = ("_admitted", "_limits", "_log", "_loop", "_most_bytes", "_patience", "_waiting", "reserved_bytes")

    def __init__(self, loop: Loop, limits: Limits, log: Callable[[str], object], most_bytes: Callable[[], int]) -> None:
        self._loop = loop
        self._limits = limits
        self._log = log
        self._most_bytes = most_bytes
        self.reserved_bytes = 0
        #: since when those that have reserved have, and how much, the first of them first
        self._admitted: dict[Connection, tuple[int, int]] = {}
        self._waiting: deque[Connection] = deque()
        self._patience: TimerTask | None = None

    def reserve(self, connection: Connection, size_bytes: int) -> bool:
        """Whether a request may be read now; if not, the connection will be told when to ask again."""
        if self.reserved_bytes and self.reserved_bytes + size_bytes > self._most_bytes():
            self._waiting.append(connection)
            self._watch_first()
            return False
        self.reserved_bytes += size_bytes
        self._admitted[connection] = self._loop.now_ms, size_bytes
        return True

    def release(self, connection: Connection) -> None:
        self.reserved_bytes -= self._admitted.pop(connection)[1]
        waiting, self._waiting = self._waiting, deque()
        for connection in waiting:
            self._loop.call_soon(connection._on_memory)

    def _watch_first(self) -> None:
        if self._patience is None:
            first_ms, _ = next(iter(self._admitted.values()))
            self._patience = self._loop.timer.add(first_ms + self._limits.huge_request_ms, self._end_first)

    def _end_first(self) -> None:
        self._patience = None
        if not self._admitted or all(waiting.closed for waiting in self._waiting):
            return
        first, (since_ms, _) = next(iter(self._admitted.items()))
        if self._loop.now_ms - since_ms >= self._limits.huge_request_ms:
            self._log(f"closing {first!r}: its large request has not arrived, and others wait for the memory")
            first.close()
        else:
            self._watch_first()
