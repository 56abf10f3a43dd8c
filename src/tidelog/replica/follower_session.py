"""A follower's end of an incremental fetch session (KIP-227): it names a partition to its leader once, then only what
changed of it. `fetch_sessions` is the leader's end.

The first request of a session names everything. If the leader keeps a session, its answer has an id, and the requests
that follow name changes, counted by an epoch. A leader that has no room for a session answers id 0: then each request
names everything. After an error, or an answer that was lost, nobody knows what the leader remembers: the session is
closed and begun anew.

A request may follow another before that one is answered. So the requests are numbered: what an answer says of a
partition counts only if no later request has told the leader something else about it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.replica.fetch_sessions import INITIAL_EPOCH, MAX_EPOCH, NO_SESSION

#: a topic's id and a partition's index
Place = tuple[bytes, int]


class FetchPosition(NamedTuple):
    """Where a follower stands in a partition, as it tells its leader."""

    fetch_offset: int
    log_start_offset: int
    leader_epoch: int
    last_fetched_epoch: int


class NextFetch(NamedTuple):
    """What the next request is to say."""

    number: int
    session_id: int
    session_epoch: int
    named: list[tuple[Place, FetchPosition]]
    forgotten: list[Place]

    @property
    def is_full(self) -> bool:
        return self.session_epoch == INITIAL_EPOCH


class FollowerSession:
    __slots__ = ("_epoch", "_id", "_number", "_told")

    def __init__(self) -> None:
        self._id = NO_SESSION
        #: of the next request
        self._epoch = INITIAL_EPOCH
        self._number = 0
        #: what the leader knows, or will know when it has read what was sent; and the request that tells it
        self._told: dict[Place, tuple[FetchPosition, int]] = {}

    def __len__(self) -> int:
        return len(self._told)

    @property
    def is_full(self) -> bool:
        """The next request has to name every partition."""
        return self._epoch == INITIAL_EPOCH

    def has_news(self, changes: Iterable[tuple[Place, FetchPosition | None]]) -> bool:
        """Whether a request with these would tell the leader anything."""
        told = self._told
        return any(told[place][0] != position if place in told else position is not None for place, position in changes)

    def next(self, changes: Iterable[tuple[Place, FetchPosition | None]]) -> NextFetch:
        """Partitions that may have changed, None for those that are not to be fetched, become the next request.

        If that must name every partition, they have to be all that are to be fetched.
        """
        told = self._told
        self._number += 1
        if self.is_full:
            told.clear()
        fetch = NextFetch(self._number, self._id, self._epoch, [], [])
        for place, position in changes:
            known = told.get(place)
            if position is None:
                if known is not None:
                    del told[place]
                    fetch.forgotten.append(place)
            elif known is None or known[0] != position:
                told[place] = position, self._number
                fetch.named.append((place, position))
        if not self.is_full:
            self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1
        return fetch

    def asked(self, place: Place, number: int) -> FetchPosition | None:
        """Where the request with this number stood in a partition; None if the leader was told otherwise since."""
        position, told_by = self._told.get(place, (None, 0))
        return position if told_by <= number else None

    def answered(self, fetch: NextFetch, session_id: int) -> None:
        """The leader has answered without an error."""
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        elif fetch.is_full:
            self._id, self._epoch = session_id, 1

    def begin_anew(self) -> None:
        """The next request closes this session, if the leader still has it, and begins another."""
        self._epoch = INITIAL_EPOCH
