"""The driver's loop: take over, then plan, land and commit, again and again.

    continuous  a batch every `interval`; at once where more is waiting than a batch may hold
    once        everything up to the ends as they were at the start, then it returns

A crash at any point leaves a table that says how far it is, and the next runner goes on from there; what the consumer
group says is never read.

A broker that does not answer ends the batch, not the runner: it is tried again, with growing pauses, as long as it
takes (for `once`, so many times). Only the first contact must succeed, for waiting does not mend a wrong address.
`stop` lets the batch in hand finish; whoever cannot wait for that kills the process, which loses nothing either.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from tidelog.client import ClientError
from tidelog.pipeline.errors import NotReady, Passing, PipelineError, TasksFailed
from tidelog.pipeline.land.executor import Executor
from tidelog.pipeline.land.progress_events import Listener, Notice, RunState, tell_all
from tidelog.pipeline.offset_ranges import Ends
from tidelog.pipeline.read.range_reader import may_pass
from tidelog.pipeline.run.brokers import Brokers
from tidelog.pipeline.run.incumbent import Incumbent
from tidelog.pipeline.spec import Pipeline
from tidelog.wire.partitions import TopicPartition

T = TypeVar("T")
FIRST_PAUSE_S: Final = 0.5
LAST_PAUSE_S: Final = 30.0
#: how often in a row `once` tries what may pass
ONCE_ATTEMPTS: Final = 8
#: how often in a row a batch is tried whose tasks fail
TASK_ATTEMPTS: Final = 3
CLIENT_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a runner has done when it returns; `stopped` is whether somebody asked it to."""

    batches: int
    rows: int
    dead_letters: int
    stopped: bool


class _Stopped(Exception):
    pass


class Runner:
    def __init__(
        self,
        pipeline: Pipeline,
        executor: Executor,
        listeners: Sequence[Listener] = (),
        *,
        timeout_s: float = CLIENT_TIMEOUT_S,
    ) -> None:
        self._pipeline = pipeline
        self._executor = executor
        self._listeners = list(listeners)
        self._timeout_s = timeout_s
        self._once = pipeline.trigger.once
        self._stopping = threading.Event()
        self._incumbent: Incumbent | None = None

    def stop(self) -> None:
        """Ends `run` after the batch in hand; may be called from a signal handler or another thread."""
        self._stopping.set()

    def run(self) -> Outcome:
        try:
            with Brokers(self._pipeline.source, self._timeout_s) as brokers:
                brokers.partitions()
                incumbent = self._begin(brokers)
                if incumbent is not None:
                    self._work(incumbent, brokers)
        except _Stopped:
            pass
        except (ClientError, PipelineError):
            # Who is asked to stop at its first contact has begun nothing, and need not fail.
            if self._incumbent is not None or not self._stopping.is_set():
                raise
        done = self._incumbent
        if done is None:
            return Outcome(0, 0, 0, self._stopping.is_set())
        return Outcome(done.batches, done.meter.rows, done.meter.dead_letters, self._stopping.is_set())

    def _begin(self, brokers: Brokers) -> Incumbent | None:
        """Takes over; waits for a first value where the schema is to be inferred from it, or returns None."""
        told = False
        began = self._patiently(lambda: brokers.ends(brokers.partitions()))
        while True:
            found = self._patiently(
                lambda: Incumbent.take_over(
                    self._pipeline, self._executor, brokers, self._listeners, self._timeout_s, began
                )
            )
            if found is not None or self._once:
                self._incumbent = found
                if found is None and any(held.first < held.end for held in began.values()):
                    raise NotReady("no record has a value to infer the schema from", "write a schema under [decode]")
                return found
            if not told:
                tell_all(self._listeners, Notice("no topic has a record yet to infer the schema from"))
            told = True
            self._rest(self._pipeline.trigger.interval_ms / 1000)

    def _work(self, incumbent: Incumbent, brokers: Brokers) -> None:
        targets: Mapping[TopicPartition, Ends] | None = None
        if self._once:
            targets = self._patiently(lambda: brokers.ends(brokers.partitions()))
        incumbent.tell(RunState.READING)
        while not self._stopping.is_set():
            began = time.monotonic()
            if self._patiently(lambda: self._batch(incumbent, targets)):
                continue
            if self._once:
                return
            self._rest(began + self._pipeline.trigger.interval_ms / 1000 - time.monotonic())

    def _batch(self, incumbent: Incumbent, targets: Mapping[TopicPartition, Ends] | None) -> bool:
        """One batch; whether more is waiting."""
        found = incumbent.plan(targets)
        if not found.moves:
            incumbent.tell(RunState.CAUGHT_UP)
            return False
        incumbent.carry_out(found)
        return self._once or found.lag > found.size

    # --- patience -----------------------------------------------------------------------------------

    def _patiently(self, action: Callable[[], T]) -> T:
        """Repeats what may pass. _Stopped where a stop comes in between."""
        pause_s, failed, tasks_failed = FIRST_PAUSE_S, 0, 0
        while True:
            try:
                return action()
            except (ClientError, PipelineError) as error:
                failed += 1
                tasks_failed += isinstance(error, TasksFailed)
                if not _may_pass(error) or tasks_failed >= TASK_ATTEMPTS or (self._once and failed >= ONCE_ATTEMPTS):
                    raise
                tell_all(self._listeners, Notice(f"{error}; trying again in {pause_s:g} s"))
                if self._incumbent is not None:
                    self._incumbent.tell(RunState.WAITING)
            self._rest(pause_s)
            pause_s = min(pause_s * 2, LAST_PAUSE_S)

    def _rest(self, seconds: float) -> None:
        if self._stopping.wait(max(0.0, seconds)):
            raise _Stopped


def _may_pass(error: ClientError | PipelineError) -> bool:
    if isinstance(error, ClientError):
        return may_pass(error)
    return isinstance(error, (Passing, TasksFailed))
