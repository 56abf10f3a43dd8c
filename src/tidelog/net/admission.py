"""All but small requests are admitted one by one, so that the memory they hold together is bounded.

Such a request reserves its announced size as soon as its beginning has been read. While others have reserved too much,
it waits in line and is not read further. The reservation is only a number; memory still follows what arrives. One
request is always admitted, so a limit smaller than a request delays it but does not refuse it. While others wait, the
request that was admitted first has a limited time to arrive: a client that sends half of a request and then pauses must
not keep the others out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.net.connection import Connection
    from tidelog.net.limits import Limits
    from tidelog.net.loop import Loop
    from tidelog.timer import TimerTask


class Admission:
    """`most_bytes()` is what requests may have reserved together; it is asked each time, as limits change."""

    __slots__ = (
        "_admitted",
        "_limits",
        "_loop",
        "_most_bytes",
        "_patience",
        "_waiting",
        "is_full",
        "reserved_bytes",
    )

    def __init__(self, loop: Loop, limits: Limits, most_bytes: Callable[[], int]) -> None:
        self._loop = loop
        self._limits = limits
        self._most_bytes = most_bytes
        self.reserved_bytes = 0
        #: since when those that have reserved have, and how much, the first of them first
        self._admitted: dict[Connection, tuple[int, int]] = {}
        #: those that wait, and for how much
        self._waiting: deque[tuple[Connection, int]] = deque()
        #: somebody waits: whoever comes now is read from in small pieces
        self.is_full = False
        self._patience: TimerTask | None = None

    def reserve(self, connection: Connection, size_bytes: int) -> bool:
        """Whether a request may be read now; if not, the connection is told when it may."""
        while self._waiting and self._waiting[0][0].closed:
            self._waiting.popleft()
        if self._waiting or (self.reserved_bytes and self.reserved_bytes + size_bytes > self._most_bytes()):
            self._waiting.append((connection, size_bytes))
            self.is_full = True
            self._watch_first()
            return False
        self._take(connection, size_bytes)
        return True

    def release(self, connection: Connection) -> None:
        self.reserved_bytes -= self._admitted.pop(connection)[1]
        while self._waiting:
            first, size_bytes = self._waiting[0]
            if not first.closed:
                if self.reserved_bytes and self.reserved_bytes + size_bytes > self._most_bytes():
                    self._watch_first()
                    break
                self._take(first, size_bytes)
                self._loop.call_soon(partial(first._on_memory, self))
            self._waiting.popleft()
        self.is_full = bool(self._waiting)

    def _take(self, connection: Connection, size_bytes: int) -> None:
        self.reserved_bytes += size_bytes
        self._admitted[connection] = self._loop.now_ms, size_bytes

    def _watch_first(self) -> None:
        if self._patience is None:
            first_ms, _ = next(iter(self._admitted.values()))
            self._patience = self._loop.timer.add(first_ms + self._limits.huge_request_ms, self._end_first)

    def _end_first(self) -> None:
        self._patience = None
        if not self._admitted or all(waiting.closed for waiting, _ in self._waiting):
            return
        first, (since_ms, _) = next(iter(self._admitted.items()))
        if self._loop.now_ms - since_ms >= self._limits.huge_request_ms:
            first.remark("late", "its large request has not arrived, and others wait for the memory")
            first.close()
        else:
            self._watch_first()
