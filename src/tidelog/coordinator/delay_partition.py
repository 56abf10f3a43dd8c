"""Delivers the records of one partition of a delay topic when they are due, and takes back what is cancelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.coordinator.delay_log import Indexed, index
from tidelog.coordinator.waiting_partition import PATIENCE_MS, Reading, WaitingPartition
from tidelog.deciding.decision import Decision
from tidelog.deliver.schedule import Schedule
from tidelog.deliver.wheels import Key, Scratch
from tidelog.log.producers import AppendOrigin
from tidelog.log.segment import Slice
from tidelog.log.txn_index import AbortedTxn
from tidelog.node.data_plane import Held
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import build_batch


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
            for due_ms, at in found.keys:
                schedule.found(due_ms, at)
            for at, reason in found.malformed:
                schedule.found_malformed(at, reason)
            for record in found.cancellations:
                schedule.replay(record)

        return read

    def _beside(self) -> bool:
        return False

    def _beside_at_ms(self) -> int | None:
        return None

    # --- cancelling --------------------------------------------------------------------------------

    def cancel(self, offsets: Sequence[int], done: Callable[[dict[int, str | None]], None]) -> None:
        """Takes back records that wait or are stopped. `done` gets what is said of each: None where it is cancelled."""
        schedule, end = self.schedule, self._end()
        said: dict[int, str | None] = {}
        keys: list[Key] = []
        for offset in offsets:
            found = self._indexed_at(offset) if self.log.log_start_offset <= offset < end else None
            if not self.is_loaded or self._is_closed:
                said[offset] = "the partition is being taken over: try again"
            elif found is None or not found.keys:
                said[offset] = found.malformed[0][1] if found is not None and found.malformed else "nothing waits there"
            else:
                said[offset] = schedule.why_not_cancelled(*found.keys[0])
                if said[offset] is None:
                    keys.append(found.keys[0])
        if not keys:
            done(said)
            return
        decision = schedule.cancel(keys)
        wall_ms = self._host.clock.wall_ms()
        batch = build_batch([(wall_ms, key, value, None) for key, value, _ in decision.records], control=True)
        self.partition.append(memoryview(batch), -1, wall_ms, origin=AppendOrigin.COORDINATOR)
        for record in decision.records:
            schedule.replay(record)
        held = Held.now(self.partition)
        self._data.appended(self.partition)

        def settled(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                said.update((offset, f"not certain: {error.message}") for _, offset in keys)
            done(said)

        self._data.when_committed(held, PATIENCE_MS, settled)
        self.go_on()

    def _indexed_at(self, offset: int) -> Indexed | None:
        """What one record says; a batch is read at once for it."""
        piece = self.log.read(offset, 1, self.log.log_end_offset)
        if piece is None:
            return None
        aborted = self.log.aborted_transactions(offset, piece.next_offset)
        found = index(piece.read(), offset, aborted, self.schedule.picture.delays)
        keys = [key for key in found.keys if key[1] == offset]
        return Indexed(keys, [each for each in found.malformed if each[0] == offset], [])
