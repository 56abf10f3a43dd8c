"""Half messages of one partition: prepared and seen by nobody, until a later record ends them.

    prepared ──commit──▶ waiting ──▶ chosen, parcel, settled as in `schedule`
       │ ├──rollback──▶ gone
       │ └── no end for `check_ms` ──▶ the sender is asked, up to `check_max` times ──▶ undecided, until it is ended
       └── prepared again with the same id: the first one counts

A commit makes the message due: its place in the order of delivery is the offset of the record that committed it, where
a delayed message has its due time. Everything else is the schedule's. What is prepared is found again by reading from
the floor on, at or below the first message that is prepared; how often a sender was asked is counted anew by each
leader.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, TypeAlias

from tidelog.deliver.delivery_picture import Picture
from tidelog.deliver.schedule import Schedule
from tidelog.deliver.wheels import Key, Scratch

HALF_ID: Final = b"tidelog-half-id"
HALF_END: Final = b"tidelog-half-end"
COMMIT: Final = b"commit"
ROLLBACK: Final = b"rollback"
#: later than any end of a half message
ALWAYS: Final = 1 << 62
#: in place of the time since when a sender is silent: somebody is just about to ask it
TAKEN: Final = -1

RecordHeaders: TypeAlias = Iterable[tuple[bytes, bytes | None]]


class PreparedHalf:
    """A half message without an end."""

    __slots__ = ("asked", "is_undecided", "offset", "silent_since_ms", "timestamp")

    def __init__(self, offset: int, timestamp: int, silent_since_ms: int) -> None:
        self.offset = offset
        self.timestamp = timestamp
        #: the sender has time to say something from then on
        self.silent_since_ms = silent_since_ms
        #: how often the sender was asked
        self.asked = 0
        self.is_undecided = False


class HalfRecord:
    """What a record of a half topic says."""

    __slots__ = ("commits", "half_id", "offset", "timestamp")

    def __init__(self, offset: int, timestamp: int, half_id: bytes, commits: bool | None) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.half_id = half_id
        #: how it ends the message with its id; None for the message itself
        self.commits = commits


def read_half(offset: int, timestamp: int, headers: RecordHeaders) -> HalfRecord | str:
    """What the record says, or what is wrong with it."""
    half_id: bytes | None = None
    end: bytes | None = None
    ends = False
    for name, value in headers:
        if name == HALF_ID:
            half_id = value
        elif name == HALF_END:
            end, ends = value, True
    if not half_id:
        return "it has no tidelog-half-id"
    if not ends:
        return HalfRecord(offset, timestamp, half_id, None)
    if end not in (COMMIT, ROLLBACK):
        return "tidelog-half-end is neither commit nor rollback"
    return HalfRecord(offset, timestamp, half_id, end == COMMIT)


class HalfSchedule(Schedule):
    def __init__(self, partition: int, scratch: Scratch) -> None:
        super().__init__(partition, scratch)
        #: in the order of their offsets
        self.prepared: dict[bytes, PreparedHalf] = {}
        #: since when nothing was heard of a message, its offset and its id; what is no longer so is left in it
        self._silent: list[tuple[int, int, bytes]] = []

    def found_half(self, record: HalfRecord, wall_ms: int) -> None:
        """A record that was read, in the order of offsets."""
        known = self.prepared.get(record.half_id)
        if record.commits is None:
            if known is not None:
                self.found_malformed(record.offset, "a half message with this id is prepared already")
            else:
                since_ms = min(max(record.timestamp, 0), wall_ms)
                self.prepared[record.half_id] = PreparedHalf(record.offset, record.timestamp, since_ms)
                heappush(self._silent, (since_ms, record.offset, record.half_id))
            return
        if known is None:
            return  # ended before, or never prepared: a sender may say it again
        del self.prepared[record.half_id]
        # The last commit that was reached has ended its message. Where reading began behind that, one that was prepared
        # again before the commit is taken for it here.
        if record.commits and record.offset != self._reached.due_ms:
            self.found(record.offset, known.offset)

    def _was_read(self, key: Key) -> bool:
        return key[0] < self.position

    def _floor(self, picture: Picture) -> int:
        floor = super()._floor(picture)
        first = next(iter(self.prepared.values()), None)
        return floor if first is None else min(floor, first.offset)

    # --- senders that say nothing -----------------------------------------------------------------------

    def take_silent(self, until_ms: int, most: int) -> list[bytes]:
        """Messages of which nothing was heard since then or longer: `asked` says when it is their turn again."""
        found: list[bytes] = []
        while len(found) < most and self._first_silent() is not None and self._silent[0][0] <= until_ms:
            half_id = heappop(self._silent)[2]
            self.prepared[half_id].silent_since_ms = TAKEN  # it may be here twice, since the same time
            found.append(half_id)
        return found

    def silent_since_ms(self) -> int | None:
        """Since when nothing was heard of the one that is silent longest."""
        first = self._first_silent()
        return None if first is None else first[0]

    def _first_silent(self) -> tuple[int, int, bytes] | None:
        while self._silent:
            since_ms, offset, half_id = first = self._silent[0]
            known = self.prepared.get(half_id)
            if (
                known is not None
                and known.offset == offset
                and known.silent_since_ms == since_ms
                and not known.is_undecided
            ):
                return first
            heappop(self._silent)
        return None

    def asked(self, half_id: bytes, since_ms: int, counts: bool = True) -> None:
        """The sender is asked, or is to be: it has time to answer from then on. Without `counts` it is not told yet."""
        known = self.prepared.get(half_id)
        if known is not None:
            known.asked += counts
            known.silent_since_ms = since_ms
            heappush(self._silent, (since_ms, known.offset, half_id))

    def deleted(self, half_id: bytes) -> None:
        """The message is no longer in the log."""
        self.prepared.pop(half_id, None)

    def undecided(self, half_id: bytes) -> None:
        """Nobody is asked any more."""
        known = self.prepared.get(half_id)
        if known is not None:
            known.is_undecided = True
