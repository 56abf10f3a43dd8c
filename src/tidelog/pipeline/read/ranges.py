"""Ranges of offsets: how much of them is still there, and how they are divided.

Over the tasks of one read, and over the reads of a stream.

Everything here is a pure function of ranges. The order of what is given is kept; within a partition the pieces follow
each other, so that together they hold the same offsets, each once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.pipeline.offsets import Ends, OffsetRange


class Gap(NamedTuple):
    """Offsets that were due and that the log no longer holds: start <= offset < until."""

    topic: str
    partition: int
    start: int
    until: int

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition}: offset {self.start} is due, and the log begins at {self.until}; "
            f"{self.until - self.start} offsets are gone"
        )


def hold(due: OffsetRange, ends: Ends) -> tuple[OffsetRange, list[Gap]]:
    """As much of a range as its partition holds, perhaps nothing, and what it does not hold."""
    held = due._replace(start=max(due.start, ends.first), until=min(due.until, ends.end))
    before = Gap(*due.at, due.start, min(ends.first, due.until))
    after = Gap(*due.at, max(ends.end, due.start), due.until)
    return held, [gap for gap in (before, after) if gap.start < gap.until]


def split_evenly(ranges: Iterable[OffsetRange], tasks: int) -> list[OffsetRange]:
    """Big ranges cut until there are `tasks` of them, so that the biggest is as small as can be; empty ones dropped.

    No range is joined with another, so that there may be more than `tasks`; none is cut below one offset, so that
    there may be fewer.
    """
    whole = [r for r in ranges if r.size]
    parts = [1] * len(whole)
    # Whoever has the biggest piece is cut once more: no other cut would make the biggest piece smaller.
    biggest = [(-r.size, index) for index, r in enumerate(whole) if r.size > 1]
    heapq.heapify(biggest)
    for _ in range(tasks - len(whole)):
        if not biggest:
            break
        _, index = biggest[0]
        parts[index] += 1
        piece = -(-whole[index].size // parts[index])
        if piece > 1:
            heapq.heapreplace(biggest, (-piece, index))
        else:
            heapq.heappop(biggest)
    return [piece for r, count in zip(whole, parts, strict=True) for piece in _cut(r, count)]


def split_by_size(ranges: Iterable[OffsetRange], max_offsets: int) -> list[OffsetRange]:
    """Ranges cut into even pieces of at most `max_offsets`; empty ones dropped."""
    return [piece for r in ranges if r.size for piece in _cut(r, -(-r.size // max_offsets))]


def limit(ranges: Sequence[OffsetRange], max_offsets: int) -> list[OffsetRange]:
    """The same ranges, each shortened at its end to its share, so that together they hold `max_offsets` offsets.

    A share is proportional to the range's size, and never nothing for a range that holds something: every partition
    moves on, even where `max_offsets` is less than their number.
    """
    waiting = {index: r.size for index, r in enumerate(ranges) if r.size}
    if sum(waiting.values()) <= max_offsets:
        return list(ranges)
    limited = list(ranges)
    for index, share in _shares(waiting, max_offsets).items():
        limited[index] = ranges[index]._replace(until=ranges[index].start + share)
    return limited


def _cut(r: OffsetRange, pieces: int) -> Iterable[OffsetRange]:
    for piece in range(pieces):
        yield r._replace(start=r.start + r.size * piece // pieces, until=r.start + r.size * (piece + 1) // pieces)


def _shares(sizes: dict[int, int], seats: int) -> dict[int, int]:
    """`seats`, fewer than there are, in proportion to the sizes, at least one each; the greatest rest is rounded up."""
    shares: dict[int, int] = {}
    total = sum(sizes.values())
    # Who would get less than one gets one, and the others share what is left: that may be less than one for the next.
    while small := [index for index, size in sizes.items() if seats * size < total]:
        for index in small:
            total -= sizes.pop(index)
            shares[index] = 1
        seats = max(seats - len(small), 0)
    shares |= {index: seats * size // total for index, size in sizes.items()}
    by_rest = sorted(sizes, key=lambda index: seats * sizes[index] % total, reverse=True)
    for index in by_rest[: seats - sum(shares[index] for index in sizes)]:
        shares[index] += 1
    return shares
