"""Workers: handles the records of topics in parallel, in the order of their keys, as a member of a consumer group.

    def handle(message):
        charge(message.key, json.loads(message.value))

    Workers(["orders"], "billing", handle, concurrency=64).run()

One thread (whoever calls `run`) polls the broker and commits; the crew runs the handlers; they meet in the `Workplace`.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException

from tidelog.workers.backlog import Order
from tidelog.workers.crews import AsyncCrew, Crew, DirectCaller, Handler, ThreadCrew, is_async
from tidelog.workers.deliveries import AtOnce
from tidelog.workers.exactly_once import InTransactions
from tidelog.workers.handler_processes import ProcessCaller
from tidelog.workers.membership import WorkMembership
from tidelog.workers.retrying import Backoff
from tidelog.workers.worker_options import DEAD_LETTERS, DEFAULT_BOOTSTRAP, Protocol, WorkerOptions
from tidelog.workers.workplace import WorkersFailed, Workplace, WorkProgress

#: how long one turn waits for records
_TURN_S: Final = 0.1
#: when the work is over, how long the threads may take to notice
_HOME_S: Final = 5.0


class Workers:
    """A member of a group that handles messages in parallel; `run` works until `stop` is called.

    order               "key" (of a partition), "partition" or "none"
    handler             a function, an `async def`, or with `processes` a function of a module that runs in processes of
                        its own; it returns nothing, or what is to be written (`Send`, or several)
    attempts, backoff_s how often a message is tried, and how long after its first failure; twice as long each time, up
                        to `max_backoff_s`. Then it goes to `dead_letters`; with None the workers stop instead.
    handler_timeout_s   after which an async handler is cancelled and a process killed; a thread cannot be stopped
    transactional_id    writes what handlers return together with the offsets, in transactions: exactly once. Each
                        process needs its own id, the same after every restart.
    drain_timeout_s     how long what is under way may take when a partition, or everything, has to go
    max_pending         how many records are held in memory; more are not fetched
    config              further settings of the Kafka clients, by librdkafka's names
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        group: str,
        handler: Handler,
        concurrency: int = 64,
        order: Order = "key",
        *,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        protocol: Protocol = "classic",
        processes: bool = False,
        handler_timeout_s: float | None = None,
        attempts: int = 5,
        backoff_s: float = 1.0,
        max_backoff_s: float = 60.0,
        dead_letters: str | None = DEAD_LETTERS,
        transactional_id: str | None = None,
        commit_interval_s: float = 1.0,
        drain_timeout_s: float = 30.0,
        max_pending: int | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        if not callable(handler):
            raise ValueError("the handler is not callable")
        if handler_timeout_s is not None and not processes and not is_async(handler):
            raise ValueError("handler_timeout_s: a thread cannot be stopped; use an async handler, or processes=True")
        if processes:
            _check_for_processes(handler)
        self.options = WorkerOptions(
            topics=(topics,) if isinstance(topics, str) else tuple(topics),
            group=group,
            concurrency=concurrency,
            order=order,
            bootstrap=bootstrap,
            protocol=protocol,
            processes=processes,
            handler_timeout_s=handler_timeout_s,
            backoff=Backoff(attempts, backoff_s, max_backoff_s),
            dead_letters=dead_letters,
            transactional_id=transactional_id,
            commit_interval_s=commit_interval_s,
            drain_timeout_s=drain_timeout_s,
            max_pending=max_pending,
            config=dict(config or {}),
        )
        self._handler = handler
        self._place = Workplace(self.options)
        self._stop = threading.Event()
        self._member: WorkMembership | None = None
        self._delivery: AtOnce | InTransactions

    def run(self, until_end: bool = False, on_turn: Callable[[WorkProgress], object] | None = None) -> WorkProgress:
        """Works until `stop` is called, or, with `until_end`, until what the topics held is handled.

        Call it once. `on_turn` is called several times a second with how the work stands.
        """
        if self._member is not None:
            raise RuntimeError("these workers have run already: make new ones")
        try:
            member = self._member = self._connected()
        except KafkaException as failure:
            raise WorkersFailed(failure.args[0].str()) from failure
        crew = self._crew()
        try:
            crew.start()
            member.join()
            self._work(member, until_end, on_turn)
        finally:
            self._end(member, crew)
        if self._place.failure is not None:
            raise self._place.failure
        return self.progress()

    def _connected(self) -> WorkMembership:
        transactions = None
        if self.options.transactional_id is None:
            self._delivery = AtOnce(self._place, self.options.producer_config())
        else:
            self._delivery = transactions = InTransactions(self._place, self.options.producer_config())
            transactions.open()
        self._place.delivery = self._delivery
        return WorkMembership(self.options, self._place, transactions)

    def _work(self, member: WorkMembership, until_end: bool, on_turn: Callable[[WorkProgress], object] | None) -> None:
        while not self._stop.is_set() and self._place.failure is None:
            member.turn(_TURN_S)
            if on_turn is not None:
                on_turn(self.progress())
            if until_end and member.is_at_end:
                return

    def _end(self, member: WorkMembership, crew: Crew) -> None:
        try:
            member.release({work.name for work in self._place.works()})
        except Exception as error:
            self._place.fail(error)
        self._place.close()
        self._delivery.close()
        member.leave()
        crew.stop(0 if self._place.progress(0, None).in_flight else _HOME_S)

    def stop(self) -> None:
        """Ends `run`: what is under way is finished and committed. May be called from any thread and from signals."""
        self._stop.set()

    def progress(self) -> WorkProgress:
        member = self._member
        return self._place.progress(member.paused if member else 0, member.lag if member else None)

    def _crew(self) -> Crew:
        options, handler = self.options, self._handler
        if is_async(handler):
            return AsyncCrew(self._place, options.concurrency, handler, options.handler_timeout_s)
        if options.processes:
            return ThreadCrew(
                self._place, options.concurrency, lambda: ProcessCaller(handler, options.handler_timeout_s)
            )
        return ThreadCrew(self._place, options.concurrency, lambda: DirectCaller(handler))


def _check_for_processes(handler: Handler) -> None:
    if is_async(handler):
        raise ValueError("processes: an async handler runs in an event loop; use a plain function")
    try:
        pickle.dumps(handler)
    except Exception as error:
        raise ValueError(
            f"processes: the handler must be a function of a module, which another process can import ({error})"
        ) from None


def progress_line(now: WorkProgress, before: WorkProgress | None = None, seconds: float = 0.0) -> str:
    """How the work stands, in a line: 12,345 handled, 640/s, 64 in flight, 2 to be retried, 1 dead, lag 1,200."""
    line = f"{now.handled:,} handled"
    if before is not None and seconds > 0:
        line += f", {(now.handled - before.handled) / seconds:,.0f}/s"
    line += f", {now.in_flight} in flight"
    if now.waiting_for_retry:
        line += f", {now.waiting_for_retry:,} to be retried"
    if now.dead:
        line += f", {now.dead:,} dead"
    if now.skipped:
        line += f", {now.skipped:,} skipped"
    if now.paused:
        line += f", {now.paused} of {now.partitions} partitions paused"
    return line + (f", lag {now.lag:,}" if now.lag is not None else "")
