"""What a deciding room (group, txn) gives back: records to append, replies to send, timers to set.

The broker carries a decision out in this order: append `records` to the coordinator's partition as one
batch, hand each to the room's `replay`, set the timers, and send the replies once the records are
committed (at or below the high watermark). If the append fails nothing is replayed, and every ticket in
`replies` is answered with `on_failure` of the error instead.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from tidelog.wire.quick_tuples import quick

#: what names a timer: coordinator partition, what is due, the id that it concerns or "", member id or ""
TimerKey: TypeAlias = tuple[int, str, str, str]
# What a reply is sent with; a room only keeps it, and gives it exactly one reply.
Ticket: TypeAlias = Any


class CoordinatorRecord(NamedTuple):
    """One record of `__consumer_offsets` or `__transaction_state`; `value` None is a tombstone.

    `meaning` is what the room would decode key and value to, where it has that at hand: a record that was decided a
    moment ago is replayed from it. Loading decodes, and must come to the same.
    """

    key: bytes
    value: bytes | None
    meaning: Any = None


class Reply(NamedTuple):
    """The answer to the request that came with `ticket`, in the terms of whoever handed the ticket in."""

    ticket: Ticket
    message: Any


coordinator_record: Final = quick(CoordinatorRecord)
reply: Final = quick(Reply)


class SetTimer(NamedTuple):
    """Call `on_timer(key, now_ms)` at `deadline_ms` (monotonic); replaces a timer with the same key."""

    key: TimerKey
    deadline_ms: int


class CancelTimer(NamedTuple):
    key: TimerKey


class Decision:
    """`partition` is the coordinator partition that `records` belong to; -1 where there are none.

    `producer_id` and `producer_epoch` are set where the records belong to a transaction: they are then appended as a
    transactional batch of that producer. `atomic` False says that the records may become several batches, of which
    only the first may come to be written: as many tombstones as there are need not fit into one.
    """

    __slots__ = ("atomic", "partition", "producer_epoch", "producer_id", "records", "replies", "timers")

    def __init__(self, partition: int = -1, records: list[CoordinatorRecord] | None = None) -> None:
        self.partition = partition
        self.records: list[CoordinatorRecord] = [] if records is None else records
        self.replies: list[Reply] = []
        self.timers: list[SetTimer | CancelTimer] = []
        self.producer_id = -1
        self.producer_epoch = -1
        self.atomic = True
