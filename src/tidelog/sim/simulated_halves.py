"""A simulated sender of half messages, and whoever answers for it when the broker asks.

How a message is to end is drawn when it is made. Some are ended at once or soon, some only when the broker asks, and
some by nobody until they are undecided. Some senders change their mind: the first end counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from tidelog.sim.log_place import LogPlace
from tidelog.sim.oracle import Oracle
from tidelog.sim.simulated_producer import IdempotentProducer, SentBatch
from tidelog.sim.simulated_reader import SimulatedReader
from tidelog.sim.violation import Violation
from tidelog.sim.waiting_oracle import COMMIT, HALF_END, HALF_ID, HalfTruth
from tidelog.sim.world import World
from tidelog.wire.batch import BatchHeader
from tidelog.wire.records import Headers, Record, read_records

ROLLBACK: Final = b"rollback"
CHECK_MS: Final = 600
MOST_CHECKS: Final = 2
MOST_ENDS: Final = 4
#: how a message gets its end
WITH_IT, SOON, SOON_AND_OTHERWISE, ASKED, UNDECIDED = "with it", "soon", "soon and otherwise", "asked", "undecided"
WAYS: Final = (WITH_IT, SOON, SOON, SOON, SOON_AND_OTHERWISE, ASKED, ASKED, UNDECIDED)


class SentHalf:
    __slots__ = ("end", "is_ending", "is_prepared", "place", "way")

    def __init__(self, place: LogPlace, end: bytes, way: str) -> None:
        self.place = place
        self.end = end
        self.way = way
        #: it was acknowledged
        self.is_prepared = False
        #: its end is on its way
        self.is_ending = False


class SimulatedHalfSender(IdempotentProducer):
    """`truths` are of the partitions that it writes to."""

    def __init__(
        self, world: World, oracle: Oracle, name: str, truths: Sequence[HalfTruth], pause_ms: int, in_flight: int
    ) -> None:
        super().__init__(world, oracle, name, [truth.source for truth in truths], pause_ms, in_flight)
        self._targets = {truth.source: truth.target for truth in truths}
        self._halves: dict[bytes, SentHalf] = {}
        #: those of which no end is acknowledged
        self._open: dict[bytes, SentHalf] = {}
        self._ends: dict[LogPlace, deque[tuple[bytes, bytes]]] = {truth.source: deque() for truth in truths}

    @property
    def _is_written(self) -> bool:
        return self.is_stopped and not self._open and not any(self._ends.values())

    @property
    def unacknowledged(self) -> int:
        return super().unacknowledged + len(self._open)

    def _next_records(self, place: LogPlace) -> list[Headers]:
        ends, records = self._ends[place], list[Headers]()
        if self.is_stopped:
            self._end_the_rest(place)
        while ends and len(records) < MOST_ENDS:
            half_id, end = ends.popleft()
            records.append([(HALF_ID, half_id), (HALF_END, end)])
        for _ in range(0 if self.is_stopped else self.random.randint(0, 2)):
            half_id = f"{self.name}/{len(self._halves)}".encode()
            half = SentHalf(place, self.random.choice((COMMIT, COMMIT, ROLLBACK)), self.random.choice(WAYS))
            self._halves[half_id] = self._open[half_id] = half
            records.append([("kept", b"as it is"), (HALF_ID, half_id)])
            if half.way == WITH_IT:
                half.is_ending = True
                records.append([(HALF_ID, half_id), (HALF_END, half.end)])
        return records

    def _end_the_rest(self, place: LogPlace) -> None:
        """At the end of a run: those that nobody has ended, the undecided ones when that is what they are."""
        for half_id, half in self._open.items():
            if half.place == place and not half.is_ending and self._may_end(half_id, half):
                self._end(half_id, half, half.end)

    def _may_end(self, half_id: bytes, half: SentHalf) -> bool:
        if half.way != UNDECIDED or not half.is_prepared or half_id in self.oracle.waiting.undecided:
            return True
        # The clock on the wall says how long a sender was silent: where it was set, that may be long.
        return any(site.clock.was_set for site in self.world.brokers.values())

    def _end(self, half_id: bytes, half: SentHalf, end: bytes) -> None:
        half.is_ending = True
        self._ends[half.place].append((half_id, end))

    def answer(self, half_id: bytes) -> None:
        """The broker asks."""
        half = self._halves[half_id]
        if half.way == UNDECIDED or (half.is_ending and self.random.randrange(4)):
            return
        self._end(half_id, half, half.end)

    def knows(self, half_id: bytes) -> bool:
        return half_id in self._halves

    # --- what became of it --------------------------------------------------------------------------------

    def _made(self, place: LogPlace, values: list[bytes], headers: list[Headers]) -> None:
        self.oracle[self._targets[place]].sent.update(values)

    def _is_acknowledged(self, place: LogPlace, batch: SentBatch, first_offset: int) -> None:
        super()._is_acknowledged(place, batch, first_offset)
        for headers in batch.headers:
            told = dict(headers)
            half_id = told[HALF_ID] or b""
            half = self._halves[half_id]
            if HALF_END not in told:
                half.is_prepared = True
                if half.way in (SOON, SOON_AND_OTHERWISE):
                    self.soon(0, 400, partial(self._end, half_id, half, half.end))
            elif self._open.pop(half_id, None) is not None and half.way == SOON_AND_OTHERWISE:
                self._end(half_id, half, COMMIT if half.end == ROLLBACK else ROLLBACK)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        for half in self._open.values():
            half.is_ending = False


class QuestionReader(SimulatedReader):
    """Reads what brokers ask, and has it answered; and what is undecided."""

    def __init__(
        self,
        world: World,
        oracle: Oracle,
        name: str,
        questions: Sequence[LogPlace],
        undecided: Sequence[LogPlace],
        senders: Sequence[SimulatedHalfSender],
    ) -> None:
        self._undecided = frozenset(undecided)
        self._senders = senders
        super().__init__(world, oracle, name, [*questions, *undecided])

    def _see(self, place: LogPlace, header: BatchHeader, batch: memoryview, is_hidden: bool) -> None:
        for record in () if header.is_control else read_records(batch):
            if record.offset >= self.positions[place]:
                self._see_question(place, record)

    def _see_question(self, place: LogPlace, record: Record) -> None:
        waiting = self.oracle.waiting
        # A question is keyed by the id; the copy of an undecided message keeps its own key.
        half_id = (dict(record.headers).get(HALF_ID) if place in self._undecided else record.key) or b""
        sender = next((each for each in self._senders if each.knows(half_id)), None)
        if sender is None:
            raise Violation("questions", f"{place} has {half_id!r}, of which no message was prepared")
        if place in self._undecided:
            self.witness("undecided half message")
            waiting.undecided.add(half_id)
        else:
            self.witness("question about a half message")
            waiting.asked[half_id] += 1
            self.soon(0, 200, lambda: sender.answer(half_id))
