"""Delivers the records of one partition of a delay topic when they are due, and takes back what is cancelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.coordinator.delay_log import Indexed, index
from tidelog.coordinator.waiting_partition import PATIENCE_MS, Reading, WaitingPartition
from tidelog.deciding.decision import Decision
from tidelog.deliver.schedule import CANCELLED_BEFORE, Schedule
from tidelog.deliver.wheels import Key, Scratch
from tidelog.log.segment import Slice
from tidelog.log.txn_index import AbortedTxn
from tidelog.node.data_plane import Held
from tidelog.wire.errors import CodedError, ErrorCode


class DelayPartition(WaitingPartition):
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
            for at, record in found.cancellations:
                if at < self._leads_from:  # others have taken effect when they were appended
                    schedule.replay(record)

        return read

    def _beside(self) -> bool:
        return False

    def _beside_at_ms(self) -> int | None:
        return None

    # --- cancelling --------------------------------------------------------------------------------

    def cancel(self, offsets: Sequence[int], done: Callable[[dict[int, str | None]], None]) -> None:
        """Takes back records that wait or are stopped. `done` gets what is said of each: None where it is cancelled."""
        start, end, delays = self.log.log_start_offset, self._end(), self.schedule.picture.delays
        pieces = [
            (piece, wanted[0], self.log.aborted_transactions(wanted[0], piece.next_offset))
            for piece, wanted in self._pieces([(0, offset) for offset in offsets if start <= offset < end])
        ]

        def read() -> dict[int, int | str]:
            known: dict[int, int | str] = {}
            for piece, first, aborted in pieces:
                found = index(piece.read(), first, aborted, delays)
                known.update((at, due_ms) for due_ms, at in found.keys)
                known.update(found.malformed)
            return known

        def was_read(known: dict[int, int | str] | None, error: BaseException | None) -> None:
            if known is None:
                done(dict.fromkeys(offsets, f"the log cannot be read: {error}"))
            elif not self.is_loaded or self._is_closed:
                done(dict.fromkeys(offsets, "the partition is being taken over: try again"))
            else:
                self._cancel(offsets, known, done)

        self._host.workers.in_worker(read, was_read)

    def _cancel(
        self, offsets: Sequence[int], known: dict[int, int | str], done: Callable[[dict[int, str | None]], None]
    ) -> None:
        """`known`: when the records are due, or what is wrong with them."""
        said: dict[int, str | None] = {}
        keys: list[Key] = []
        for offset in offsets:
            due_ms = known.get(offset, "nothing waits there")
            said[offset] = due_ms if isinstance(due_ms, str) else self.schedule.why_not_cancelled(due_ms, offset)
            if isinstance(due_ms, int) and said[offset] is None:
                keys.append((due_ms, offset))
        if CANCELLED_BEFORE not in said.values() and not keys:
            done(said)
            return
        # What was cancelled before is no more certain until then than what is cancelled now.
        flush_due, held = self.log.unflushed_messages >= self.log.config.flush_messages, Held.now(self.partition)
        if keys:
            try:
                info, held = self._append(self.schedule.cancel(keys))
            except CodedError as error:
                done({**said, **dict.fromkeys([offset for _, offset in keys], str(error))})
                return
            flush_due = info.flush_due
            self._data.appended(self.partition)

        def settled(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                doubtful = [offset for offset, refusal in said.items() if refusal in (None, CANCELLED_BEFORE)]
                said.update((offset, f"not certain: {error.message}") for offset in doubtful)
            done(said)

        def flushed(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._data.when_committed(held, PATIENCE_MS, settled)
            else:
                settled(error)

        if flush_due:
            self._data.flushing.flush(self.log, flushed)
        else:
            flushed(ErrorCode.NONE)
        self.go_on()
