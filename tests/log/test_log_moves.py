"""Moves between log directories that do not go well: whichever disk fails, and whenever, one whole log is left."""

from __future__ import annotations

import errno
from random import Random

import pytest
from compaction_kit import COMPACT, FragileDisk, PowerLoss, new_cleaner, run
from logkit import NOW_MS, append, produced, values

from tidelog.log.config import LogConfig
from tidelog.log.directories.directory_set import MetadataVersion, Placement
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.directories.moves import Move
from tidelog.log.errors import StorageError
from tidelog.log.memory_disk import MemoryDisk

pytestmark = pytest.mark.layouts

KEY = ("t", 0)
ID = bytes(15) + b"\1"


class RefusingDisk(MemoryDisk):
    """Does not rename what begins so, nor sync a directory of that name."""

    __slots__ = ("refused",)

    def __init__(self) -> None:
        super().__init__(max_files=100)
        self.refused = "/nothing"

    def rename(self, path: str, new_path: str) -> None:
        self._refuse(path)
        super().rename(path, new_path)

    def sync_dir(self, path: str) -> None:
        self._refuse(path)
        super().sync_dir(path)

    def _refuse(self, path: str) -> None:
        if path.startswith(self.refused):
            raise OSError(errno.EROFS, "Read-only file system", path)


def open_dirs(disk: MemoryDisk, *paths: str, config: LogConfig | None = None, key: tuple[str, int] = KEY) -> LogDirs:
    dirs = LogDirs(paths or ("/a", "/b"), disk, lambda topic: config or LogConfig())
    dirs.open(1, "c", NOW_MS, Placement({key: ID}, frozenset([ID]), MetadataVersion()))
    return dirs


def reopened(disk: MemoryDisk, *paths: str) -> LogDirs:
    """As after the process was killed."""
    disk.locked.clear()
    return open_dirs(disk, *paths)


def begun(disk: MemoryDisk, records: int = 3) -> tuple[LogDirs, Move]:
    """A partition in /a whose copy in /b is complete."""
    dirs = open_dirs(disk)
    append(dirs.create(KEY, NOW_MS, ID, path="/a"), records)
    move = dirs.begin_move(KEY, "/b", NOW_MS)
    assert move is not None and move.step(NOW_MS)
    return dirs, move


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
def test_a_crash_at_any_step_of_the_exchange_leaves_one_whole_partition(power: bool) -> None:
    for operations in range(100):
        disk = FragileDisk()
        dirs, _ = begun(disk)
        dirs.logs[KEY].flush()
        disk.operations_left = operations
        try:
            dirs.finish_move(KEY)
            break
        except PowerLoss:
            pass
        disk.operations_left = None
        if power:
            disk.crash(Random(operations))
        again = reopened(disk)
        assert len(values(again.logs[KEY])) == 3
        append(again.logs[KEY], 1)
        for deletion in again.take_deletions():
            deletion()
        assert [e.name for path in ("/a", "/b") for e in disk.list(path) if e.name == "t-0"] == ["t-0"]
    assert 10 < operations < 99


def test_a_source_that_fails_at_the_exchange_leaves_the_copy_in_its_place() -> None:
    disk = RefusingDisk()
    dirs, _ = begun(disk)
    disk.refused = "/a/t-0"
    moved = dirs.finish_move(KEY)
    assert dirs.logs[KEY] is moved and moved.path == "/b/t-0"
    assert dirs.dirs[0].failure is not None
    append(moved, 2)
    disk.refused = "/nothing"
    # Its disk is back with the records of before: those of after count.
    again = reopened(disk)
    assert again.logs[KEY].path == "/b/t-0" and len(values(again.logs[KEY])) == 5
    assert not disk.exists("/a/t-0")


@pytest.mark.parametrize("refused", ["/b/t-0.", "/b"], ids=["not renamed", "not known to be renamed"])
def test_a_target_that_fails_at_the_exchange_is_never_taken_for_the_partition(refused: str) -> None:
    disk = RefusingDisk()
    dirs, move = begun(disk)
    move.future.flush()
    disk.refused = refused
    with pytest.raises(StorageError):
        dirs.finish_move(KEY)
    assert dirs.logs[KEY].path == "/a/t-0"
    append(dirs.logs[KEY], 2)
    disk.refused = "/nothing"
    again = reopened(disk)
    assert again.logs[KEY].path == "/a/t-0" and len(values(again.logs[KEY])) == 5


