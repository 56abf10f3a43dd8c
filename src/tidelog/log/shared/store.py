"""What one log appends to the commit log of its directory."""

from __future__ import annotations

from tidelog.log.shared.commit_entry import HEAD_SIZE, EntryKind, Owner
from tidelog.log.shared.commit_log import CommitLog


class QueueStore:
    __slots__ = ("_before", "commit", "is_told", "last", "owner")

    def __init__(self, commit: CommitLog, owner: Owner) -> None:
        self.commit = commit
        self.owner = owner
        #: the position of the log's last entry; -1 where none is known past the checkpoint
        self.last = -1
        #: what then stands for it: of all that a start has found past the checkpoint, nothing counts
        self._before = commit.checkpoint - 1
        #: what the commit log tells, from its first entry on, ends where the log does; see `upkeep.tell_ends`
        self.is_told = True

    def append(
        self,
        kind: EntryKind,
        base_offset: int,
        last_offset: int,
        records: bytes | memoryview = b"",
        *,
        at_once: bool = False,
    ) -> int:
        """Adds one entry; returns the position of what it carries. If it raises, nothing was appended."""
        previous = self.last if self.last >= 0 else self._before
        place = self.commit.append(self.owner, kind, base_offset, last_offset, previous, records, at_once=at_once)
        self.last = place - HEAD_SIZE
        self.is_told = True
        return place

    def tell_cut(self, offset: int) -> None:
        """The log is about to be cut: a start that reads what was appended before must know. May raise OSError."""
        self.append(EntryKind.CUT, offset, offset, at_once=True)

    def tell_start(self, offset: int) -> None:
        """The log begins, and what was there before, if anything, is about to go. May raise OSError."""
        self.append(EntryKind.START, offset, offset, at_once=True)
