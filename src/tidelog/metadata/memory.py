"""A metadata ensemble in memory: one tree, many sessions, nothing on disk.

The simulator and the tests of the controller run several brokers on it, each with a store of its own, and end a
session when they like. Calls are answered in order through one queue: a callback that calls again is answered after
everything that was asked before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tidelog.metadata.store import (
    ChildrenResult,
    Committed,
    Connection,
    Delete,
    ExistsResult,
    GetResult,
    NoNode,
    Op,
    SessionExpired,
    StoreRefusal,
    SubmitResult,
    TreeResult,
    Watch,
    WatchEvent,
)
from tidelog.metadata.tree import Tree
from tidelog.metadata.watches import Watches


class MemoryEnsemble:
    def __init__(self) -> None:
        self.tree = Tree()
        self._sessions: dict[int, MemoryStore] = {}
        self._next_session = 1
        self._queue: deque[Callable[[], None]] = deque()
        self._draining = False

    def connect(self) -> MemoryStore:
        store = MemoryStore(self, self._next_session)
        self._sessions[self._next_session] = store
        self._next_session += 1
        return store

    def expire(self, store: MemoryStore) -> None:
        """Ends a session: its ephemeral nodes go in one transaction, which the other sessions hear of first."""
        if self._sessions.pop(store.session_id, None) is None:
            return
        store.expired = True
        ops: list[Op] = [Delete(path) for path in self.tree.ephemerals(store.session_id)]
        self.commit(ops, store.session_id)
        self.later(store.watches.expire)

    def commit(self, ops: Sequence[Op], session_id: int) -> SubmitResult:
        """Queues what the watchers are to be told; whoever asked queues the answer behind it."""
        result = self.tree.apply(ops, session_id)
        if isinstance(result, Committed):
            for store in self._sessions.values():
                events = store.watches.events_of(ops, result)
                if events:
                    self._queue.append(partial(store.watches.tell, events))
        return result

    def later(self, callback: Callable[[], None]) -> None:
        self._queue.append(callback)
        self._drain()

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        raised: Exception | None = None
        while self._queue:
            try:
                self._queue.popleft()()
            except Exception as error:  # it does not take the answers of others with it
                raised = raised or error
        self._draining = False
        if raised is not None:
            raise raised

    @contextmanager
    def delayed(self) -> Iterator[None]:
        """Within, transactions happen, but no one hears of them: answers and events come at the end."""
        self._draining = True
        yield
        self._draining = False
        self._drain()


class MemoryStore:
    """One session of an ensemble; see `store.MetadataStore`."""

    def __init__(self, ensemble: MemoryEnsemble, session_id: int) -> None:
        self._ensemble = ensemble
        self.session_id = session_id
        self.losses: list[str] = []
        self.watches = Watches()
        self.expired = False
        self.connection = Connection.CONNECTED
        self._waiting: list[Callable[[], None]] = []

    def _answer(self, done: Callable[[Any], None], result: object) -> None:
        self._ensemble.later(lambda: done(result))

    def _refusal(self) -> StoreRefusal | None:
        return SessionExpired(f"session {self.session_id}") if self.expired else None

    def suspend(self) -> None:
        """The connection is lost: what is called waits until `resume`."""
        self.connection = Connection.SUSPENDED

    def resume(self) -> None:
        self.connection = Connection.CONNECTED
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def _call(self, perform: Callable[[], object], done: Callable[[Any], None]) -> None:
        if self.connection is Connection.SUSPENDED and not self.expired:
            self._waiting.append(lambda: self._call(perform, done))
        else:
            self._answer(done, self._refusal() or perform())

    def submit(self, ops: Sequence[Op], done: Callable[[SubmitResult], None]) -> None:
        self._call(lambda: self._ensemble.commit(ops, self.session_id), done)

    def get(self, path: str, done: Callable[[GetResult], None]) -> None:
        self._call(lambda: self._ensemble.tree.get(path) or NoNode(path), done)

    def exists(self, path: str, done: Callable[[ExistsResult], None]) -> None:
        self._call(lambda: self._ensemble.tree.get(path), done)

    def children(self, path: str, done: Callable[[ChildrenResult], None]) -> None:
        tree = self._ensemble.tree
        self._call(lambda: NoNode(path) if tree.get(path) is None else tree.children(path), done)

    def tree(self, path: str, done: Callable[[TreeResult], None]) -> None:
        self._call(lambda: self._ensemble.tree.walk(path) or NoNode(path), done)

    def watch(self, path: str, callback: Callable[[WatchEvent], None]) -> Watch:
        return self.watches.add(path, callback)

    def close(self) -> None:
        self._ensemble.expire(self)
