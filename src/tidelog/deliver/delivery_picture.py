"""The durable state of a delay partition's delivery: a picture, and how it is stored.

A picture is the value of a control record in the partition itself: key = version int16, type int16 (10001). It says
everything, so the last one in the log counts and all others are history. A cancellation (type 10002) comes on top of
the picture before it; it is read again as long as the records that it names could still be found waiting.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.deciding.decision import CoordinatorRecord
from tidelog.deliver.wheels import Key
from tidelog.wire import messages
from tidelog.wire.stored import decode_versioned, encode_versioned

PICTURE: Final = 10001
CANCELLATION: Final = 10002
NO_PRODUCER: Final = -1
_KEY: Final = struct.Struct(">hh")
_VERSION: Final = 0


class SettledStep(NamedTuple):
    """Whatever lies below `horizon` and is due by (`due_ms`, `offset`)."""

    due_ms: int = -1
    offset: int = -1
    horizon: int = 0

    @property
    def last(self) -> Key:
        return self.due_ms, self.offset


class Frontier(NamedTuple):
    """What is settled: whatever lies below `horizon` and is due by (`due_ms`, `offset`), and what `earlier` steps have.

    There are such steps after a clock was set back: each of them was due later than the next, by a clock that was
    ahead, and is passed again in time.
    """

    due_ms: int = -1
    offset: int = -1
    horizon: int = 0
    earlier: tuple[SettledStep, ...] = ()

    @property
    def last(self) -> Key:
        return self.due_ms, self.offset

    @property
    def read_to(self) -> int:
        """All that is settled lies below it."""
        return max([self.horizon, *(step.horizon for step in self.earlier)])

    def settles(self, due_ms: int, offset: int) -> bool:
        if offset < self.horizon and (due_ms, offset) <= self.last:
            return True
        return any(offset < step.horizon and (due_ms, offset) <= step.last for step in self.earlier)

    def advanced(self, last: Key, horizon: int) -> Frontier:
        return Frontier(*last, horizon, tuple(step for step in self.earlier if step.last > last))

    def set_back(self) -> Frontier:
        """The same is settled, and what is found from now on is taken in order of due time again."""
        return Frontier(earlier=(SettledStep(*self.last, self.horizon), *self.earlier))

    def settles_all(self, keys: Sequence[Key]) -> bool:
        """Of one or more."""
        return max(keys) <= self.last and max([offset for _, offset in keys]) < self.horizon


NOTHING: Final = Frontier()


class Stopped(NamedTuple):
    due_ms: int
    reason: str


@dataclass(slots=True, frozen=True)
class RecordParcel:
    """Records on their way to the target, as one batch. Sent again, it is the same batch."""

    target: str
    decided_ms: int
    sequence: int
    #: in order of due time
    keys: tuple[Key, ...]
    #: what is settled once all of them are delivered
    after: Frontier
    #: its records were stopped before
    from_stopped: bool = False
    #: It may have arrived with more records in it: where the target says that its sequence is over, it has
    is_cut: bool = False
    #: only the first of its keys is sent, and the others wait again when that has arrived
    is_alone: bool = False
    #: offsets of records that were in it when it may have arrived: the target has refused them since, and they stopped
    refused: tuple[int, ...] = ()

    @property
    def sent_keys(self) -> tuple[Key, ...]:
        return self.keys[:1] if self.is_alone else self.keys


@dataclass(slots=True, frozen=True)
class Doubt:
    """A parcel that may have arrived, and of which the target has refused every record since: all of them are stopped.

    They are sent again with its producer id and sequence alone, so that the target tells if it has them.
    """

    producer_id: int
    target: str
    sequence: int
    keys: tuple[Key, ...]
    is_cut: bool = False


@dataclass(slots=True, frozen=True)
class Picture:
    producer_id: int = NO_PRODUCER
    #: of the next record
    sequence: int = 0
    settled: Frontier = NOTHING
    #: nothing below it waits, is stopped or is on its way
    floor: int = 0
    #: the default delay from each of these offsets on, in their order
    delays: tuple[tuple[int, int], ...] = ()
    stopped: Mapping[int, Stopped] = field(default_factory=dict)
    parcel: RecordParcel | None = None
    doubts: tuple[Doubt, ...] = ()


def picture_record(picture: Picture) -> CoordinatorRecord:
    of = messages.DelayPicture
    parcel = picture.parcel
    parcels = []
    if parcel is not None:
        parcels = [
            of.Parcel(
                target=parcel.target,
                decided_ms=parcel.decided_ms,
                sequence=parcel.sequence,
                from_stopped=parcel.from_stopped,
                settled_due_ms=parcel.after.due_ms,
                settled_offset=parcel.after.offset,
                horizon=parcel.after.horizon,
                offsets=[offset for _, offset in parcel.keys],
                due_times_ms=[due_ms for due_ms, _ in parcel.keys],
                is_cut=parcel.is_cut,
                is_alone=parcel.is_alone,
                refused_offsets=list(parcel.refused),
            )
        ]
    value = of(
        producer_id=picture.producer_id,
        sequence=picture.sequence,
        settled_due_ms=picture.settled.due_ms,
        settled_offset=picture.settled.offset,
        horizon=picture.settled.horizon,
        floor=picture.floor,
        delays=[of.DefaultDelay(from_offset=at, delay_ms=delay_ms) for at, delay_ms in picture.delays],
        stopped=[
            of.StoppedRecord(offset=offset, due_ms=why.due_ms, reason=why.reason)
            for offset, why in picture.stopped.items()
        ],
        parcels=parcels,
        earlier_steps=[
            of.EarlierStep(settled_due_ms=step.due_ms, settled_offset=step.offset, horizon=step.horizon)
            for step in picture.settled.earlier
        ],
        doubts=[
            of.DoubtfulParcel(
                producer_id=doubt.producer_id,
                target=doubt.target,
                sequence=doubt.sequence,
                offsets=[offset for _, offset in doubt.keys],
                due_times_ms=[due_ms for due_ms, _ in doubt.keys],
                is_cut=doubt.is_cut,
            )
            for doubt in picture.doubts
        ],
    )
    return CoordinatorRecord(_KEY.pack(0, PICTURE), encode_versioned(value, _VERSION), picture)


def cancellation_record(keys: Iterable[Key]) -> CoordinatorRecord:
    of = messages.DelayCancellation
    keys = tuple(keys)
    value = of(records=[of.CancelledRecord(offset=offset, due_ms=due_ms) for due_ms, offset in keys])
    return CoordinatorRecord(_KEY.pack(0, CANCELLATION), encode_versioned(value, _VERSION), keys)


def kind_of(key: bytes | None) -> int:
    """The type of a control record; -1 for what is not one."""
    kind: int = -1 if key is None or len(key) < _KEY.size else _KEY.unpack_from(key)[1]
    return kind


def read_picture(value: bytes) -> Picture:
    stored = decode_versioned(messages.DelayPicture, value)
    earlier = tuple(
        SettledStep(each.settled_due_ms, each.settled_offset, each.horizon) for each in stored.earlier_steps
    )
    settled = Frontier(stored.settled_due_ms, stored.settled_offset, stored.horizon, earlier)
    parcel = None
    for each in stored.parcels:
        parcel = RecordParcel(
            target=each.target,
            decided_ms=each.decided_ms,
            sequence=each.sequence,
            keys=tuple(zip(each.due_times_ms, each.offsets, strict=True)),
            after=settled.advanced((each.settled_due_ms, each.settled_offset), each.horizon),
            from_stopped=each.from_stopped,
            is_cut=each.is_cut,
            is_alone=each.is_alone,
            refused=tuple(each.refused_offsets),
        )
    return Picture(
        producer_id=stored.producer_id,
        sequence=stored.sequence,
        settled=settled,
        floor=stored.floor,
        delays=tuple((each.from_offset, each.delay_ms) for each in stored.delays),
        stopped={each.offset: Stopped(each.due_ms, each.reason) for each in stored.stopped},
        parcel=parcel,
        doubts=tuple(
            Doubt(
                producer_id=each.producer_id,
                target=each.target,
                sequence=each.sequence,
                keys=tuple(zip(each.due_times_ms, each.offsets, strict=True)),
                is_cut=each.is_cut,
            )
            for each in stored.doubts
        ),
    )


def read_cancellation(value: bytes) -> tuple[Key, ...]:
    stored = decode_versioned(messages.DelayCancellation, value)
    return tuple((each.due_ms, each.offset) for each in stored.records)