def test_a_copy_that_was_given_up_is_never_promoted() -> None:
    """The operator chose another target, and the source was missing at the next start."""
    disk = MemoryDisk(max_files=100)
    dirs = open_dirs(disk, "/a", "/b", "/c")
    log = dirs.create(KEY, NOW_MS, ID, path="/a")
    for _ in range(20):
        append(log, 1, value=b"x" * 100)
    for target in ("/b", "/c"):
        move = dirs.begin_move(KEY, target, NOW_MS)
        assert move is not None and not move.step(NOW_MS, max_bytes=500)
    disk.rename("/a", "/elsewhere")
    without = reopened(disk, "/a", "/b", "/c")
    assert without.logs == {} and without.offline == {KEY}
    without.close()
    for entry in disk.list("/a"):
        disk.remove(f"/a/{entry.name}")
    disk.remove_dir("/a")
    disk.rename("/elsewhere", "/a")
    again = reopened(disk, "/a", "/b", "/c")
    assert again.logs[KEY].path == "/a/t-0" and len(values(again.logs[KEY])) == 20
    (resumed,) = again.resume_moves()
    assert resumed.future.directory.path == "/c"


def test_a_partition_that_moved_back_does_not_inherit_what_was_checkpointed_there() -> None:
    disk = MemoryDisk(max_files=100)
    dirs = open_dirs(disk, config=LogConfig(segment_bytes=300))
    log = dirs.create(KEY, NOW_MS, ID, path="/a")
    for _ in range(10):
        append(log, 2)
    log.flush()
    log.advance_log_start_offset(7)
    dirs.checkpoint({KEY: 20})
    move = dirs.begin_move(KEY, "/b", NOW_MS)
    assert move is not None
    while not move.step(NOW_MS):
        pass
    dirs.finish_move(KEY)
    assert disk.content("/b/log-start-offset-checkpoint") == b"0\n1\nt 0 7\n"
    dirs.begin_move(KEY, "/a", NOW_MS)
    for name in ("recovery-point-offset", "log-start-offset", "replication-offset"):
        assert disk.content(f"/a/{name}-checkpoint") == b"0\n0\n"


def test_a_compacted_partition_that_moved_is_whole_after_a_crash() -> None:
    disk = MemoryDisk(max_files=100)
    dirs = open_dirs(disk, config=COMPACT)
    log = dirs.create(KEY, NOW_MS, ID, path="/a")
    for number in range(60):
        log.append_as_leader(produced(1, value=b"v" * 50, key=b"k%d" % (number % 3)), 0, NOW_MS)
    for _ in range(8):
        log.append_as_leader(produced(1, value=b"last", key=b"z"), 0, NOW_MS)
    log.roll(NOW_MS)
    run(new_cleaner(dirs))
    assert len(values(log)) < 60
    move = dirs.begin_move(KEY, "/b", NOW_MS)
    assert move is not None
    while not move.step(NOW_MS):
        pass
    cleaned, expected = log.cleaned_offset, values(log)
    moved = dirs.finish_move(KEY)
    assert moved.cleaned_offset == cleaned is not None
    again = reopened(disk).logs[KEY]
    assert again.directory.path == "/b" and values(again) == expected and again.log_end_offset == 68


@pytest.mark.parametrize("length", [213, 214, 249])
def test_a_topic_with_a_long_name_moves_and_its_move_is_resumed(length: int) -> None:
    disk = MemoryDisk(max_files=100)
    key = ("t" * length, 0)
    dirs = open_dirs(disk, key=key)
    append(dirs.create(key, NOW_MS, ID, path="/a"), 3)
    dirs.begin_move(key, "/b", NOW_MS)
    assert all(len(entry.name) <= 255 for entry in disk.list("/b"))
    disk.locked.clear()
    again = open_dirs(disk, key=key)
    (move,) = again.resume_moves()
    assert move.step(NOW_MS)
    moved = again.finish_move(key)
    assert moved.path == f"/b/{'t' * length}-0" and len(values(moved)) == 3
    for deletion in again.take_deletions():
        deletion()
    assert [entry.name for path in ("/a", "/b") for entry in disk.list(path) if entry.is_dir] == [f"{'t' * length}-0"]
