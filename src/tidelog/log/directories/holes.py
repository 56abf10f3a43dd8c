"""What is lost with a file of the commit log that is short or missing, before the checkpoint.

The names of the files are positions, so a hole between two of them shows in the listing. But files in which nothing was
alive may have been removed from between others (`shared.reclaiming`): a loss is only what a queue points at. So the
queues are gone through where there is a hole, and only there. What stands around it is served as before.

Before the oldest file there is nothing in the listing by which a missing one would show: but by the first place of each
queue it does, for a file goes only when no queue points into it any more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from tidelog.log.directories.losses import Loss
from tidelog.log.errors import CorruptMessage
from tidelog.log.log import Log
from tidelog.log.log_dir import LogDir
from tidelog.log.segment import offset_name
from tidelog.log.shared.commit_log import COMMIT, CommitLog
from tidelog.log.shared.queue_segment import QueueSegment


def tell_holes(directory: LogDir, logs: Iterable[Log]) -> None:
    """After the logs were opened: one line for each range of offsets. May raise OSError."""
    commit, logs = directory.commit, list(logs)
    if commit is None:
        return
    holes = commit.holes()
    if commit.first and any(_points_before(log, commit.first) for log in logs):
        holes.insert(0, (0, commit.first))
    if not holes:
        return
    blamed: dict[int, tuple[str, str]] = {}
    for log in logs:
        for hole, first, end in _lost(log, holes):
            if hole not in blamed:
                blamed[hole] = _blame(commit, holes[hole][0])
            directory.tell(Loss(first, end, *blamed[hole]).tell(log))


def _points_before(log: Log, position: int) -> bool:
    for segment in log.segments:
        if isinstance(segment, QueueSegment):
            try:
                place, rising = segment.least_place()
            except CorruptMessage:
                # Readers are told of that.
                continue
            if place is not None and place < position:
                return True
            if rising:
                break
    return False


def _lost(log: Log, holes: list[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """The number of a hole, and the first and the next offset of what lay there, neighbours together."""
    hole, first, end = -1, 0, 0
    for place, size_bytes, base_offset, last_offset in _queued(log):
        # The last one that begins before the batch ends.
        found = bisect_right(holes, place + size_bytes - 1, key=lambda each: each[0]) - 1
        if found >= 0 and holes[found][1] <= place:
            found = -1
        if hole >= 0 and (found != hole or base_offset > end):
            yield hole, first, end
        if found >= 0:
            first = first if found == hole and base_offset <= end else max(base_offset, log.log_start_offset)
            end = last_offset + 1
        hole = found
    if hole >= 0:
        yield hole, first, end


def _queued(log: Log) -> Iterator[tuple[int, int, int, int]]:
    for segment in log.segments:
        if isinstance(segment, QueueSegment):
            try:
                for queued in segment.held():
                    if queued.last_offset >= log.log_start_offset:
                        yield queued.place, queued.size_bytes, queued.base_offset, queued.last_offset
            except CorruptMessage:
                # Readers are told of that.
                continue


def _blame(commit: CommitLog, begins: int) -> tuple[str, str]:
    """The file, and what is wrong with it."""
    path, at = commit.file_at(begins)
    if at < 0:
        return path, "is the oldest file now, and they were in one before it, which is missing"
    if commit.ends_whole(begins):
        missing = f"{commit.path}/{offset_name(begins)}{COMMIT}"
        return missing, "is missing, or the file before it was cut off"
    return path, f"was cut off at byte {at}"
