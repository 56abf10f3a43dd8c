"""Stores of every kind behind one face: the test is the broker's thread, and waits for answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from tidelog.config.zookeeper_settings import ZooKeeperSettings, parse_connect
from tidelog.metadata.embedded import EmbeddedStore
from tidelog.metadata.memory import MemoryEnsemble
from tidelog.metadata.store import Connection, MetadataStore, Op
from tidelog.metadata.zookeeper import ZooKeeperStore, open_store

PATIENCE_S = 30.0


class Turns:
    """The broker's loop, one callback at a time, while a test waits for something."""

    def __init__(self) -> None:
        self._posted: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self.post = self._posted.put

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            try:
                self._posted.get(timeout=0.05)()
            except Empty:
                pass


class Site(Protocol):
    turns: Turns

    def open(self) -> MetadataStore:
        """Another session."""

    def close(self) -> None: ...


class MemorySite:
    def __init__(self) -> None:
        self.turns = Turns()
        self._ensemble = MemoryEnsemble()

    def open(self) -> MetadataStore:
        return self._ensemble.connect()

    def close(self) -> None:
        pass


class EmbeddedSite:
    """One session; its executor answers later, as that of a broker does."""

    def __init__(self, directory: Path) -> None:
        self.turns = Turns()
        self._directory = directory
        self._opened: list[EmbeddedStore] = []

    def open(self) -> MetadataStore:
        store = EmbeddedStore(str(self._directory), self._execute)
        self._opened.append(store)
        return store

    def _execute(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        self.turns.post(lambda: done(work()))

    def close(self) -> None:
        for store in self._opened:
            store.close()


class ZooKeeperSite:
    def __init__(self, connect: str, **settings: int) -> None:
        self.turns = Turns()
        servers, chroot = parse_connect(connect)
        self.settings = ZooKeeperSettings(servers, chroot, **settings)
        self._opened: list[tuple[ZooKeeperStore, list[str]]] = []
        self.notices: list[str] = []

    def open(self) -> ZooKeeperStore:
        return self.open_watched([])

    def open_watched(self, states: list[Connection]) -> ZooKeeperStore:
        """`states` gets what is told of the connection."""
        store = open_store(self.settings, self.turns.post, on_connection=states.append, notice=self.notices.append)
        self._opened.append((store, []))
        return store

    def close(self) -> None:
        for store, closed in self._opened:
            if store.connection is not Connection.ENDED:
                store.close(lambda closed=closed: closed.append("closed"))  # type: ignore[misc]
                self.turns.until(lambda closed=closed: closed)  # type: ignore[misc]
        assert self.notices == []


def ask(site: Site, call: Callable[..., None], *arguments: object) -> Any:
    answers: list[Any] = []
    call(*arguments, answers.append)
    site.turns.until(lambda: answers)
    assert len(answers) == 1
    return answers[0]


def submit(site: Site, store: MetadataStore, *ops: Op) -> Any:
    return ask(site, store.submit, ops)
