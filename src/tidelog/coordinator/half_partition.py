"""Delivers the committed half messages of one partition, and asks the senders of those that were not ended.

It is a delay partition in which the record that commits a message makes it due. Beside that, the sender of a message
that was not ended for `tidelog.half.check.ms` is asked by a record on `tidelog.half.check.topic`. After it was asked
`tidelog.half.check.max` times, the message is undecided, and a copy goes to `tidelog.half.undecided.topic`. Questions
and copies are sent at least once: an answer that comes twice says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tidelog.coordinator.cancelling_partition import TAKEN_OVER, CancellingPartition, Said
from tidelog.coordinator.delay_log import (
    HalfIndexed,
    RecordReader,
    StoredRecord,
    ToldHalf,
    build_question,
    build_undecided,
    index_halves,
)
from tidelog.coordinator.parcel_delivery import Told
from tidelog.deciding.decision import Decision
from tidelog.deliver.halves import ALWAYS, HALF_ID, HalfSchedule
from tidelog.deliver.schedule import NO_TIME
from tidelog.deliver.wheels import Scratch
from tidelog.log.segment import Slice
from tidelog.log.txn_index import AbortedTxn
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

#: of one record on the topic of questions
MOST_ASKED: Final = 100
#: after which a question is put again that could not be sent
ASK_AGAIN_MS: Final = 1_000
NOT_ENDED: Final = "it is prepared: end it by its id, with `tidelog half rollback` or `tidelog half commit`"
UNTOLD: Final = "nobody is told of half messages without an end:"


class HalfPartition(CancellingPartition):
    schedule: HalfSchedule

    def _new_schedule(self, scratch: Scratch) -> HalfSchedule:
        return HalfSchedule(self.partition.index, scratch)

    @property
    def target(self) -> str:
        return self.log.config.tidelog_half_target

    def _now_ms(self) -> int:
        return ALWAYS

    def _settings(self) -> Decision | None:
        return None

    def _reading(self, piece: Slice, offset: int, aborted: Sequence[AbortedTxn]) -> Callable[[], Callable[[], None]]:
        schedule = self.schedule

        def read() -> Callable[[], None]:
            found = index_halves(piece.read(), offset, aborted)
            return lambda: take_in(found)

        def take_in(found: HalfIndexed) -> None:
            wall_ms = self._host.clock.wall_ms()
            for record in found.records:
                schedule.found_half(record, wall_ms)
            for at, reason in found.malformed:
                schedule.found_malformed(at, reason)
            self._cancelled_before_us(found.cancellations)

        return read

    # --- cancelling ---------------------------------------------------------------------------------

    def cancel(self, offsets: Sequence[int], done: Callable[[Said], None]) -> None:
        """Committed messages that are stopped, and records that mean nothing."""
        schedule = self.schedule
        if not self.has_read or self._is_closed:
            done(dict.fromkeys(offsets, TAKEN_OVER))
            return
        known: dict[int, int | str] = dict.fromkeys([each.offset for each in schedule.prepared.values()], NOT_ENDED)
        known.update((at, why.due_ms) for at, why in schedule.picture.stopped.items())
        known.update((offset, NO_TIME) for offset in offsets if offset in schedule.malformed)
        self._cancel(offsets, known, done)

    def ids_of(self, offsets: Sequence[int]) -> Callable[[], dict[int, tuple[str | None, int]]]:
        """For a worker: id and timestamp of the records there."""
        pieces = self._pieces([(0, offset) for offset in offsets])

        def read() -> dict[int, tuple[str | None, int]]:
            found: dict[int, tuple[str | None, int]] = {}
            for at, record in RecordReader().read(pieces).items():
                half_id = dict(record.headers).get(HALF_ID)
                found[at] = None if half_id is None else half_id.decode("utf-8", "replace"), record.timestamp
            return found

        return read

    # --- senders that say nothing -------------------------------------------------------------------

    def _beside_at_ms(self) -> int | None:
        since_ms = self.schedule.silent_since_ms()
        return None if since_ms is None else since_ms + self.log.config.tidelog_half_check_ms

    def _beside(self) -> bool:
        schedule, config = self.schedule, self.log.config
        wall_ms = self._host.clock.wall_ms()
        silent = schedule.take_silent(wall_ms - config.tidelog_half_check_ms, MOST_ASKED)
        asks, copies = list[bytes](), list[bytes]()
        for half_id in silent:
            is_over = schedule.prepared[half_id].asked >= config.tidelog_half_check_max
            (copies if is_over or not config.tidelog_half_check_topic else asks).append(half_id)
            # Until it is known that they were told, and where there is no time for them now.
            schedule.asked(half_id, wall_ms - config.tidelog_half_check_ms + ASK_AGAIN_MS, counts=False)
        if asks:
            self._tell(config.tidelog_half_check_topic, asks, True, partial(self._asked, asks))
        elif copies and config.tidelog_half_undecided_topic:
            self._tell(config.tidelog_half_undecided_topic, copies, False, partial(self._copied, copies))
        elif copies:
            self._copied(copies, ErrorCode.NONE, ())
        return bool(silent)

    def _tell(self, topic: str, half_ids: Sequence[bytes], is_question: bool, told: Told) -> None:
        """Sends a question about each message to a topic, or a copy of it."""
        described = self._cluster.image.topics.get(topic)
        if described is None:
            told(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ())
            return
        known = {half_id: self.schedule.prepared[half_id] for half_id in half_ids}
        keys = [(0, prepared.offset) for prepared in known.values()]
        to = TopicPartition(topic, self.partition.index % len(described.partitions))
        wall_ms = self._host.clock.wall_ms()

        def build(records: dict[int, StoredRecord]) -> None:
            for half_id, prepared in known.items():
                if prepared.offset not in records:
                    self.schedule.deleted(half_id)
            found = [
                ToldHalf(half_id, prepared.offset, prepared.asked + is_question, records[prepared.offset])
                for half_id, prepared in known.items()
                if prepared.offset in records
            ]
            if not found:
                told(ErrorCode.NONE, ())
                return
            build_told = build_question if is_question else build_undecided
            batch = build_told(found, wall_ms, self.partition.topic, self.partition.index)
            self._delivery.deliver(to, batch, told)

        self._read_records(keys, build)

    def _asked(self, half_ids: Sequence[bytes], code: ErrorCode, _blamed: Sequence[int]) -> None:
        if self._is_told(self.log.config.tidelog_half_check_topic, code):
            for half_id in half_ids:
                self.schedule.asked(half_id, self._host.clock.wall_ms())
        self._unbusy()

    def _copied(self, half_ids: Sequence[bytes], code: ErrorCode, _blamed: Sequence[int]) -> None:
        if self._is_told(self.log.config.tidelog_half_undecided_topic, code):
            for half_id in half_ids:
                self.schedule.undecided(half_id)
        self._unbusy()

    def _is_told(self, topic: str, code: ErrorCode) -> bool:
        if code is not ErrorCode.NONE:
            self.stalled = f"{UNTOLD} {topic} cannot be written to: {code.message}"
        elif self.stalled is not None and self.stalled.startswith(UNTOLD):
            self.stalled = None
        return code is ErrorCode.NONE
