"""Log directories in the shared layout, on a disk in memory, and what is done to them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from logkit import NOW_MS, append

from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.retention import delete_old_segments
from tidelog.log.shared import COMMIT_DIRECTORY
from tidelog.log.shared.commit_entry import Owner
from tidelog.log.shared.commit_log import CommitLog
from tidelog.wire.partitions import TopicPartition

COMMIT = f"/data/{COMMIT_DIRECTORY}/{0:020d}.commit"
CONFIG = LogConfig(segment_bytes=1500, max_message_bytes=1500)


def opened(
    disk: MemoryDisk, commit_bytes: int = 1 << 20, config: LogConfig = CONFIG, *, puts_off: bool = False
) -> LogDirs:
    """`puts_off`: nothing is written before somebody asks for it, as in a turn of a broker's loop."""
    dirs = LogDirs(["/data"], disk, lambda topic: config, lambda: bytes(15) + b"\1", commit_bytes)
    dirs.open(node_id=1, cluster_id="c", now_ms=NOW_MS)
    if puts_off:
        commit_of(dirs).on_put_off = lambda: None
    return dirs


def created(dirs: LogDirs, partition: int = 0, topic: str = "t") -> Log:
    return dirs.create(TopicPartition(topic, partition), NOW_MS, topic.encode().ljust(16, b"."))


def killed(disk: MemoryDisk, commit_bytes: int = 1 << 20) -> LogDirs:
    """What the next life finds when the process is killed."""
    disk.outlive()
    return opened(disk, commit_bytes)


def checkpointed(dirs: LogDirs) -> None:
    """As `timer.slices` does it: what a work raises is raised where it was asked for."""
    slices = dirs.checkpoint_queues()
    work = next(slices, None)
    with suppress(StopIteration):
        while True:
            try:
                if work is not None:
                    work()
            except OSError as error:
                work = slices.throw(error)
            else:
                work = next(slices)


def owner(partition: int) -> Owner:
    return Owner(b"t".ljust(16, b"."), partition)


def commit_files(disk: MemoryDisk) -> list[str]:
    return sorted(e.name for e in disk.list(f"/data/{COMMIT_DIRECTORY}") if e.name.endswith(".commit"))


def commit_of(dirs: LogDirs) -> CommitLog:
    commit = dirs.dirs[0].commit
    assert commit is not None
    return commit


def reclaimed(dirs: LogDirs) -> None:
    """A whole round of it."""
    for work in dirs.reclaim():
        if work is not None:
            work()


def long_and_short(dirs: LogDirs) -> tuple[Log, Log]:
    """A partition that keeps what it has among one that lets go of it."""
    long, short = created(dirs, 0), created(dirs, 1)
    for at in range(60):
        if at % 10 == 0:
            append(long, value=b"%d" % at)
        append(short, value=bytes(200))
    checkpointed(dirs)
    short.config = replace(CONFIG, retention_bytes=0)
    delete_old_segments(short, NOW_MS, short.log_end_offset)
    return long, short


def dead_in_between(dirs: LogDirs) -> Log:
    """Files in which nothing is alive stand between the two batches of the partition that is returned."""
    long, short = created(dirs, 0), created(dirs, 1)
    append(long, value=bytes(1000))
    for _ in range(40):
        append(short, value=bytes(300))
    append(long, value=b"last")
    checkpointed(dirs)
    short.config = replace(CONFIG, retention_bytes=0)
    delete_old_segments(short, NOW_MS, short.log_end_offset)
    deleted(dirs)
    return long


def deleted(dirs: LogDirs) -> None:
    for deletion in dirs.take_deletions():
        deletion()
