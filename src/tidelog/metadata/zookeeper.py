"""The metadata store on a ZooKeeper ensemble; `open_store` is the door, `store` the contract.

    call ─▶ waiting ─▶ in flight ─▶ ZooKeeper ─▶ answered ─▶ delivered, in the order of the calls

At most `zookeeper.max.in.flight.requests` are in flight. A call is delivered when all calls before it are, so that a
read of the whole tree, which takes many requests, keeps the order as well. Calls before the first connection wait.

Lost connections. What was in flight has lost its answer: a submit is told so (`ConnectionLoss`), a read is sent again.
What waited is sent once there is a connection. The first thing on a new connection is a sync: another server might
otherwise not know yet what became of a lost submit. When the ensemble says that the session has expired, the store is
over; it never goes on in another session. Until a server says so it is not known: whoever decides by what it has read
stops at SUSPENDED (see `Connection`), and goes on at CONNECTED.

Watches. ZooKeeper's watches fire once. When one fires, it is set again first, and told when that is answered: whatever
changed before the new watch was set is covered by that event, and what changes after it fires again. Answers that
arrive between the firing and the telling may already show the change. They are kept back until it is told: an answer
waits for every setting of a watch that began before it arrived (`_Call.behind`), and for none that began later, so that
a lively node does not hold up the others. After a lost connection all watches are set again, and told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType

from tidelog.config.zookeeper_settings import ZooKeeperSettings
from tidelog.metadata.store import (
    ChildrenResult,
    Connection,
    EventKind,
    ExistsResult,
    GetResult,
    Node,
    NoNode,
    Op,
    SessionExpired,
    StoreRefusal,
    SubmitResult,
    TreeResult,
    Watch,
    WatchEvent,
)
from tidelog.metadata.watches import Watches
from tidelog.metadata.zookeeper_requests import (
    LOST,
    VOID,
    Chroot,
    MultiRead,
    NodeLook,
    can_exist,
    to_node,
    to_operations,
    to_read_refusal,
    to_submit_result,
)
from tidelog.metadata.zookeeper_session import Answered, Post, Session, Watcher

#: nodes of a tree that are read with one request
TREE_BATCH: Final = 250

# ZooKeeper watches a node and its children apart.
DATA, CHILDREN = 1, 2
DATA_AND_CHILDREN: Final = DATA | CHILDREN
#: what an event means, and which watches it has used up
_EVENTS: Final = {
    EventType.CREATED: (EventKind.CREATED, DATA_AND_CHILDREN),
    EventType.DELETED: (EventKind.DELETED, DATA_AND_CHILDREN),
    EventType.CHANGED: (EventKind.CHANGED, DATA),
    EventType.CHILD: (EventKind.CHILDREN, CHILDREN),
}


def open_store(
    settings: ZooKeeperSettings,
    post: Post,
    *,
    on_connection: Callable[[Connection], None] = lambda connection: None,
    notice: Callable[[str], None] = lambda text: None,
) -> ZooKeeperStore:
    """A store with a session of its own, which is being made when this returns. `post` runs a callback on the broker's
    thread and may be called from any. `on_connection` hears of each change of the connection, and of ENDED last."""
    return ZooKeeperStore(settings, post, on_connection, notice)


class _Request:
    """Something to send, again if need be; `once` for what must not be sent twice."""

    __slots__ = ("answered", "once", "send")

    def __init__(self, send: Callable[[Answered], None], answered: Answered, once: bool = False) -> None:
        self.send = send
        self.answered = answered
        self.once = once


class _Call:
    """A call that is not delivered yet; `behind` numbers the first arming that its answer need not wait for."""

    __slots__ = ("behind", "done", "is_answered", "result")

    def __init__(self, done: Callable[[Any], None]) -> None:
        self.done = done
        self.is_answered = False
        self.result: object = None
        self.behind = 0


class ZooKeeperStore:
    """One session; see `store.MetadataStore`."""

    def __init__(
        self,
        settings: ZooKeeperSettings,
        post: Post,
        on_connection: Callable[[Connection], None],
        notice: Callable[[str], None],
    ) -> None:
        #: an ensemble knows whether it lost anything, and then does not serve
        self.losses: list[str] = []
        self.connection = Connection.CONNECTING
        self._settings = settings
        self._chroot = Chroot(settings.chroot)
        self._on_connection = on_connection
        self._notice = notice
        self._watches = Watches()
        self._watchers: dict[str, Watcher] = {}
        self._calls: deque[_Call] = deque()
        self._delivering = False
        self._waiting: deque[_Request] = deque()
        self._in_flight = 0
        #: reads whose answers were lost, in the order in which they were sent
        self._lost: list[_Request] = []
        #: whether the chroot is known to be there
        self._is_rooted = not settings.chroot
        #: watches being set, by number: what is to be told then
        self._armings: dict[int, WatchEvent | None] = {}
        self._next_arming = 0
        self._on_closed: Callable[[], None] | None = None
        self._is_ended = False
        self._session = Session(settings, post, self._connection_changed, notice)

    @property
    def session_id(self) -> int:
        return self._session.session_id

    # Calls

    def submit(self, ops: Sequence[Op], done: Callable[[SubmitResult], None]) -> None:
        call = self._begin(done)
        if call.is_answered:
            self._deliver()
            return
        operations = to_operations(ops, self._chroot)
        if isinstance(operations, StoreRefusal):
            # In its turn: it waits for the calls before it.
            self._finish(call, operations)
            return

        def answered(answer: object, zxid: int) -> None:
            self._finish(call, to_submit_result(ops, answer, zxid, self._chroot))

        self._enqueue(_Request(partial(self._session.multi, operations), answered, once=True))

    def get(self, path: str, done: Callable[[GetResult], None]) -> None:
        self._read_node(path, done, NoNode(path))

    def exists(self, path: str, done: Callable[[ExistsResult], None]) -> None:
        self._read_node(path, done, None)

    def children(self, path: str, done: Callable[[ChildrenResult], None]) -> None:
        def found(answer: object) -> ChildrenResult:
            return sorted(answer) if isinstance(answer, list) else to_read_refusal(path, answer)

        full = self._chroot.full(path)
        self._read(path, done, NoNode(path), partial(self._session.children, full, None), found)

    def tree(self, path: str, done: Callable[[TreeResult], None]) -> None:
        call = self._begin(done)
        if call.is_answered or not can_exist(path):
            self._finish(call, call.result or NoNode(path))
            return
        _TreeRead(path, self._read_batch, partial(self._finish, call))

    def watch(self, path: str, callback: Callable[[WatchEvent], None]) -> Watch:
        watch = self._watches.add(path, callback)
        if path not in self._watchers and can_exist(path) and not self._is_ended:
            self._watchers[path] = self._session.watcher(partial(self._fired, path))
            self._waiting.extend(self._arm(path, None, DATA_AND_CHILDREN))
            self._pump()
        return watch

    def close(self, done: Callable[[], None] = lambda: None) -> None:
        """Ends the session after what was submitted is answered, which is at once if there is no connection."""
        if self._on_closed is not None or self._is_ended:
            return
        self._on_closed = done
        self._deliver()

    # Reading

    def _read_node(self, path: str, done: Callable[[Any], None], absent: object) -> None:
        def found(answer: object) -> object:
            if isinstance(answer, tuple):
                return to_node(*answer)
            return absent if isinstance(answer, NoNodeError) else to_read_refusal(path, answer)

        self._read(path, done, absent, partial(self._session.get, self._chroot.full(path)), found)

    def _read(
        self,
        path: str,
        done: Callable[[Any], None],
        absent: object,
        send: Callable[[Answered], None],
        found: Callable[[object], object],
    ) -> None:
        call = self._begin(done)
        if call.is_answered:
            self._deliver()
        elif not can_exist(path):
            self._finish(call, absent)
        else:
            self._enqueue(_Request(send, lambda answer, zxid: self._finish(call, found(answer))))

    def _read_batch(self, paths: Sequence[str], answered: Callable[[object], None]) -> None:
        request = MultiRead(list(map(self._chroot.full, paths)))
        self._enqueue(_Request(partial(self._session.read_many, request), lambda answer, zxid: answered(answer)))

    # In order

    def _begin(self, done: Callable[[Any], None]) -> _Call:
        call = _Call(done)
        self._calls.append(call)
        if self._is_ended or self._on_closed is not None:
            call.is_answered, call.result = True, self._expired()
        return call

    def _expired(self) -> SessionExpired:
        return SessionExpired(f"session {self.session_id:#x} of {self._settings}")

    def _finish(self, call: _Call, result: object) -> None:
        if not call.is_answered:
            call.is_answered, call.result, call.behind = True, result, self._next_arming
        self._deliver()

    def _deliver(self) -> None:
        """A callback that calls again only adds to what waits: the stack does not grow. What it raises does not take
        the answers of others with it."""
        if self._delivering:
            return
        self._delivering = True
        raised: Exception | None = None
        try:
            while self._calls and self._calls[0].is_answered:
                if self._armings and next(iter(self._armings)) < self._calls[0].behind:
                    break
                call = self._calls.popleft()
                try:
                    call.done(call.result)
                except Exception as error:
                    raised = raised or error
        finally:
            self._delivering = False
        if self._on_closed is not None and (not self._calls or self.connection is not Connection.CONNECTED):
            self._end()
        if raised is not None:
            raise raised

    # Sending

    def _enqueue(self, request: _Request) -> None:
        self._waiting.append(request)
        self._pump()

    def _pump(self) -> None:
        if self.connection is not Connection.CONNECTED:
            return
        while self._waiting and self._in_flight < self._settings.max_in_flight_requests:
            self._send(self._waiting.popleft())

    def _send(self, request: _Request) -> None:
        self._in_flight += 1
        request.send(partial(self._answered, request))

    def _answered(self, request: _Request, answer: object, zxid: int) -> None:
        if self._is_ended:
            return
        self._in_flight -= 1
        if isinstance(answer, LOST):
            # What follows waits for the next connection: SUSPENDED is on its way.
            self.connection = Connection.SUSPENDED
        try:
            if request.once or not isinstance(answer, LOST + VOID):
                request.answered(answer, zxid)
            elif isinstance(answer, LOST):
                self._lost.append(request)
            else:
                self._waiting.appendleft(request)
        finally:
            self._pump()

    # The connection

    def _connection_changed(self, connection: Connection) -> None:
        if self._is_ended:
            return
        if connection is Connection.ENDED:
            self._end()
            return
        if connection is not Connection.CONNECTED:
            self.connection = connection
            self._on_connection(connection)
            self._deliver()
        elif self._is_rooted:
            self._resume()
        else:
            self._session.ensure(self._settings.chroot, self._rooted)

    def _rooted(self, answer: object, zxid: int) -> None:
        if self._is_ended or isinstance(answer, LOST):
            return
        if isinstance(answer, Exception):
            self._notice(f"the chroot {self._settings.chroot} could not be created in ZooKeeper: {answer!r}")
        self._is_rooted = True
        self._resume()

    def _resume(self) -> None:
        if self.connection is Connection.SUSPENDED:
            path = self._chroot.full("/")
            again = [_Request(partial(self._session.sync, path), lambda answer, zxid: None, once=True), *self._lost]
            # The watches went with the connection.
            self._watchers = {path: watcher for path, watcher in self._watchers.items() if path in self._watches}
            for path in self._watchers:
                again += self._arm(path, EventKind.CHANGED, DATA_AND_CHILDREN)
            self._waiting.extendleft(reversed(again))
            self._lost = []
        self.connection = Connection.CONNECTED
        self._pump()
        self._on_connection(Connection.CONNECTED)

    def _end(self) -> None:
        """Everything that is not answered is answered now, then the watches hear of it, then whoever closed."""
        self._is_ended = True
        self.connection = Connection.ENDED
        self._waiting.clear()
        self._lost.clear()
        self._armings.clear()
        self._watchers.clear()
        for call in self._calls:
            if not call.is_answered:
                call.is_answered, call.result = True, self._expired()
        last = _Call(self._tell_the_end)
        last.is_answered = True
        self._calls.append(last)
        on_closed, self._on_closed = self._on_closed, None
        self._session.close(on_closed or (lambda: None))
        self._deliver()

    def _tell_the_end(self, result: object) -> None:
        try:
            self._watches.expire()
        finally:
            self._on_connection(Connection.ENDED)

    # Watches

    def _fired(self, path: str, event_type: str) -> None:
        if self._is_ended or path not in self._watchers:
            return
        if path not in self._watches:
            del self._watchers[path]
            return
        kind, what = _EVENTS[event_type]
        # Before anything else: others wait for it.
        self._waiting.extendleft(reversed(self._arm(path, kind, what)))
        self._pump()

    def _arm(self, path: str, kind: EventKind | None, what: int) -> list[_Request]:
        """The requests that set the watches of a path; when they are answered the event is told."""
        number = self._next_arming
        self._next_arming += 1
        self._armings[number] = None if kind is None else WatchEvent(path, kind)
        full, watcher = self._chroot.full(path), self._watchers[path]
        requests: list[_Request] = []
        if what & DATA:
            requests.append(_Request(partial(self._session.exists, full, watcher), lambda answer, zxid: None))
        if what & CHILDREN:
            requests.append(_Request(partial(self._session.children, full, watcher), lambda answer, zxid: None))
        requests[-1].answered = partial(self._armed, number)
        return requests

    def _armed(self, number: int, answer: object, zxid: int) -> None:
        event = self._armings.pop(number)
        try:
            if event is not None:
                self._watches.tell([event])
        finally:
            self._deliver()


class _TreeRead:
    """Reads a tree level by level, many nodes a request, and gives them in that order: parents come first."""

    __slots__ = ("_done", "_found", "_outstanding", "_path", "_read_batch")

    def __init__(
        self,
        path: str,
        read_batch: Callable[[Sequence[str], Callable[[object], None]], None],
        done: Callable[[TreeResult], None],
    ) -> None:
        self._path = path
        self._read_batch = read_batch
        self._done = done
        self._found: list[tuple[str, Node]] = []
        self._outstanding = 0
        self._ask([path])

    def _ask(self, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), TREE_BATCH):
            batch = paths[start : start + TREE_BATCH]
            self._outstanding += 1
            self._read_batch(batch, partial(self._answered, batch))

    def _answered(self, paths: Sequence[str], answer: object) -> None:
        self._outstanding -= 1
        if not isinstance(answer, list):
            self._done(to_read_refusal(self._path, answer))
            return
        below: list[str] = []
        for path, look in zip(paths, answer, strict=True):
            if isinstance(look, NodeLook):
                self._found.append((path, to_node(look.data, look.stat)))
                prefix = path if path == "/" else path + "/"
                below += [prefix + child for child in sorted(look.children)]
        self._ask(below)
        if not self._outstanding:
            self._done(self._found or NoNode(self._path))
