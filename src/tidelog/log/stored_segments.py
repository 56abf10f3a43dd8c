"""The segments in the directory of a partition as their files are, without opening the log that they belong to."""

from __future__ import annotations

from tidelog.log.config import LogConfig
from tidelog.log.disk import Disk
from tidelog.log.file_segment import FileSegment
from tidelog.log.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, offset_name
from tidelog.log.shared import QUEUE
from tidelog.log.shared.commit_entry import Owner
from tidelog.log.shared.commit_log import CommitLog
from tidelog.log.shared.queue_segment import QueueSegment
from tidelog.log.shared.store import QueueStore

_NOBODY = Owner(bytes(16), -1)


def file_segments(disk: Disk, path: str) -> list[FileSegment]:
    """Those of the partitioned layout, in their order."""
    sizes = {entry.name: entry.size_bytes for entry in disk.list(path)}
    return [
        FileSegment(
            disk,
            f"{path}/{offset_name(base)}",
            base,
            LogConfig(),
            sizes[offset_name(base) + LOG],
            sizes.get(offset_name(base) + INDEX, 0),
            sizes.get(offset_name(base) + TIME_INDEX, 0),
            sizes.get(offset_name(base) + TXN_INDEX, 0),
        )
        for base in _bases(sizes, LOG)
    ]


def queue_segments(disk: Disk, path: str, commit: CommitLog) -> list[QueueSegment]:
    """Those of the shared layout, in their order, as far as their queues are written. They are only to be read."""
    sizes = {entry.name: entry.size_bytes for entry in disk.list(path)}
    store = QueueStore(commit, _NOBODY)
    segments = []
    for base in _bases(sizes, QUEUE):
        stem = offset_name(base)
        txn_bytes = sizes.get(stem + TXN_INDEX, 0)
        segment = QueueSegment(disk, f"{path}/{stem}", base, LogConfig(), store, sizes[stem + QUEUE], txn_bytes)
        queue = segment.queue
        segment.size = queue.glance(queue.count - 1).end if queue.count else 0
        segments.append(segment)
    return segments


def has_queues(disk: Disk, path: str) -> bool:
    """Whether the partition in this directory is stored in the shared layout."""
    return any(entry.name.endswith(QUEUE) for entry in disk.list(path))


def _bases(names: dict[str, int], suffix: str) -> list[int]:
    return sorted(int(name[:20]) for name in names if name[20:] == suffix and name[:20].isdigit())
