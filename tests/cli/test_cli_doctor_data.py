"""`tidelog doctor --data-dir`: tells beforehand what a start would lose, and touches nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidelog.cli.doctor import command
from tidelog.log.config import LogConfig
from tidelog.log.directories.generation import write_generation
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.disk import SystemDisk
from tidelog.metadata.embedded import JOURNAL_NAME, EmbeddedStore
from tidelog.metadata.store import Create
from tidelog.node.checkup import check_data, is_in_use
from tidelog.wire.records import build_batch

NOW_MS = 10_000_000
CONFIG = LogConfig(segment_bytes=700)


def opened(path: Path) -> LogDirs:
    logs = LogDirs([str(path)], SystemDisk(), lambda topic: CONFIG)
    logs.open(0, "cluster", NOW_MS)
    return logs


@pytest.fixture(params=[True, False], ids=["after a clean shutdown", "after a crash"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Forty records of topic t in several segments."""
    path = tmp_path / "data"
    store = EmbeddedStore(str(path))
    for node in ("/config", "/config/topics", "/config/topics/t"):
        store.submit([Create(node)], lambda result: None)
    store.close()
    logs = opened(path)
    log = logs.create(("t", 0), NOW_MS, bytes(range(16)))
    for number in range(40):
        batch = build_batch([(number, None, b"%03d" % number * 20, None)])
        log.append_as_leader(memoryview(batch), 0, NOW_MS)
    if request.param:
        logs.close()
    else:
        log.flush()
        logs.checkpoint()
        log.abandon()
        logs._release()
    return path


def content(path: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def segments(data: Path) -> list[Path]:
    return sorted((data / "t-0").glob("*.log"))


def cut(path: Path, count: int) -> None:
    os.truncate(path, path.stat().st_size - count)


DAMAGES = {
    "nothing": lambda data: None,
    "a torn tail": lambda data: cut(segments(data)[-1], 7),
    "an empty segment": lambda data: os.truncate(segments(data)[1], 0),
    "a missing last segment": lambda data: segments(data)[-1].unlink(),
    "a lost index": lambda data: segments(data)[0].with_suffix(".index").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_told_beforehand_is_what_a_start_tells_and_nothing_is_touched(data: Path, damage: str) -> None:
    DAMAGES[damage](data)
    before = content(data)
    found = check_data(str(data))
    assert content(data) == before
    logs = opened(data)
    assert found.damages == logs.take_notices()
    assert bool(found.damages) == (damage not in ("nothing", "a lost index"))
    assert found.partitions == 1
    logs.close()


def test_a_flipped_bit_anywhere_is_found_by_reading_everything(data: Path) -> None:
    path = segments(data)[0]
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    (line,) = check_data(str(data), deep=True).damages
    assert "partition 0 of topic t" in line and str(path) in line


def test_a_torn_and_a_missing_journal_are_told(data: Path) -> None:
    cut(data / JOURNAL_NAME, 3)
    (line,) = check_data(str(data)).damages
    assert JOURNAL_NAME in line and "torn" in line
    (data / JOURNAL_NAME).unlink()
    (line,) = check_data(str(data)).damages
    assert JOURNAL_NAME in line and "missing" in line


def test_of_a_broker_on_zookeeper_no_journal_is_missed(data: Path) -> None:
    (data / JOURNAL_NAME).unlink()
    write_generation(SystemDisk(), str(data), 1)
    assert check_data(str(data)).damages == []


def test_a_partition_in_two_directories_is_told(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    opened(other).close()
    shutil.copytree(data / "t-0", other / "t-0")
    # Nothing in the one speaks of the other.
    assert check_data(str(data)).damages == []
    found = CliRunner().invoke(
        command, ["--data-dir", str(data), "--data-dir", str(other), "--bootstrap", "127.0.0.1:1"]
    )
    assert found.exit_code == 1
    assert f"t-0 in both {data} and {other}" in found.output and f"t-0 in both {other} and {data}" in found.output
    # One that a move left behind is known for what it is.
    (other / "t-0" / "tidelog-partition").write_text("version=0\ngaps=0\nmoves=1\n")
    assert check_data(str(data), beside=[str(other)]).damages == []
    both = LogDirs([str(data), str(other)], SystemDisk(), lambda topic: CONFIG)
    both.open(0, "cluster", NOW_MS)
    both.close()
    shutil.copytree(other / "t-0", data / "t-0")
    (line,) = check_data(str(data)).damages
    assert f"t-0 in both {data} and {other}" in line


def test_damage_is_bad_and_a_directory_in_use_is_left_alone(data: Path) -> None:
    ask = ["--data-dir", str(data), "--bootstrap", "127.0.0.1:1", "--timeout", "1", "-o", "json"]
    sound = CliRunner().invoke(command, ask)
    assert sound.exit_code == 3 and '"check": "data"' in sound.output
    cut(segments(data)[-1], 7)
    hurt = CliRunner().invoke(command, ask)
    assert (
        hurt.exit_code == 1 and "partition 0 of topic t has lost" in hurt.output and "copy the directory" in hurt.output
    )
    assert not is_in_use(str(data))
