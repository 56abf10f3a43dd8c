"""The partitions of an internal topic that a coordinator owns: one shard each, found by hashing an ID.

A shard holds the state from the records of its partition. Until it is loaded, requests for it are told to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidelog.deciding.decision import TimerKey
from tidelog.deciding.turn import Refusal, Turn
from tidelog.wire.errors import ErrorCode
from tidelog.wire.java_hash import coordinator_partition

T = TypeVar("T", bound=Turn)


class Shard:
    """What every shard has; a room adds its own state."""

    __slots__ = ("loading", "partition")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.loading = True

    def key(self, kind: str, id: str = "", member_id: str = "") -> TimerKey:
        return (self.partition, kind, id, member_id)

    def close(self, turn: T) -> T:
        """The decision is made: name the partition that it concerns."""
        if turn.records or turn.ordered:
            turn.partition = self.partition
        return turn


S = TypeVar("S", bound=Shard)


class Shards(dict[int, S]):
    """Partition -> shard. `configured` says how many partitions the topic will have while it does not exist."""

    def __init__(self, configured: Callable[[], int]) -> None:
        super().__init__()
        self._configured = configured
        self._partitions: int | None = None

    def sized(self, partitions: int | None) -> None:
        """How many partitions the topic has; None while it does not exist."""
        self._partitions = partitions

    def partition_for(self, id: str) -> int:
        return coordinator_partition(id, self._partitions or self._configured())

    def of(self, id: str) -> S:
        """The shard that an id belongs to; Refusal where this broker cannot answer for it, or not yet."""
        shard = self.get(self.partition_for(id))
        if shard is None:
            raise Refusal(ErrorCode.NOT_COORDINATOR)
        if shard.loading:
            raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    @property
    def some_load(self) -> bool:
        return any(shard.loading for shard in self.values())

    def active(self) -> list[S]:
        return [shard for shard in self.values() if not shard.loading]
