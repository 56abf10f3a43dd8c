"""Drives a controller over a store: one plan at a time, in the order of the requests. The contract is in `plan`.

    request ─▶ queue ─▶ plan ─▶ store.submit ─▶ controller.committed ─▶ on_events ─▶ work … ─▶ reply
                                     └─ refused ─▶ load again ─▶ plan again, or refuse

It has no thread, clock or socket of its own: it runs inside the calls that reach it and the store's callbacks, on the
broker's thread. Calls may come from within callbacks; they queue.

Every broker watches /controller and runs for election when it goes. Only the elected one watches the brokers: it reads
/brokers/ids again whenever that changes, and lets the image find out what to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from tidelog.control import nodes
from tidelog.control.controller import Controller, Registration
from tidelog.control.errors import (
    KAFKA_STORAGE_ERROR,
    NOT_CONTROLLER,
    REQUEST_TIMED_OUT,
    UNKNOWN_SERVER_ERROR,
    ApiError,
)
from tidelog.control.events import Event
from tidelog.control.image import NodeChange
from tidelog.control.plan import Plan
from tidelog.metadata.store import (
    Committed,
    ConnectionLoss,
    MetadataStore,
    Refusal,
    SessionExpired,
    StoreFailed,
    SubmitResult,
    TreeResult,
    Watch,
    WatchEvent,
)

R = TypeVar("R")

#: How often a request is planned again after someone wrote past the controller.
MAX_ATTEMPTS = 5


class Driver:
    """`on_events` gets the events of each change as soon as it is in the image; `on_failure` is told when the store
    answers nothing more (its session expired, or it could not write): the broker then stops, or opens a new store and
    a new driver."""

    def __init__(
        self,
        controller: Controller,
        store: MetadataStore,
        now_ms: Callable[[], int],
        on_events: Callable[[list[Event]], None],
        on_failure: Callable[[Refusal], None] = lambda refusal: None,
    ) -> None:
        self._controller = controller
        self._store = store
        self._now_ms = now_ms
        self._on_events = on_events
        self._on_failure = on_failure
        #: things to do, each of which calls `_next` when it is through
        self._queue: deque[Callable[[], None]] = deque()
        self._busy = False
        self._turning = False
        self._failed = False
        self._watches: list[Watch] = []
        self._watching_brokers = False

    # Calls

    def start(self, registration: Registration, done: Callable[[ApiError], None]) -> None:
        """Loads the image, registers the broker and runs for election; `done` when all of it has happened."""

        def started(error: ApiError) -> None:
            if not error.is_failure:
                self._watches.append(self._store.watch(nodes.CONTROLLER, self._controller_moved))
                self._watch_brokers()
            done(error)

        def plan() -> None:
            self._run(lambda: self._controller.start(registration, self._now_ms()), started, as_controller=False)

        self._enqueue(lambda: self._load(plan))

    def request(self, decide: Callable[[], Plan[R]], done: Callable[[R], None]) -> None:
        """`decide` makes the plan, when its turn comes; `done` gets the reply, when all is carried out."""
        self._enqueue(lambda: self._run(decide, done))

    def close(self) -> None:
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()

    # The queue

    def _enqueue(self, step: Callable[[], None]) -> None:
        self._queue.append(step)
        self._turn()

    def _next(self) -> None:
        self._busy = False
        self._turn()

    def _turn(self) -> None:
        # A loop, not a recursion: a store that answers at once would otherwise build a stack as high as the queue.
        if self._turning:
            return
        self._turning = True
        try:
            while self._queue and not self._busy:
                self._busy = True
                self._queue.popleft()()
        finally:
            self._turning = False

    # One plan

    def _run(
        self, decide: Callable[[], Plan[R]], done: Callable[[R], None], as_controller: bool = True, attempt: int = 1
    ) -> None:
        plan = decide()
        if as_controller and not self._controller.is_active:
            self._finish(done, plan.refuse(ApiError(NOT_CONTROLLER)))
            return
        if not plan.ops:
            self._finish(done, plan.reply)
            return

        def submitted(result: SubmitResult) -> None:
            if isinstance(result, Committed):
                self._carry_out(plan, result)
                self._work(lambda: self._finish(done, plan.reply))
            elif isinstance(result, StoreFailed | SessionExpired):
                self._fail(result)
                self._finish(done, plan.refuse(ApiError(KAFKA_STORAGE_ERROR)))
            elif isinstance(result, ConnectionLoss):
                self._load(lambda: self._finish(done, plan.refuse(ApiError(REQUEST_TIMED_OUT))))
            elif attempt == MAX_ATTEMPTS:
                error = ApiError(UNKNOWN_SERVER_ERROR, f"The metadata changed again and again at {result.path}.")
                self._load(lambda: self._finish(done, plan.refuse(error)))
            else:
                # Either this broker is no longer the controller, which the image now tells, or someone wrote past it.
                self._load(lambda: self._run(decide, done, as_controller, attempt + 1))

        self._store.submit(plan.ops, submitted)

    def _carry_out(self, plan: Plan[Any], result: Committed) -> None:
        events = self._controller.committed(plan, result)
        if events:
            self._on_events(events)

    def _work(self, then: Callable[[], None]) -> None:
        """What follows from the image, plan after plan; then the rest."""
        plan = self._controller.work()
        if plan is None or self._failed:
            then()
            return

        def submitted(result: SubmitResult) -> None:
            if isinstance(result, Committed):
                self._carry_out(plan, result)
                self._work(then)
            elif isinstance(result, StoreFailed | SessionExpired):
                self._fail(result)
                then()
            else:
                self._load(lambda: self._work(then))

        self._store.submit(plan.ops, submitted)

    def _finish(self, done: Callable[[R], None], reply: R) -> None:
        done(reply)
        self._watch_brokers()
        self._next()

    def _load(self, then: Callable[[], None]) -> None:
        def read(result: TreeResult) -> None:
            if isinstance(result, Refusal):
                self._fail(result)
            else:
                events = self._controller.load(result)
                if events:
                    self._on_events(events)
            then()

        self._store.tree("/", read)

    def _fail(self, refusal: Refusal) -> None:
        if not self._failed:
            self._failed = True
            self._controller.resign()
            self._on_failure(refusal)

    # Watching

    def _controller_moved(self, event: WatchEvent) -> None:
        """Created, deleted or changed by whoever: look, and run if the place is free."""

        def look() -> None:
            self._load(lambda: self._run(lambda: self._controller.run_for_controller(self._now_ms()), settle, False))

        def settle(error: ApiError) -> None:
            self._watch_brokers()

        if not self._failed and not self._controller.is_active:
            self._enqueue(look)

    def _watch_brokers(self) -> None:
        if self._controller.is_active and not self._watching_brokers:
            self._watching_brokers = True
            self._watches.append(self._store.watch(nodes.BROKER_IDS, self._brokers_changed))

    def _brokers_changed(self, event: WatchEvent) -> None:
        if not self._failed and self._controller.is_active:
            self._enqueue(self._read_brokers)

    def _read_brokers(self) -> None:
        def read(result: TreeResult) -> None:
            if isinstance(result, Refusal):
                self._next()
                return
            found = {path: node for path, node in result if path != nodes.BROKER_IDS}
            gone = [b for b in self._controller.image.brokers if nodes.broker_path(b) not in found]
            changes = [NodeChange(nodes.broker_path(b), None, -1, 0) for b in gone]
            changes += [NodeChange(path, node.data, node.version, node.czxid) for path, node in found.items()]
            events = self._controller.observe(changes)
            if events:
                self._on_events(events)
            self._work(self._next)

        self._store.tree(nodes.BROKER_IDS, read)
