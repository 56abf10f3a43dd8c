"""The segments of one partition in the other layout: written from those that are there, and compared with them.

Segments keep their base offsets, and batches their bytes. So everything else in the partition's directory stays true:
producer snapshots, leader epochs, transaction indexes, and the checkpoints of the log directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from tidelog.log.config import LogConfig
from tidelog.log.conversion.planning import CannotConvert
from tidelog.log.disk import Disk
from tidelog.log.errors import CorruptMessage
from tidelog.log.file_segment import FileSegment
from tidelog.log.index import MAX_RELATIVE_OFFSET
from tidelog.log.segment import Segment
from tidelog.log.shared.commit_entry import Owner
from tidelog.log.shared.commit_log import CommitLog
from tidelog.log.shared.queue_segment import QueueSegment
from tidelog.log.shared.store import QueueStore
from tidelog.wire.batch import BatchHeader, crc_matches

#: how many bytes of batches are written at once, where they are not one batch
_CHUNK_BYTES: Final = 1 << 20

Tell = Callable[[int], None]


def write_queues(disk: Disk, source: Sequence[FileSegment], path: str, owner: Owner, commit: CommitLog) -> None:
    """Into the empty directory `path`, and to the end of the commit log. May raise OSError."""
    store = QueueStore(commit, owner)
    for segment in source:
        target = QueueSegment.create(disk, path, segment.base_offset, LogConfig(), 0, store)
        _copy(segment, target)
        target.write()
        # It is not part of a log: nobody is to checkpoint it.
        target.park_all()
        _age_alike(disk, segment, target)


def write_files(disk: Disk, source: Sequence[QueueSegment], path: str) -> None:
    """Into the empty directory `path`. May raise OSError."""
    for segment in source:
        if max(segment.next_offset() - 1 - segment.base_offset, segment.size) > MAX_RELATIVE_OFFSET:
            raise CannotConvert(f"{segment.log_path} holds more than a segment in the partitioned layout can")
        target = FileSegment.create(disk, path, segment.base_offset, LogConfig(), 0)
        _copy(segment, target)
        target.seal()
        target.park_all()
        _age_alike(disk, segment, target)


def _age_alike(disk: Disk, source: Segment, target: Segment) -> None:
    """Records without a time age by that of their file."""
    disk.set_modified_ms(target.log_path, disk.modified_ms(source.log_path))


def _copy(source: Segment, target: Segment) -> None:
    pieces: list[memoryview] = []
    spans: list[tuple[int, int, int]] = []
    size = first_offset = 0
    for header, data in _whole_batches(source):
        if spans and (size + len(data) > _CHUNK_BYTES or header.last_offset - first_offset > MAX_RELATIVE_OFFSET):
            _append(target, pieces, spans)
            pieces, spans, size = [], [], 0
        if not spans:
            first_offset = header.base_offset
        pieces.append(data)
        spans.append((header.last_offset, header.max_timestamp, len(data)))
        size += len(data)
    if spans:
        _append(target, pieces, spans)


def _append(target: Segment, pieces: list[memoryview], spans: list[tuple[int, int, int]]) -> None:
    newest = max(timestamp for _, timestamp, _ in spans)
    target.append(memoryview(b"".join(pieces)), spans[-1][0], newest, spans)


def _whole_batches(segment: Segment) -> Iterator[tuple[BatchHeader, memoryview]]:
    """All batches of a segment; raises where one is not as it was written."""
    end, next_offset = 0, segment.base_offset
    try:
        for position, header, data in segment.batches(0):
            if not crc_matches(data, 0, header) or header.base_offset < next_offset:
                break
            end, next_offset = position + header.size_bytes, header.next_offset
            yield header, data
    except CorruptMessage:
        # It did not come to the end of the segment.
        pass
    if end != segment.size:
        raise CannotConvert(
            f"{segment.log_path} is damaged at byte {end} (offset {next_offset}): nothing was changed. "
            "`tidelog doctor --deep` tells everything that is damaged"
        )


def compare(source: Sequence[Segment], target: Sequence[Segment], tell: Tell) -> None:
    """Raises CannotConvert where the segments do not hold the same batches, byte for byte."""
    if len(source) != len(target):
        raise _differs([*source, *target][0])
    for one, other in zip(source, target, strict=True):
        if one.base_offset != other.base_offset or one.size != other.size:
            raise _differs(other)
        newest, next_offset = -1, one.base_offset
        for (header, data), (_, copied) in zip(_whole_batches(one), _whole_batches(other), strict=True):
            if data != copied:
                raise _differs(other)
            newest, next_offset = max(newest, header.max_timestamp), header.next_offset
            tell(header.size_bytes)
        # Of the copy only: the indexes of the other one need not be right, and were not used.
        if (other.next_offset(), other.largest.timestamp) != (next_offset, newest):
            raise _differs(other)
        if isinstance(other, QueueSegment):
            _check_queue(other)
        elif isinstance(other, FileSegment):
            _check_indexes(other)
        one.park_all()
        other.park_all()


def _check_queue(segment: QueueSegment) -> None:
    """Whether the queue says of each batch what its header says."""
    newest = -1
    for n, (position, header) in enumerate(segment.headers(0)):
        queued = segment.queue.entry(n)
        newest = header.max_timestamp if n == 0 else max(newest, header.max_timestamp)
        said = queued.last_offset, queued.newest, queued.position, queued.leader_epoch
        if said != (header.last_offset, newest, position, header.leader_epoch):
            raise _differs(segment)


def _check_indexes(segment: FileSegment) -> None:
    """Whether every entry of the offset index points at the batch that it names."""
    index = segment.offset_index
    entries = [index.entry(n) for n in range(index.count)]
    if not segment.check_indexes() or any(one >= other for one, other in pairwise(entries)):
        raise _differs(segment)
    for offset, position in entries:
        if segment.span_at(position).last_offset != offset:
            raise _differs(segment)


def _differs(segment: Segment) -> CannotConvert:
    return CannotConvert(
        f"{segment.log_path} is not the same in the new layout: the old files stay. Check the disk, and this program"
    )
