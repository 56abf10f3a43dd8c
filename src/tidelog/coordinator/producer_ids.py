"""Producer IDs, allocated from blocks.

The controller records a block before any of its IDs is used, so that no ID is ever assigned twice, whatever happens to
this broker. What is left of a block when the broker stops is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.control.controller import ProducerIdBlock


class ProducerIds:
    """`allocate(done)` asks the controller for the next block, once the last id of a block is taken."""

    __slots__ = ("_allocate", "_asked", "_left", "_waiting")

    def __init__(self, allocate: Callable[[Callable[[ProducerIdBlock], None]], None]) -> None:
        self._allocate = allocate
        self._asked = False
        self._left: range = range(0)
        self._waiting: list[Callable[[], None]] = []

    def take(self) -> int | None:
        """The next id; None where the block is used up and the next one, which is asked for, is not there yet."""
        if not self._left:
            self._ask()
            return None
        first, self._left = self._left[0], self._left[1:]
        if not self._left:
            self._ask()
        return first

    def when_ready(self, then: Callable[[], None]) -> None:
        """Calls `then` when there are ids to take, or none could be had."""
        if self._left:
            then()
            return
        self._waiting.append(then)
        self._ask()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._allocate(self._got)

    def _got(self, block: ProducerIdBlock) -> None:
        self._asked = False
        if not block.error.is_failure:
            self._left = range(block.first, block.first + block.size)
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()
