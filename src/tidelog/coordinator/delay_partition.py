"""Delivers the records of one partition of a delay topic when they are due, and takes back what is cancelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.coordinator.cancelling_partition import TAKEN_OVER, CancellingPartition, Said
from tidelog.coordinator.delay_log import Indexed, index
from tidelog.coordinator.waiting_partition import Reading
from tidelog.deciding.decision import Decision
from tidelog.deliver.schedule import NO_TIME, Schedule
from tidelog.deliver.wheels import Scratch
from tidelog.log.segment import Slice
from tidelog.log.txn_index import AbortedTxn


class DelayPartition(CancellingPartition):
    def _new_schedule(self, scratch: Scratch) -> Schedule:
        return Schedule(self.partition.index, scratch)

    @property
    def target(self) -> str:
        return self.log.config.tidelog_delay_target

    def _now_ms(self) -> int:
        return self._host.clock.wall_ms()

    def _settings(self) -> Decision | None:
        return self.schedule.configured(self.log.config.tidelog_delay_ms, self.log.log_end_offset)

    def _reading(self, piece: Slice, offset: int, aborted: Sequence[AbortedTxn]) -> Reading:
        schedule, delays = self.schedule, self.schedule.picture.delays
        schedule.waiting.follow(self._now_ms())

        def read() -> Callable[[], None]:
            found = index(piece.read(), offset, aborted, delays)
            return lambda: take_in(found)

        def take_in(found: Indexed) -> None:
            schedule.found_all(found.keys)
            for at, reason in found.malformed:
                schedule.found_malformed(at, reason)
            self._cancelled_before_us(found.cancellations)

        return read

    def _beside(self) -> bool:
        return False

    def _beside_at_ms(self) -> int | None:
        return None

    # --- cancelling --------------------------------------------------------------------------------

    def cancel(self, offsets: Sequence[int], done: Callable[[Said], None]) -> None:
        """Records that wait, are stopped or name no time."""
        start, end, delays = self.log.log_start_offset, self._end(), self.schedule.picture.delays
        pieces = [
            (piece, wanted[0], self.log.aborted_transactions(wanted[0], piece.next_offset))
            for piece, wanted in self._pieces([(0, offset) for offset in offsets if start <= offset < end])
        ]

        def read() -> dict[int, int]:
            known: dict[int, int] = {}
            for piece, first, aborted in pieces:
                found = index(piece.read(), first, aborted, delays)
                known.update((at, due_ms) for due_ms, at in found.keys)
                known.update((at, NO_TIME) for at, _ in found.malformed)
            return known

        def was_read(known: dict[int, int] | None, error: BaseException | None) -> None:
            if known is None:
                done(dict.fromkeys(offsets, f"the log cannot be read: {error}"))
            elif not self.has_read or self._is_closed:
                done(dict.fromkeys(offsets, TAKEN_OVER))
            else:
                self._cancel(offsets, known, done)

        self._host.workers.in_worker(read, was_read)
