"""Requests of thousands of items, decided some hundreds at a time so that nobody waits for the whole.

The items of such a request succeed or fail one by one, as in Apache Kafka, so a client cannot tell. A request that
names an item twice is decided as a whole: what is refused of it depends on all of its items.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, TypeVar

Item = TypeVar("Item")
PART_ITEMS: Final = 200
#: of what is written for them: half of what ZooKeeper takes at once
PART_BYTES: Final = 400_000


def in_parts(
    items: Sequence[Item], identity: Callable[[Item], Hashable], bytes_of: Callable[[Item], int] = lambda item: 0
) -> list[Sequence[Item]]:
    """`bytes_of` tells about how much has to be written for an item."""
    sizes = list(map(bytes_of, items))
    is_small = len(items) <= PART_ITEMS and sum(sizes) <= PART_BYTES
    if is_small or len(set(map(identity, items))) < len(items):
        return [items]
    parts: list[list[Item]] = [[]]
    filled = 0
    for item, size in zip(items, sizes, strict=True):
        if len(parts[-1]) == PART_ITEMS or (parts[-1] and filled + size > PART_BYTES):
            parts.append([])
            filled = 0
        parts[-1].append(item)
        filled += size
    return list(parts)
