"""The way from an offset to its record, told step by step: segment, index or queue entry, position, batch.

It goes over the files as they are and changes none of them, so a broker may be running on them. What a running broker
has not written yet, the newest index entries and high watermarks, is not seen; the steps are the same without.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tidelog.log.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, MalformedCheckpoint, read_offsets
from tidelog.log.disk import Disk
from tidelog.log.errors import CorruptMessage
from tidelog.log.file_segment import FileSegment
from tidelog.log.segment import Segment
from tidelog.log.shared.commit_log import CommitLog
from tidelog.log.shared.queue_segment import QueueSegment
from tidelog.log.stored_segments import file_segments, has_queues, queue_segments
from tidelog.wire.batch import CODEC_MASK, CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader, crc_matches
from tidelog.wire.compression import CODEC_NAMES
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import read_records

#: of a file of the commit log, which is only read
_ANY_SIZE: Final = 1 << 30


class LookupStep(NamedTuple):
    step: str
    #: None where the step is made in memory
    file: str | None
    found: str


class NoSuchPartition(Exception):
    """None of the log directories holds it."""


def walk(disk: Disk, directories: Iterable[str], key: TopicPartition, offset: int) -> Iterator[LookupStep]:
    """Looks an offset of a partition up in the log directories. Raises NoSuchPartition; may raise OSError."""
    directory, path = _find(disk, directories, key)
    commit = CommitLog(disk, directory, _ANY_SIZE) if has_queues(disk, path) else None
    segments: list[FileSegment] | list[QueueSegment]
    segments = file_segments(disk, path) if commit is None else queue_segments(disk, path, commit)
    layout = "" if commit is None else ", in the commit log"
    size = sum(each.size for each in segments)
    yield LookupStep("partition", path, f"{len(segments)} segments, {size} bytes{layout}")
    if not segments:
        return
    begins, ends = segments[0].base_offset, segments[-1].next_offset()
    begins = max(begins, _checkpointed(disk, directory, LOG_START_OFFSETS, key) or 0)
    yield LookupStep("log start offset", f"{directory}/{LOG_START_OFFSETS}", str(begins))
    yield LookupStep("log end offset", segments[-1].log_path, str(ends))
    committed = _checkpointed(disk, directory, HIGH_WATERMARKS, key)
    mark = "not checkpointed yet" if committed is None else f"{committed}, as last checkpointed"
    yield LookupStep("high watermark", f"{directory}/{HIGH_WATERMARKS}", mark)
    if commit is not None and offset >= ends:
        found = f"{offset} is past the last entry that is written; those of a running broker may follow in its memory"
        yield LookupStep("offset", None, found)
        return
    if not begins <= offset < ends:
        yield LookupStep("offset", None, f"{offset} is not within {begins} and {ends - 1}: a fetch is refused")
        return
    at = bisect_right([segment.base_offset for segment in segments], offset) - 1
    segment = segments[at]
    bound = "it is the last" if at == len(segments) - 1 else f"the next begins at {segments[at + 1].base_offset}"
    found = f"number {at + 1} of {len(segments)}: it begins at {segment.base_offset}, {bound}"
    yield LookupStep("segment", segment.log_path, found)
    yield from _walk_queue(segment, offset) if isinstance(segment, QueueSegment) else _walk_file(segment, offset)


def _walk_queue(segment: QueueSegment, offset: int) -> Iterator[LookupStep]:
    """In the shared layout: an entry of the queue, and the batch that it points at."""
    queue = segment.queue
    n = queue.first_with(offset)
    if n == queue.count:
        yield LookupStep("queue", segment.log_path, f"{queue.count} entries, and none holds the offset")
        return
    try:
        queued = queue.follower(n)
    except CorruptMessage as error:
        yield LookupStep("queue", segment.log_path, str(error))
        return
    moved = ", to which it was moved" if queue.is_moved(n) else ""
    found = f"entry {n + 1} of {queue.count}: offsets {queued.base_offset} to {queued.last_offset} are at place "
    yield LookupStep("queue", segment.log_path, f"{found}{queued.place} of the commit log{moved}")
    try:
        path, at = segment.whereabouts(queued)
    except CorruptMessage as error:
        yield LookupStep("commit log", None, str(error))
        return
    yield LookupStep("commit log", path, f"place {queued.place} is byte {at} of this file")
    for position, header in segment.headers(queued.position):
        yield from _show_batch(segment, path, at, position, header, offset)
        return
    yield LookupStep("batch", path, f"what stands at byte {at} is another one: it is damaged")


def _walk_file(segment: FileSegment, offset: int) -> Iterator[LookupStep]:
    """In the partitioned layout: an entry of the offset index, and a scan from there."""
    if not segment.check_indexes():
        yield LookupStep("offset index", segment.index_paths[0], "is damaged: a broker would write it anew")
        segment.rebuild_indexes()
    index = segment.offset_index
    n = bisect_right(range(index.count), offset, key=lambda each: index.entry(each)[0])
    entry = "no entry is as early: the search begins at position 0"
    if n:
        entry = "entry {} of {}: offset {} is at position {}".format(n, index.count, *index.entry(n - 1))
    yield LookupStep("offset index", segment.index_paths[0], entry)
    position, passed = index.lookup(offset), 0
    for at, header in segment.headers(position):
        if header.last_offset >= offset:
            scanned = f"{passed} batches, {at - position} bytes, are passed over"
            yield LookupStep("scan", segment.log_path, scanned)
            yield from _show_batch(segment, segment.log_path, at, at, header, offset)
            return
        passed += 1
    yield LookupStep("scan", segment.log_path, f"{passed} batches, and none holds the offset")


def _show_batch(
    segment: Segment, path: str, at: int, position: int, header: BatchHeader, offset: int
) -> Iterator[LookupStep]:
    """`path` is the file that holds the batch, and `at` where in it; `position` is that in the segment."""
    data = segment.read(position, header.size_bytes)
    codec = header.attributes & CODEC_MASK
    flags = ["uncompressed" if not codec else CODEC_NAMES[codec]]
    flags += ["transactional"] if header.attributes & TRANSACTIONAL_FLAG else []
    flags += ["control"] if header.attributes & CONTROL_FLAG else []
    producer = f", producer {header.producer_id}" if header.producer_id >= 0 else ""
    sound = crc_matches(memoryview(data), 0, header)
    yield LookupStep(
        "batch",
        path,
        f"position {at}, {header.size_bytes} bytes: offsets {header.base_offset} to {header.last_offset}, "
        f"leader epoch {header.leader_epoch}, {', '.join(flags)}{producer}, "
        f"CRC {'is right' if sound else 'does not match: the batch is damaged'}",
    )
    if not sound:
        return
    for record in read_records(memoryview(data)):
        if record.offset >= offset:
            key = "no key" if record.key is None else f"a key of {len(record.key)} bytes"
            value = "no value" if record.value is None else f"a value of {len(record.value)} bytes"
            gone = "" if record.offset == offset else ", the first one left at or after the offset"
            found = f"offset {record.offset}{gone}, timestamp {record.timestamp}, {key}, {value}"
            yield LookupStep("record", path, found)
            return


def _find(disk: Disk, directories: Iterable[str], key: TopicPartition) -> tuple[str, str]:
    looked = list(directories)
    for directory in looked:
        path = f"{directory}/{key.topic}-{key.partition}"
        if disk.exists(path):
            return directory, path
    raise NoSuchPartition(f"partition {key.partition} of topic {key.topic} is not in {', '.join(looked)}")


def _checkpointed(disk: Disk, directory: str, name: str, key: TopicPartition) -> int | None:
    try:
        return read_offsets(disk, f"{directory}/{name}").get(key)
    except MalformedCheckpoint:
        return None
