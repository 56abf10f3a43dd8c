"""Records whose headers say nothing of use, however many there are: offset and reason of each, in ten bytes."""

from __future__ import annotations

from array import array
from bisect import bisect_left


class MalformedRecords:
    def __init__(self) -> None:
        #: these ascend
        self._offsets = array("q")
        #: of each, its place among the reasons: there are only a few different ones
        self._whys = array("H")
        self._reasons: list[str] = []
        self._places: dict[str, int] = {}

    def add(self, offset: int, reason: str) -> None:
        place = self._places.setdefault(reason, len(self._reasons))
        if place == len(self._reasons):
            self._reasons.append(reason)
        at = bisect_left(self._offsets, offset)  # nearly always at the end
        self._offsets.insert(at, offset)
        self._whys.insert(at, place)

    def discard(self, offset: int) -> None:
        if offset in self:
            at = bisect_left(self._offsets, offset)
            del self._offsets[at], self._whys[at]

    def delete_below(self, offset: int) -> None:
        at = bisect_left(self._offsets, offset)
        if at:
            del self._offsets[:at], self._whys[:at]

    def first(self, most: int) -> list[tuple[int, str]]:
        found = zip(self._offsets[:most], self._whys[:most], strict=True)
        return [(offset, self._reasons[place]) for offset, place in found]

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, offset: int) -> bool:
        at = bisect_left(self._offsets, offset)
        return at < len(self._offsets) and self._offsets[at] == offset
