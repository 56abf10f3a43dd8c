"""What a conversion is to do: which partitions it rewrites, which of them stay as they are and why, and the space.

Internal topics, compacted ones, and partitions without a topic ID have files of their own in either layout. What was
set aside (`-stray`) has to leave the commit log when that goes, and need not go there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tidelog.log.checkpoints import CLEANED_OFFSETS, MalformedCheckpoint, read_offsets
from tidelog.log.directories.directory_names import DELETE, STRAY, parse_name
from tidelog.log.directories.directory_set import DIRECTORY_SET
from tidelog.log.directories.layout import SHARED, layout_of, other_than
from tidelog.log.directories.recovery import read_topic_id
from tidelog.log.disk import Disk, Usage
from tidelog.log.errors import LogError
from tidelog.log.file_segment import FileSegment
from tidelog.log.segment import LOG
from tidelog.log.shared import QUEUE
from tidelog.log.shared.commit_entry import HEAD_SIZE
from tidelog.log.shared.commit_log import CommitLog
from tidelog.log.shared.queue import ENTRY_SIZE
from tidelog.log.stored_segments import file_segments, queue_segments
from tidelog.wire.partitions import TopicPartition

#: a file of a commit log that is only read
ANY_SIZE: Final = 1 << 30
#: so many headers of a segment are looked at to tell how large its batches are
_SAMPLE: Final = 64
#: of the space that is needed beyond what was counted, in percent
_MARGIN: Final = 2


class CannotConvert(LogError):
    """A log directory is not converted; nothing that its broker needs was changed."""


class Converted(NamedTuple):
    """A partition that is rewritten."""

    name: str
    #: of its batches
    size_bytes: int
    #: what it takes in the new layout, about
    needed_bytes: int


class Kept(NamedTuple):
    """A partition that stays as it is."""

    name: str
    why: str


class ConversionPlan(NamedTuple):
    path: str
    to: str
    converted: list[Converted]
    kept: list[Kept]
    usage: Usage

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.converted)

    @property
    def needed_bytes(self) -> int:
        """Of free space: the old files go after the new ones are complete."""
        return sum(each.needed_bytes for each in self.converted) * (100 + _MARGIN) // 100

    @property
    def fits(self) -> bool:
        return self.needed_bytes <= self.usage.usable_bytes


def plan_conversion(disk: Disk, path: str, to: str, is_kept: Callable[[str], bool]) -> ConversionPlan:
    """What is to be done in a directory that is in the other layout. `is_kept` says of a topic that it is not to be
    converted, because it is compacted. May raise OSError."""
    if not disk.exists(path) or layout_of(disk, path) != other_than(to):
        raise CannotConvert(f"{path} is not a log directory in the {other_than(to)} layout")
    if not disk.exists(f"{path}/{DIRECTORY_SET}"):
        raise CannotConvert(f"no broker of Tidelog has used {path} yet: start one on it, and stop it, before")
    parts: list[Converted | Kept]
    parts = [*(_to_shared(disk, path, is_kept) if to == SHARED else _to_partitioned(disk, path))]
    return ConversionPlan(
        path,
        to,
        [each for each in parts if isinstance(each, Converted)],
        [each for each in parts if isinstance(each, Kept)],
        disk.usage(path),
    )


def _partitions(disk: Disk, path: str) -> Iterator[tuple[str, TopicPartition, str, list[str]]]:
    """(name of the directory, partition, kind, names of its files) of all that are to stay."""
    for entry in sorted(disk.list(path)):
        named = parse_name(entry.name) if entry.is_dir else None
        if named is not None and named[1] != DELETE:
            names = [each.name for each in disk.list(f"{path}/{entry.name}")]
            yield entry.name, *named, names


def _to_shared(disk: Disk, path: str, is_kept: Callable[[str], bool]) -> Iterator[Converted | Kept]:
    try:
        cleaned = read_offsets(disk, f"{path}/{CLEANED_OFFSETS}").keys()
    except MalformedCheckpoint as error:
        raise CannotConvert(f"{error}: start a broker on {path}, and stop it, before") from None
    for name, key, kind, files in _partitions(disk, path):
        if any(file.endswith(QUEUE) for file in files):
            raise CannotConvert(f"{path}/{name} has queues, and there is no commit log in {path}: it was lost")
        segments = file_segments(disk, f"{path}/{name}")
        why = None
        if key.topic.startswith("__"):
            why = "internal"
        elif is_kept(key.topic) or key in cleaned:
            why = "compacted"
        elif kind == STRAY:
            why = "set aside"
        elif read_topic_id(disk, f"{path}/{name}") is None:
            why = "without a topic ID"
        elif _ends_in_a_gap(segments):
            why = "its last offsets were compacted away"
        yield _sized(name, segments) if why is None else Kept(name, why)


def _ends_in_a_gap(segments: list[FileSegment]) -> bool:
    """An empty segment tells where the log ends by its name alone, where the offsets before it are gone."""
    return len(segments) > 1 and not segments[-1].size and segments[-2].next_offset() != segments[-1].base_offset


def _sized(name: str, segments: list[FileSegment]) -> Converted:
    size = sum(segment.size for segment in segments)
    queues = 0
    for segment in segments:
        sampled = seen = 0
        for position, header in segment.headers(0):
            sampled, seen = sampled + 1, position + header.size_bytes
            if sampled == _SAMPLE:
                break
        queues += segment.size * sampled // max(seen, 1) * ENTRY_SIZE
        segment.park_all()
    return Converted(name, size, size + queues + HEAD_SIZE * (len(segments) + size // 100_000))


def _to_partitioned(disk: Disk, path: str) -> Iterator[Converted | Kept]:
    commit = CommitLog(disk, path, ANY_SIZE)
    for name, _, _, files in _partitions(disk, path):
        if not any(file.endswith((QUEUE, LOG)) for file in files):
            raise CannotConvert(
                f"{path}/{name} has no queue: start a broker on {path}, which makes it anew, and stop it"
            )
        if not any(file.endswith(QUEUE) for file in files):
            yield Kept(name, "partitioned already")
            continue
        if any(file.endswith(LOG) for file in files):
            raise CannotConvert(f"{path}/{name} has both queues and files of its own")
        segments = queue_segments(disk, f"{path}/{name}", commit)
        size = sum(segment.size for segment in segments)
        yield Converted(name, size, size + size // 100 + 1)
        for segment in segments:
            segment.queue.park()
