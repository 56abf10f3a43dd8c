"""Several sessions on one ensemble in memory."""

from __future__ import annotations

from tidelog.metadata.memory import MemoryEnsemble
from tidelog.metadata.store import Create, EventKind, SessionExpired, WatchEvent


def test_a_session_that_expires_takes_its_nodes_along_and_the_others_hear_of_it() -> None:
    ensemble = MemoryEnsemble()
    one, two = ensemble.connect(), ensemble.connect()
    told: list[object] = []
    one.submit([Create("/ids"), Create("/ids/1", ephemeral=True)], lambda r: None)
    two.submit([Create("/ids/2", ephemeral=True)], lambda r: None)
    two.watch("/ids", told.append)
    one.watch("/x", lambda event: told.append(("one", event.kind)))
    ensemble.expire(one)
    two.children("/ids", told.append)
    assert told == [WatchEvent("/ids", EventKind.CHILDREN), ("one", EventKind.SESSION_EXPIRED), ["2"]]
    one.get("/ids", lambda r: told.append(type(r)))
    assert told[-1] is SessionExpired


def test_answers_come_in_the_order_of_the_calls() -> None:
    store = MemoryEnsemble().connect()
    told: list[str] = []

    def first(result: object) -> None:
        store.exists("/", lambda r: told.append("asked in the first callback"))
        told.append("first")

    store.watch("/", lambda event: store.exists("/", lambda r: told.append("asked by the watcher")))
    store.submit([Create("/a")], first)
    store.exists("/a", lambda r: told.append("second"))
    assert told == ["first", "asked by the watcher", "asked in the first callback", "second"]
