"""What an operator is told of connections: the first few of a kind at once, and of many more how many there were.

Any stranger can be the cause of such a line as often as he likes. He must not fill the disk with them, nor hide what
else is said; so each kind has a budget of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.net.loop import Loop
from tidelog.timer import TimerTask

#: of one kind, before the rest of the window is only counted
MOST: Final = 10
WINDOW_MS: Final = 60_000


class _Window:
    __slots__ = ("count", "end", "last")

    def __init__(self, end: TimerTask) -> None:
        self.end = end
        self.count = 0
        self.last = ""


class Remarks:
    __slots__ = ("_loop", "_say", "_windows")

    def __init__(self, loop: Loop, say: Callable[[str], object]) -> None:
        self._loop = loop
        self._say = say
        self._windows: dict[str, _Window] = {}

    def add(self, kind: str, sentence: str) -> None:
        """`kind` names what sentences of this sort have in common; there are few kinds."""
        window = self._windows.get(kind)
        if window is None:
            end = self._loop.timer.add(self._loop.now_ms + WINDOW_MS, partial(self._end, kind))
            window = self._windows[kind] = _Window(end)
        window.count += 1
        if window.count <= MOST:
            self._say(sentence)
        else:
            window.last = sentence

    def close(self) -> None:
        """Writes the remarks that were held back."""
        for kind, window in list(self._windows.items()):
            window.end.cancel()
            self._end(kind)

    def _end(self, kind: str) -> None:
        window = self._windows.pop(kind)
        more = window.count - MOST
        if more > 0:
            self._say(f"{more} more of this kind within {WINDOW_MS // 1000} s, the last: {window.last}")
