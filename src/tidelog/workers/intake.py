"""How much more may be received: each partition gets a share of what the workers may hold.

A partition whose share is used up is paused, and resumed when half of it is free again, so that a partition that is
stuck fills neither the memory nor the others' shares. Pausing makes the client throw away what it has fetched ahead.
Therefore, where every partition is full, which is what happens whenever the workers are slower than the broker, nothing
is paused at first: the caller waits for room instead, and pauses only if that takes too long, because it must poll to
stay in its group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.workers.backlog import Name, PartitionWork


class HoldLimits(NamedTuple):
    #: records and bytes that may be held, over all partitions
    pending: int
    pending_bytes: int
    #: what every partition may hold, however many there are
    least_share: int


class Valve(NamedTuple):
    pause: list[Name]
    resume: list[Name]
    #: how many records may be asked for; 0: wait for room before asking. It is not 0 where all are paused: one must
    #: poll to stay in the group.
    room: int


class Intake:
    def __init__(self, limits: HoldLimits, patience_s: float) -> None:
        self._limits = limits
        self._patience_s = patience_s
        self._full_since: float | None = None
        self.paused: set[Name] = set()

    def plan(self, works: Sequence[PartitionWork], now: float) -> Valve:
        """What to pause and resume now. The caller carries it out: `paused` is how it stands afterwards."""
        self.paused &= {work.name for work in works}
        resume = [work.name for work in works if work.name in self.paused and self._is_low(work, len(works))]
        self.paused.difference_update(resume)
        flowing = [work for work in works if work.name not in self.paused]
        full = [work.name for work in flowing if self._is_full(work, len(works))]
        if flowing and len(full) == len(flowing) and not self._has_waited(now):
            return Valve([], resume, 0)
        self._full_since = None
        self.paused.update(full)
        room = sum(self._share(len(works)) - work.pending for work in flowing if work.name not in full)
        return Valve(full, resume, max(1, room))

    def _has_waited(self, now: float) -> bool:
        if self._full_since is None:
            self._full_since = now
        return now - self._full_since >= self._patience_s

    def _share(self, partitions: int) -> int:
        return max(self._limits.pending // max(1, partitions), self._limits.least_share)

    def _is_full(self, work: PartitionWork, partitions: int) -> bool:
        share_bytes = self._limits.pending_bytes // partitions
        return work.is_crowded or work.pending >= self._share(partitions) or work.pending_bytes >= share_bytes

    def _is_low(self, work: PartitionWork, partitions: int) -> bool:
        share_bytes = self._limits.pending_bytes // partitions
        return (
            not work.is_crowded
            and work.pending <= self._share(partitions) // 2
            and work.pending_bytes <= share_bytes // 2
        )
