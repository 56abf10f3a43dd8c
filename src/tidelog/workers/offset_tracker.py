"""Which records of one partition are finished, and what may be committed.

Records arrive in the order of their offsets and are finished in any order. The committable offset is the smallest one
that is not finished, so that commits never have gaps; what is finished beyond it goes into the offset map.

A partition that was taken over begins with the map of whoever had it before: records that it tells to be finished are
not handled again (`receive` says so), and what it tells to be unfinished stays in the maps of our own commits until it
has arrived, or turns out to be gone (retention, compaction).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import NamedTuple

from tidelog.workers.offset_map import DEFAULT_LIMIT, OffsetMap, encode


class Committable(NamedTuple):
    offset: int
    metadata: str
    #: whether the map tells all that is finished; else the rest would be repeated after a crash
    is_whole: bool


class OffsetTracker:
    def __init__(self, start: int, known: OffsetMap | None = None) -> None:
        #: everything below it has arrived, or will not; only ever grows
        self.next_offset = start
        self.has_received = False
        #: arrived and not finished, ascending; all below `next_offset`
        self._unfinished: list[int] = []
        #: told to be unfinished by the map and not here yet, ascending; all at or above `next_offset`
        self._awaited: deque[int] = deque(known.unfinished if known else ())
        #: below it, what is not awaited is finished
        self._known_until = known.end if known else start
        assert not self._awaited or self._awaited[0] >= start

    @property
    def pending(self) -> int:
        """How many have arrived and are not finished."""
        return len(self._unfinished)

    @property
    def base(self) -> int:
        """What may be committed: everything below is finished."""
        if self._unfinished:
            return self._unfinished[0]
        if self._awaited:
            return self._awaited[0]
        return max(self.next_offset, self._known_until)

    def receive(self, offset: int) -> bool:
        """Whether the record that has arrived is to be handled; it is not, if it was finished before."""
        assert offset >= self.next_offset, f"{offset} arrived after {self.next_offset - 1}"
        self.next_offset = offset + 1
        self.has_received = True
        awaited = self._awaited
        while awaited and awaited[0] < offset:
            awaited.popleft()
        if awaited and awaited[0] == offset:
            awaited.popleft()
        elif offset < self._known_until:
            return False
        self._unfinished.append(offset)
        return True

    def finish(self, offset: int) -> None:
        at = bisect_left(self._unfinished, offset)
        assert at < len(self._unfinished) and self._unfinished[at] == offset, f"{offset} is not being worked on"
        del self._unfinished[at]

    def committable(self, limit: int = DEFAULT_LIMIT) -> Committable:
        base = self.base
        end = max(self.next_offset, self._known_until)
        text, is_whole = encode(base, [*self._unfinished, *self._awaited], end, limit)
        return Committable(base, text, is_whole)
