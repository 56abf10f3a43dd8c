"""A broker's log directories: what a clean stop, a crash and a second broker leave behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.log.config import LogConfig
from tidelog.log.disk import SystemDisk
from tidelog.log.errors import LogDirInUse
from tidelog.log.log_dirs import LogDirs
from tidelog.wire.records import build_batch


def produced(count: int = 3, timestamp: int = 1000, value_bytes: int = 30) -> memoryview:
    return memoryview(build_batch([(timestamp, None, bytes(value_bytes), None)] * count))


def open_dirs(*paths: Path, config: LogConfig | None = None) -> LogDirs:
    dirs = LogDirs([str(path) for path in paths], SystemDisk(), lambda topic: config or LogConfig())
    dirs.open(node_id=1, cluster_id="cluster", now_ms=0)
    return dirs


@pytest.mark.parametrize("clean", [True, False])
def test_what_was_appended_is_there_after_reopening(tmp_path: Path, clean: bool) -> None:
    dirs = open_dirs(tmp_path)
    log = dirs.create(("t", 0), now_ms=0, topic_id=bytes(range(16)))
    for _ in range(10):
        log.append_as_leader(produced(), leader_epoch=4, now_ms=1000)
    stored = log.read(0, 1 << 20, log.log_end_offset)
    assert stored is not None
    before = stored.read()
    if clean:
        dirs.close()
    else:
        dirs._release()
    again = open_dirs(tmp_path).logs[("t", 0)]
    assert again.log_end_offset == 30
    assert again.topic_id == bytes(range(16))
    assert again.leader_epochs.entries() == [(4, 0)]
    found = again.read(0, 1 << 20, 30)
    assert found is not None and found.read() == before


def test_a_second_broker_on_the_same_directory_is_told_which_one(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    with pytest.raises(LogDirInUse, match=str(tmp_path)):
        open_dirs(tmp_path)
    dirs.close()
    open_dirs(tmp_path).close()
