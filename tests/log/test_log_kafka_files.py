"""A data directory that Apache Kafka 4.3 wrote: thirty transactions, every third aborted, stopped cleanly."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from logkit import NOW_MS, append, values

from tidelog.log.checkpoints import PARTITION_NOTES
from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.disk import SystemDisk
from tidelog.wire.batch import read_header

WRITTEN = Path(__file__).parent / "kafka_written"
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


def opened(path: Path) -> LogDirs:
    dirs = LogDirs([str(path)], SystemDisk(), lambda topic: LogConfig())
    dirs.open(node_id=1, cluster_id=CLUSTER, now_ms=NOW_MS)
    return dirs


@pytest.fixture
def data(tmp_path: Path) -> Path:
    shutil.copytree(WRITTEN, tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_of_apache_kafkas_opens(data: Path, clean: bool) -> None:
    if not clean:
        (data / ".kafka_cleanshutdown").unlink()
        (data / "recovery-point-offset-checkpoint").write_text("0\n0\n")
        (data / "txn-0" / f"{180:020d}.snapshot").unlink()
    dirs = opened(data)
    assert dirs.clean_broker_epoch == (17 if clean else -1)
    assert dirs.high_watermarks == {("txn", 0): 180}
    log = dirs.logs[("txn", 0)]
    assert (log.log_start_offset, log.log_end_offset) == (0, 180)
    assert log.topic_id == bytes.fromhex("f34627c43fbd4ade9927fb077333bd7e")
    assert log.leader_epochs.entries() == [(0, 0)]
    assert [value for _, value in values(log)] == [b"%d-%d" % (txn, n) for txn in range(30) for n in range(5)]
    aborted = log.aborted_transactions(0, 180)
    assert [txn.first_offset for txn in aborted] == list(range(0, 180, 18))
    assert len(log.producers) == 1 and log.producers.first_undecided_offset() is None


def test_recovery_writes_the_very_files_that_apache_kafka_wrote(data: Path) -> None:
    directory = data / "txn-0"
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    for name in before:
        if name.endswith((".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint")):
            (directory / name).unlink()
    dirs = opened(data)
    # Apache Kafka writes the snapshot at the log's end when it stops; so do we.
    dirs.close(broker_epoch=17)
    after = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert set(after) - {PARTITION_NOTES} == set(before)
    for name, content in before.items():
        assert after[name] == content, name
    assert (data / ".kafka_cleanshutdown").read_bytes() == (WRITTEN / ".kafka_cleanshutdown").read_bytes()


def test_appending_to_apache_kafkas_log_goes_on_where_it_ended(data: Path) -> None:
    dirs = opened(data)
    log = dirs.logs[("txn", 0)]
    append(log, 2, value=b"ours", leader_epoch=1)
    dirs.close()
    again = opened(data).logs[("txn", 0)]
    assert values(again, 178) == [(178, b"29-4"), (180, b"ours"), (181, b"ours")]
    piece = again.read(180, 100, 182)
    assert piece is not None and read_header(piece.read()).leader_epoch == 1
