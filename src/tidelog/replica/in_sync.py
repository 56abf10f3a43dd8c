"""Who is in sync with a leader: what it knows of its followers, the ISR, and the change of it that it asks for.

A follower's own fetches tell how far it is. It is caught up while it has all that the leader has, or had when it last
fetched. One that was not caught up for `replica.lag.time.max.ms` is to leave the ISR; one that has reached the high
watermark and the start of the leader's epoch may join it. Both are proposals: the controller decides, and writes the
ISR with a version check. Only one proposal at a time is on its way.

Until its answer is there nobody knows which ISR is in force. So the high watermark waits for every member of either
(the maximal ISR), and also for a follower that is caught up but not yet a member: otherwise it could never catch up
with a high watermark that moves with each append.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tidelog.replica.fetch_sessions import FetchPartition, FetchSession

NO_BROKER_EPOCH: Final = -1
#: so long a follower that the controller has refused is not proposed again
REFUSED_MS: Final = 1000


class FollowerState:
    """What the leader knows of one follower, from that follower's own fetches."""

    __slots__ = (
        "broker_epoch",
        "is_awaited",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
        "refused_until_ms",
        "session",
        "wanted",
    )

    def __init__(self) -> None:
        self.log_end_offset = -1
        self.log_start_offset = -1
        #: of the registration under which it fetches; a broker that restarts gets another
        self.broker_epoch = NO_BROKER_EPOCH
        self.last_fetch_ms = 0
        #: the leader's end when the follower last fetched: reaching it means having been in sync then
        self.last_fetch_leader_end_offset = 0
        self.last_caught_up_ms: int | None = None
        #: it is caught up and may join the ISR: the high watermark waits for it
        self.is_awaited = False
        self.refused_until_ms = 0
        #: the session in which it fetches, and its place there
        self.session: FetchSession | None = None
        self.wanted: FetchPartition | None = None

    def fetches_in(self, session: FetchSession, wanted: FetchPartition) -> None:
        self.session = session
        self.wanted = wanted

    def stir(self) -> FetchSession | None:
        """Something happened that the follower may have to be told; the session in which it is to be, if any.

        A partition that is not on its session's list had nothing new until now: the follower, each time it fetched.
        """
        session, wanted = self.session, self.wanted
        if session is None or wanted is None or wanted.is_forgotten:
            return None
        session.stirs += 1
        if wanted not in session.stirred:
            session.stirred[wanted] = None
            if self.last_caught_up_ms is not None and self.last_caught_up_ms < session.last_used_ms:
                self.last_caught_up_ms = self.last_fetch_ms = session.last_used_ms
        return session

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif offset >= self.last_fetch_leader_end_offset:
            caught_up_ms = self.last_caught_up_ms
            self.last_caught_up_ms = (
                self.last_fetch_ms if caught_up_ms is None else max(caught_up_ms, self.last_fetch_ms)
            )
        self.log_end_offset = offset
        self.last_fetch_leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        return self.log_end_offset == leader_end_offset or (
            self.last_caught_up_ms is not None and now_ms - self.last_caught_up_ms <= max_lag_ms
        )


class IsrProposal(NamedTuple):
    """A change of the ISR that a leader asks the controller for; `members` are brokers and their epochs."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[int, int], ...]


class InSync:
    """The followers of one partition as its leader sees them, and the ISR."""

    __slots__ = ("followers", "holding", "isr", "maximal", "pending")

    def __init__(self) -> None:
        #: as the controller last said
        self.isr: tuple[int, ...] = ()
        self.pending: IsrProposal | None = None
        #: the ISR, and whoever would be in it if the pending proposal is accepted
        self.maximal: frozenset[int] = frozenset()
        self.followers: dict[int, FollowerState] = {}
        #: the followers that the high watermark waits for
        self.holding: tuple[FollowerState, ...] = ()

    def begin(self, followers: Iterable[int], isr: tuple[int, ...], now_ms: int) -> None:
        """A leader epoch begins: followers must show themselves anew, and members of the ISR have time for it."""
        self.followers = {}
        self.assign(followers)
        self.settle(isr)
        for replica, follower in self.followers.items():
            if replica in isr:
                follower.last_caught_up_ms = now_ms

    def assign(self, followers: Iterable[int]) -> None:
        """These are the followers within a leader epoch: what is known of those that stay is kept."""
        known = self.followers
        self.followers = {replica: known.get(replica) or FollowerState() for replica in followers}
        self.hold()

    def settle(self, isr: tuple[int, ...]) -> None:
        """This is the ISR, whatever was proposed. Who has joined is a member; who had to leave is not waited for."""
        for replica, follower in self.followers.items():
            if replica in isr or replica in self.maximal:
                follower.is_awaited = False
        self.isr = isr
        self.propose(None)

    def propose(self, proposal: IsrProposal | None) -> None:
        self.pending = proposal
        members = () if proposal is None else (broker for broker, _ in proposal.members)
        self.maximal = frozenset(self.isr).union(members)
        self.hold()

    def hold(self) -> None:
        maximal = self.maximal
        self.holding = tuple(
            follower for replica, follower in self.followers.items() if replica in maximal or follower.is_awaited
        )

    def await_if(self, follower: FollowerState, awaited: bool) -> None:
        if follower.is_awaited != awaited:
            follower.is_awaited = awaited
            self.hold()

    def lowest_end_offset(self, end_offset: int) -> int:
        for follower in self.holding:
            if follower.log_end_offset < end_offset:
                end_offset = follower.log_end_offset
        return end_offset

    def members_with(self, replica: int, local_id: int, local_epoch: int) -> tuple[tuple[int, int], ...]:
        return self._with_epochs((*self.isr, replica), local_id, local_epoch)

    def members_without(self, laggards: Iterable[int], local_id: int, local_epoch: int) -> tuple[tuple[int, int], ...]:
        gone = frozenset(laggards)
        return self._with_epochs((member for member in self.isr if member not in gone), local_id, local_epoch)

    def _with_epochs(self, members: Iterable[int], local_id: int, local_epoch: int) -> tuple[tuple[int, int], ...]:
        return tuple((member, local_epoch if member == local_id else self._broker_epoch(member)) for member in members)

    def _broker_epoch(self, member: int) -> int:
        follower = self.followers.get(member)
        return NO_BROKER_EPOCH if follower is None else follower.broker_epoch

    def laggards(self, end_offset: int, now_ms: int, max_lag_ms: int) -> list[int]:
        """Members of the ISR that were not caught up for too long; no such replica is awaited any longer."""
        lagging = []
        for replica, follower in self.followers.items():
            if follower.is_caught_up(end_offset, now_ms, max_lag_ms):
                continue
            self.await_if(follower, False)
            if replica in self.isr:
                lagging.append(replica)
        return lagging
