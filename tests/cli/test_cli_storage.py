"""`tidelog storage`: converting data directories, and looking into their files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_shell import Shell

from tidelog.log.config import LogConfig
from tidelog.log.directories.layout import LAYOUTS, other_than
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.disk import SystemDisk
from tidelog.log.producers import NOT_REQUIRED, AppendOrigin
from tidelog.metadata.embedded import EmbeddedStore
from tidelog.metadata.store import Create
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import ABORT, EndTxnMarker, build_batch, build_end_txn_marker

NOW_MS = 10_000_000
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200)


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


def opened(path: Path, layout: str) -> LogDirs:
    commit_bytes = 1 << 20 if layout == "shared" else None
    logs = LogDirs([str(path)], SystemDisk(), lambda topic: CONFIG, commit_bytes=commit_bytes)
    logs.open(0, "cluster", NOW_MS)
    return logs


@pytest.fixture
def data(tmp_path: Path, layout: str) -> Path:
    """Three topics: t in several segments, with an aborted transaction; one that is compacted; an internal one."""
    path = tmp_path / "data"
    store = EmbeddedStore(str(path))
    compacted = json.dumps({"version": 1, "config": {"cleanup.policy": "compact"}}).encode()
    store.submit([Create("/config")], lambda result: None)
    store.submit([Create("/config/topics")], lambda result: None)
    store.submit([Create("/config/topics/latest", compacted)], lambda result: None)
    store.close()
    logs = opened(path, layout)
    for number, topic in enumerate(("t", "latest", "__internal")):
        log = logs.create(TopicPartition(topic, 0), NOW_MS, bytes([number]) * 16)
        for at in range(40):
            batch = build_batch([(1000 + at, b"key", b"%03d" % at * 10, None)] * 2)
            log.append_as_leader(memoryview(batch), 3, NOW_MS)
    log = logs.logs[TopicPartition("t", 0)]
    batch = build_batch(
        [(2000, None, b"in", None)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.append_as_leader(memoryview(batch), 3, NOW_MS, guard=NOT_REQUIRED)
    marker = build_end_txn_marker(EndTxnMarker(ABORT, 0), 7, 0, 2000)
    log.append_as_leader(memoryview(marker), 3, NOW_MS, origin=AppendOrigin.COORDINATOR)
    logs.close()
    return path


def content(path: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def batches(path: Path, layout: str) -> dict[TopicPartition, list[bytes]]:
    logs = opened(path, layout)
    found = {key: [each.read(0, each.size) for each in log.segments] for key, log in logs.logs.items()}
    logs.close()
    return found


def test_a_dry_run_tells_what_would_be_done_and_changes_nothing(alone: Shell, data: Path, layout: str) -> None:
    before = content(data)
    (row,) = alone.json("storage", "convert", "--to", other_than(layout), str(data), "--dry-run")
    converted = 1 if layout == "partitioned" else 2
    assert (row["state"], row["partitions"]) == ("converted", converted)
    assert row["size_bytes"] < row["needed_bytes"] < row["free_bytes"]
    kept = {each["name"]: each["why"] for each in row["kept"]}
    if layout == "partitioned":
        assert kept == {"__internal-0": "internal", "latest-0": "compacted"}
    else:
        assert kept == {"__internal-0": "partitioned already"}
    assert content(data) == before


def test_a_directory_is_converted_and_converted_back(alone: Shell, data: Path, layout: str) -> None:
    expected = batches(data, layout)
    (row,) = alone.json("storage", "convert", "--to", other_than(layout), str(data))
    assert (row["layout"], row["state"]) == (other_than(layout), "converted")
    assert batches(data, other_than(layout)) == expected
    told = alone("storage", "convert", "--to", layout, str(data))
    assert f"Start the broker with log.layout={layout}" in told.stderr
    assert batches(data, layout) == expected
    assert "unchanged" in alone("storage", "convert", "--to", layout, str(data)).stdout


def test_a_topic_can_be_kept_where_it_is(alone: Shell, data: Path, layout: str) -> None:
    (row,) = alone.json("storage", "convert", "--to", "shared", str(data), "--keep", "t")
    assert row["partitions"] == 0


def test_a_directory_in_use_is_refused(alone: Shell, tmp_path: Path, data: Path, layout: str) -> None:
    logs = opened(data, layout)
    refused = alone("storage", "convert", "--to", other_than(layout), str(data), code=1)
    assert "stop it before you convert the directory" in refused.stderr
    logs.close()
    refused = alone("storage", "convert", "--to", "shared", str(tmp_path), code=1)
    assert "is not a log directory in the partitioned layout" in refused.stderr


def test_a_conversion_that_was_interrupted_is_told_by_the_doctor(alone: Shell, data: Path, layout: str) -> None:
    to = other_than(layout)
    (data / "tidelog-conversion").write_text(f"version=0\nto={to}\nphase=building\nbuilt=0\nend=0\npartition=t-0\n")
    told = alone("doctor", "--data-dir", str(data), code=1).stdout
    assert "that was not finished" in told and f"tidelog storage convert --to {to} {data}" in told
    (row,) = alone.json("storage", "convert", "--to", to, str(data), "--dry-run")
    assert row["state"] == "resumed"
    (row,) = alone.json("storage", "convert", "--to", layout, str(data))
    assert row["state"] == "undone"


def test_a_dump_shows_partitions_segments_and_every_kind_of_file(alone: Shell, data: Path, layout: str) -> None:
    partitions = {row["partition"]: row for row in alone.json("storage", "dump", str(data))}
    assert partitions["t-0"]["layout"] == layout and partitions["t-0"]["next_offset"] == 82
    assert partitions["__internal-0"]["layout"] == "partitioned"
    segments = alone.json("storage", "dump", str(data / "t-0"))
    assert [row["base_offset"] for row in segments] == sorted(row["base_offset"] for row in segments)
    assert segments[0]["next_offset"] == segments[1]["base_offset"]
    dumped = {each.name: alone.json("storage", "dump", str(each)) for each in (data / "t-0").iterdir()}
    by_suffix = {name[20:]: rows for name, rows in sorted(dumped.items()) if name[:20].isdigit()}
    (aborted,) = by_suffix[".txnindex"]
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_offset"]) == (7, 80, 81)
    assert by_suffix[".snapshot"][-1]["producer_id"] == 7
    assert dumped["leader-epoch-checkpoint"] == [{"leader_epoch": 3, "start_offset": 0}]
    assert {row["name"]: row["value"] for row in dumped["partition.metadata"]}["version"] == "0"
    starts = alone.json("storage", "dump", str(data / "log-start-offset-checkpoint"))
    assert {"topic": "t", "partition": 0, "offset": 0} in starts


def test_a_dump_of_batches_shows_their_records(alone: Shell, data: Path, layout: str) -> None:
    path = str(data / "__internal-0" / f"{0:020}.log")
    first, second = alone.json("storage", "dump", path, "--limit", "2", "--records")
    assert (first["base_offset"], first["last_offset"], first["state"]) == (0, 1, "ok")
    assert [record["value"] for record in second["values"]] == ["001" * 10] * 2
    (skipped,) = alone.json("storage", "dump", path, "--skip", "1", "--limit", "1", "--records")
    assert skipped == second
    index = alone.json("storage", "dump", path.replace(".log", ".index"))
    positions = {row["last_offset"]: row["position"] for row in alone.json("storage", "dump", path)}
    assert index and all(positions[row["offset"]] == row["position"] for row in index)
    assert "BASE OFFSET" in alone("storage", "dump", path).stdout


@pytest.mark.parametrize("layout", ["shared"], indirect=True)
def test_a_dump_of_the_commit_log_names_topics_and_shows_what_is_damaged(alone: Shell, data: Path, layout: str) -> None:
    (commit,) = (data / "tidelog-commit").glob("*.commit")
    entries = [row for row in alone.json("storage", "dump", str(commit)) if row["topic"] == "t"]
    assert [row["kind"] for row in entries[:2]] == ["start", "batches"]
    queue = alone.json("storage", "dump", str(data / "t-0" / f"{0:020}.queue"))
    assert [row["place"] for row in queue[:3]] == [row["position"] + 72 for row in entries[1:4]]
    assert {row["state"] for row in queue} == {"ok"}
    (listed,) = alone.json("storage", "dump", str(data / "tidelog-commit"))
    assert listed["size_bytes"] == commit.stat().st_size
    damaged = bytearray(commit.read_bytes())
    damaged[entries[2]["position"] + 100] ^= 1
    commit.write_bytes(damaged)
    rows = alone.json("storage", "dump", str(commit))
    assert [row["position"] for row in rows if row["state"] == "damaged"] == [entries[2]["position"]]
    assert "damaged" in alone("storage", "dump", str(commit), "-o", "wide").stdout
    told = alone("doctor", "--data-dir", str(data), "--deep", code=1).stdout
    assert f"offsets 2 to 3 of partition 0 of topic t are damaged: {commit} at byte" in told


def test_what_is_no_file_of_a_log_directory_is_refused(alone: Shell, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "is not a file of a log directory" in alone("storage", "dump", str(tmp_path / "notes.txt"), code=1).stderr
    assert "is not a log directory" in alone("storage", "dump", str(tmp_path), code=1).stderr
