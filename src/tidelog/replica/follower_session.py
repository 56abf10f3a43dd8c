"""A follower's end of an incremental fetch session (KIP-227): it names a partition to its leader once, then only what
changed of it. `fetch_sessions` is the leader's end.

The first request of a session names everything. If the leader keeps a session, its answer has an id, and the requests
that follow name changes, counted by an epoch. A leader that has no room for a session answers id 0: then each request
names everything. After an error, or an answer that was lost, nobody knows what the leader remembers: the session is
closed and begun anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.replica.fetch_sessions import INITIAL_EPOCH, MAX_EPOCH, NO_SESSION

#: a topic's id and a partition's index
Place = tuple[bytes, int]


class Position(NamedTuple):
    """Where a follower stands in a partition, as it tells its leader."""

    fetch_offset: int
    log_start_offset: int
    leader_epoch: int
    last_fetched_epoch: int


class FollowerSession:
    __slots__ = ("_epoch", "_id", "told")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        #: what the leader knows, or will know when it has read what was sent
        self.told: dict[Place, Position] = {}

    @property
    def is_full(self) -> bool:
        """The next request has to name every partition."""
        return self._epoch == INITIAL_EPOCH

    @property
    def metadata(self) -> tuple[int, int]:
        """Id and epoch of the next request."""
        return self._id, self._epoch

    def next(
        self, changes: Iterable[tuple[Place, Position | None]]
    ) -> tuple[list[tuple[Place, Position]], list[Place]]:
        """What the next request names, and which partitions it takes out of the session.

        `changes` are partitions that may have changed, None for those that are not to be fetched. If the request must
        name every partition, they have to be all that are to be fetched.
        """
        told = self.told
        if self.is_full:
            told.clear()
        named, forgotten = [], []
        for place, position in changes:
            if position is None:
                if told.pop(place, None) is not None:
                    forgotten.append(place)
            elif told.get(place) != position:
                told[place] = position
                named.append((place, position))
        return named, forgotten

    def answered(self, session_id: int) -> None:
        """The leader has answered without an error."""
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1

    def begin_anew(self) -> None:
        """The next request closes this session, if the leader still has it, and begins another."""
        self._epoch = INITIAL_EPOCH
