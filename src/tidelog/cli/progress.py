"""Progress on a terminal: one line on stderr that is written over a few times a second, and nothing elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final

EVERY_S: Final = 0.2
_CLEAR: Final = "\r\x1b[K"


class Progress:
    """`total` is None where it is not known. The line goes when the work is over."""

    def __init__(self, what: str, total: int | None, shown: bool = True) -> None:
        self._what = what
        self._total = total
        self._shown = shown and sys.stderr.isatty()
        self._started = self._next = time.monotonic()
        self._written = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._written:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()

    def update(self, done: int) -> None:
        if not self._shown:
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY_S
        rate = done / max(now - self._started, 0.001)
        line = f"{self._what} {done:,}"
        if self._total:
            line += f" of {self._total:,} ({min(100, 100 * done // self._total)}%)"
        sys.stderr.write(f"{_CLEAR}{line}, {rate:,.0f}/s")
        sys.stderr.flush()
        self._written = True
