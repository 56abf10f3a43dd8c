"""Progress of long operations, on stderr: a line updated in place on a terminal, and a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final

from tidelog.cli.output import tell

EVERY_S: Final = 0.2
LINE_EVERY_S: Final = 10.0
_CLEAR: Final = "\r\x1b[K"


def rate_text(rate: float) -> str:
    """What is slow has a decimal: 1/s may be twice as much as 1/s."""
    return f"{rate:.1f}" if 0 < rate < 9.95 else f"{rate:,.0f}"


class Progress:
    """`total` is None where it is not known. On a terminal the line goes when the work is over."""

    def __init__(self, what: str, total: int | None, shown: bool = True) -> None:
        self._what = what
        self._total = total
        self._shown = shown
        self._in_place = sys.stderr.isatty()
        self._every_s = EVERY_S if self._in_place else LINE_EVERY_S
        self._started = time.monotonic()
        self._next = self._started if self._in_place else self._started + self._every_s
        self._written = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._written:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()

    def update(self, done: int, part: int | None = None) -> None:
        """So many are done; `part` is how much of the total that is, where the total counts something else."""
        if not self._shown:
            return
        now = time.monotonic()
        # Without a total, nothing done says nothing.
        if now < self._next or not (done or self._total or self._in_place):
            return
        self._next = now + self._every_s
        line = f"{self._what} {done:,}"
        if self._total:
            percent = min(100, 100 * (done if part is None else part) // self._total)
            line += f" ({percent}%)" if part is not None else f" of {self._total:,} ({percent}%)"
        line += f", {rate_text(done / max(now - self._started, 0.001))}/s"
        if self._in_place:
            sys.stderr.write(_CLEAR + line)
            sys.stderr.flush()
            self._written = True
        else:
            tell(line)
