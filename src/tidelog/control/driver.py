"""Drives a controller over a store: one plan at a time, in the order of the requests. The contract is in `plan`.

    request ─▶ queue ─▶ plan ─▶ store.submit ─▶ controller.committed ─▶ on_events ─▶ work … ─▶ reply
                                     └─ refused ─▶ load again ─▶ plan again, or refuse

It has no thread, clock or socket of its own: it runs inside the calls that reach it and the store's callbacks, on the
broker's thread. Calls may come from within callbacks; they queue.

A broker that starts looks at a handful of nodes, registers, and runs for election. Only who is elected loads the whole
tree and watches more than /controller: the brokers, and the topics that are marked for deletion. What it finds there
goes into the image, and `work` does the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from tidelog.control import nodes
from tidelog.control.controller import Controller, Registration
from tidelog.control.errors import NO_ERROR, ApiError
from tidelog.control.events import Event
from tidelog.control.image import NodeChange, changes_of_commit
from tidelog.control.layout_reading import read_everything
from tidelog.control.malformed_nodes import MALFORMED, MalformedNodes, reason_of
from tidelog.control.outside import (
    CONFIG_CHANGES,
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    change_of,
    decode_election,
    decode_reassignment,
    read_again,
    read_configs,
    read_topics,
)
from tidelog.control.plan import Plan
from tidelog.control.steps import Steps, always
from tidelog.control.succession import left_behind
from tidelog.metadata.store import (
    Check,
    Committed,
    Connection,
    ConnectionLoss,
    Create,
    Delete,
    EventKind,
    ExistsResult,
    MetadataStore,
    Node,
    NoRoom,
    Op,
    RefusedByEnsemble,
    SessionExpired,
    StoreFailed,
    StoreRefusal,
    SubmitResult,
    TransactionTooLarge,
    TreeResult,
    Watch,
    WatchEvent,
)
from tidelog.wire.errors import ErrorCode

R = TypeVar("R")
P = TypeVar("P")
Then = Callable[[], None]

#: How often a request is planned again after someone wrote past the controller.
MAX_ATTEMPTS = 5
NO_EPOCH = -1


class Driver:
    """`on_events` gets the events of each change as soon as it is in the image, and must not raise. Where it cannot
    carry them out at once it returns a function that takes what to call when it has; until then nothing is decided.
    `on_failure` is told once when the store answers nothing more (its session expired, or it could not write): the
    broker then stops, or opens a new store and a new driver."""

    def __init__(
        self,
        controller: Controller,
        store: MetadataStore,
        now_ms: Callable[[], int],
        on_events: Callable[[list[Event]], Callable[[Then], None] | None],
        on_failure: Callable[[StoreRefusal], None] = lambda refusal: None,
    ) -> None:
        self._controller = controller
        self._store = store
        self._now_ms = now_ms
        self._on_events = on_events
        self._on_failure = on_failure
        #: whether others may write to the store: the controller then watches more of it
        self.is_shared = False
        #: told what a person should know of the store
        self.notice: Callable[[str], None] = lambda text: None
        self._malformed = MalformedNodes(store, lambda text: self.notice(text), self._read_again)
        #: told of what goes into the image, before it is carried out; None: anything may have changed
        self.on_image: Callable[[Sequence[NodeChange] | None], None] | None = None
        steps = self._steps = Steps()
        self._enqueue, self._next = steps.add, steps.next
        self._failed = False
        self._watches: dict[str, Watch] = {}
        #: the controller epoch for which loading the whole image began, and for which it was loaded
        self._loaded_epoch = -1
        self._ruled_epoch = -1
        #: whether the image was ever whole, loaded or heard of; whether that is carried out; and who waits for it
        self.has_picture = False
        self.is_pictured = False
        self._on_picture: list[Then] = []
        #: told, with the reason, when another process has taken this broker's place
        self.on_rival: Callable[[str], None] = lambda reason: None
        #: what the last look found
        self._looked: dict[str, Node | None] = {}
        #: the epoch of the registration that this session made, -1 while there is none; and with what it registers
        self._registered_epoch = NO_EPOCH
        self._registration: Registration | None = None

    # Calls

    def start(
        self, registration: Registration, done: Callable[[ApiError], None], replaces_former: bool = False
    ) -> None:
        """Registers the broker and runs for election; `done` when that, and all that follows from it, has happened.
        A process that starts `replaces_former`: the registration that its former process left behind."""

        # Before looking: whatever changes after the look is heard of.
        self._watch(nodes.CONTROLLER, self._controller_moved)
        if self.is_shared:
            self._watch(nodes.broker_path(self._controller.broker_id), self._registration_moved)
        self._register(registration, done, replaces_former)

    def _register(
        self, registration: Registration, done: Callable[[ApiError], None], replaces_former: bool = False
    ) -> None:
        def plan() -> Plan[ApiError]:
            is_registered = self.broker_epoch != NO_EPOCH
            leftovers: Sequence[Delete] = ()
            if replaces_former and not is_registered:
                broker_id, looked = self._controller.broker_id, self._looked
                own, elected = looked.get(nodes.broker_path(broker_id)), looked.get(nodes.CONTROLLER)
                leftovers = left_behind(registration, broker_id, own, elected)
            return self._controller.start(registration, self._now_ms(), is_registered, leftovers)

        def answered(error: ApiError) -> None:
            if not error.is_failure:
                self._registration = registration.again
            done(error)

        self._enqueue(lambda: self._look(lambda: self._run(plan, answered, self._look)))

    def request(
        self, decide: Callable[[], Plan[R]], done: Callable[[R], None], is_wanted: Callable[[], bool] = always
    ) -> None:
        """`decide` makes the plan, when its turn comes; `done` gets the reply, when all is carried out. One that is not
        wanted by then is dropped."""

        def run() -> None:
            if is_wanted is not always and self._store.connection is Connection.SUSPENDED:
                # What is submitted now would be done whenever there is a connection: a read shows that there is one.
                self._store.exists(nodes.CONTROLLER_EPOCH, lambda result: connected())
            else:
                connected()

        def connected() -> None:
            if not is_wanted():
                self._next()
            elif self._controller.is_active:
                self._run(decide, done, self._load)
            else:
                self._finish(done, decide().refuse(ApiError(ErrorCode.NOT_CONTROLLER)))

        self._enqueue(run)

    def hear(self, controller_epoch: int, changes: Sequence[NodeChange], is_whole: bool, done: Then) -> None:
        """The elected controller says that these nodes changed, or (`is_whole`) that there are no others; `done` when
        that is carried out. One that is no longer the controller when its turn comes changes nothing; nor does what was
        said before this session was over, for the next driver of the same image may have heard of what came after."""

        def run() -> None:
            image = self._controller.image
            known = image.controller_epoch
            is_past = self._failed or controller_epoch < known
            if is_past or (controller_epoch == known and self._controller.is_active):
                self._finish(lambda reply: done(), None)
                return
            apply = self._controller.replace if is_whole else self._controller.observe
            events = self._planned(lambda: apply(changes))
            self.has_picture = self.has_picture or is_whole
            self._changed(None)
            self._carry_out(events, carried_out)

        def carried_out() -> None:
            if is_whole:
                self._pictured()
            self._finish(lambda reply: done(), None)

        self._enqueue(run)

    def when_pictured(self, then: Then) -> None:
        """Calls `then` once the whole of the cluster is known and carried out on this broker."""
        if self.is_pictured:
            then()
        else:
            self._on_picture.append(then)

    def _pictured(self) -> None:
        self.is_pictured = True
        waiting, self._on_picture = self._on_picture, []
        for then in waiting:
            then()

    @property
    def rules(self) -> bool:
        """Whether this broker is the controller and knows everything that it decides by."""
        controller = self._controller
        return controller.is_active and self._ruled_epoch == controller.image.controller_epoch

    @property
    def broker_epoch(self) -> int:
        """Of the registration that this session made, -1 while there is none. The registration of a former process,
        which lives until the store has given up its session, is not this broker's: nothing is done in its name."""
        known = self._controller.image.brokers.get(self._controller.broker_id)
        return NO_EPOCH if known is None or known.epoch != self._registered_epoch else known.epoch

    @property
    def _may_run(self) -> bool:
        """For controller: not before it is registered, and then `start` runs as well."""
        return self.broker_epoch != NO_EPOCH

    def bury_controller(self, controller_id: int, controller_epoch: int) -> None:
        """The process of this controller is dead: its place is free before its session expires."""

        def found(result: ExistsResult) -> None:
            image = self._controller.image
            if (
                isinstance(result, Node)
                and nodes.decode_controller(result.data) == controller_id
                and image.controller_epoch == controller_epoch
            ):
                ops: list[Op] = [
                    Check(nodes.CONTROLLER_EPOCH, image.controller_epoch_version),
                    Delete(nodes.CONTROLLER, result.version),
                ]
                # Whatever becomes of it: the watch on the place tells who is elected.
                self._store.submit(ops, lambda outcome: self._next())
            else:
                self._next()

        if not self._failed:
            self._enqueue(lambda: self._store.exists(nodes.CONTROLLER, found))

    def bury_broker(self, broker_id: int, broker_epoch: int) -> None:
        """The process that registered so is dead, or has been replaced: it goes before its session expires."""

        def found(result: ExistsResult) -> None:
            # What is there now may be the registration of its successor, which the image does not know of yet.
            if isinstance(result, Node) and result.czxid == broker_epoch:
                self._run(lambda: self._controller.bury(broker_id, broker_epoch), lambda error: None, self._load)
            else:
                self._next()

        self._if_ruling(lambda: self._store.exists(nodes.broker_path(broker_id), found))

    def look_again(self) -> None:
        """Somebody knows of a later controller."""
        if not self._failed:
            self._enqueue(lambda: self._look(self._next))

    def close(self) -> None:
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()
        self._malformed.close()

    # One plan

    def _run(
        self,
        decide: Callable[[], Plan[R]],
        done: Callable[[R], None],
        refresh: Callable[[Then], None],
        attempt: int = 1,
    ) -> None:
        """`refresh` brings the image up to date where a refusal shows that it was not."""
        was_active = self._controller.is_active
        plan = self._planned(decide)
        if not plan.ops:
            self._work(lambda: self._finish(done, plan.reply))
            return

        def refuse(code: ErrorCode, message: str | None = None) -> None:
            self._finish(done, plan.refuse(ApiError(code, message)))

        settings = self._controller.settings
        parts = deque(plan.in_transactions(settings.max_ops, settings.max_bytes))

        def submit() -> None:
            self._store.submit(parts[0], submitted)

        def submitted(result: SubmitResult) -> None:
            if isinstance(result, Committed):
                events = self._committed(plan._replace(ops=parts.popleft()), result)
                if parts:
                    self._carry_out(events, submit)
                else:
                    self._carry_out(events, lambda: self._work(lambda: self._finish(done, plan.reply)))
            elif isinstance(result, StoreFailed | SessionExpired):
                self._fail(result)
                # With its session a controller loses its office: whoever asked asks the next one.
                is_over = isinstance(result, SessionExpired) and self.is_shared and was_active
                refuse(ErrorCode.NOT_CONTROLLER if is_over else ErrorCode.KAFKA_STORAGE_ERROR)
            elif isinstance(result, NoRoom):
                refuse(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata store has no space ({result.path}): try again later."
                )
            elif isinstance(result, TransactionTooLarge | RefusedByEnsemble):
                # It would be refused again.
                refuse(ErrorCode.UNKNOWN_SERVER_ERROR, f"The metadata store refused the change: {result.path}.")
            elif isinstance(result, ConnectionLoss) and was_active:
                refresh(lambda: refuse(ErrorCode.REQUEST_TIMED_OUT))
            elif attempt == MAX_ATTEMPTS:
                refuse(ErrorCode.UNKNOWN_SERVER_ERROR, f"The metadata kept changing at {result.path}.")
            else:
                refresh(again)

        def again() -> None:
            if was_active and not self._controller.is_active:
                refuse(ErrorCode.NOT_CONTROLLER)
            else:
                self._run(decide, done, refresh, attempt + 1)

        submit()

    def _planned(self, decide: Callable[[], P]) -> P:
        try:
            return decide()
        except Exception:
            # Whoever asked hears of it; those who wait behind have their turn with the next step.
            self._steps.is_busy = False
            raise

    def _committed(self, plan: Plan[Any], result: Committed) -> list[Event]:
        events = self._controller.committed(plan, result)
        own = nodes.broker_path(self._controller.broker_id)
        if any(isinstance(op, Create) and op.path == own for op in plan.ops):
            self._registered_epoch = result.zxid
        if self.on_image is not None:
            self.on_image(changes_of_commit(plan.ops, result))
        return events

    def _observe(self, changes: list[NodeChange]) -> list[Event]:
        events = self._controller.observe(changes)
        self._heed_malformed()
        self._changed(changes)
        return events

    def _heed_malformed(self) -> None:
        """Only the controller says what is wrong, and reads it again."""
        self._malformed.heed(self._controller.image.malformed if self._controller.is_active else {})

    def _read_again(self, path: str) -> None:
        self._if_ruling(lambda: read_again(self._store, path, self._take_up))

    def _changed(self, changes: Sequence[NodeChange] | None) -> None:
        if self.on_image is not None:
            self.on_image(changes)

    def _carry_out(self, events: list[Event], then: Then) -> None:
        later = self._on_events(events) if events else None
        if later is None:
            then()
        else:
            later(then)

    def _work(self, then: Then, refusals: int = 0) -> None:
        """What follows from the image, plan after plan; then the rest. Who was just elected loads the image first.
        `refusals` counts those in a row."""
        epoch = self._controller.image.controller_epoch
        if self._controller.is_active and self._loaded_epoch != epoch:
            self._loaded_epoch = epoch
            for path in (nodes.BROKER_IDS, nodes.DELETE_TOPICS):
                self._watch(path, partial(self._children_changed, path))
            if self.is_shared:
                self._watch_others()
            self._load(lambda: self._work(then))
            return
        plan = None if self._failed else self._planned(self._controller.work)
        if plan is None:
            then()
            return

        def submitted(result: SubmitResult) -> None:
            if isinstance(result, Committed):
                self._carry_out(self._committed(plan, result), lambda: self._work(then))
            elif isinstance(result, StoreFailed | SessionExpired):
                self._fail(result)
                then()
            elif isinstance(result, NoRoom | TransactionTooLarge | RefusedByEnsemble):
                # It follows from the image as well when the next plan is through.
                then()
            elif isinstance(result, ConnectionLoss) or refusals < MAX_ATTEMPTS:
                self._load(lambda: self._work(then, refusals + 1))
            elif self._controller.set_aside(result.path):
                self.notice(
                    f"the metadata store refuses what is to be done at {result.path} ({type(result).__name__}): that "
                    "topic is left as it is. Remove what somebody has written there"
                )
                self._work(then)
            else:
                then()

        self._store.submit(plan.ops, submitted)

    def _finish(self, done: Callable[[R], None], reply: R) -> None:
        try:
            done(reply)
        finally:  # whoever cannot take its answer does not keep the others waiting
            self._next()

    def _fail(self, refusal: StoreRefusal) -> None:
        if not self._failed:
            self._failed = True
            self._controller.resign()
            self._changed(None)
            self._on_failure(refusal)

    # Reading

    def _load(self, then: Then) -> None:
        """Everything."""

        def read(result: TreeResult) -> None:
            if isinstance(result, StoreRefusal):
                self._fail(result)
                then()
            else:
                events = self._controller.load(result)
                self._vacate(dict(result).get(nodes.CONTROLLER))
                self.has_picture = True
                if self._controller.is_active:
                    self._ruled_epoch = self._controller.image.controller_epoch
                self._heed_malformed()
                self._changed(None)
                self._carry_out(events, carried_out)

        def carried_out() -> None:
            self._pictured()
            then()

        read_everything(self._store, read)

    def _vacate(self, controller: Node | None) -> None:
        """Somebody has written to /controller_epoch: who was elected in another one leaves its place."""
        if controller is not None and self._is_mine(controller) and not self._controller.is_active:
            self.notice(f"{nodes.CONTROLLER_EPOCH} in the metadata store was changed: a controller is elected anew")
            self._store.submit([Delete(nodes.CONTROLLER, controller.version)], lambda result: None)

    def _look(self, then: Then) -> None:
        """Only what an election is decided by."""
        paths = self._controller.start_paths
        found: dict[str, Node | None] = {}

        def read(path: str, result: ExistsResult) -> None:
            if isinstance(result, StoreRefusal):
                self._fail(result)
            else:
                found[path] = result
            if path != paths[-1]:
                return
            if len(found) < len(paths):
                then()
                return
            self._looked = found
            events = self._observe([change_of(path, node) for path, node in found.items()])
            own = found[nodes.broker_path(self._controller.broker_id)]
            self._registered_epoch = own.czxid if own is not None and self._is_mine(own) else NO_EPOCH
            if self._is_mine(found[nodes.CONTROLLER]):
                self._controller.recognise()
            self._carry_out(events, then)

        for path in paths:
            self._store.exists(path, partial(read, path))

    def _is_mine(self, node: Node | None) -> bool:
        return node is not None and node.ephemeral_owner == self._store.session_id

    # Watching

    def _watch(self, path: str, callback: Callable[[WatchEvent], None]) -> None:
        if path not in self._watches:
            self._watches[path] = self._store.watch(path, callback)

    def _controller_moved(self, event: WatchEvent) -> None:
        """Created, deleted or changed by whoever: look, and run if the place is free."""

        def plan() -> Plan[ApiError]:
            if not self._may_run:
                return Plan([], NO_ERROR, lambda failure: failure)
            return self._controller.run_for_controller(self._now_ms())

        if event.kind is EventKind.SESSION_EXPIRED:
            self._fail(SessionExpired(event.path))
        # The controller looks as well: somebody may have taken its place away from it.
        if not self._failed:
            self._enqueue(lambda: self._look(lambda: self._run(plan, lambda error: None, self._look)))

    def _registration_moved(self, event: WatchEvent) -> None:
        """The controller took this broker for dead, or somebody removed its node: it registers again."""
        if self._failed or self._registration is None or event.kind is EventKind.SESSION_EXPIRED:
            return

        def registered(error: ApiError) -> None:
            if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION and self._registration is not None:
                self._registration = None
                self.on_rival(f"another process has registered as broker {self._controller.broker_id}")

        self._register(self._registration, registered)

    def _watch_others(self) -> None:
        """What others write, by hand or with tools that know ZooKeeper; see `outside`."""
        self._watch(nodes.TOPICS, lambda event: self._if_ruling(self._read_topics))
        self._watch(CONFIG_CHANGES, lambda event: self._if_ruling(self._read_configs))
        self._watch(REASSIGN_PARTITIONS, lambda event: self._if_ruling(self._read_reassignment))
        self._watch(PREFERRED_ELECTION, lambda event: self._if_ruling(self._read_election))
        # What was written while nobody watched.
        for step in (self._read_configs, self._read_reassignment, self._read_election):
            self._if_ruling(step)

    def _if_ruling(self, step: Then) -> None:
        def run() -> None:
            if self._controller.is_active:
                step()
            else:
                self._next()

        if not self._failed and self._controller.is_active:
            self._enqueue(run)

    def _read_topics(self) -> None:
        read_topics(self._store, self._controller.image, self._take_up)

    def _read_configs(self) -> None:
        read_configs(self._store, self._take_up)

    def _take_up(self, changes: list[NodeChange], ops: list[Op]) -> None:
        """`changes` are in the store already; `ops` take away what told of them."""
        events = self._observe(changes) if changes else []
        if ops:
            self._store.submit(ops, lambda result: None)
        self._carry_out(events, lambda: self._work(self._next))

    def _read_reassignment(self) -> None:
        self._follow(REASSIGN_PARTITIONS, decode_reassignment, self._controller.follow_reassignment)

    def _read_election(self) -> None:
        self._follow(PREFERRED_ELECTION, decode_election, self._controller.follow_election)

    def _follow(
        self, path: str, decode: Callable[[bytes], list[P]], decide: Callable[[Sequence[P], Op], Plan[None]]
    ) -> None:
        """Does what a node asks for, and takes it away in the same transaction."""

        def read(node: ExistsResult) -> None:
            if node is None or isinstance(node, StoreRefusal):
                self._next()
                return
            wanted: list[P] = []
            try:
                wanted = decode(node.data)
            except MALFORMED as error:
                why = reason_of(error)
                self.notice(f"{path} in the metadata store cannot be read ({why}): it is taken away. Write it again")
            taking_away = Delete(path, node.version)
            self._run(lambda: decide(wanted, taking_away), lambda reply: None, self._load)

        self._store.exists(path, read)

    def _children_changed(self, path: str, event: WatchEvent) -> None:
        self._if_ruling(lambda: self._read_below(path))

    def _read_below(self, path: str) -> None:
        def read(result: TreeResult) -> None:
            if isinstance(result, StoreRefusal):
                self._next()
                return
            found = dict(result)
            image = self._controller.image
            if path == nodes.BROKER_IDS:
                known = list(map(nodes.broker_path, image.brokers))
            else:
                known = list(map(nodes.delete_topic_path, image.deleting))
            gone = [change_of(p, None) for p in known if p not in found]
            events = self._observe([*gone, *(change_of(p, node) for p, node in found.items())])
            self._carry_out(events, lambda: self._work(self._next))

        self._store.tree(path, read)
