"""The backlog against a model: any order of events, restarts included, keeps the promises."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.workers.backlog import Backlog, WorkItem
from tidelog.workers.message import Message
from tidelog.workers.retrying import Backoff

KEYS = (b"a", b"b", b"c", None)
NAME = ("t", 0)


class OnePartition(RuleBasedStateMachine):
    """A log with gaps, and members that take it over from one another, with their last commit or an older one lost."""

    @initialize(order=st.sampled_from(("key", "partition", "none")), limit=st.sampled_from((4095, 40, 20, 0)))
    def begin(self, order: str, limit: int) -> None:
        self.order, self.limit = order, limit
        self.log: list[Message] = []
        self.end = 0
        #: what was ever finished, and what the newest acknowledged commit tells to be
        self.finished: set[int] = set()
        self.covered: set[int] = set()
        self.committed: tuple[int | None, str | None] = (None, None)
        self.now = 0.0
        self.take_over()

    def take_over(self) -> None:
        self.backlog = Backlog(self.order, Backoff(attempts=3, first_s=1))  # type: ignore[arg-type]
        self.work = self.backlog.assign(NAME, *self.committed)
        self.position = self.committed[0] or 0
        self.in_hand: list[WorkItem] = []
        self.finished_here: set[int] = set()

    @rule(gap=st.integers(0, 3) | st.just(100_000), key=st.sampled_from(KEYS))
    def append(self, gap: int, key: bytes | None) -> None:
        self.end += gap
        self.log.append(Message("t", 0, self.end, key, b"v"))
        self.end += 1

    @rule(most=st.integers(1, 10))
    def fetch(self, most: int) -> None:
        for message in [each for each in self.log if each.offset >= self.position][:most]:
            self.position = message.offset + 1
            is_new = self.backlog.receive(message)
            assert is_new or message.offset in self.covered, "skipped, though no commit tells that it is finished"
            assert not (is_new and message.offset in self.covered), (
                "repeated, though a commit tells that it is finished"
            )

    @rule()
    def take(self) -> None:
        item = self.backlog.take()
        if item is None:
            return
        key = item.message.key
        if self.order == "partition":
            assert not self.in_hand
        elif self.order == "key" and key is not None:
            assert key not in {other.message.key for other in self.in_hand}
            earlier = [each.offset for each in self.log if each.key == key and each.offset < item.message.offset]
            assert set(earlier) <= self.finished, "the one before it is not finished"
        self.in_hand.append(item)

    @precondition(lambda self: self.in_hand)
    @rule(which=st.integers(0, 100))
    def finish(self, which: int) -> None:
        item = self.in_hand.pop(which % len(self.in_hand))
        self.backlog.release(item)
        self.backlog.finish(item)
        self.finished.add(item.message.offset)
        self.finished_here.add(item.message.offset)

    @precondition(lambda self: self.in_hand)
    @rule(which=st.integers(0, 100))
    def fail(self, which: int) -> None:
        item = self.in_hand[which % len(self.in_hand)]
        if self.backlog.fail(item, self.now):
            self.in_hand.remove(item)

    @rule(seconds=st.integers(1, 5))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds
        self.backlog.wake(self.now)

    @rule()
    def commit(self) -> None:
        for work, at in self.backlog.commits(self.limit):
            work.committed = (at.offset, at.metadata)
            self.committed = work.committed
            assert all(each.offset in self.finished for each in self.log if each.offset < at.offset), "a gap"
            known = Backlog().assign(NAME, at.offset, at.metadata).tracker
            self.covered = {e.offset for e in self.log if e.offset < at.offset or not known.receive(e.offset)}
            assert self.covered <= self.finished, "told to be finished, and is not"
            assert not at.is_whole or self.finished_here <= self.covered, "finished, and not told"

    @rule()
    def die(self) -> None:
        self.take_over()

    @rule()
    def revoke_and_assign(self) -> None:
        self.commit()
        self.backlog.revoke(NAME)
        late = self.in_hand
        self.take_over()
        for item in late:
            self.backlog.taken += 1  # it was taken from the one before
            self.backlog.release(item)
            self.backlog.finish(item)

    @invariant()
    def counts_agree(self) -> None:
        if hasattr(self, "backlog"):
            assert self.work.taken == len(self.in_hand) == self.backlog.taken
            assert self.work.pending >= len(self.in_hand)

    def teardown(self) -> None:
        """Nothing is left behind: whoever goes on to the end has handled everything."""
        if not hasattr(self, "backlog"):
            return
        self.fetch(len(self.log) + 1)
        while self.in_hand or self.backlog.waiting_for_retry or self.backlog.ready:
            self.pass_time(5)
            self.take()
            if self.in_hand:
                self.finish(0)
        assert self.finished >= {each.offset for each in self.log}
        self.commit()
        assert self.committed[0] == (self.end if self.log else None) or self.committed[0] == self.end


TestOnePartition = OnePartition.TestCase
TestOnePartition.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
