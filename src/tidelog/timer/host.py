"""The environment of a broker: its clock, its timer, its worker threads, and a place for notices.

Everything that a room needs from the outside world comes through here, or through the `Disk`, the `MetadataStore` and
the sockets that are passed in, so that a test or a simulation can replace the world.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from tidelog.clock import Clock
from tidelog.timer.wheel import Timer


class Workers(Protocol):
    """Where work goes that would keep others waiting."""

    def in_worker(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """On another thread; `done(result, error)` is called on the broker's."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        """In the next turn of the loop."""


def _say_nothing(message: str) -> None:
    """For a host where nobody listens."""


class Host(NamedTuple):
    clock: Clock
    timer: Timer
    workers: Workers
    #: what was not foreseen, with its exception
    report: Callable[[str, BaseException | None], None]
    #: what an operator may want to know
    notice: Callable[[str], None] = _say_nothing
