"""The schedule of one partition of a delay topic: what waits in it, and what is delivered next.

    read ──found──▶ waiting ──choose──▶ chosen ──decide──▶ parcel ──delivered──▶ settled
                      ▲ │                  │ too large, unreadable   │ refused
                      │ └──cancel──▶ gone  └──────▶ stopped ◀────────┤
                      └───────────── void, or what is cut off ───────┘

One parcel is under way at a time. Records are taken in order of (due time, offset), so that what is settled is told by
a `Frontier`. A record that is read when later ones are already on their way comes *late*: late ones are taken in the
order of their offsets, before all others, and move the frontier's horizon alone.

The durable state is `picture`, and changes in `replay` only. Everything else is found again by reading the partition
from the picture's floor on. Between `choose` and `decide` nothing may be read: what is chosen is then the first of all
that waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest
from typing import Final

from tidelog.deciding.decision import CoordinatorRecord, Decision
from tidelog.deliver.delivery_picture import (
    CANCELLATION,
    NO_PRODUCER,
    PICTURE,
    Frontier,
    Picture,
    RecordParcel,
    Stopped,
    cancellation_record,
    kind_of,
    picture_record,
    read_cancellation,
    read_picture,
)
from tidelog.deliver.wheels import Key, Scratch, Wheels
from tidelog.wire.batch import MAX_SEQUENCE

#: more than so many stop all others: the pictures would grow beyond measure
MOST_STOPPED: Final = 1000
#: of one parcel, but for a record that is larger
PARCEL_BYTES: Final = 1 << 19
#: of the records with headers that say nothing, so many are named
MOST_NAMED: Final = 100
CANCELLED_BEFORE: Final = "it was cancelled before"
#: in a cancellation, for the due time of a record that names none
NO_TIME: Final = -1


class Schedule:
    def __init__(self, partition: int, scratch: Scratch) -> None:
        self._partition = partition
        self.picture = Picture()
        self.waiting = Wheels(scratch)
        #: everything below it was read, from `_begin` on
        self.position = 0
        self._begin = 0
        #: in the order of their offsets
        self._late: deque[Key] = deque()
        self._cancelled: set[int] = set()
        self._chosen: list[Key] = []
        #: offsets of stopped records that are tried again
        self._to_retry: deque[int] = deque()
        #: the parcel under way has arrived
        self._has_arrived = False
        #: it was sent, perhaps by the leader before, and nobody knows what became of it
        self._may_have_arrived = False
        #: so many of those that come next are to travel alone, for the target has refused them together
        self._alone = 0
        #: records with headers that say nothing of use: the first ones, how many were found, and which were cancelled
        self.malformed: dict[int, str] = {}
        self._malformed_found = 0
        self._dismissed: set[int] = set()
        self.delivered_count = 0

    # --- reading ------------------------------------------------------------------------------------

    def begin(self, offset: int, wall_ms: int) -> None:
        """The last picture was replayed, or there is none: the partition is read from this offset on."""
        self.position = self._begin = offset
        self._may_have_arrived = self.picture.parcel is not None
        settled_ms = self.picture.settled.due_ms
        self.waiting.follow(min(settled_ms, wall_ms) if settled_ms >= 0 else wall_ms)

    @property
    def _reached(self) -> Frontier:
        """What is settled or on its way."""
        parcel = self.picture.parcel
        return self.picture.settled if parcel is None else parcel.after

    def found(self, due_ms: int, offset: int) -> None:
        """A record that was read, in the order of offsets."""
        reached = self._reached
        if reached.settles(due_ms, offset) or offset in self.picture.stopped:
            return
        if (due_ms, offset) <= reached.last:
            self._late.append((due_ms, offset))
        else:
            self.waiting.add(due_ms, offset)

    def found_all(self, keys: Sequence[Key]) -> None:
        """As `found`; most of them lie ahead of everything that is settled."""
        last, stopped = self._reached.last, self.picture.stopped
        ahead = [key for key in keys if key > last and key[1] not in stopped]
        self.waiting.add_all(ahead)
        if len(ahead) < len(keys):
            for key in keys:
                if key <= last:
                    self.found(*key)

    def found_malformed(self, offset: int, reason: str) -> None:
        self._malformed_found += 1
        if len(self.malformed) < MOST_NAMED and offset not in self._dismissed:
            self.malformed[offset] = reason

    @property
    def malformed_count(self) -> int:
        return max(0, self._malformed_found - len(self._dismissed))

    def replay(self, record: CoordinatorRecord) -> None:
        """A record that was appended, or read: the only way in which durable state changes."""
        kind = kind_of(record.key)
        value = record.value or b""
        if kind == PICTURE:
            self._replay_picture(record.meaning or read_picture(value))
        elif kind == CANCELLATION:
            self._replay_cancellation(record.meaning or read_cancellation(value))

    def _replay_picture(self, picture: Picture) -> None:
        before, self.picture = self.picture.parcel, picture
        open_keys, self._chosen = self._chosen, []
        if before is not None:
            open_keys = [*before.keys, *open_keys]
        self._has_arrived = False
        reached = self._reached
        if not open_keys or not reached.settles_all(open_keys):
            self._return([key for key in open_keys if self._was_read(key) and not reached.settles(*key)])

    def _was_read(self, key: Key) -> bool:
        """Otherwise it is yet to be found, again: a parcel is sent before all that the log holds was read."""
        return key[1] < self.position

    def _replay_cancellation(self, keys: Iterable[Key]) -> None:
        reached = self._reached
        stopped = dict(self.picture.stopped)
        for due_ms, offset in keys:
            is_stopped = stopped.pop(offset, None) is not None
            if due_ms == NO_TIME and offset >= self._begin:
                self._dismissed.add(offset)
                self.malformed.pop(offset, None)
            elif not is_stopped and offset >= self._begin and not reached.settles(due_ms, offset):
                self._cancelled.add(offset)
        if len(stopped) != len(self.picture.stopped):
            self.picture = replace(self.picture, stopped=stopped)

    # --- delivering ---------------------------------------------------------------------------------

    @property
    def stands_still(self) -> str | None:
        """Why nothing is delivered, where that is so."""
        if len(self.picture.stopped) >= MOST_STOPPED:
            return f"{MOST_STOPPED} records are stopped: mend the target, or cancel them"
        return None

    @property
    def parcel(self) -> RecordParcel | None:
        """What is on its way."""
        return None if self._has_arrived else self.picture.parcel

    @property
    def is_caught_up(self) -> bool:
        """All that was read when the last parcel was decided was read again."""
        return self.position >= self.picture.settled.horizon

    @property
    def backlog(self) -> int:
        """How many are kept as objects: while there are many, there is no hurry to read on."""
        return len(self._late) + self.waiting.near

    def next_ms(self) -> int | None:
        """When to choose next; None where nothing waits."""
        return 0 if self._late else self.waiting.next_ms()

    def choose(self, until_ms: int, most: int) -> list[Key]:
        """The next to be delivered of those that are due by then: to be handed to `decide`, or to `put_back`."""
        assert self.parcel is None and not self._chosen and not self.must_settle, "one parcel at a time"
        while self._to_retry:
            offset = self._to_retry.popleft()
            why = self.picture.stopped.get(offset)
            if why is not None:
                self._chosen = [(why.due_ms, offset)]
                return self._chosen
        if self.stands_still is not None or not self.is_caught_up:
            return []
        most = 1 if self._alone else most
        while not self._chosen:
            if self._late:
                found = [self._late.popleft() for _ in range(min(most, len(self._late)))]
            else:
                found = self.waiting.take(until_ms, most)
            if not found:
                break
            self._chosen = [key for key in found if key[1] not in self._cancelled]
            self._cancelled.difference_update([offset for _, offset in found])
        return self._chosen

    def retry_stopped(self) -> None:
        """The target is another than the one that refused them: they are chosen next, one by one."""
        self._to_retry = deque(self.picture.stopped)

    @property
    def is_retrying(self) -> bool:
        """Some that were stopped are still to be tried again."""
        return bool(self._to_retry)

    def put_back(self) -> None:
        """What was chosen cannot be decided on now."""
        chosen, self._chosen = self._chosen, []
        self._to_retry.extendleft([offset for _, offset in chosen if offset in self.picture.stopped])
        self._return([key for key in chosen if key[1] not in self.picture.stopped])

    def _return(self, keys: Sequence[Key]) -> None:
        """These wait again; and what counts as late follows what is settled."""
        last = self._reached.last
        late = [key for key in (*keys, *self._late) if key <= last]
        for key in (*keys, *self._late):
            if key > last:
                self.waiting.add(*key)
        self._late = deque(sorted(late, key=lambda key: key[1]))

    def decide(
        self, weights: Sequence[int | str | None], target: str, most_bytes: int, producer_id: int, wall_ms: int
    ) -> Decision:
        """What was chosen becomes a parcel. `weights` are the bytes of each record, or what is wrong with it, or None
        where it is no longer there. What does not fit beside the others waits on; what does not fit alone is stopped.
        """
        base = replace(self._base(), producer_id=producer_id)
        travelling: list[Key] = []
        stopped = dict(base.stopped)
        size = used = 0
        is_retry = any(offset in stopped for _, offset in self._chosen)
        for (due_ms, offset), weight in zip(self._chosen, weights, strict=True):
            if isinstance(weight, int) and weight <= most_bytes:
                if travelling and size + weight > min(most_bytes, PARCEL_BYTES):
                    break
                size += weight
                travelling.append((due_ms, offset))
            elif weight is None:
                stopped.pop(offset, None)
            else:
                too_large = f"{weight} bytes are more than {target} takes in a batch (max.message.bytes)"
                stopped[offset] = Stopped(due_ms, weight if isinstance(weight, str) else too_large)
            used += 1
        after = base.settled if is_retry else self._after(base.settled, self._chosen[:used])
        if not is_retry:
            self._alone = max(0, self._alone - used)
        if not travelling:
            return self._decision(replace(base, settled=after, stopped=stopped))
        self._may_have_arrived = False
        parcel = RecordParcel(target, wall_ms, base.sequence, tuple(sorted(travelling)), after, is_retry)
        return self._decision(replace(base, stopped=stopped, parcel=parcel))

    def _after(self, settled: Frontier, keys: Sequence[Key]) -> Frontier:
        if not keys:
            return settled
        if keys[-1] <= settled.last:
            return settled._replace(horizon=max(settled.horizon, keys[-1][1] + 1))
        return Frontier(*keys[-1], self.position)

    def arrived(self) -> None:
        """The target has the parcel; the next picture says so."""
        parcel = self.picture.parcel
        assert parcel is not None and not self._has_arrived, "nothing was sent"
        self._has_arrived = True
        self.delivered_count += len(parcel.sent_keys)

    @property
    def owes_a_picture(self) -> bool:
        """The last one tells of a parcel that has arrived."""
        return self._has_arrived

    @property
    def must_settle(self) -> bool:
        """Nothing may be chosen before the next picture: with it, the others of the parcel wait again."""
        parcel = self.picture.parcel
        return self._has_arrived and parcel is not None and parcel.is_alone

    def settle(self) -> Decision:
        """Nothing follows the parcel that has arrived: a picture without it."""
        return self._decision(self._base())

    def unanswered(self) -> None:
        """The parcel was sent, and may have arrived."""
        self._may_have_arrived = True

    def refused(self, reason: str) -> Decision:
        """The target will never take the parcel: each of its records is tried alone, and one that was alone stops."""
        parcel = self.picture.parcel
        assert parcel is not None and not self._has_arrived, "nothing was sent"
        if len(parcel.sent_keys) > 1:
            self._alone = len(parcel.keys)
            return self._first_alone(parcel) if self._may_have_arrived else self.void()
        (due_ms, offset), *others = parcel.keys
        stopped = {**self.picture.stopped, offset: Stopped(due_ms, reason)}
        if others:  # whether it has arrived is still not known
            return self._decision(replace(self.picture, stopped=stopped, parcel=replace(parcel, keys=tuple(others))))
        return self._decision(replace(self.picture, settled=parcel.after, stopped=stopped, parcel=None))

    def _first_alone(self, parcel: RecordParcel) -> Decision:
        """Those that came late are settled in the order of their offsets."""
        keys = parcel.keys
        if keys[0] <= self.picture.settled.last:
            keys = tuple(sorted(keys, key=lambda key: key[1]))
        return self._decision(replace(self.picture, parcel=replace(parcel, keys=keys, is_cut=True, is_alone=True)))

    def void(self) -> Decision:
        """The parcel has not arrived and never will: its records wait again.

        Under another producer id: what comes next must not be taken for this one, should the target have it after all.
        """
        return self._decision(replace(self.picture, producer_id=NO_PRODUCER, sequence=0, parcel=None))

    def cut(self, keys: Sequence[Key]) -> Decision:
        """Only these records of the parcel are left in the log."""
        parcel = self.picture.parcel
        assert parcel is not None and not self._has_arrived, "nothing is on its way"
        if not self._may_have_arrived:
            return self.void()
        if not keys:
            return self.was_whole()
        return self._decision(replace(self.picture, parcel=replace(parcel, keys=tuple(keys), is_cut=True)))

    def was_whole(self) -> Decision:
        """The target had the parcel before it was cut, or nothing is left of it. How far its producer was is not known:
        another goes on."""
        picture, parcel = self.picture, self.picture.parcel
        assert parcel is not None, "nothing is on its way"
        stopped = without(picture.stopped, parcel) if parcel.from_stopped else picture.stopped
        return self._decision(
            replace(picture, producer_id=NO_PRODUCER, sequence=0, settled=parcel.after, stopped=stopped, parcel=None)
        )

    def renew(self, producer_id: int) -> Decision:
        """The target does not know how far the producer was, and does not have the parcel: another begins with it."""
        parcel = self.picture.parcel
        assert parcel is not None and not self._has_arrived, "nothing was sent"
        self._may_have_arrived = False
        parcel = replace(parcel, sequence=0, is_cut=False)
        return self._decision(replace(self.picture, producer_id=producer_id, sequence=0, parcel=parcel))

    def _base(self) -> Picture:
        """The picture, less a parcel that has arrived."""
        picture, parcel = self.picture, self.picture.parcel
        if parcel is None:
            return picture
        assert self._has_arrived, "one parcel at a time"
        stopped = picture.stopped
        if parcel.from_stopped:
            stopped = without(stopped, parcel)
        sequence = (parcel.sequence + len(parcel.sent_keys)) & MAX_SEQUENCE
        settled = parcel.after
        if parcel.is_alone and parcel.keys[0] <= picture.settled.last:
            settled = picture.settled._replace(horizon=max(picture.settled.horizon, parcel.keys[0][1] + 1))
        elif parcel.is_alone:
            settled = Frontier(*parcel.keys[0], parcel.after.horizon)
        return replace(picture, sequence=sequence, settled=settled, stopped=stopped, parcel=None)

    def _decision(self, picture: Picture) -> Decision:
        floor = self._floor(picture)
        delays = picture.delays
        while len(delays) > 1 and delays[1][0] <= floor:
            delays = delays[1:]
        return Decision(self._partition, [picture_record(replace(picture, floor=floor, delays=delays))])

    # --- settings, cancellations and what else is asked -----------------------------------------------

    def configured(self, delay_ms: int, end_offset: int) -> Decision | None:
        """The topic's default delay: for records from the log's end on. None where it is known."""
        delays = self.picture.delays
        if delays and delays[-1][1] == delay_ms:
            return None
        base = self._base() if self._has_arrived else self.picture
        return self._decision(replace(base, delays=(*delays, (end_offset if delays else 0, delay_ms))))

    def why_not_cancelled(self, due_ms: int, offset: int) -> str | None:
        """Why a record that is due then can no longer be cancelled."""
        if due_ms == NO_TIME:
            return CANCELLED_BEFORE if offset in self._dismissed else None
        is_sent = self.parcel is not None and (due_ms, offset) in self.parcel.keys
        if offset in self.picture.stopped and not is_sent and (due_ms, offset) not in self._chosen:
            return None
        if self._reached.settles(due_ms, offset) or (due_ms, offset) in self._chosen:
            return "it was delivered, or is being delivered"
        return CANCELLED_BEFORE if offset in self._cancelled else None

    def cancel(self, keys: Iterable[Key]) -> Decision:
        return Decision(self._partition, [cancellation_record(keys)])

    def deleted_below(self, offset: int) -> Decision | None:
        """The log begins there now: what was stopped before it is no more. None where there is no such record."""
        gone = [at for at in self.malformed if at < offset]
        self._malformed_found -= len(gone)
        for at in gone:
            del self.malformed[at]
        if all(at >= offset for at in self.picture.stopped):
            return None
        base = self._base() if self._has_arrived else self.picture
        return self._decision(replace(base, stopped={at: why for at, why in base.stopped.items() if at >= offset}))

    def __len__(self) -> int:
        """How many wait."""
        return len(self.waiting) + len(self._late) + len(self._chosen) - len(self._cancelled)

    def first(self, most: int) -> Callable[[], list[Key]]:
        """What finds those that are due first, in order. It takes long where many wait, and may run on any thread."""
        beside, view = [*self._chosen, *self._late], self.waiting.view()
        cancelled = self._cancelled  # not a copy, for there may be many: it is only asked for one or the other

        def find() -> list[Key]:
            left = [key for key in beside if key[1] not in cancelled]
            return nsmallest(most, [*left, *view.first(most, cancelled)])

        return find

    def floor(self) -> int:
        """No record below it is needed any more."""
        return self._floor(self._base() if self._has_arrived else self.picture)

    def _floor(self, picture: Picture) -> int:
        offsets = [self.position, *picture.stopped]
        least = self.waiting.least_offset()
        if least is not None:
            offsets.append(least)
        if self._late:
            offsets.append(self._late[0][1])
        offsets += [offset for _, offset in self._chosen]
        for parcel in (self.picture.parcel, picture.parcel):
            if parcel is not None:
                offsets += [offset for _, offset in parcel.keys]
        return min(offsets)

    def close(self) -> None:
        self.waiting.clear()


def without(stopped: Mapping[int, Stopped], parcel: RecordParcel) -> dict[int, Stopped]:
    gone = {offset for _, offset in parcel.keys}
    return {offset: why for offset, why in stopped.items() if offset not in gone}
