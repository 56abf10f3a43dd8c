"""Who may be handled now: records wait in one queue per shard, and of each shard at most one is being handled.

    order "key"         a shard is a key of a partition; records without a key have no order among themselves
    order "partition"   a shard is a partition
    order "none"        every record is a shard of its own

    waiting --take--> being handled --release--> gone, and the next one of its shard may be taken
                       │         ▲
                       └─restore─┘ taken once more after a failed attempt; its shard has waited

Shards that may go on are served in turn, so that a busy key does not hold up the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

#: the shard of a record that waits for nobody
UNORDERED: Final = None


class ShardQueues(Generic[Item]):
    def __init__(self) -> None:
        #: may be taken, in turn; of each shard at most one
        self._ready: deque[Item] = deque()
        #: a shard of which somebody is ready or being handled -> those who wait for that
        self._behind: dict[Hashable, deque[Item]] = {}

    @property
    def ready(self) -> int:
        return len(self._ready)

    def put(self, shard: Hashable, item: Item) -> None:
        if shard is UNORDERED:
            self._ready.append(item)
        elif (behind := self._behind.get(shard)) is None:
            self._behind[shard] = deque()
            self._ready.append(item)
        else:
            behind.append(item)

    def take(self) -> Item | None:
        return self._ready.popleft() if self._ready else None

    def release(self, shard: Hashable) -> None:
        """The one that was taken is finished: the next of its shard is ready."""
        if shard is UNORDERED:
            return
        behind = self._behind[shard]
        if behind:
            self._ready.append(behind.popleft())
        else:
            del self._behind[shard]

    def restore(self, item: Item) -> None:
        """It was taken and not released, and may be taken once more."""
        self._ready.append(item)
