"""Whatever was acknowledged survives a power loss at any call to the disk, and no transaction survives in part."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metadata_disk import FailingDisk, PowerLoss

from tidelog.metadata import embedded, journal_format
from tidelog.metadata.embedded import EmbeddedStore
from tidelog.metadata.store import Committed, Create, Delete, Node, Op, SetData
from tidelog.metadata.tree import Tree

PATHS = ["/a", "/b", "/a/x", "/a/y", "/b/x"]
operations = st.one_of(
    st.builds(Create, st.sampled_from(PATHS), st.binary(max_size=40), st.booleans()),
    st.builds(SetData, st.sampled_from(PATHS), st.binary(max_size=40)),
    st.builds(Delete, st.sampled_from(PATHS)),
)
#: a transaction to submit, and whether the executor then gets its turn
steps_of_a_life = st.lists(st.tuples(st.lists(operations, min_size=1, max_size=4), st.booleans()), max_size=14)
lives = st.lists(
    st.tuples(
        steps_of_a_life,
        st.integers(0, 40),
        st.binary(max_size=20),
    ),
    min_size=1,
    max_size=4,
)


Step = tuple[list[Op], bool]


class LateExecutor:
    """Holds the work until it is told to run it, as a busy worker thread would."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], object], Callable[[object], None]]] = []

    def __call__(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        self._waiting.append((work, done))

    def run(self) -> None:
        while self._waiting:
            work, done = self._waiting.pop(0)
            done(work())


@contextmanager
def on_disk(disk: FailingDisk) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_format, "os", disk)
        patch.setattr(embedded, "os", disk)
        yield


def persistent(nodes: list[tuple[str, Node]]) -> dict[str, Node]:
    return {path: node for path, node in nodes if not node.ephemeral_owner}


def read(store: EmbeddedStore) -> dict[str, Node]:
    found: list[dict[str, Node]] = []
    store.tree("/", lambda result: found.append(dict(result)))
    return found[0]


def live(directory: str, steps: list[Step], states: dict[int, dict[str, Node]]) -> int:
    """Runs one life of a store until its power goes; returns the last transaction that was acknowledged. `states` gets
    the tree after each transaction that was submitted."""
    executor = LateExecutor()
    store = EmbeddedStore(directory, executor, snapshot_after_bytes=150)
    model = Tree.thaw(store._tree.freeze())
    acknowledged = 0

    def done(result: object) -> None:
        nonlocal acknowledged
        if isinstance(result, Committed):
            acknowledged = result.zxid

    states.clear()
    states[model.zxid] = persistent(model.walk("/"))
    try:
        for ops, run in steps:
            store.submit(ops, done)
            model.apply(ops, store.session_id)
            states[model.zxid] = persistent(model.walk("/"))
            if run:
                executor.run()
        executor.run()
    except PowerLoss:
        store._files.close()  # as the kernel does when a process ends: this releases the lock
    else:
        store.close()
    return acknowledged


def crash_and_check(
    directory: str, steps: list[Step], calls_until_loss: int, garbage: bytes, choose: Callable[[int, int], int]
) -> bool:
    """One life, its end, and the next opening; False if the steps were through before the power went."""
    states: dict[int, dict[str, Node]] = {}
    before = EmbeddedStore(directory)
    states[before._tree.zxid] = read(before)
    before.close()
    disk = FailingDisk(directory, calls_until_loss)
    with on_disk(disk):
        try:
            acknowledged = live(directory, steps, states)
        except PowerLoss:  # while it was being opened: nothing was submitted
            acknowledged = 0
    disk.lose(choose)
    append(directory + "/" + embedded.JOURNAL_NAME, garbage)
    store = EmbeddedStore(directory)
    found = read(store)
    store.close()
    assert not any(node.ephemeral_owner for node in found.values())
    candidates = [zxid for zxid, state in states.items() if state == found]
    assert candidates, "the tree that came back is none that ever was"
    assert max(candidates) >= acknowledged, "an acknowledged transaction is gone"
    return disk.power_is_gone


@settings(deadline=None, max_examples=120)
@given(lives, st.data())
def test_acknowledged_transactions_survive_and_none_survives_in_part(
    lives: list[tuple[list[Step], int, bytes]], choices: st.DataObject
) -> None:
    directory = tempfile.mkdtemp()
    try:
        for steps, calls_until_loss, garbage in lives:
            crash_and_check(
                directory, steps, calls_until_loss, garbage, lambda low, high: choices.draw(st.integers(low, high))
            )
    finally:
        shutil.rmtree(directory)


def undo_and_keep_little(low: int, high: int) -> int:
    return 1 if (low, high) == (0, 1) else low


@pytest.mark.parametrize("loses", [min, max, undo_and_keep_little])
def test_a_power_loss_at_each_call_of_a_long_life_loses_nothing_acknowledged(
    loses: Callable[[int, int], int], tmp_path: Path
) -> None:
    steps: list[Step] = [([Create("/a", b"0" * 30), Create("/e", ephemeral=True)], True)]
    steps += [([SetData("/a", bytes([i]) * 30), Create(f"/n{i}", b"x" * 20)], i % 3 != 0) for i in range(24)]
    for call in range(200):
        directory = str(tmp_path / str(call))
        if not crash_and_check(directory, steps, call, b"", loses):
            assert call > 50, "the life was shorter than the test means it to be"
            break
        crash_and_check(directory, steps, 7, b"", loses)


def append(path: str, garbage: bytes) -> None:
    try:
        with open(path, "r+b") as file:
            file.seek(0, 2)
            file.write(garbage)
    except FileNotFoundError:
        pass
