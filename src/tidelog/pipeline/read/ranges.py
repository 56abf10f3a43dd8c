"""Ranges of offsets: how much of them is still there, and how they are divided.

Over the tasks of one read, and over the reads of a stream.

Everything here is a pure function of ranges. The order of what is given is kept; within a partition the pieces follow
each other, so that together they hold the same offsets, each once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from tidelog.pipeline.offset_ranges import Ends, OffsetRange


def hold(due: OffsetRange, ends: Ends) -> tuple[OffsetRange, list[OffsetRange]]:
    """As much of a range as its partition holds, perhaps nothing; and what is missing of it, before that and behind."""
    held = due._replace(start=max(due.start, ends.first), until=min(due.until, ends.end))
    before = due._replace(until=min(ends.first, due.until))
    behind = due._replace(start=max(ends.end, due.start))
    return held, [r for r in (before, behind) if r.size]


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


def into_tasks(ranges: Sequence[OffsetRange], tasks: int) -> tuple[tuple[OffsetRange, ...], ...]:
    """The ranges, cut where they are large, on at most so many tasks."""
    return assign(split_evenly(ranges, tasks), tasks)


def assign(ranges: Sequence[OffsetRange], tasks: int) -> tuple[tuple[OffsetRange, ...], ...]:
    """The ranges on at most `tasks` tasks, about even: the largest first, each to whoever has least.

    A task's ranges are in the order of partitions and offsets, so that its files are as well.
    """
    loads = [0] * min(tasks, len(ranges))
    shares: list[list[OffsetRange]] = [[] for _ in loads]
    for r in sorted(ranges, key=lambda r: r.size, reverse=True):
        least = loads.index(min(loads))
        loads[least] += r.size
        shares[least].append(r)
    return tuple(tuple(sorted(share)) for share in shares)
