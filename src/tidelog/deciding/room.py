"""The contract between a coordinator and what runs it (`tidelog.coordinator.coordination`)."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from tidelog.deciding.decision import CoordinatorRecord, Decision, TimerKey
from tidelog.wire.errors import ErrorCode

D = TypeVar("D", bound=Decision)


class Room(Protocol[D]):
    def sized(self, partitions: int | None) -> None:
        """How many partitions the room's topic has; None while it does not exist."""

    def partition_for(self, id: str) -> int: ...

    def load_begin(self, partition: int, leader_epoch: int) -> D:
        """This broker leads the partition from now on; what the room knew of it from an earlier time is dropped."""

    def replay(self, partition: int, record: CoordinatorRecord, producer_id: int = -1, offset: int = -1) -> None:
        """One record, when living or loading: the only way in which durable state changes.

        `producer_id` is that of the record's batch where it is transactional, else -1.
        """

    def replay_end(self, partition: int, producer_id: int, commit: bool) -> None:
        """The end of a transaction that loading has come to."""

    def load_end(self, partition: int, now_ms: int, wall_ms: int) -> D:
        """Everything is replayed: from now on the partition answers."""

    def unload(self, partition: int) -> D:
        """Another broker leads now."""

    def append_failed(self, decision: D, error: ErrorCode, now_ms: int, wall_ms: int) -> D:
        """What to carry out in place of a decision whose records could not be appended."""

    def on_timer(self, key: TimerKey, now_ms: int, wall_ms: int) -> D: ...

    def failed(self, message: Any, error: ErrorCode) -> Any:
        """What to reply instead of `message` where `error` befell the records that it tells of."""
