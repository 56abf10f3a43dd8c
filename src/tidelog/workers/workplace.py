"""Where the threads meet: the backlog under one lock, and everybody who waits for it.

A worker that has finished a message says so and takes the next one in the same breath, so that nothing stands between
two messages but this lock. Records come in from the thread that polls the broker, which also waits here: for room, and
for what is under way when a partition goes.

What a handler returns, dead letters included, is written before its message counts as finished. How is up to the
`Delivery`: at once, or in a transaction together with the offsets.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from tidelog.workers.backlog import Backlog, Counts, Name, PartitionWork, WorkItem
from tidelog.workers.dead_letters import dead_letter
from tidelog.workers.message import Message, Reject, Send, said_by
from tidelog.workers.offset_tracker import Committable
from tidelog.workers.worker_options import WorkerOptions

_log = logging.getLogger("tidelog.workers")


class WorkersFailed(Exception):
    """The workers had to stop. Nothing is lost: what was not finished is handled again after the next start."""


class Delivery(Protocol):
    def deliver(self, item: WorkItem, sends: tuple[Send, ...]) -> None:
        """Called without the lock, for a message that is handled: `Workplace.settled` when it is finished."""


class WorkProgress(NamedTuple):
    """How the work stands."""

    handled: int
    #: were finished before this process started, and not handled again
    skipped: int
    failed: int
    retried: int
    dead: int
    in_flight: int
    pending: int
    waiting_for_retry: int
    partitions: int
    paused: int
    #: how many records are not finished of what the topics hold; None until the broker has told
    lag: int | None
    handler_seconds: float


class Workplace:
    def __init__(self, options: WorkerOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._backlog = Backlog(options.order, options.backoff)
        self._lock = threading.Lock()
        self._work_came = threading.Condition(self._lock)
        self._work_went = threading.Condition(self._lock)
        self._idle = 0
        #: so many must be put down before whoever waits for room is woken
        self._wanted = 0
        self._handler_seconds = 0.0
        self.delivery: Delivery | None = None
        #: why the workers cannot go on
        self.failure: BaseException | None = None
        #: called, without the lock, when there is something to take and nobody sleeps here for it
        self.on_ready: Callable[[], None] | None = None

    # --- for workers --------------------------------------------------------------------------------

    def next(self) -> WorkItem | None:
        """Waits for somebody to handle; None when the workers stop."""
        with self._lock:
            while (item := self._backlog.take()) is None and not self._backlog.is_closed:
                self._idle += 1
                self._work_came.wait()
                self._idle -= 1
            return item

    def take(self) -> WorkItem | None:
        """Somebody to handle, if there is anybody now."""
        with self._lock:
            return self._backlog.take()

    def succeeded(self, item: WorkItem, sends: tuple[Send, ...], seconds: float) -> None:
        if not sends and self._options.transactional_id is None:
            with self._lock:
                self._handler_seconds += seconds
                self._backlog.release(item)
                self._backlog.finish(item)
                self._put_down()
            return
        with self._lock:
            self._handler_seconds += seconds
        self._deliver(item, sends)

    def failed(self, item: WorkItem, error: BaseException, seconds: float) -> None:
        """Tries it again later, or makes it a dead letter."""
        message = item.message
        with self._lock:
            self._handler_seconds += seconds
            if isinstance(error, Reject):
                self._backlog.counts.failed += 1
                is_retried = False
            else:
                is_retried = self._backlog.fail(item, self._clock())
            if is_retried:
                self._put_down()
            is_ours = item.work.is_owned
        if is_retried:
            most = self._options.backoff.attempts
            _log.warning("%s: attempt %d of %d failed: %s", message.place, message.attempt, most, _words(error))
            return
        if not is_ours:
            self.settled(item)
            return
        letter = self._letter(item, error)
        if letter is None:
            self.gave_up(item, f"{message.place} failed at attempt {message.attempt}: {_words(error)}")
        else:
            self._deliver(item, (letter,))

    def _letter(self, item: WorkItem, error: BaseException) -> Send | None:
        """Its dead letter; None where there are none."""
        message = item.message
        topic = self._options.dead_letter_topic(message.topic)
        if topic is None:
            return None
        item.is_dead = True
        _log.error(
            "%s: attempt %d was the last, written to %s: %s", message.place, message.attempt, topic, _words(error)
        )
        return dead_letter(topic, message, error, self._options.group)

    def _deliver(self, item: WorkItem, sends: tuple[Send, ...]) -> None:
        assert self.delivery is not None
        try:
            self.delivery.deliver(item, sends)
        except Exception as error:
            self.not_written(item, error)

    def not_written(self, item: WorkItem, error: Exception) -> None:
        """What the handler returned cannot be written, and that is the fault of what it returned."""
        if item.is_dead:
            self.gave_up(item, f"{item.message.place}: its dead letter cannot be written: {_words(error)}")
        else:
            self.failed(item, error, 0.0)

    # --- for deliveries -----------------------------------------------------------------------------

    def settled(self, item: WorkItem) -> None:
        """It is handled and what it led to is written: its shard goes on, and it may be committed."""
        with self._lock:
            self._backlog.release(item)
            self._backlog.finish(item)
            self._put_down(tell=True)
        self._tell_ready()

    def released(self, item: WorkItem) -> None:
        """Its shard goes on; it may not be committed yet."""
        with self._lock:
            self._backlog.release(item)
            self._put_down(tell=True)
        self._tell_ready()

    def finished(self, items: Iterable[WorkItem]) -> None:
        with self._lock:
            for item in items:
                self._backlog.finish(item)
            self._work_went.notify_all()

    def died_late(self, item: WorkItem, error: Exception) -> Send | None:
        """It was finished, but its results cannot be part of any transaction: the letter to commit in their place."""
        was_dead = item.is_dead
        letter = None if was_dead else self._letter(item, error)
        if letter is None:
            self.fail(WorkersFailed(f"{item.message.place}: {_words(error)}"))
            return None
        with self._lock:
            counts = self._backlog.counts
            counts.handled, counts.failed, counts.dead = counts.handled - 1, counts.failed + 1, counts.dead + 1
        return letter

    def gave_up(self, item: WorkItem, reason: str) -> None:
        """It can neither be finished nor be skipped: the workers stop, and the next ones begin with it."""
        with self._lock:
            self._backlog.put_down(item)
            self._put_down()
        self.fail(WorkersFailed(reason))

    def fail(self, error: BaseException) -> None:
        """Nothing more is begun; the polling thread raises it."""
        with self._lock:
            self.failure = self.failure or error
            self._close()

    def _put_down(self, tell: bool = False) -> None:
        self._wanted -= 1
        if self._wanted <= 0:
            self._work_went.notify_all()
        if tell and self._idle and self._backlog.ready:
            self._work_came.notify()

    # --- for the polling thread ---------------------------------------------------------------------

    def receive(self, messages: Iterable[Message]) -> None:
        with self._lock:
            for message in messages:
                self._backlog.receive(message)
            self._rouse()
        self._tell_ready()

    def wake(self) -> None:
        """Rouses whoever is due for another attempt."""
        with self._lock:
            if not self._backlog.wake(self._clock()):
                return
            self._rouse()
        self._tell_ready()

    def _rouse(self) -> None:
        if self._idle and (ready := self._backlog.ready):
            self._work_came.notify(min(ready, self._idle))

    def _tell_ready(self) -> None:
        if self.on_ready is not None:
            self.on_ready()

    def wait_for_room(self, timeout_s: float) -> None:
        """Until a quarter of what is pending is done, or the time is over."""
        with self._lock:
            self._wanted = max(1, self._backlog.pending // 4)
            self._work_went.wait_for(lambda: self._wanted <= 0 or self._backlog.is_closed, timeout_s)

    def works(self) -> list[PartitionWork]:
        with self._lock:
            return self._backlog.works()

    def assign(self, name: Name, offset: int | None, metadata: str | None) -> PartitionWork:
        with self._lock:
            return self._backlog.assign(name, offset, metadata)

    def drain(self, names: Iterable[Name], timeout_s: float) -> int:
        """Begins nothing more of these partitions and waits for what is under way; how many are still not done."""
        with self._lock:
            works = [work for work in self._backlog.works() if work.name in set(names)]
            for work in works:
                self._backlog.stop_giving_out(work)
            self._wanted = 0
            self._work_went.wait_for(lambda: not any(work.taken for work in works), timeout_s)
            return sum(work.taken for work in works)

    def revoke(self, names: Iterable[Name]) -> None:
        with self._lock:
            for name in names:
                self._backlog.revoke(name)

    def commits(self, limit: int, names: Iterable[Name] | None = None) -> list[tuple[PartitionWork, Committable]]:
        with self._lock:
            found = list(self._backlog.commits(limit))
        return found if names is None else [each for each in found if each[0].name in set(names)]

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        self._backlog.is_closed = True
        self._work_came.notify_all()
        self._work_went.notify_all()

    def counts(self) -> Counts:
        return self._backlog.counts

    def progress(self, paused: int, lag: int | None) -> WorkProgress:
        with self._lock:
            counts = self._backlog.counts
            return WorkProgress(
                counts.handled, counts.skipped, counts.failed, counts.retried, counts.dead, self._backlog.taken,
                self._backlog.pending, self._backlog.waiting_for_retry, len(self._backlog.works()), paused, lag,
                self._handler_seconds,
            )  # fmt: skip


def _words(error: BaseException) -> str:
    said = said_by(error)
    return f"{type(error).__name__}: {said.splitlines()[0]}" if said else type(error).__name__
