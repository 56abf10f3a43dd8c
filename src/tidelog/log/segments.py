"""The segments of one log, ordered by base offset, and the positions of offsets in them.

Finding the segment is a bisect over the base offsets. Before that, two generations of remembered positions are asked:
where the last appends went and where the last reads ended. A consumer at the end of the log, a follower, and a reader
that goes on where it stopped find their place there, in one look, however long the log is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from tidelog.log.segment import Segment

#: how many positions each generation holds
_REMEMBERED: Final = 128

Position = tuple[Segment, int]


class Segments:
    __slots__ = ("_bases", "_list", "_old", "_young", "active")

    def __init__(self, segments: list[Segment]) -> None:
        self._list = segments
        self._bases = [segment.base_offset for segment in segments]
        #: the last one, which is appended to
        self.active = segments[-1]
        #: positions of batches, by the offset that they begin with
        self._young: dict[int, Position] = {}
        self._old: dict[int, Position] = {}

    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._list)

    def __getitem__(self, at: int) -> Segment:
        return self._list[at]

    @property
    def first_base_offset(self) -> int:
        return self._bases[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._list)

    def since(self, offset: int) -> list[Segment]:
        """The segment that holds `offset`, or the first one, and all later ones."""
        return self._list[max(bisect_right(self._bases, offset) - 1, 0) :]

    def next_base_offset(self, segment: Segment) -> int | None:
        """Where the next segment begins; None for the last one."""
        at = bisect_right(self._bases, segment.base_offset)
        return self._bases[at] if at < len(self._bases) else None

    # --- change

    def add(self, segment: Segment) -> None:
        self._list.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def drop_from(self, offset: int) -> list[Segment]:
        """Takes out the segments that begin past `offset`; one must remain."""
        keep = bisect_right(self._bases, offset)
        return self._drop(keep, len(self._list))

    def drop_first(self, count: int) -> list[Segment]:
        """Takes out the `count` oldest segments; one must remain."""
        return self._drop(0, count)

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Puts one sealed segment in the place of some that follow one another."""
        first = self._list.index(old[0])
        if self._list[first : first + len(old)] != old:
            raise ValueError("the segments do not follow one another")
        self._list[first : first + len(old)] = [new]
        self._bases[first : first + len(old)] = [new.base_offset]
        self.forget()

    def _drop(self, first: int, end: int) -> list[Segment]:
        dropped = self._list[first:end]
        del self._list[first:end], self._bases[first:end]
        self.active = self._list[-1]
        self.forget()
        return dropped

    # --- positions

    def position(self, offset: int) -> Position | None:
        """The segment and position of the batch that holds `offset`, or of the first one after it."""
        found = self._young.get(offset) or self._old.get(offset)
        if found is not None and found[1] < found[0].size:
            return found
        for segment in self.since(offset):
            span = segment.find(offset)
            if span is not None:
                if span.base_offset == offset:
                    self.remember(offset, segment, span.position)
                return segment, span.position
        return None

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """A batch that begins with `offset` stands, or will stand, at this position."""
        young = self._young
        if len(young) >= _REMEMBERED:
            self._old = young
            young = self._young = {}
        young[offset] = (segment, position)

    def forget(self) -> None:
        """Positions are no longer what they were: the log was cut."""
        self._young = {}
        self._old = {}
