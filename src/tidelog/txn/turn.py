"""A turn of the transaction coordinator: as any other, with the markers that follow from it.

When the records are committed (at or below the high watermark) the replies are sent and the markers written. Markers
must never run ahead of the record that they follow from:

    1. a coordinator appends PrepareCommit and writes a commit marker to partition a before it is replicated
    2. the coordinator dies; the next one has read no further than Ongoing
    3. the transaction times out there, and partition b gets an abort marker: half of it is committed

Markers wait for the commit however long it takes, even if the reply beside them has been given up.

What a handler writes down beside the records (`Shard.last_epochs`, `Shard.tokens`) counts only together with the state
that the records would have made, so it needs no `undo`.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.deciding.decision import TimerKey
from tidelog.deciding.turn import Turn
from tidelog.wire.partitions import TopicPartition


class TxnMarkers(NamedTuple):
    """A marker to write to each of `partitions`, as WriteTxnMarkers carries it; hand it back to `markers_written`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    # The version of the client that ended the transaction: decides how strictly a partition checks the epoch.
    transaction_version: int
    partitions: tuple[TopicPartition, ...]
    # Names this end of this transaction: a report about an earlier one must not count for it.
    token: int


class TxnDecision(Turn):
    __slots__ = ("markers",)

    def __init__(self, now_ms: int = 0, wall_ms: int = 0, fired: TimerKey | None = None) -> None:
        super().__init__(now_ms, wall_ms, fired)
        self.markers: list[TxnMarkers] = []

    def mark(self, markers: TxnMarkers) -> None:
        """Has markers written once everything that the partition holds by now is committed."""
        self.markers.append(markers)
        self.ordered = True
