"""What happened in a simulation, for people: when, to whom, what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.sim.process import TrueTime


class Happening(NamedTuple):
    at_ms: int
    who: str
    what: str


class Trace:
    def __init__(self, time: TrueTime) -> None:
        self._time = time
        self._start_ms = time.now_ms
        self.happenings: list[Happening] = []

    def add(self, who: str, what: str) -> None:
        self.happenings.append(Happening(self._time.now_ms - self._start_ms, who, what))


def text_of(happenings: Sequence[Happening]) -> str:
    """One line each: when, to whom, what."""
    return "\n".join(f"{each.at_ms / 1000:9.3f}  {each.who:<10}  {each.what}" for each in happenings)
