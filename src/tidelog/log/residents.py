"""Limits the number of open descriptors and mappings, however many logs there are.

Every descriptor or mapping that is taken is registered here. If there are too many, the one that has been held longest
is released (`park`) and taken again when it is next used. Using one costs nothing here, only taking one does. A slice
that waits in a socket's queue keeps its file open by itself.
"""

from __future__ import annotations

from typing import Protocol


class Parkable(Protocol):
    def park(self) -> None: ...


class Residents:
    __slots__ = ("_members", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._members: dict[Parkable, None] = {}

    def __len__(self) -> int:
        return len(self._members)

    def add(self, member: Parkable) -> None:
        """`member` holds something from now on; the one that has held longest may have to give way."""
        members = self._members
        members[member] = None
        while len(members) > self.limit:
            oldest = next(iter(members))
            del members[oldest]
            oldest.park()

    def discard(self, member: Parkable) -> None:
        """`member` has given back what it held."""
        self._members.pop(member, None)
