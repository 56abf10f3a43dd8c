"""`tidelog explain`: the way from an offset to its record, on the files of a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidelog.cli.explain import command
from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.disk import SystemDisk
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import build_batch

NOW_MS = 10_000_000
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A broker runs on it: forty batches of two records each, in several segments."""
    return written(tmp_path / "data")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """The same in the shared layout; its broker has written down what it had in memory."""
    return written(tmp_path / "shared", 4000)


def written(path: Path, commit_bytes: int | None = None) -> Path:
    logs = LogDirs([str(path)], SystemDisk(), lambda topic: CONFIG, commit_bytes=commit_bytes)
    logs.open(0, "cluster", NOW_MS)
    log = logs.create(TopicPartition("t", 0), NOW_MS, bytes(range(16)))
    for number in range(40):
        records = [(1000 + number, b"key", b"%03d" % number * 10, None)] * 2
        log.append_as_leader(memoryview(build_batch(records)), 0, NOW_MS)
    log.advance_log_start_offset(3)
    logs.checkpoint({TopicPartition("t", 0): 70})
    for work in logs.checkpoint_queues():
        if work is not None:
            work()
    return path


def explained(data: Path, offset: int, partition: int = 0) -> dict[str, str]:
    asked = CliRunner().invoke(command, ["t", str(partition), str(offset), "--data-dir", str(data), "-o", "json"])
    assert asked.exit_code == 0, asked.output
    return {step["step"]: step["found"] for step in json.loads(asked.output)}


def test_every_offset_is_found_by_the_steps_that_are_told(data: Path) -> None:
    for offset in range(3, 80):
        steps = explained(data, offset)
        assert list(steps) == [
            "partition",
            "log start offset",
            "log end offset",
            "high watermark",
            "segment",
            "offset index",
            "scan",
            "batch",
            "record",
        ]
        assert f"offsets {offset - offset % 2} to {offset - offset % 2 + 1}" in steps["batch"]
        assert steps["record"].startswith(f"offset {offset}, timestamp {1000 + offset // 2}, a key of 3 bytes")


def test_every_offset_is_found_by_a_queue_in_the_shared_layout(shared: Path) -> None:
    for offset in range(3, 80):
        steps = explained(shared, offset)
        assert list(steps)[4:] == ["segment", "queue", "commit log", "batch", "record"]
        offsets = f"offsets {offset - offset % 2} to {offset - offset % 2 + 1}"
        assert offsets in steps["queue"] and offsets in steps["batch"]
        assert steps["record"].startswith(f"offset {offset}, timestamp {1000 + offset // 2}, a key of 3 bytes")
    assert (steps["log start offset"], steps["log end offset"]) == ("3", "80")
    assert "past the last entry" in explained(shared, 80)["offset"]


def test_a_damaged_batch_in_the_commit_log_is_told(shared: Path) -> None:
    place = int(explained(shared, 4)["commit log"].split()[1])
    commit = min((shared / "tidelog-commit").glob("*.commit"))
    content = bytearray(commit.read_bytes())
    content[place + 70] ^= 1
    commit.write_bytes(content)
    assert "CRC does not match" in explained(shared, 4)["batch"] and "record" not in explained(shared, 4)
    assert "CRC is right" in explained(shared, 6)["batch"]
    content[place] ^= 1
    commit.write_bytes(content)
    assert "is another one: it is damaged" in explained(shared, 4)["batch"]


def test_the_watermarks_stand_beside_it(data: Path) -> None:
    steps = explained(data, 50)
    assert (steps["log start offset"], steps["log end offset"]) == ("3", "80")
    assert steps["high watermark"] == "70, as last checkpointed"


@pytest.mark.parametrize("offset", [0, 2, 80])
def test_an_offset_that_cannot_be_read_is_told(data: Path, offset: int) -> None:
    assert "a fetch is refused" in explained(data, offset)["offset"]


def test_a_damaged_batch_and_a_damaged_index_are_told(data: Path) -> None:
    segments = sorted((data / "t-0").glob("*.log"))
    content = bytearray(segments[1].read_bytes())
    content[70] ^= 1
    segments[1].write_bytes(content)
    segments[1].with_suffix(".index").write_bytes(bytes(80))
    steps = explained(data, int(segments[1].stem))
    assert "CRC does not match" in steps["batch"] and "record" not in steps
    assert "position 0" in steps["offset index"]


def test_nothing_is_changed(data: Path) -> None:
    (data / "t-0" / f"{0:020d}.index").write_bytes(bytes(80))
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    explained(data, 10)
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_a_partition_that_is_not_there_is_named(data: Path) -> None:
    told = asked("t", "1", "0", "--data-dir", str(data))
    assert told.exit_code == 4
    assert f"partition 1 of topic t is not in {data}" in told.output


def test_people_read_a_step_a_line(data: Path) -> None:
    lines = asked("t", "0", "20", "--data-dir", str(data)).output.splitlines()
    assert [line.split()[0] for line in lines[::2]] == [str(number) for number in range(1, 10)]
