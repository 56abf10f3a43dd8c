"""Time as a value that is handed in: the simulator replaces it, deciding rooms never see it.

Wall time stamps records and files; monotonic time drives timers, sessions and timeouts, so that a
stepping wall clock neither expires a session nor deletes a segment early.
"""

from __future__ import annotations

from time import monotonic_ns, time_ns
from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int: ...

    def monotonic_ms(self) -> int: ...


class SystemClock:
    __slots__ = ()

    def wall_ms(self) -> int:
        return time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return monotonic_ns() // 1_000_000
