"""SIGINT and SIGTERM while a pipeline runs, or workers work.

before there is a runner    it ends at once, with exit code 0: nothing is in hand
the first one               the batch in hand is finished, or the records
the second one              it does not wait for that
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self


class _StoppedEarly(BaseException):
    """No `except Exception` on the way may take it for a failure."""


class Stopping:
    def __init__(self, in_hand: str) -> None:
        self._in_hand = in_hand
        self._stop: Callable[[], None] | None = None
        self._asked = False
        self._before: dict[int, Any] = {}
        #: whether nothing may hold up the end any more
        self.is_over = False

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hand_over(self, stop: Callable[[], None]) -> None:
        """From now on the first signal calls this."""
        self._stop = stop

    def _handle(self, number: int, frame: FrameType | None) -> None:
        from tidelog.cli.main import INTERRUPTED
        from tidelog.cli.output import tell

        if self._asked and self.is_over:
            # Only Spark is still being put away; its JVM ends with this process.
            os._exit(INTERRUPTED)
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        if self._stop is None:
            raise _StoppedEarly
        tell(f"stopping after {self._in_hand}; signal again to stop at once")
        self._stop()


def stoppable(unit: str, in_hand: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a command its `stopping`; the outermost of its decorators, for signals may come early."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def wrapper(*arguments: Any, **options: Any) -> Any:
            from tidelog.cli.output import tell

            with Stopping(in_hand) as stopping:
                try:
                    return command(*arguments, stopping=stopping, **options)
                except _StoppedEarly:
                    tell(f"stopped before the first {unit}")

        return wrapper

    return decorated
