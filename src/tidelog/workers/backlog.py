"""What was received and is not finished: the records of all partitions that this member owns, and who is next.

The pure core of the workers: it takes what happened and the time, and says what to do. It knows neither Kafka nor
threads; whoever calls it from several of them holds a lock.

    receive ──▶ waiting ──take──▶ taken ──release──▶ released ──finish──▶ finished: may be committed
                                  │   ▲
                     fail: waits  └───┘  wake, when it is due
                     for its turn

A shard goes on when the record before it is *released*; the offset may be committed when it is *finished*. The two
come together, unless the results of a message are committed later, in a transaction.

A partition that is assigned is a new `PartitionWork`, also if the same partition was here before: what is still under
way for the old one finds `is_owned` False and counts for nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Literal

from tidelog.workers.message import Message
from tidelog.workers.offset_map import decode
from tidelog.workers.offset_tracker import Committable, OffsetTracker
from tidelog.workers.retrying import Backoff, RetrySchedule
from tidelog.workers.shard_queues import UNORDERED, ShardQueues

Order = Literal["key", "partition", "none"]
Name = tuple[str, int]


class PartitionWork:
    """One partition for as long as it is owned."""

    __slots__ = (
        "committed", "in_turn", "is_crowded", "is_owned", "is_stopping", "name", "pending_bytes", "queues", "taken",
        "tracker",
    )  # fmt: skip

    def __init__(self, name: Name, offset: int | None, metadata: str | None) -> None:
        self.name = name
        known = None if offset is None else decode(offset, metadata)
        self.tracker = OffsetTracker(offset or 0, known)
        self.queues: ShardQueues[WorkItem] = ShardQueues()
        self.is_owned = True
        #: nothing more of it is begun; what is under way may finish
        self.is_stopping = False
        #: whether it waits for its turn among the partitions
        self.in_turn = False
        #: handed to a worker, and neither released nor waiting for another attempt
        self.taken = 0
        self.pending_bytes = 0
        #: what was acknowledged last
        self.committed: tuple[int, str] | None = None if offset is None else (offset, metadata or "")
        #: whether more is finished than the map of a commit can tell
        self.is_crowded = False

    @property
    def pending(self) -> int:
        return self.tracker.pending


@dataclass(slots=True, eq=False)
class WorkItem:
    message: Message
    work: PartitionWork
    shard: Hashable
    size_bytes: int
    #: whether its attempts are used up, and it goes to the dead-letter topic
    is_dead: bool = False


@dataclass(slots=True)
class Counts:
    """What has happened since the start."""

    received: int = 0
    #: were finished before a restart, and not handled again
    skipped: int = 0
    handled: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0
    #: partitions whose log went back behind what was committed or read
    rewound: int = 0


class Backlog:
    def __init__(self, order: Order = "key", backoff: Backoff | None = None) -> None:
        self._order = order
        self._backoff = backoff or Backoff()
        self._works: dict[Name, PartitionWork] = {}
        #: partitions with somebody ready, in turn
        self._turns: deque[PartitionWork] = deque()
        self._schedule: RetrySchedule[WorkItem] = RetrySchedule()
        self.counts = Counts()
        self.taken = 0
        #: no longer given out; what is under way may finish
        self.is_closed = False

    # --- partitions ---------------------------------------------------------------------------------

    def assign(self, name: Name, offset: int | None, metadata: str | None = None) -> PartitionWork:
        """A partition that is read from the committed offset on; None if nobody has committed one."""
        assert name not in self._works, f"{name} is assigned already"
        work = self._works[name] = PartitionWork(name, offset, metadata)
        return work

    def revoke(self, name: Name) -> PartitionWork | None:
        """It is not ours any more; None if it was not."""
        work = self._works.pop(name, None)
        if work is not None:
            work.is_owned = False
            self._forget_waiting(work)
        return work

    def stop_giving_out(self, work: PartitionWork) -> None:
        """What is under way may finish and be committed; nothing more of it is begun."""
        work.is_stopping = True
        self._forget_waiting(work)

    def _forget_waiting(self, work: PartitionWork) -> None:
        work.queues = ShardQueues()
        if work.in_turn:
            self._turns.remove(work)
            work.in_turn = False

    def works(self) -> list[PartitionWork]:
        return list(self._works.values())

    # --- records ------------------------------------------------------------------------------------

    def receive(self, message: Message) -> bool:
        """Whether it is to be handled: not if it was finished before, nor if the partition is not ours."""
        name = (message.topic, message.partition)
        work = self._works.get(name)
        if work is None or work.is_stopping:
            return False
        if message.offset < work.tracker.next_offset:
            work = self._rewind(work)
        self.counts.received += 1
        if not work.tracker.receive(message.offset):
            self.counts.skipped += 1
            return False
        item = WorkItem(message, work, self._shard(message), len(message.key or b"") + len(message.value or b""))
        work.pending_bytes += item.size_bytes
        work.queues.put(item.shard, item)
        self._queue_up(work)
        return True

    def _rewind(self, old: PartitionWork) -> PartitionWork:
        """The log ends before what was committed or read: it was truncated, or the topic was created again."""
        self.revoke(old.name)
        work = self.assign(old.name, None)
        work.committed = old.committed
        self.counts.rewound += 1
        return work

    def _shard(self, message: Message) -> Hashable:
        if self._order == "key":
            return UNORDERED if message.key is None else message.key
        return "partition" if self._order == "partition" else UNORDERED

    def _queue_up(self, work: PartitionWork) -> None:
        if not work.in_turn and work.queues.ready:
            work.in_turn = True
            self._turns.append(work)

    def take(self) -> WorkItem | None:
        """Who is next; None if nobody is ready."""
        if not self._turns or self.is_closed:
            return None
        work = self._turns.popleft()
        work.in_turn = False
        item = work.queues.take()
        assert item is not None, "a partition in turn has somebody ready"
        self._queue_up(work)
        work.taken += 1
        self.taken += 1
        return item

    def release(self, item: WorkItem) -> None:
        """Its shard may go on."""
        self.put_down(item)
        if item.work.is_owned and not item.work.is_stopping:
            item.work.queues.release(item.shard)
            self._queue_up(item.work)

    def finish(self, item: WorkItem) -> None:
        """It may be committed."""
        if item.is_dead:
            self.counts.dead += 1
        else:
            self.counts.handled += 1
        item.work.pending_bytes -= item.size_bytes
        if item.work.is_owned:
            item.work.tracker.finish(item.message.offset)

    def fail(self, item: WorkItem, now: float) -> bool:
        """Whether it will be tried again; if not, it is still taken."""
        self.counts.failed += 1
        delay_s = self._backoff.delay_s(item.message.attempt)
        if delay_s is None:
            return False
        self.put_down(item)
        self.counts.retried += 1
        item.message = item.message._replace(attempt=item.message.attempt + 1)
        self._schedule.add(now + delay_s, item)
        return True

    def wake(self, now: float) -> int:
        """Makes ready whoever is due, and says how many."""
        woken = 0
        for item in self._schedule.take_due(now):
            if item.work.is_owned and not item.work.is_stopping:
                item.work.queues.restore(item)
                self._queue_up(item.work)
                woken += 1
        return woken

    def put_down(self, item: WorkItem) -> None:
        """Nobody works on it any more, though it is not finished."""
        item.work.taken -= 1
        self.taken -= 1

    # --- commits ------------------------------------------------------------------------------------

    def commits(self, limit: int) -> Iterator[tuple[PartitionWork, Committable]]:
        """What there is to commit that was not acknowledged yet."""
        for work in self._works.values():
            if not work.tracker.has_received:
                continue
            found = work.tracker.committable(limit)
            work.is_crowded = not found.is_whole
            if (found.offset, found.metadata) != work.committed:
                yield work, found

    # --- how it stands ------------------------------------------------------------------------------

    @property
    def ready(self) -> int:
        return sum(work.queues.ready for work in self._turns)

    @property
    def pending(self) -> int:
        return sum(work.tracker.pending for work in self._works.values())

    @property
    def waiting_for_retry(self) -> int:
        return len(self._schedule)
