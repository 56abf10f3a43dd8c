"""Requests of thousands of items, decided some hundreds at a time so that nobody waits for the whole.

The items of such a request succeed or fail one by one, as in Apache Kafka, so a client cannot tell. A request that
names an item twice is decided as a whole: what is refused of it depends on all of its items.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, TypeVar

Item = TypeVar("Item")
PART_ITEMS: Final = 200


def in_parts(items: Sequence[Item], identity: Callable[[Item], Hashable]) -> list[Sequence[Item]]:
    if len(items) <= PART_ITEMS or len(set(map(identity, items))) < len(items):
        return [items]
    return [items[at : at + PART_ITEMS] for at in range(0, len(items), PART_ITEMS)]
