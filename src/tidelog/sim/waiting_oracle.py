"""What was promised of messages that wait, and whether it is kept, as readers of both topics see it.

delivered      each record of a delay topic is in the target, and each half message that was committed; once, and as it
               was written; nothing that was cancelled for certain, or rolled back
early          nothing is delivered before it is due, by the clock of whoever delivers
order of time  what was there before another was even made, and is due before it, is delivered before it
order of ends  half messages are delivered in the order of the records that committed them
questions      senders are asked of what they have prepared, and as often as was said before a message is undecided

Both topics are read in any order, so most of it is judged in the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from tidelog.sim.log_place import LogPlace
from tidelog.sim.violation import Violation
from tidelog.wire.records import Record

DELIVER_AT: Final = "tidelog-deliver-at"
DELAY: Final = "tidelog-delay"
HALF_ID: Final = "tidelog-half-id"
HALF_END: Final = "tidelog-half-end"
COMMIT: Final = b"commit"
ORIGIN: Final = ("tidelog-origin-topic", "tidelog-origin-partition", "tidelog-origin-offset")
#: what is due later than this after it was written does not become due in a run
FAR_MS: Final = 6 * 60 * 60 * 1000


def origin_of(record: Record) -> tuple[LogPlace, int]:
    """Where a record lies of which this one is a copy."""
    told = dict(record.headers)
    topic, partition, offset = ((told.get(name) or b"").decode() for name in ORIGIN)
    return LogPlace(topic, int(partition)), int(offset)


class WaitingTruth(ABC):
    """One partition in which records wait, and the partition that they are delivered to."""

    def __init__(self, source: LogPlace, target: LogPlace) -> None:
        self.source = source
        self.target = target
        #: offset -> record, in the order in which they are there
        self.delivered: dict[int, Record] = {}
        #: offset where it waited -> where it was delivered
        self.delivered_at: dict[int, int] = {}

    @abstractmethod
    def see(self, record: Record) -> None:
        """A record where it waits."""

    def see_delivered(self, record: Record) -> None:
        source, offset = origin_of(record)
        if source != self.source:
            raise Violation("delivered", f"{record.value!r} of {source} is in {self.target}")
        known = self.delivered_at.setdefault(offset, record.offset)
        if known != record.offset:
            raise Violation(
                "delivered", f"offset {offset} of {source} is at {known} and {record.offset} of {self.target}"
            )
        self.delivered[record.offset] = record

    @abstractmethod
    def owed(self) -> list[int]:
        """Offsets of records that are yet to be delivered, as far as is known."""

    @abstractmethod
    def first_needed(self) -> int | None:
        """Offset of the first record without which something would be missing."""

    @abstractmethod
    def judge(self) -> None: ...

    def _is_delivered(self, offset: int, waited: Record) -> Record:
        at = self.delivered_at.get(offset)
        if at is None:
            raise Violation("delivered", f"{waited.value!r} at {offset} of {self.source} is not in {self.target}")
        found = self.delivered[at]
        kept = found.headers[: len(waited.headers)]
        if (found.key, found.value, kept) != (waited.key, waited.value, waited.headers):
            raise Violation("delivered", f"{waited!r} of {self.source} is {found!r} in {self.target}")
        return found


class DelayedTruth(WaitingTruth):
    def __init__(self, source: LogPlace, target: LogPlace, default_ms: int) -> None:
        super().__init__(source, target)
        self._default_ms = default_ms
        self._waited: dict[int, Record] = {}
        #: (due time, offset) of each
        self._keys: dict[int, tuple[int, int]] = {}
        self.cancelled: set[int] = set()
        #: attempts to cancel of which nobody knows what became of them
        self._doubtful: Counter[int] = Counter()
        #: when a value was made, and when it was acknowledged
        self._made_ms: dict[bytes, int] = {}
        self._acknowledged_ms: dict[bytes, int] = {}

    def made(self, values: Iterable[bytes], now_ms: int) -> None:
        self._made_ms.update(dict.fromkeys(values, now_ms))

    def acknowledged(self, values: Iterable[bytes], now_ms: int) -> None:
        self._acknowledged_ms.update(dict.fromkeys(values, now_ms))

    def see(self, record: Record) -> None:
        headers = dict(record.headers)
        due_ms = record.timestamp + self._default_ms
        if DELIVER_AT in headers:
            due_ms = int(headers[DELIVER_AT] or b"")
        elif DELAY in headers:
            due_ms = record.timestamp + int(headers[DELAY] or b"")
        self._waited[record.offset] = record
        self._keys[record.offset] = due_ms, record.offset

    def cancelling(self, offsets: Iterable[int]) -> None:
        self._doubtful.update(offsets)

    def answered(self, offset: int, is_cancelled: bool) -> None:
        """An attempt to cancel is known to have had this end."""
        self._doubtful[offset] -= 1
        if is_cancelled:
            self.cancelled.add(offset)

    def _is_far(self, offset: int) -> bool:
        return self._keys[offset][0] > self._waited[offset].timestamp + FAR_MS

    def owed(self) -> list[int]:
        return [
            offset
            for offset in self._waited
            if offset not in self.delivered_at
            and offset not in self.cancelled
            and self._doubtful[offset] <= 0
            and not self._is_far(offset)
        ]

    def first_needed(self) -> int | None:
        needed = (at for at in self._waited if at not in self.delivered_at and at not in self.cancelled)
        return next(needed, None)

    def judge(self) -> None:
        for offset in self.cancelled & self.delivered_at.keys():
            raise Violation("delivered", f"offset {offset} of {self.source} was cancelled, and is in {self.target}")
        for offset in self.owed():
            self._is_delivered(offset, self._waited[offset])
        for offset in self.delivered_at:
            waited = self._waited.get(offset)
            if waited is None:
                raise Violation("delivered", f"{self.target} has what is not at {offset} of {self.source}")
            found = self._is_delivered(offset, waited)
            due_ms, _ = self._keys[offset]
            if found.timestamp < due_ms:
                raise Violation(
                    "early", f"{found.value!r} of {self.source} is due at {due_ms}, and was delivered {found.timestamp}"
                )
        self._judge_order()

    def _judge_order(self) -> None:
        before: list[tuple[int, tuple[int, int], bytes]] = []
        for at in sorted(self.delivered):
            record = self.delivered[at]
            value, key = record.value or b"", self._keys[origin_of(record)[1]]
            acknowledged_ms = self._acknowledged_ms.get(value)
            if acknowledged_ms is not None:
                for made_ms, other_key, other in before:
                    if key < other_key and acknowledged_ms < made_ms:
                        raise Violation(
                            "order of time", f"{value!r} is behind {other!r} in {self.target}, and was due before"
                        )
            before.append((self._made_ms[value], key, value))


class HalfTruth(WaitingTruth):
    def __init__(self, source: LogPlace, target: LogPlace) -> None:
        super().__init__(source, target)
        self._prepared: dict[bytes, Record] = {}
        #: in the order of the records that committed them
        self._committed: list[Record] = []
        self._rolled_back: set[int] = set()

    def see(self, record: Record) -> None:
        headers = dict(record.headers)
        half_id, end = headers.get(HALF_ID) or b"", headers.get(HALF_END)
        if end is None:
            self._prepared.setdefault(half_id, record)
            return
        ended = self._prepared.pop(half_id, None)  # the first end counts
        if ended is not None and end == COMMIT:
            self._committed.append(ended)
        elif ended is not None:
            self._rolled_back.add(ended.offset)

    def owed(self) -> list[int]:
        return [record.offset for record in self._committed if record.offset not in self.delivered_at]

    def first_needed(self) -> int | None:
        needed = [*self.owed(), *(record.offset for record in self._prepared.values())]
        return min(needed, default=None)

    def judge(self) -> None:
        for offset in self._rolled_back & self.delivered_at.keys():
            raise Violation("delivered", f"offset {offset} of {self.source} was rolled back, and is in {self.target}")
        for record in self._committed:
            self._is_delivered(record.offset, record)
        ends = [record.offset for record in self._committed]
        found = [origin_of(self.delivered[at])[1] for at in sorted(self.delivered)]
        if found != ends:
            at = next((at for at, pair in enumerate(zip(found, ends, strict=False)) if pair[0] != pair[1]), len(ends))
            raise Violation(
                "order of ends",
                f"{self.target} has offsets {found[at : at + 3]} of {self.source}, where {ends[at : at + 3]} were "
                "committed",
            )


class WaitingOracle:
    def __init__(self) -> None:
        self.truths: list[WaitingTruth] = []
        #: who is told of the records of a partition, once each
        self.watched: dict[LogPlace, Callable[[Record], None]] = {}
        self._by_source: dict[LogPlace, WaitingTruth] = {}
        #: half id -> how often its sender was asked, as read; and those that are undecided
        self.asked: Counter[bytes] = Counter()
        self.undecided: set[bytes] = set()
        #: how often a sender is asked by one leader
        self.most_asked = 0

    def add(self, truth: WaitingTruth) -> None:
        self.truths.append(truth)
        self._by_source[truth.source] = truth
        self.watched[truth.source] = truth.see
        self.watched[truth.target] = truth.see_delivered

    def first_needed(self, place: LogPlace) -> int | None:
        """What must not be deleted of a partition, and all after it."""
        truth = self._by_source.get(place)
        return None if truth is None else truth.first_needed()

    def is_all_delivered(self) -> bool:
        return not any(truth.owed() for truth in self.truths)

    def judge(self) -> None:
        for truth in self.truths:
            truth.judge()
        for half_id in self.undecided:
            if self.asked[half_id] < self.most_asked:
                raise Violation("questions", f"{half_id!r} is undecided, and was asked {self.asked[half_id]} times")
