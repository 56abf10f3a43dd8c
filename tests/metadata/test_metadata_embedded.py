"""The embedded store: what it promises about order, durability, watches, damage and failure."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.metadata import embedded
from tidelog.metadata.embedded import JOURNAL_NAME, SNAPSHOT_NAME, CorruptMetadata, EmbeddedStore, StoreLocked
from tidelog.metadata.store import (
    BadVersion,
    Check,
    Committed,
    Create,
    Delete,
    EventKind,
    NodeExists,
    NoNode,
    Op,
    SessionExpired,
    SetData,
    StoreFailed,
    WatchEvent,
)


class Worker:
    """An executor whose thread is the test: `run` does one piece of work and reports it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], object], Callable[[object], None]]] = []

    def __call__(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        self.waiting.append((work, done))

    def run(self) -> None:
        work, done = self.waiting.pop(0)
        done(work())


def submit(store: EmbeddedStore, *ops: Op) -> Any:
    answers: list[Any] = []
    store.submit(ops, answers.append)
    assert len(answers) == 1
    return answers[0]


def ask(call: Callable[..., None], *arguments: object) -> Any:
    answers: list[Any] = []
    call(*arguments, answers.append)
    assert len(answers) == 1
    return answers[0]


def journal_of(path: Path) -> Path:
    return path / JOURNAL_NAME


def test_opening_an_empty_store_writes_nothing(tmp_path: Path) -> None:
    store = EmbeddedStore(str(tmp_path / "new"))
    assert ask(store.children, "/") == []
    store.close()
    assert os.listdir(tmp_path / "new") == []


def test_nodes_with_versions_and_transaction_numbers_come_back(tmp_path: Path) -> None:
    store = EmbeddedStore(str(tmp_path))
    first = submit(store, Create("/a", b"1"), Create("/a/b"))
    second = submit(store, SetData("/a", b"2", 0))
    assert (second.zxid, second.versions) == (first.zxid + 1, [1])
    before = ask(store.tree, "/")
    store.close()
    store = EmbeddedStore(str(tmp_path))
    assert ask(store.tree, "/") == before
    assert ask(store.get, "/a") == (b"2", 1, first.zxid, second.zxid, 0)
    assert ask(store.children, "/a") == ["b"]
    assert submit(store, Create("/c")).zxid == second.zxid + 1


def test_refusals_name_the_operation_and_change_nothing(tmp_path: Path) -> None:
    store = EmbeddedStore(str(tmp_path))
    submit(store, Create("/a", b"1"))
    assert submit(store, Create("/b"), Create("/a")) == NodeExists("/a", 1)
    assert submit(store, SetData("/a", b"", 7)) == BadVersion("/a", 0)
    assert submit(store, Check("/nowhere", 0), Delete("/a")) == NoNode("/nowhere", 0)
    assert ask(store.exists, "/b") is None
    assert ask(store.get, "/b") == NoNode("/b")
    assert ask(store.children, "/b") == NoNode("/b")
    assert ask(store.tree, "/b") == NoNode("/b")
    assert ask(store.get, "/a").data == b"1"


def test_ephemeral_nodes_go_with_the_process_and_stay_gone(tmp_path: Path) -> None:
    store = EmbeddedStore(str(tmp_path))
    submit(store, Create("/ids"), Create("/ids/0", b"me", ephemeral=True))
    assert ask(store.get, "/ids/0").ephemeral_owner == store.session_id
    store.close()
    store = EmbeddedStore(str(tmp_path))
    assert ask(store.children, "/ids") == []
    # Created again under the same name: the journal must hold the removal between the two.
    submit(store, Create("/ids/0", b"me again", ephemeral=True))
    store.close()
    store = EmbeddedStore(str(tmp_path))
    assert ask(store.children, "/ids") == []


def test_nothing_is_acknowledged_before_it_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fdatasync
    monkeypatch.setattr(embedded.os, "fdatasync", lambda fd: (real(fd), synced.append(os.fstat(fd).st_size)))
    worker = Worker()
    store = EmbeddedStore(str(tmp_path), worker)
    answers: list[str] = []
    store.submit([Create("/a")], lambda r: answers.append("a"))
    worker.run()
    store.submit([Create("/b")], lambda r: answers.append("b"))
    assert answers == ["a"] and synced == []
    work, done = worker.waiting.pop()
    outcome = work()
    assert answers == ["a"] and synced == [journal_of(tmp_path).stat().st_size]
    done(outcome)
    assert answers == ["a", "b"]


def test_submits_that_come_during_a_sync_share_the_next_one(tmp_path: Path) -> None:
    worker = Worker()
    store = EmbeddedStore(str(tmp_path), worker)
    answers: list[object] = []
    for name in "abcde":
        store.submit([Create(f"/{name}")], lambda r, name=name: answers.append(name))
    worker.run()
    assert answers == ["a"]
    worker.run()
    assert answers == ["a", "b", "c", "d", "e"]
    assert worker.waiting == []


def test_answers_come_in_the_order_of_the_calls_and_reads_wait_for_writes(tmp_path: Path) -> None:
    worker = Worker()
    store = EmbeddedStore(str(tmp_path), worker)
    answers: list[object] = []
    store.submit([Create("/a", b"1")], lambda r: answers.append("created"))
    store.get("/a", lambda r: answers.append(r.data))
    store.submit([Create("/a")], lambda r: answers.append(type(r).__name__))
    store.submit([SetData("/a", b"2")], lambda r: answers.append("set"))
    store.exists("/a", lambda r: answers.append(r.data))
    assert answers == []
    worker.run()
    worker.run()
    assert answers == ["created", b"1", "NodeExists", "set", b"2"]
    store.get("/a", lambda r: answers.append("at once"))
    assert answers[-1] == "at once"


def test_a_long_chain_of_callbacks_does_not_grow_the_stack(tmp_path: Path) -> None:
    store = EmbeddedStore(str(tmp_path))
    counted: list[int] = []

    def again(result: object) -> None:
        counted.append(1)
        if len(counted) < 5000:
            store.submit([Check("/", 0)], again)

    again(None)
    assert len(counted) == 5000


def test_a_callback_that_raises_does_not_take_the_answers_of_others_with_it(tmp_path: Path) -> None:
    worker = Worker()
    store = EmbeddedStore(str(tmp_path), worker)
    answers: list[str] = []

    def fail(result: object) -> None:
        raise LookupError("of the caller")

    store.submit([Create("/first")], lambda r: None)
    store.submit([Create("/a")], fail)
    store.get("/a", lambda r: answers.append("behind the same sync"))
    worker.run()
    store.submit([Create("/b")], lambda r: answers.append("behind the next"))
    with pytest.raises(LookupError):
        worker.run()
    worker.run()
    assert answers == ["behind the same sync", "behind the next"]


def test_watchers_hear_of_a_change_before_its_answer_and_until_they_cancel(tmp_path: Path) -> None:
    store = EmbeddedStore(str(tmp_path))
    told: list[object] = []
    watch = store.watch("/a", told.append)
    store.watch("/", told.append)
    store.submit([Create("/a"), Create("/b")], lambda r: told.append("done"))
    store.submit([SetData("/a", b"x")], lambda r: told.append("done"))
    store.submit([SetData("/a", b"x", 9)], lambda r: told.append("refused"))
    watch.cancel()
    submit(store, Delete("/a"))
    assert told == [
        WatchEvent("/a", EventKind.CREATED),
        WatchEvent("/", EventKind.CHILDREN),
        "done",
        WatchEvent("/a", EventKind.CHANGED),
        "done",
        "refused",
        WatchEvent("/", EventKind.CHILDREN),
    ]


def test_closing_answers_what_was_asked_and_then_ends_the_session(tmp_path: Path) -> None:
    worker = Worker()
    store = EmbeddedStore(str(tmp_path), worker)
    told: list[object] = []
    store.watch("/a", told.append)
    store.submit([Create("/a")], lambda r: told.append("done"))
    store.close(lambda: told.append("closed"))
    assert told == []
    worker.run()
    session_over = WatchEvent("/a", EventKind.SESSION_EXPIRED)
    assert told == [WatchEvent("/a", EventKind.CREATED), "done", session_over, "closed"]
    assert isinstance(submit(store, Create("/b")), SessionExpired)
    assert isinstance(ask(store.get, "/a"), SessionExpired)
    EmbeddedStore(str(tmp_path)).close()


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    store = EmbeddedStore(str(tmp_path))
    with pytest.raises(StoreLocked, match="in use"):
        EmbeddedStore(str(tmp_path))
    store.close()
    EmbeddedStore(str(tmp_path)).close()


def test_a_write_that_fails_ends_the_store_and_loses_nothing_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker()
    store = EmbeddedStore(str(tmp_path), worker)
    store.submit([Create("/kept")], lambda r: None)
    worker.run()
    answers: list[object] = []

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    store.submit([Create("/lost")], answers.append)
    store.submit([Create("/lost/too")], answers.append)
    with monkeypatch.context() as patch:
        patch.setattr(embedded.os, "fdatasync", full)
        worker.run()
    store.get("/kept", answers.append)
    assert [type(answer) for answer in answers] == [StoreFailed] * 3
    assert "No space left" in answers[0].path
    store.close()
    again = EmbeddedStore(str(tmp_path))
    assert "kept" in ask(again.children, "/")


def fill(path: Path, count: int, snapshot_after_bytes: int = 1 << 20) -> None:
    store = EmbeddedStore(str(path), snapshot_after_bytes=snapshot_after_bytes)
    for i in range(count):
        submit(store, Create(f"/n{i}", b"x" * 50))
    store.close()


def test_a_torn_tail_is_cut_and_the_journal_goes_on_from_there(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    whole = journal_of(tmp_path).read_bytes()
    for cut in range(1, 60):
        journal_of(tmp_path).write_bytes(whole[:-cut])
        store = EmbeddedStore(str(tmp_path))
        assert ask(store.children, "/") == ["n0", "n1"]
        submit(store, Create("/after"))
        store.close()
        store = EmbeddedStore(str(tmp_path))
        assert ask(store.children, "/") == ["after", "n0", "n1"]
        store.close()


def test_damage_in_the_middle_is_refused_wherever_it_is(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    whole = journal_of(tmp_path).read_bytes()
    last_frame = whole.rfind(b"tiDe")
    for at in range(len(b"TLMJRNL1"), last_frame):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        journal_of(tmp_path).write_bytes(damaged)
        with pytest.raises(CorruptMetadata, match=JOURNAL_NAME):
            EmbeddedStore(str(tmp_path))
    journal_of(tmp_path).write_bytes(whole)
    EmbeddedStore(str(tmp_path)).close()


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, 20, snapshot_after_bytes=300)
    snapshot = tmp_path / SNAPSHOT_NAME
    whole = snapshot.read_bytes()
    for at in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        snapshot.write_bytes(damaged)
        with pytest.raises(CorruptMetadata, match=SNAPSHOT_NAME):
            EmbeddedStore(str(tmp_path))
    snapshot.write_bytes(whole[:-1])
    with pytest.raises(CorruptMetadata, match=SNAPSHOT_NAME):
        EmbeddedStore(str(tmp_path))


def test_a_journal_without_the_snapshot_it_follows_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, 20, snapshot_after_bytes=300)
    (tmp_path / SNAPSHOT_NAME).unlink()
    with pytest.raises(CorruptMetadata, match="snapshot is missing"):
        EmbeddedStore(str(tmp_path))


def test_the_journal_is_kept_small_by_snapshots(tmp_path: Path) -> None:
    store = EmbeddedStore(str(tmp_path), snapshot_after_bytes=1000)
    submit(store, Create("/a", b""))
    for i in range(150):
        submit(store, SetData("/a", b"%d" % i * 10))
    assert journal_of(tmp_path).stat().st_size < 2000
    expected = ask(store.get, "/a")
    store.close()
    assert ask(EmbeddedStore(str(tmp_path)).get, "/a") == expected


def test_sequence_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    for snapshot_after_bytes in (1 << 20, 1):
        store = EmbeddedStore(str(tmp_path), snapshot_after_bytes=snapshot_after_bytes)
        result = submit(store, Create("/n-", sequential=True))
        assert isinstance(result, Committed)
        submit(store, Delete(result.paths[0]))
        store.close()
    store = EmbeddedStore(str(tmp_path))
    assert submit(store, Create("/n-", sequential=True)).paths == ["/n-0000000002"]


def test_paths_of_any_characters_come_back(tmp_path: Path) -> None:
    names = ["/with space", "/ünïcode", "/\ud800 alone", "/<default>"]
    store = EmbeddedStore(str(tmp_path))
    submit(store, *(Create(name) for name in names))
    store.close()
    store = EmbeddedStore(str(tmp_path))
    assert sorted("/" + name for name in ask(store.children, "/")) == sorted(names)
