"""A full disk takes transactions back, says so, and costs nothing that was acknowledged."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tidelog.metadata import embedded, journal_format, reserve
from tidelog.metadata.embedded import JOURNAL_NAME, RESERVE_NAME, SNAPSHOT_NAME, EmbeddedStore
from tidelog.metadata.store import Committed, Create, NoRoom, SetData


class SmallDisk:
    """Stands where a module has `os`: so many bytes fit in, then there is no room, in the middle of a write."""

    def __init__(self) -> None:
        self.room_bytes = 1 << 30

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def write(self, fd: int, data: memoryview) -> int:
        if not self.room_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fits = min(len(data), self.room_bytes)
        self.room_bytes -= fits
        return os.write(fd, data[:fits])

    def truncate(self, path: str, size_bytes: int) -> None:
        self.room_bytes += os.path.getsize(path) - size_bytes
        os.truncate(path, size_bytes)

    def posix_fallocate(self, fd: int, at: int, size_bytes: int) -> None:
        if size_bytes > self.room_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room_bytes -= size_bytes
        os.posix_fallocate(fd, at, size_bytes)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SmallDisk:
    small = SmallDisk()
    monkeypatch.setattr(journal_format, "os", small)
    monkeypatch.setattr(embedded, "os", small)
    monkeypatch.setattr(reserve, "os", small)
    return small


class Held:
    """Holds the work until it is told to run it."""

    def __init__(self) -> None:
        self.waiting: list = []

    def __call__(self, work: object, done: object) -> None:
        self.waiting.append((work, done))

    def run(self) -> None:
        while self.waiting:
            work, done = self.waiting.pop(0)
            done(work())


def nodes(store: EmbeddedStore, executor: Held) -> dict[str, bytes]:
    found: list = []
    store.tree("/", found.append)
    executor.run()
    return {path: node.data for path, node in found[0] if path != "/"}


def test_a_transaction_for_which_there_is_no_room_has_not_happened(tmp_path: Path, disk: SmallDisk) -> None:
    for room in range(0, 1200, 11):
        directory = tmp_path / str(room)
        executor, told = Held(), []
        store = EmbeddedStore(str(directory), executor, 300, told.append)
        expected: dict[str, bytes] = {}
        disk.room_bytes = 1 << 30
        for number in range(12):
            if number == 4:
                disk.room_bytes = room
            ops = [Create(f"/n{number}", b"x" * 20, ephemeral=number == 2)]
            if "/n0" in expected:
                ops.append(SetData("/n0", b"%d" % number * 10))
            answers: list = []
            store.submit(ops, answers.append)
            # One more waits behind the sync that is under way.
            later: list = []
            store.submit([Create(f"/l{number}", b"y" * 30)], later.append)
            executor.run()
            for answer, done in ((answers[0], ops), (later[0], [Create(f"/l{number}", b"y" * 30)])):
                assert isinstance(answer, Committed | NoRoom)
                if isinstance(answer, Committed):
                    expected.update({op.path: op.data for op in done})
            assert nodes(store, executor) == expected
        disk.room_bytes = 1 << 30
        answers = []
        store.submit([Create("/after")], answers.append)
        executor.run()
        assert isinstance(answers[0], Committed)
        assert bool(told) == (len(expected) < 24)
        store.close()
        again = EmbeddedStore(str(directory), executor)
        found = nodes(again, executor)
        assert found == {path: data for path, data in (expected | {"/after": b""}).items() if path != "/n2"}
        assert again.losses == []
        again.close()
        assert not list(directory.glob("*.tmp"))


def test_a_reader_behind_a_transaction_for_which_there_is_no_room_sees_nothing_of_it(
    tmp_path: Path, disk: SmallDisk
) -> None:
    executor = Held()
    store = EmbeddedStore(str(tmp_path), executor)
    store.submit([Create("/there")], lambda result: None)
    executor.run()
    disk.room_bytes = 0
    written, read = [], []
    store.submit([Create("/refused")], written.append)
    store.exists("/refused", read.append)
    store.exists("/there", read.append)
    executor.run()
    assert isinstance(written[0], NoRoom)
    assert read[0] is None and read[1] is not None
    store.close()


def submitted(store: EmbeddedStore, name: str, size_bytes: int = 200) -> object:
    answers: list = []
    store.submit([Create(name, b"x" * size_bytes)], answers.append)
    return answers[0]


def test_a_start_on_a_full_disk_writes_into_the_room_that_was_kept_for_it(tmp_path: Path, disk: SmallDisk) -> None:
    store = EmbeddedStore(str(tmp_path))
    store.started()
    assert isinstance(submitted(store, "/before"), Committed)
    store.close()
    for life in range(8):
        disk.room_bytes = 0
        store = EmbeddedStore(str(tmp_path))
        # As after a crash: several transactions, and one that is larger than a step of the reserve.
        assert isinstance(submitted(store, f"/epoch{life}"), Committed)
        assert isinstance(submitted(store, f"/leaders{life}", 10_000), Committed)
        store.started()
        disk.room_bytes = 0
        assert isinstance(submitted(store, "/refused"), NoRoom)
        store.close()
    disk.room_bytes = 1 << 30
    store = EmbeddedStore(str(tmp_path))
    assert isinstance(submitted(store, "/room"), Committed)
    assert os.path.getsize(tmp_path / RESERVE_NAME) < reserve.LEAST_BYTES
    store.started()
    assert os.path.getsize(tmp_path / RESERVE_NAME) >= reserve.LEAST_BYTES
    store.close()


def test_the_reserve_is_filled_with_whatever_room_there_is_and_never_a_reason_to_fail(
    tmp_path: Path, disk: SmallDisk
) -> None:
    store = EmbeddedStore(str(tmp_path))
    assert isinstance(submitted(store, "/a"), Committed)
    disk.room_bytes = 30_000
    store.started()
    assert os.path.getsize(tmp_path / RESERVE_NAME) == 24_576
    assert isinstance(submitted(store, "/b"), Committed)
    disk.room_bytes = 1 << 30
    assert isinstance(submitted(store, "/c"), Committed)
    assert os.path.getsize(tmp_path / RESERVE_NAME) >= reserve.LEAST_BYTES
    store.close()


def test_a_torn_last_entry_costs_that_entry_alone_and_is_told(tmp_path: Path) -> None:
    store = EmbeddedStore(str(tmp_path))
    for number in range(5):
        store.submit([Create(f"/n{number}")], lambda result: None)
    store.close()
    path = tmp_path / JOURNAL_NAME
    path.write_bytes(path.read_bytes()[:-3])
    again = EmbeddedStore(str(tmp_path))
    found: list = []
    again.tree("/", found.append)
    assert [name for name, _ in found[0]] == ["/", "/n0", "/n1", "/n2", "/n3"]
    (loss,) = again.losses
    assert str(path) in loss and "torn" in loss
    again.close()


def test_a_journal_that_is_missing_beside_its_snapshot_is_told(tmp_path: Path) -> None:
    store = EmbeddedStore(str(tmp_path), snapshot_after_bytes=1)
    store.submit([Create("/a")], lambda result: None)
    store.close()
    assert (tmp_path / SNAPSHOT_NAME).exists()
    (tmp_path / JOURNAL_NAME).unlink()
    again = EmbeddedStore(str(tmp_path))
    assert len(again.losses) == 1 and JOURNAL_NAME in again.losses[0]
    again.close()
