"""A partition in which records wait that can be taken back: what is cancelled is written into it, and then answered."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from tidelog.coordinator.waiting_partition import PATIENCE_MS, WaitingPartition
from tidelog.deciding.decision import CoordinatorRecord
from tidelog.deliver.schedule import CANCELLED_BEFORE
from tidelog.deliver.wheels import Key
from tidelog.node.data_plane import Held
from tidelog.wire.errors import CodedError, ErrorCode

NOTHING_WAITS: Final = "nothing waits there"
TAKEN_OVER: Final = "the partition is being taken over: try again"

#: what is said of each offset: why it cannot be cancelled, or None where it is
Said: TypeAlias = dict[int, str | None]


class CancellingPartition(WaitingPartition):
    @abstractmethod
    def cancel(self, offsets: Sequence[int], done: Callable[[Said], None]) -> None:
        """Takes records back. `done` is called when that is committed."""

    def _cancelled_before_us(self, cancellations: Iterable[tuple[int, CoordinatorRecord]]) -> None:
        for at, record in cancellations:
            if at < self._leads_from:  # others have taken effect when they were appended
                self.schedule.replay(record)

    def _cancel(self, offsets: Sequence[int], known: Mapping[int, int | str], done: Callable[[Said], None]) -> None:
        """`known`: when the records are due, or why they cannot be cancelled."""
        said: Said = {}
        keys: list[Key] = []
        for offset in offsets:
            due_ms = known.get(offset, NOTHING_WAITS)
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
