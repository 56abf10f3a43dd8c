"""A metadata ensemble whose sessions have a network between them and the tree: delays, lost connections, expiry.

As ZooKeeper has it: a session outlives its connection. What was on its way when a connection was lost may have happened
or not, and a submit is then answered with `ConnectionLoss`. The servers end a session that they heard nothing of for
its time-out, and its owner learns of that when it is connected again. While the servers are down no session ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from tidelog.metadata.store import (
    ChildrenResult,
    Committed,
    Connection,
    ConnectionLoss,
    Delete,
    EventKind,
    ExistsResult,
    GetResult,
    NoNode,
    Op,
    SessionExpired,
    SubmitResult,
    TreeResult,
    Watch,
    WatchEvent,
)
from tidelog.metadata.tree import Tree
from tidelog.metadata.watches import Watches
from tidelog.sim.process import Process, TrueTime
from tidelog.timer.wheel import Timer, TimerTask


class SimulatedEnsemble:
    def __init__(self, time: TrueTime, timer: Timer, random: Random) -> None:
        self.tree = Tree()
        self.is_down = False
        #: a message takes up to so long
        self.longest_ms = 3
        #: told of every transaction
        self.on_commit: Callable[[Sequence[Op], Committed, int], object] = lambda ops, result, session: None
        self.time = time
        self.timer = timer
        self._random = random
        #: those that the servers know, and those whose owner does not know yet that they have ended
        self._sessions: dict[int, SimulatedStore] = {}
        self._orphans: list[SimulatedStore] = []
        self._next_session = 1

    def connect(self, machine: str, process: Process, timeout_ms: int) -> SimulatedStore:
        store = SimulatedStore(self, self._next_session, machine, process, timeout_ms)
        self._sessions[self._next_session] = store
        self._next_session += 1
        if self.is_down:
            store.lose_connection()
        return store

    def of(self, machine: str) -> list[SimulatedStore]:
        """The sessions of a machine that the servers know."""
        return [store for store in self._sessions.values() if store.machine == machine]

    def travel_ms(self) -> int:
        return self._random.randint(0, self.longest_ms)

    def commit(self, ops: Sequence[Op], session_id: int) -> SubmitResult:
        result = self.tree.apply(ops, session_id)
        if isinstance(result, Committed):
            self.on_commit(ops, result, session_id)
            for store in self._sessions.values():
                store.changed(ops, result)
        return result

    def expire(self, store: SimulatedStore) -> None:
        """The servers give a session up; its owner hears of it when it can be reached."""
        if self._sessions.pop(store.session_id, None) is None:
            return
        ops: list[Op] = [Delete(path) for path in self.tree.ephemerals(store.session_id)]
        store.is_given_up = True
        self.commit(ops, store.session_id)
        self._orphans.append(store)
        store.learn_end()

    def go_down(self) -> None:
        self.is_down = True
        for store in list(self._sessions.values()):
            store.lose_connection()

    def come_up(self) -> None:
        self.is_down = False
        orphans, self._orphans = self._orphans, []
        for store in [*self._sessions.values(), *orphans]:
            store.find_connection()


class _Call:
    __slots__ = ("done", "execute", "is_answered", "is_sent", "once", "result")

    def __init__(self, execute: Callable[[], object], done: Callable[[Any], None], once: bool) -> None:
        self.execute = execute
        self.done = done
        self.once = once
        self.is_sent = False
        self.is_answered = False
        self.result: object = None


class SimulatedStore:
    """One session; see `tidelog.metadata.store.MetadataStore`."""

    def __init__(
        self, ensemble: SimulatedEnsemble, session_id: int, machine: str, process: Process, timeout_ms: int
    ) -> None:
        self.machine = machine
        self.session_id = session_id
        self.losses: list[str] = []
        self.is_connected = True
        #: the servers have ended it, whether its owner knows or not
        self.is_given_up = False
        #: its owner knows
        self.is_ended = False
        #: cut off on purpose
        self.is_cut = False
        self._ensemble = ensemble
        self._process = process
        self._timeout_ms = timeout_ms
        self._watches = Watches()
        self._calls: deque[_Call] = deque()
        #: of the present connection: what belongs to an earlier one is lost
        self._line = 0
        self._arrives_ms = 0
        self._returns_ms = 0
        self._patience: TimerTask | None = None

    @property
    def connection(self) -> Connection:
        return Connection.CONNECTED if self.is_connected else Connection.SUSPENDED

    # --- calls --------------------------------------------------------------------------------------------

    def submit(self, ops: Sequence[Op], done: Callable[[SubmitResult], None]) -> None:
        self._call(lambda: self._ensemble.commit(ops, self.session_id), done, once=True)

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
        return self._watches.add(path, callback)

    def close(self) -> None:
        self._call(lambda: self._ensemble.expire(self), lambda result: None)

    def _call(self, execute: Callable[[], object], done: Callable[[Any], None], once: bool = False) -> None:
        call = _Call(execute, done, once)
        self._calls.append(call)
        if self.is_ended:
            self._process.call_soon(partial(self._finish, call, self._expired()))
        elif self.is_connected:
            self._send(call)

    def _send(self, call: _Call) -> None:
        ensemble = self._ensemble
        call.is_sent = True
        self._arrives_ms = max(self._arrives_ms, ensemble.time.now_ms + ensemble.travel_ms())
        ensemble.timer.add(self._arrives_ms, partial(self._arrive, self._line, call))

    def _arrive(self, line: int, call: _Call) -> None:
        if line != self._line or self.is_given_up:
            return
        result = call.execute()
        self._return(lambda: self._finish(call, result))

    def _return(self, arrival: Callable[[], None]) -> None:
        """Something travels back to the owner, behind everything that was sent before."""
        ensemble, line = self._ensemble, self._line
        self._returns_ms = max(self._returns_ms, ensemble.time.now_ms + ensemble.travel_ms())
        self._process.at(self._returns_ms, lambda: arrival() if line == self._line else None)

    def _finish(self, call: _Call, result: object) -> None:
        if not call.is_answered:
            call.is_answered, call.result = True, result
        while self._calls and self._calls[0].is_answered:
            first = self._calls.popleft()
            first.done(first.result)

    def _expired(self) -> SessionExpired:
        return SessionExpired(f"session {self.session_id}")

    # --- what the servers say ------------------------------------------------------------------------------

    def changed(self, ops: Sequence[Op], result: Committed) -> None:
        events = self._watches.events_of(ops, result)
        if events and self.is_connected:
            self._return(partial(self._watches.tell, events))

    # --- the connection -----------------------------------------------------------------------------------

    def lose_connection(self) -> None:
        if not self.is_connected:
            return
        self.is_connected = False
        self._line += 1
        lost = []
        for call in self._calls:
            if call.is_sent and not call.is_answered:
                if call.once:
                    lost.append(call)
                else:
                    call.is_sent = False
        for call in lost:
            self._process.call_soon(partial(self._finish, call, ConnectionLoss("the connection was lost")))
        self.be_silent()

    def find_connection(self) -> None:
        if self.is_connected or self.is_cut or self._ensemble.is_down or self._process.is_over:
            return
        self.is_connected = True
        self.be_heard()
        if self.is_given_up:
            self.learn_end()
            return
        # What changed meanwhile is not known: whoever watches reads again.
        paths = self._watches.paths()
        self._return(lambda: self._watches.tell([WatchEvent(path, EventKind.CHANGED) for path in paths]))
        for call in self._calls:
            if not call.is_sent and not call.is_answered:
                self._send(call)

    def be_silent(self) -> None:
        """The servers hear nothing of the owner from now on."""
        ensemble = self._ensemble
        if self._patience is None and not self.is_given_up:
            self._patience = ensemble.timer.add(ensemble.time.now_ms + self._timeout_ms, self._lose_patience)

    def be_heard(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        self._patience = None
        if self._ensemble.is_down:
            self.be_silent()
        else:
            self._ensemble.expire(self)

    def learn_end(self) -> None:
        if self.is_connected:
            self._return(self._end)

    def _end(self) -> None:
        if self.is_ended:
            return
        self.is_ended = True
        for call in list(self._calls):
            self._finish(call, self._expired())
        self._watches.expire()
