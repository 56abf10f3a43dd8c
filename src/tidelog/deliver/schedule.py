"""The schedule of one partition of a delay topic: what waits in it, and what is delivered next.

    read ──found──▶ waiting ──choose──▶ chosen ──decide──▶ parcel ──delivered──▶ settled
                      ▲ │                  │ too large, unreadable   │ refused
                      │ └──cancel──▶ gone  └──────▶ stopped ◀────────┤
                      └───────────── void, or what is cut off ───────┘

A parcel whose records are all refused after it may have arrived is a `Doubt`: its records are stopped, and are tried
again only as that parcel, with its producer id and sequence. Records that were stopped otherwise are tried again as
any others, in parcels of their own. Whatever is stopped is settled, or would be once the parcel under way has arrived.

One parcel is under way at a time. Records are taken in order of (due time, offset), so that what is settled is told by
a `Frontier`. A record that is read when later ones are already on their way comes *late*: late ones are taken in the
order of their offsets, before all others, and move the frontier's horizon alone. But one that is not due is not late:
the clock was ahead when the others were taken, and was set back, or the clock of the leader before was ahead of this
one's. The frontier is set back then, too.

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
    Doubt,
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
from tidelog.deliver.malformed_records import MalformedRecords
from tidelog.deliver.wheels import Key, Scratch, Wheels
from tidelog.wire.batch import MAX_SEQUENCE

#: more than so many stop all others: the pictures would grow beyond measure
MOST_STOPPED: Final = 1000
#: of one parcel, but for a record that is larger
PARCEL_BYTES: Final = 1 << 19
CANCELLED_BEFORE: Final = "it was cancelled before"
#: said of a record that is stopped, where nobody knows
MAY_HAVE_ARRIVED: Final = "an earlier attempt may have arrived"
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
        #: offsets of stopped records that are tried again, and parcels that are
        self._to_retry: list[int] = []
        self._to_resume: list[Doubt] = []
        self._resumed: Doubt | None = None
        #: the parcel under way has arrived
        self._has_arrived = False
        #: it was sent, perhaps by the leader before, and nobody knows what became of it
        self._may_have_arrived = False
        #: so many of those that come next are to travel alone, for the target has refused them together
        self._alone = 0
        #: records with headers that say nothing of use, but for those that were cancelled
        self.malformed = MalformedRecords()
        self._dismissed: set[int] = set()
        self._deleted_below = 0
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
        reached, stopped = self._reached, self.picture.stopped
        last = reached.last
        if reached.earlier:
            for key in keys:
                self.found(*key)
            return
        ahead = [key for key in keys if key > last and key[1] not in stopped]
        self.waiting.add_all(ahead)
        if len(ahead) < len(keys):
            for key in keys:
                if key <= last:
                    self.found(*key)

    def found_malformed(self, offset: int, reason: str) -> None:
        if offset not in self._dismissed:
            self.malformed.add(offset, reason)

    def replay(self, record: CoordinatorRecord) -> None:
        """A record that was appended, or read: the only way in which durable state changes."""
        kind = kind_of(record.key)
        value = record.value or b""
        if kind == PICTURE:
            self._replay_picture(record.meaning or read_picture(value))
        elif kind == CANCELLATION:
            self._replay_cancellation(record.meaning or read_cancellation(value))

    def _replay_picture(self, picture: Picture) -> None:
        before, self.picture = self.picture, picture
        open_keys, self._chosen = self._chosen, []
        if before.parcel is not None:
            open_keys = [*before.parcel.keys, *open_keys]
        if before.stopped:
            gone = [(why.due_ms, at) for at, why in before.stopped.items() if at not in picture.stopped]
            open_keys = [*gone, *open_keys]
        self._has_arrived, self._resumed = False, None
        reached = self._reached
        is_set_back = reached.last < (before.settled if before.parcel is None else before.parcel.after).last
        if is_set_back or not open_keys or not reached.settles_all(open_keys):
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
                self.malformed.discard(offset)
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
        return self.position >= self.picture.settled.read_to

    @property
    def backlog(self) -> int:
        """How many are kept as objects: while there are many, there is no hurry to read on."""
        return len(self._late) + self.waiting.near

    def next_ms(self) -> int | None:
        """When to choose next; None where nothing waits."""
        return 0 if self._late else self.waiting.next_ms()

    def set_back(self, until_ms: int) -> Decision | None:
        """What to do first where some count as late and are not due by then. None where there are none of these."""
        if self.parcel is not None or all(due_ms <= until_ms for due_ms, _ in self._late):
            return None
        base = self._base()
        return self._decision(replace(base, settled=base.settled.set_back()))

    def choose(self, until_ms: int, most: int) -> list[Key]:
        """The next to be delivered of those that are due by then: to be handed to `decide`, or to `put_back`."""
        assert self.parcel is None and not self._chosen and not self.must_settle, "one parcel at a time"
        most = 1 if self._alone else most
        stopped = self.picture.stopped
        # Those that are not due were stopped when the clock was ahead: they are tried again another time.
        retried = [offset for offset in self._to_retry if offset in stopped and stopped[offset].due_ms <= until_ms]
        self._to_retry = retried[most:]
        if retried:
            self._chosen = [(stopped[offset].due_ms, offset) for offset in retried[:most]]
            return self._chosen
        if self.stands_still is not None or not self.is_caught_up:
            return []
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
        """The target is another than the one that refused them: they are chosen next."""
        self._to_resume = list(self.picture.doubts)
        doubtful = {offset for doubt in self._to_resume for _, offset in doubt.keys}
        self._to_retry = [offset for offset in self.picture.stopped if offset not in doubtful]

    def _retry_next(self, offsets: Iterable[int]) -> None:
        self._to_retry = list(dict.fromkeys([*offsets, *self._to_retry]))

    @property
    def is_retrying(self) -> bool:
        """Some that were stopped are still to be tried again."""
        return bool(self._to_retry or self._to_resume)

    def resume(self, wall_ms: int) -> Decision | None:
        """A parcel that may have arrived, and was given up, is on its way again. None where there is none to be tried.

        Nothing may be under way. Whatever its records weigh, it is sent: the target has it, takes it or refuses it.
        """
        base = self._base()
        while self._to_resume:
            doubt = self._to_resume.pop(0)
            keys = tuple(key for key in doubt.keys if key[1] in base.stopped)
            if not keys or doubt not in base.doubts:
                continue
            self._resumed, self._may_have_arrived = doubt, True
            is_cut = doubt.is_cut or len(keys) < len(doubt.keys)
            decided_ms = max(wall_ms, keys[-1][0])  # it was due once, whatever the clock says now
            parcel = RecordParcel(doubt.target, decided_ms, doubt.sequence, keys, base.settled, True, is_cut)
            others = tuple(each for each in base.doubts if each != doubt)
            resumed = replace(base, producer_id=doubt.producer_id, sequence=doubt.sequence, doubts=others)
            return self._decision(replace(resumed, parcel=parcel))
        return None

    def put_back(self) -> None:
        """What was chosen cannot be decided on now."""
        chosen, self._chosen = self._chosen, []
        if self._resumed is not None:
            self._to_resume.insert(0, self._resumed)
            self._resumed = None
        self._retry_next([offset for _, offset in chosen if offset in self.picture.stopped])
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
        self._alone = max(0, self._alone - used)
        if is_retry:
            self._retry_next([offset for _, offset in self._chosen[used:]])
        if not travelling:
            return self._decision(replace(base, settled=after, stopped=stopped))
        self._may_have_arrived = False
        travelling.sort()
        decided_ms = max(wall_ms, travelling[-1][0]) if is_retry else wall_ms  # they were due once
        parcel = RecordParcel(target, decided_ms, base.sequence, tuple(travelling), after, is_retry)
        return self._decision(replace(base, stopped=stopped, parcel=parcel))

    def _after(self, settled: Frontier, keys: Sequence[Key]) -> Frontier:
        if not keys:
            return settled
        if keys[-1] <= settled.last:
            return settled._replace(horizon=max(settled.horizon, keys[-1][1] + 1))
        return settled.advanced(keys[-1], self.position)

    def arrived(self) -> None:
        """The target has the parcel; the next picture says so."""
        parcel = self.picture.parcel
        assert parcel is not None and not self._has_arrived, "nothing was sent"
        self._has_arrived = True
        self.delivered_count += len(parcel.sent_keys)
        if parcel.from_stopped and parcel.is_alone:
            self._retry_next([offset for _, offset in parcel.keys[1:]])

    @property
    def owes_a_picture(self) -> bool:
        """The last one tells of a parcel that has arrived."""
        return self._has_arrived

    @property
    def must_settle(self) -> bool:
        """Nothing may be chosen before the next picture: with it, others wait again, or are no longer stopped."""
        parcel = self.picture.parcel
        return self._has_arrived and parcel is not None and (parcel.is_alone or parcel.from_stopped)

    def settle(self) -> Decision:
        """Nothing follows the parcel that has arrived: a picture without it."""
        return self._decision(self._base())

    def unanswered(self) -> None:
        """The parcel was sent, and may have arrived."""
        self._may_have_arrived = True

    def refused(self, reason: str, blamed: Sequence[int] = ()) -> Decision:
        """The target will never take the parcel. Those of its records that are to blame stop, and the others go on.

        `blamed` are their places in it. Where the target names none, each record is tried alone.
        """
        parcel, may_have_arrived = self.picture.parcel, self._may_have_arrived
        assert parcel is not None and not self._has_arrived, "nothing was sent"
        sent = parcel.sent_keys
        faulty = sent if len(sent) == 1 else tuple(sent[at] for at in blamed if at < len(sent))
        if not faulty:
            self._alone = len(parcel.keys)
            return self._first_alone(parcel) if may_have_arrived else self.void()
        if parcel.is_alone and may_have_arrived and len(parcel.keys) > 1:
            return self._first_given_up(parcel, reason)
        stopped = {**self.picture.stopped, **{offset: Stopped(due_ms, reason) for due_ms, offset in faulty}}
        left = tuple(key for key in parcel.keys if key not in faulty)
        refused = (*parcel.refused, *(offset for _, offset in faulty)) if may_have_arrived else ()
        is_cut = parcel.is_cut or (may_have_arrived and bool(left))
        parcel = replace(parcel, keys=left, refused=refused, is_cut=is_cut)
        picture = replace(self.picture, stopped=stopped, parcel=parcel)
        return self._decision(picture) if left else self._given_up(picture)

    def _given_up(self, picture: Picture) -> Decision:
        """Nothing is left of the parcel but what is stopped.

        Should it have arrived, what is sent next must not be taken for it, nor its records be sent as anything else.
        """
        parcel = picture.parcel
        assert parcel is not None, "nothing is on its way"
        picture = replace(picture, settled=parcel.after, parcel=None)
        if parcel.refused:
            picture = replace(picture, producer_id=NO_PRODUCER, sequence=0)
        stopped = {offset: picture.stopped[offset] for offset in parcel.refused if offset in picture.stopped}
        if not stopped:
            return self._decision(picture)
        keys = tuple(sorted((why.due_ms, offset) for offset, why in stopped.items()))
        doubt = Doubt(self.picture.producer_id, parcel.target, parcel.sequence, keys, parcel.is_cut)
        told = {at: Stopped(why.due_ms, f"{why.reason}; {MAY_HAVE_ARRIVED}") for at, why in stopped.items()}
        return self._decision(replace(picture, stopped={**picture.stopped, **told}, doubts=(*picture.doubts, doubt)))

    def _first_given_up(self, parcel: RecordParcel, reason: str) -> Decision:
        """It was sent alone, and may have arrived: what comes next must not be taken for it, and goes under another
        producer id."""
        picture, (due_ms, offset) = self.picture, parcel.keys[0]
        doubt = Doubt(picture.producer_id, parcel.target, parcel.sequence, parcel.keys[:1], parcel.is_cut)
        stopped = {**picture.stopped, offset: Stopped(due_ms, f"{reason}; {MAY_HAVE_ARRIVED}")}
        if parcel.from_stopped:
            self._retry_next([offset for _, offset in parcel.keys[1:]])
        picture = replace(picture, settled=self._settled_with(parcel), stopped=stopped, parcel=None)
        return self._decision(replace(picture, producer_id=NO_PRODUCER, sequence=0, doubts=(*picture.doubts, doubt)))

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
        parcel = self.picture.parcel
        if parcel is not None and parcel.from_stopped:
            self._retry_next([offset for _, offset in parcel.keys])
        return self._decision(replace(self.picture, producer_id=NO_PRODUCER, sequence=0, parcel=None))

    def cut(self, keys: Sequence[Key]) -> Decision:
        """Only these records of the parcel are left in the log."""
        parcel = self.picture.parcel
        assert parcel is not None and not self._has_arrived, "nothing is on its way"
        if not self._may_have_arrived:
            return self.void()
        if keys and parcel.is_alone and keys[0] != parcel.keys[0]:
            # What was sent alone is gone, and may have arrived: the next one must not be taken for it. The target has
            # said before that it does not have all of them.
            return self.void()
        if not keys and parcel.refused:
            # They are still there, and the target did not have them when it refused them. What was sent since has the
            # same sequence, so they go under another.
            given_up = replace(self.picture, producer_id=NO_PRODUCER, sequence=0, settled=parcel.after, parcel=None)
            return self._decision(given_up)
        if not keys:
            return self.was_whole()
        return self._decision(replace(self.picture, parcel=replace(parcel, keys=tuple(keys), is_cut=True)))

    def was_whole(self) -> Decision:
        """The target had the parcel before it was cut, or nothing is left of it. How far its producer was is not known:
        another goes on."""
        picture, parcel = self.picture, self.picture.parcel
        assert parcel is not None, "nothing is on its way"
        stopped = without(picture.stopped, [*parcel.refused, *(offset for _, offset in parcel.keys)])
        return self._decision(
            replace(picture, producer_id=NO_PRODUCER, sequence=0, settled=parcel.after, stopped=stopped, parcel=None)
        )

    def renew(self, producer_id: int) -> Decision:
        """The target does not know how far the producer was, and does not have the parcel: another begins with it."""
        parcel = self.picture.parcel
        assert parcel is not None and not self._has_arrived, "nothing was sent"
        self._may_have_arrived = False
        parcel = replace(parcel, sequence=0, is_cut=False, refused=())
        return self._decision(replace(self.picture, producer_id=producer_id, sequence=0, parcel=parcel))

    def _base(self) -> Picture:
        """The picture, less a parcel that has arrived."""
        picture, parcel = self.picture, self.picture.parcel
        if parcel is None:
            return picture
        assert self._has_arrived, "one parcel at a time"
        stopped = picture.stopped
        if parcel.from_stopped:
            stopped = without(stopped, [offset for _, offset in parcel.sent_keys])
        sequence = (parcel.sequence + len(parcel.sent_keys)) & MAX_SEQUENCE
        return replace(picture, sequence=sequence, settled=self._settled_with(parcel), stopped=stopped, parcel=None)

    def _settled_with(self, parcel: RecordParcel) -> Frontier:
        """What is settled once those that are sent are."""
        settled, first = self.picture.settled, parcel.keys[0]
        if not parcel.is_alone or parcel.from_stopped:
            return parcel.after
        if first <= settled.last:
            return settled._replace(horizon=max(settled.horizon, first[1] + 1))
        return settled.advanced(first, parcel.after.horizon)

    def _decision(self, picture: Picture) -> Decision:
        if picture.stopped or picture.doubts:
            picture = _only_settled(picture)
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
        # Whether or not it has arrived: the next picture says.
        is_sent = self.picture.parcel is not None and (due_ms, offset) in self.picture.parcel.keys
        if offset in self.picture.stopped and not is_sent and (due_ms, offset) not in self._chosen:
            return None
        if self._reached.settles(due_ms, offset) or (due_ms, offset) in self._chosen:
            return "it was delivered, or is being delivered"
        return CANCELLED_BEFORE if offset in self._cancelled else None

    def cancel(self, keys: Iterable[Key]) -> Decision:
        return Decision(self._partition, [cancellation_record(keys)])

    def deleted_below(self, offset: int) -> Decision | None:
        """The log begins there now: what was stopped before it is no more. None where there is no such record."""
        self.malformed.delete_below(offset)
        if offset > self._deleted_below and self._cancelled:
            self._cancelled = {at for at in self._cancelled if at >= offset}
        self._deleted_below = offset
        if all(at >= offset for at in self.picture.stopped):
            return None
        base = self._base() if self._has_arrived else self.picture
        return self._decision(replace(base, stopped={at: why for at, why in base.stopped.items() if at >= offset}))

    def __len__(self) -> int:
        """How many wait."""
        # Some may be cancelled that are yet to be read.
        return max(0, len(self.waiting) + len(self._late) + len(self._chosen) - len(self._cancelled))

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
        offsets = [self.position, *picture.stopped, *self.picture.stopped]  # which may wait again
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


def without(stopped: Mapping[int, Stopped], offsets: Iterable[int]) -> Mapping[int, Stopped]:
    gone = set(offsets)
    return {offset: why for offset, why in stopped.items() if offset not in gone} if stopped else stopped


def _only_settled(picture: Picture) -> Picture:
    """What is stopped and would not be settled waits again: once it was delivered, nothing would tell so."""
    reached = picture.settled if picture.parcel is None else picture.parcel.after
    stopped = {offset: why for offset, why in picture.stopped.items() if reached.settles(why.due_ms, offset)}
    doubts = tuple(doubt for doubt in picture.doubts if any(offset in stopped for _, offset in doubt.keys))
    return replace(picture, stopped=stopped, doubts=doubts)
