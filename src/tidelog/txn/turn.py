"""One event being decided: the decision under construction, with the time it is decided at.

A handler receives a `TxnDecision`, adds records, replies, timers and markers to it, and the door hands it out.

How a decision is carried out
    Append `records` as one batch, hand each to `replay`, set the timers. When the records are committed (at or below
    the high watermark) send the replies and write the markers. A decision that names its partition but has no records
    tells of records appended before it: its replies and markers leave when all that the partition holds by now is
    committed. Markers in particular must never run ahead of the record that they follow from:

        1. a coordinator appends PrepareCommit and writes a commit marker to partition a before it is replicated
        2. the coordinator dies; the next one has read no further than Ongoing
        3. the transaction times out there, and partition b gets an abort marker: half of it is committed

    Markers wait for the commit however long it takes, even if the reply beside them has been given up.

What happens when the append fails
    The decision is never replayed and its timers are never set, so everything durable stays as it was. What a handler
    writes down beside the records (`Shard.last_epochs`, `Shard.tokens`) counts only together with the state that the
    records would have made. `retry` names the timer that brings the event back.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from tidelog.deciding.decision import CoordinatorRecord, Decision, Reply
from tidelog.txn.transaction import TopicPartition
from tidelog.wire.classes import Message
from tidelog.wire.errors import ErrorCode

# (coordinator partition, what is due, transactional id or ""): the identity of a timer.
TimerKey: TypeAlias = tuple[int, str, str]
# What a reply is sent with; the room only keeps it.
Ticket: TypeAlias = Hashable


class RequestContext(Protocol):
    @property
    def api_version(self) -> int: ...


class Refusal(Exception):
    """A request that the coordinator turns down; the door shapes it as an answer of the right API."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


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


@dataclass(slots=True)
class TxnDecision(Decision):
    """`now_ms` is monotonic, `wall_ms` is what records are stamped with."""

    markers: list[TxnMarkers] = field(default_factory=list)
    now_ms: int = 0
    wall_ms: int = 0
    # The timer to set again if the records cannot be appended.
    retry: TimerKey | None = None

    def reply(self, ticket: Ticket, message: Message) -> None:
        self.replies.append(Reply(ticket, message))

    def append(self, record: CoordinatorRecord) -> None:
        self.records.append(record)
