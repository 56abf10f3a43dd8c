"""Which leader wrote what: the first offset of every leader epoch in the log.

    leader-epoch-checkpoint     version 0, the number of entries, then one "epoch start_offset" a line

Entries rise in both columns. A new entry that contradicts older ones (same or later epoch, same or later start)
replaces them: they were a leader's who wrote nothing that lasted.

The file is written when the log is flushed or closed, not at every election. After a crash, entries of offsets past the
recovery point come back from the batches themselves, which carry their epoch; below it they were flushed with the data.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from tidelog.log.checkpoints import format_lines, parse_lines

UNDEFINED: Final = -1
FILE_NAME: Final = "leader-epoch-checkpoint"


class LeaderEpochs:
    __slots__ = ("_epochs", "_starts", "changes", "latest", "written")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        #: the newest epoch, -1 if there is none
        self.latest = UNDEFINED
        #: counts changes; the file has those up to `written`
        self.changes = 0
        self.written = 0

    @classmethod
    def parse(cls, data: bytes, path: str) -> LeaderEpochs:
        epochs = cls()
        for epoch, start_offset in parse_lines(data, path, 2):
            epochs.assign(int(epoch), int(start_offset))
        epochs.written = epochs.changes
        return epochs

    def below(self, offset: int) -> LeaderEpochs:
        """A copy of what is known of offsets below this one."""
        copy = LeaderEpochs()
        for epoch, start_offset in self.entries():
            if start_offset < offset:
                copy.assign(epoch, start_offset)
        return copy

    @property
    def dirty(self) -> bool:
        return self.written != self.changes

    def format(self) -> bytes:
        return format_lines(f"{epoch} {start}" for epoch, start in zip(self._epochs, self._starts, strict=True))

    def __len__(self) -> int:
        return len(self._epochs)

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """`epoch` begins at `start_offset`; nothing happens if the log knows it already."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} cannot start at offset {start_offset}")
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self._changed()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """The largest epoch not past the asked one, and where it ends; None where the log cannot tell.

        The newest epoch ends at the log end. An epoch older than all that is known ends where the oldest begins.
        """
        if epoch == UNDEFINED:
            return None
        if epoch == self.latest:
            return epoch, log_end_offset
        after = bisect_right(self._epochs, epoch)
        if after == len(self._epochs):
            return None
        if after == 0:
            return epoch, self._starts[0]
        return self._epochs[after - 1], self._starts[after]

    def earliest_epoch_at(self, offset: int) -> int:
        """The oldest known epoch if it reaches back to `offset`, else -1."""
        return self._epochs[0] if self._epochs and self._starts[0] <= offset else UNDEFINED

    def truncate_from_end(self, end_offset: int) -> None:
        """The log was cut: forgets epochs that begin at `end_offset` or later."""
        if self._starts and self._starts[-1] >= end_offset:
            while self._starts and self._starts[-1] >= end_offset:
                self._epochs.pop()
                self._starts.pop()
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """The log begins later now: the epoch that holds its first offset begins there too."""
        keep = bisect_right(self._starts, start_offset)
        if keep == 0 or (keep == 1 and self._starts[0] == start_offset):
            return
        del self._epochs[: keep - 1], self._starts[: keep - 1]
        self._starts[0] = start_offset
        self._changed()

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()
        self._changed()

    def _changed(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED
        self.changes += 1
