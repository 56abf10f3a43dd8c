"""All that this broker follows: for each leader `num.replica.fetchers` fetchers, and each partition in one of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from tidelog.peers.requester import Link, PeerAddress
from tidelog.replica.partition import Partition
from tidelog.timer.host import Host

if TYPE_CHECKING:
    from tidelog.replica.fetcher import Fetcher, FetchTerms
    from tidelog.replica.follower_session import Place

#: a leader, and which of the fetchers from it
Lane = tuple[int, int]


class Followed(NamedTuple):
    """Where a partition is fetched, and as what."""

    lane: Lane
    partition: Partition
    leader_epoch: int


class Fetchers:
    """`address_of` tells where a broker is reached, None if it is not known; `link` makes a link to it."""

    def __init__(
        self,
        terms: FetchTerms,
        host: Host,
        address_of: Callable[[int], PeerAddress | None],
        link: Callable[[PeerAddress, str], Link],
    ) -> None:
        self._terms = terms
        self._host = host
        self._address_of = address_of
        self._link = link
        self._fetchers: dict[Lane, tuple[PeerAddress, Fetcher]] = {}
        self._followed: dict[Place, Followed] = {}
        #: partitions whose leader's address is not known yet
        self._stranded: dict[Place, Partition] = {}

    def follow(self, partition: Partition, count: int) -> None:
        """Fetches a partition from its leader, as the controller last named it; `count` fetchers share a leader."""
        place = (partition.topic_id, partition.index)
        lane = (partition.leader_id, (partition.index + partition.topic_id[0]) % max(count, 1))
        followed = Followed(lane, partition, partition.leader_epoch)
        if self._followed.get(place) == followed:
            return  # only its ISR or its replicas have changed
        self.leave(place)
        address = self._address_of(partition.leader_id)
        if address is None:
            self._stranded[place] = partition
            return
        known, fetcher = self._fetchers.get(lane, (None, None))
        if fetcher is None or known != address:
            fetcher = self._open(lane, address)
        self._followed[place] = followed
        fetcher.add(partition)

    def _open(self, lane: Lane, address: PeerAddress) -> Fetcher:
        # Late: a broker that follows nobody starts sooner without.
        from tidelog.replica.fetcher import Fetcher

        self._close(lane)
        fetcher = Fetcher(self._link(address, f"fetcher-{lane[1]}"), self._terms, self._host)
        self._fetchers[lane] = address, fetcher
        return fetcher

    def _close(self, lane: Lane) -> None:
        known = self._fetchers.pop(lane, None)
        if known is not None:
            known[1].close()

    def leave(self, place: Place) -> None:
        """Follows a partition no longer: this broker leads it now, or nobody does, or it is gone."""
        self._stranded.pop(place, None)
        followed = self._followed.pop(place, None)
        if followed is not None and followed.lane in self._fetchers:
            fetcher = self._fetchers[followed.lane][1]
            fetcher.remove(place)
            if not len(fetcher):
                self._close(followed.lane)

    def moved(self, started: Collection[int], count: int) -> None:
        """Brokers have registered, some of them (`started`) anew: follows where that lets it, on new connections."""
        stale = {
            lane
            for lane, (address, _) in self._fetchers.items()
            if lane[0] in started or self._address_of(lane[0]) not in (address, None)
        }
        again = [*self._stranded.values()]
        for place, followed in list(self._followed.items()):
            if followed.lane in stale:
                again.append(followed.partition)
                del self._followed[place]
        for lane in stale:
            self._close(lane)
        for partition in again:
            self.follow(partition, count)

    def close(self) -> None:
        for lane in list(self._fetchers):
            self._close(lane)
        self._followed.clear()
        self._stranded.clear()
