"""The segments of one log, ordered by base offset; the positions of offsets in them, and slices from there.

Finding the segment is a bisect over the base offsets. In it, positions that are remembered are asked first: where the
last appends went and where the last reads ended. A consumer at the end of the log, a follower, and a reader that goes
on where it stopped find their place there, in one look, however long the log is.

They are remembered in arrays of numbers, in the slot that an offset hashes to, and not as objects: an object for each
append, kept a while, would leave one here and there in memory that was given back otherwise, and hold all of it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from tidelog.log.segment import Segment, Slice

#: how many positions are remembered; a prime, so that offsets that are multiples of something have slots of their own
_SLOTS: Final = 251
_NONE: Final = array("q", [-1])

Position = tuple[Segment, int]


class Segments:
    __slots__ = ("_bases", "_list", "_offsets", "_places", "_segment_bases", "active")

    def __init__(self, segments: list[Segment]) -> None:
        self._list = segments
        self._bases = [segment.base_offset for segment in segments]
        #: the last one, which is appended to
        self.active = segments[-1]
        #: in each slot the offset that a batch begins with, its position, and the base offset of its segment; empty
        #: until there is something to remember
        self._offsets: array[int] | None = None
        self._places = self._segment_bases = _NONE

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
        offsets = self._offsets
        if offsets is not None:
            slot = offset % _SLOTS
            if offsets[slot] == offset:
                segment = self.active
                base_offset = self._segment_bases[slot]
                if base_offset != segment.base_offset:
                    segment = self._list[max(bisect_right(self._bases, offset) - 1, 0)]
                place = self._places[slot]
                # It may be the end of a segment, and the batch have come into the next one.
                if base_offset == segment.base_offset and place < segment.size:
                    return segment, place
        for segment in self.since(offset):
            span = segment.find(offset)
            if span is not None:
                if span.base_offset == offset:
                    self.remember(offset, segment, span.position)
                return segment, span.position
        return None

    def read(self, offset: int, max_bytes: int, max_offset: int, end_offset: int, min_one_batch: bool) -> Slice | None:
        """Whole batches from the one that holds `offset` on, all below `max_offset`, from one segment of a log that
        ends at `end_offset`; `Log.read` says the rest.
        """
        found = self.position(offset)
        if found is None:
            return None
        segment, position = found
        end, next_offset = self._bound(segment, max_offset, end_offset)
        if end <= position:
            return None
        if end - position > max_bytes:
            end, next_offset = segment.boundary(position, position + max_bytes)
            if end == position:
                if not min_one_batch:
                    return None
                span = segment.span_at(position)
                end, next_offset = position + span.size_bytes, span.last_offset + 1
        self.remember(next_offset, segment, end)
        return segment.slice(position, end - position, next_offset)

    def _bound(self, segment: Segment, max_offset: int, end_offset: int) -> tuple[int, int]:
        """How far a reader bounded by `max_offset` may go in the segment, and the offset that comes there."""
        if max_offset == end_offset:
            if segment is self.active:
                return segment.size, max_offset
        else:
            found = self.position(max_offset)
            if found is not None and found[0] is segment:
                return found[1], max_offset
        # The bound lies in a later segment: all of this one may be read.
        return segment.size, self.next_base_offset(segment) or max_offset

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """A batch that begins with `offset` stands, or will stand, at this position."""
        offsets = self._offsets
        if offsets is None:
            offsets = self._offsets = _NONE * _SLOTS
            self._places = _NONE * _SLOTS
            self._segment_bases = _NONE * _SLOTS
        slot = offset % _SLOTS
        offsets[slot] = offset
        self._places[slot] = position
        self._segment_bases[slot] = segment.base_offset

    def forget(self) -> None:
        """Positions are no longer what they were: the log was cut."""
        self._offsets = None
        self._places = self._segment_bases = _NONE
