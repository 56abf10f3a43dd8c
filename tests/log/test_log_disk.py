"""The disks: what the system's must do, and that the forgetful one forgets as a real one may."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tidelog.log.disk import SystemDisk, read_file, replace_file
from tidelog.log.memory_disk import MemoryDisk


def root(disk: SystemDisk | MemoryDisk, tmp_path: Path) -> str:
    path = str(tmp_path / "root") if isinstance(disk, SystemDisk) else "/root"
    disk.mkdir(path)
    return path


@pytest.mark.parametrize("kind", [SystemDisk, MemoryDisk])
def test_both_disks_do_the_same(kind: type[SystemDisk] | type[MemoryDisk], tmp_path: Path) -> None:
    disk = kind()
    path = root(disk, tmp_path)
    assert not disk.mkdir(path)
    with pytest.raises(FileNotFoundError):
        disk.open(f"{path}/a")
    file = disk.open(f"{path}/a", create=True)
    file.write(b"hello", 3)
    assert file.size() == 8 and file.pread(100, 0) == b"\0\0\0hello" and file.pread(2, 4) == b"el"
    file.truncate(5)
    file.sync()
    assert disk.size(f"{path}/a") == 5
    view = file.map(5)
    view[0:2] = b"xy"
    assert file.pread(5, 0) == b"xy\0he"
    view.release()
    file.truncate(10)
    assert file.size() == 10
    disk.rename(f"{path}/a", f"{path}/b")
    assert file.pread(2, 0) == b"xy" and not disk.exists(f"{path}/a")
    assert disk.mkdir(f"{path}/d")
    assert sorted(disk.list(path)) == [("b", False, 10), ("d", True, 0)]
    assert disk.open(f"{path}/b", create=True, empty=True).size() == 0
    disk.remove(f"{path}/b")
    disk.remove(f"{path}/b")
    disk.remove_dir(f"{path}/d")
    disk.remove_dir(f"{path}/d")
    assert disk.list(path) == [] and file.size() == 0
    disk.sync_dir(path)
    disk.sync_all(path)
    replace_file(disk, f"{path}/c", b"one")
    replace_file(disk, f"{path}/c", b"two", sync=False)
    assert read_file(disk, f"{path}/c") == b"two"
    usage = disk.usage(path)
    assert 0 < usage.usable_bytes <= usage.total_bytes


@pytest.mark.parametrize("kind", [SystemDisk, MemoryDisk])
def test_a_lock_is_held_once(kind: type[SystemDisk] | type[MemoryDisk], tmp_path: Path) -> None:
    disk = kind()
    path = root(disk, tmp_path)
    lock = disk.lock(f"{path}/.lock")
    assert lock is not None and disk.lock(f"{path}/.lock") is None
    lock.release()
    again = disk.lock(f"{path}/.lock")
    assert again is not None
    again.release()


def test_another_process_sees_the_lock_and_gets_it_when_its_holder_is_gone(tmp_path: Path) -> None:
    holder = (
        "import sys; from tidelog.log.disk import SystemDisk; "
        "lock = SystemDisk().lock(sys.argv[1]); print(bool(lock), flush=True); input()"
    )
    path = str(tmp_path / ".lock")
    with subprocess.Popen(
        [sys.executable, "-c", holder, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "True"
        assert SystemDisk().lock(path) is None
        process.kill()
        process.wait()
    lock = SystemDisk().lock(path)
    assert lock is not None
    lock.release()


def test_a_write_that_the_system_takes_in_part_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data[:7]), at))
    disk = SystemDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    data = bytes(range(100))
    file.write(memoryview(data), 5)
    assert file.pread(200, 5) == data


def test_a_disk_with_room_for_less_takes_that_much_and_says_so() -> None:
    disk = MemoryDisk()
    disk.mkdir("/d")
    file = disk.open("/d/f", create=True)
    disk.fail_writes_after(5)
    with pytest.raises(OSError, match="f") as full:
        file.write(b"0123456789", 0)
    assert full.value.errno == errno.ENOSPC and file.pread(100, 0) == b"01234"


def test_a_crash_keeps_what_was_synced_and_any_part_of_the_rest() -> None:
    fates = set()
    for seed in range(200):
        disk = MemoryDisk()
        disk.mkdir("/d")
        file = disk.open("/d/f", create=True)
        file.write(b"synced", 0)
        file.sync()
        file.write(b"loose", 6)
        disk.open("/d/new", create=True)
        disk.rename("/d/new", "/d/renamed")
        disk.crash(Random(seed))
        found = read_file(disk, "/d/f")
        assert found.startswith(b"synced")
        fates.add(found[6:] == b"loose")
        names = {entry.name for entry in disk.list("/d")} - {"f"}
        assert names in (set(), {"new"}, {"renamed"})
        fates.add(tuple(names))
    assert {True, False, (), ("new",), ("renamed",)} <= fates


def test_a_crash_may_undo_a_cut_that_was_not_synced_but_never_half() -> None:
    fates = set()
    for seed in range(100):
        disk = MemoryDisk()
        disk.mkdir("/d")
        file = disk.open("/d/f", create=True)
        file.write(b"old content", 0)
        file.sync()
        file.truncate(3)
        file.write(b"NEW", 3)
        disk.crash(Random(seed))
        found = read_file(disk, "/d/f")
        assert found == b"old content" or found.startswith(b"old")
        fates.add(found)
    assert b"old content" in fates and b"oldNEW" in fates and b"old" in fates
