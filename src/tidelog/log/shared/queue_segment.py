"""A segment of the shared layout: its batches lie in the commit log, scattered among those of other partitions, and its
queue says where.

    <base offset>.queue     where each batch lies (`queue.py`)
    <base offset>.txnindex  aborted transactions, as in the partitioned layout

A lookup, by offset, by time or by position, is a binary search in the queue. Batches that lie next to one another in
the commit log, as those of one append do, are read and sent as one piece.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tidelog.log.config import LogConfig
from tidelog.log.disk import BESIDE, PASSING, AppendedFile, Disk, File, put_in_place, write_beside
from tidelog.log.errors import CorruptMessage
from tidelog.log.index import OFFSET_ENTRY_SIZE, TimestampOffset
from tidelog.log.segment import DELETED, TXN_INDEX, BatchSpan, FileSlice, GatheredSlice, Sizes, Slice, offset_name
from tidelog.log.shared import QUEUE
from tidelog.log.shared.commit_entry import EntryKind, Owner
from tidelog.log.shared.queue import ENTRY_SIZE, Queue, Queued
from tidelog.log.shared.store import QueueStore
from tidelog.log.txn_index import TxnIndex
from tidelog.wire.batch import (
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LOG_OVERHEAD,
    BatchHeader,
    InvalidBatch,
    crc_matches,
    iter_headers,
)

_PLACE: Final = struct.Struct(">qii")
_DELTA: Final = struct.Struct(">i")
#: what a walk over headers reads at once
_SCAN_BYTES: Final = 4096 + HEADER_SIZE


class QueueSegment:
    """`segment.Segment` says what the methods that are part of it promise."""

    __slots__ = (
        "_commit",
        "_disk",
        "_first_timestamp",
        "_has_left",
        "_least_place",
        "_newest",
        "_stem",
        "_store",
        "_txn_file",
        "base_offset",
        "created_ms",
        "cuts",
        "dirty",
        "may_be_removed",
        "queue",
        "roll_jitter_ms",
        "size",
        "txn_index",
    )

    def __init__(
        self,
        disk: Disk,
        stem: str,
        base_offset: int,
        config: LogConfig,
        store: QueueStore,
        queue_bytes: int = 0,
        txn_bytes: int = 0,
    ) -> None:
        self._disk = disk
        self._stem = stem
        self._store = store
        self._commit = store.commit
        self.base_offset = base_offset
        # As many entries as an offset index may have: a queue does not grow without bound.
        most = config.segment_index_bytes // OFFSET_ENTRY_SIZE
        self.queue = Queue(disk, stem + QUEUE, base_offset, most, queue_bytes)
        self._txn_file = AppendedFile(disk, stem + TXN_INDEX)
        self.txn_index = TxnIndex(self._txn_file, base_offset, txn_bytes)
        self.size = 0
        #: as `least_place` says; None until asked for
        self._least_place: tuple[int | None, bool] | None = None
        #: how often it was cut
        self.cuts = 0
        #: the largest timestamp so far; of no meaning in an empty segment
        self._newest = -1
        #: the largest timestamp of the first batch, by which the segment ages; None until asked for
        self._first_timestamp: int | None = None
        self._has_left = False
        #: the log was set aside: whoever wants it gone removes its files, one after the other
        self.may_be_removed = False
        self.created_ms = 0
        self.dirty = False
        self.roll_jitter_ms = 0

    @classmethod
    def create(
        cls,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        store: QueueStore,
    ) -> QueueSegment:
        """A new, empty segment. The names must be free, or what stands under them is lost."""
        segment = cls(disk, f"{directory}/{offset_name(base_offset)}", base_offset, config, store)
        # The queue at last: should something fail, there is no segment.
        disk.remove(segment._stem + TXN_INDEX)
        disk.open(segment.log_path, create=True, empty=True)
        segment.created_ms = now_ms
        return segment

    # --- files

    @property
    def log_path(self) -> str:
        return self._stem + QUEUE

    @property
    def index_paths(self) -> tuple[str, ...]:
        return self._stem + QUEUE, self._stem + TXN_INDEX

    def file_sizes(self) -> Sizes:
        return Sizes(self.size, self.queue.count * ENTRY_SIZE, 0, self.txn_index.size_bytes)

    def sync_work(self) -> Callable[[], None]:
        return self._commit.sync_work()

    def park_all(self) -> None:
        self.queue.park()
        # The log leaves, or this segment leaves it: there is nothing to write any more.
        self._has_left = True
        self._commit.dirty.discard(self)
        self._commit.has_let_go = True

    def moved(self, directory: str) -> None:
        self._stem = f"{directory}/{offset_name(self.base_offset)}"
        self.queue.path = self._stem + QUEUE
        self._txn_file.path = self._stem + TXN_INDEX

    def rename_deleted(self) -> list[str]:
        self.park_all()
        renamed = []
        for path in self.index_paths:
            try:
                self._disk.rename(path, path + DELETED)
            except FileNotFoundError:
                continue
            renamed.append(path + DELETED)
        return renamed

    # --- appending

    def append(
        self, records: memoryview, last_offset: int, max_timestamp: int, spans: list[tuple[int, int, int]] | None = None
    ) -> int:
        position, count = self.size, self.queue.count
        base_offset: int = _PLACE.unpack_from(records)[0]
        place = self._store.append(EntryKind.BATCHES, base_offset, last_offset, records)
        try:
            if spans is None:
                self._note(records, 0, place, len(records), last_offset, max_timestamp)
            else:
                at = 0
                for batch_last, batch_timestamp, batch_size in spans:
                    self._note(records, at, place + at, batch_size, batch_last, batch_timestamp)
                    at += batch_size
        except OSError:
            # The directory goes offline. What was written is in the commit log, and may be found there by a start.
            self.queue.cut(count)
            self.size = position
            raise
        return position

    def _note(
        self, records: memoryview, at: int, place: int, size_bytes: int, last_offset: int, max_timestamp: int
    ) -> None:
        leader_epoch: int = _PLACE.unpack_from(records, at)[2]
        delta: int = _DELTA.unpack_from(records, at + LAST_OFFSET_DELTA_AT)[0]
        self._queue_up(last_offset, place, max_timestamp, size_bytes, delta, leader_epoch)

    def readmit(self, place: int, header: BatchHeader) -> None:
        """Queues a batch that a start has found in the commit log."""
        self._queue_up(
            header.last_offset,
            place,
            header.max_timestamp,
            header.size_bytes,
            header.last_offset_delta,
            header.leader_epoch,
        )

    def _queue_up(
        self, last_offset: int, place: int, max_timestamp: int, size_bytes: int, delta: int, leader_epoch: int
    ) -> None:
        queue = self.queue
        if not queue.count:
            self._first_timestamp = self._newest = max_timestamp
            self._least_place = None
        elif max_timestamp > self._newest:
            self._newest = max_timestamp
        self._touch()
        try:
            queue.append(last_offset, place, self._newest, self.size, size_bytes, delta, leader_epoch)
        except OSError as error:
            # The batch is in the commit log; its entry can wait in memory until the disk takes it again.
            if error.errno not in PASSING:
                raise
        self.size += size_bytes

    def _touch(self) -> None:
        """The queue is not, or no longer, on the device as it is: the next checkpoint sees to it."""
        self.dirty = True
        self._commit.dirty.add(self)

    def should_roll(
        self, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int, config: LogConfig
    ) -> bool:
        if self.size == 0:
            return False
        return (
            self.size + size_bytes > config.segment_bytes
            or self._waited_ms(now_ms, max_timestamp) > config.max_segment_ms - self.roll_jitter_ms
            or self.queue.is_full
        )

    def _waited_ms(self, now_ms: int, max_timestamp: int) -> int:
        first = self.begins_ms()
        return max_timestamp - first if first >= 0 else now_ms - self.created_ms

    def begins_ms(self) -> int:
        first = self._first_timestamp
        if first is None:
            if not self.queue.count:
                return -1
            # By a damaged entry it ages wrongly, and is written to and read nevertheless.
            first = self._first_timestamp = self.queue.glance(0).newest
        return first

    @property
    def largest(self) -> TimestampOffset:
        last = self.queue.last
        if last is None or last.newest < 0:
            return TimestampOffset(-1, self.base_offset)
        return TimestampOffset(last.newest, self.queue.entry(self.queue.first_as_late_as(last.newest)).last_offset)

    def largest_timestamp(self) -> int:
        try:
            last = self.queue.last
        except CorruptMessage:
            # No segment goes on the word of a damaged entry.
            last = None
        return last.newest if last is not None and last.newest >= 0 else self._disk.modified_ms(self.log_path)

    def write(self) -> None:
        """Writes what is only in memory."""
        if self._has_left:
            return
        try:
            self.queue.trim()
            self.txn_index.spill()
        except FileNotFoundError:
            self.leave_if_removed()

    def leave_if_removed(self) -> None:
        """For who handles a FileNotFoundError: a log that was set aside may be removed at any time."""
        if not self.is_removed and self._disk.exists(os.path.dirname(self._stem)):
            raise
        self.park_all()

    @property
    def is_removed(self) -> bool:
        """Somebody has removed a log that was set aside, or has begun to."""
        return self.may_be_removed and not self._disk.exists(self.log_path)

    def seal(self) -> None:
        self.write()
        self.dirty = False

    # --- finding

    def find(self, offset: int) -> BatchSpan | None:
        n = self.queue.first_with(offset)
        if n == self.queue.count:
            # Do all of them end before it?
            last = self.queue.last
            if last is not None and last.last_offset >= offset:
                raise self.queue.damaged(n - 1)
            return None
        queued = self.queue.entry(n)
        # Where it does not hold the offset, the one before it may be damaged, and hold it.
        return self._as_span(queued if queued.base_offset <= offset else self.queue.follower(n))

    def span_at(self, position: int) -> BatchSpan:
        n = self.queue.at_position(position)
        if n == self.queue.count or self.queue.entry(n).position != position:
            raise CorruptMessage(f"{self.log_path}: no batch begins at position {position}")
        return self._as_span(self.queue.entry(n))

    @staticmethod
    def _as_span(queued: Queued) -> BatchSpan:
        return BatchSpan(queued.base_offset, queued.last_offset, queued.position, queued.size_bytes)

    def boundary(self, position: int, limit: int) -> tuple[int, int]:
        # The last batch that begins before the limit, or the one before it, ends at or before the limit.
        n = self.queue.at_position(limit) - 1
        if n >= 0 and self.queue.entry(n).end > limit:
            n -= 1
        if n < 0 or (queued := self.queue.entry(n)).end <= position:
            return position, -1
        return queued.end, queued.last_offset + 1

    def position_before_time(self, timestamp: int, least_offset: int) -> int:
        return self._position(max(self.queue.first_as_late_as(timestamp), self.queue.first_with(least_offset)))

    def _position(self, n: int) -> int:
        return self.queue.entry(n).position if n < self.queue.count else self.size

    def next_offset(self) -> int:
        queue = self.queue
        return queue.glance(queue.count - 1).last_offset + 1 if queue.count else self.base_offset

    # --- reading

    def _pieces(self, position: int, size_bytes: int) -> list[tuple[File, int, int]]:
        """(file, position in it, size) of the runs of neighbours that the batches there are."""
        runs: list[tuple[int, int]] = []
        n, end = self.queue.at_position(position), position + size_bytes
        while position < end:
            queued = self.queue.entry(n)
            if queued.position != position:
                raise self.queue.damaged(n)
            if runs and sum(runs[-1]) == queued.place:
                runs[-1] = runs[-1][0], runs[-1][1] + queued.size_bytes
            else:
                runs.append((queued.place, queued.size_bytes))
            position = queued.end
            n += 1
        return [(*self._commit.locate(place, size), size) for place, size in runs]

    def _readable(self, position: int, size_bytes: int) -> tuple[int, int]:
        """How many of the bytes there come before what cannot be found, and the offset after them."""
        found, next_offset = 0, -1
        try:
            for queued in self.entries(position):
                self._commit.locate(queued.place, queued.size_bytes)
                if found + queued.size_bytes > size_bytes:
                    break
                found, next_offset = found + queued.size_bytes, queued.last_offset + 1
        except CorruptMessage:
            pass
        return found, next_offset

    def slice(self, position: int, size_bytes: int, next_offset: int) -> Slice:
        try:
            pieces = self._pieces(position, size_bytes)
        except CorruptMessage:
            # What comes before it is read nevertheless; who goes on from there hears of it.
            size_bytes, next_offset = self._readable(position, size_bytes)
            if not size_bytes:
                raise
            pieces = self._pieces(position, size_bytes)
        if len(pieces) == 1:
            ((file, at, size),) = pieces
            return FileSlice(file, at, size, next_offset)
        return GatheredSlice(b"".join(file.pread(size, at) for file, at, size in pieces), next_offset)

    def read(self, position: int, size_bytes: int) -> bytes:
        return b"".join(file.pread(size, at) for file, at, size in self._pieces(position, size_bytes))

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        chunk, chunk_at = b"", 0
        for queued in self.entries(position):
            at = queued.place - chunk_at
            if not 0 <= at <= len(chunk) - HEADER_SIZE:
                file, at_file = self._commit.locate(queued.place, queued.size_bytes)
                chunk, chunk_at, at = file.pread(_SCAN_BYTES, at_file), queued.place, 0
            header = BatchHeader._make(HEADER.unpack_from(chunk, at))
            if header.base_offset != queued.base_offset or header.length + LOG_OVERHEAD != queued.size_bytes:
                return
            yield queued.position, header

    def batches(self, position: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        for queued in self.entries(position):
            file, at = self._commit.locate(queued.place, queued.size_bytes)
            data = file.pread(queued.size_bytes, at)
            header = BatchHeader._make(HEADER.unpack_from(data))
            if header.base_offset != queued.base_offset or header.length + LOG_OVERHEAD != queued.size_bytes:
                return
            yield queued.position, header, memoryview(data)

    def whereabouts(self, queued: Queued) -> tuple[str, int]:
        """The path of the file that holds a batch, and where in it. Raises CorruptMessage where none does."""
        self._commit.locate(queued.place, queued.size_bytes)
        return self._commit.file_at(queued.place)

    def damaged(self) -> Iterator[tuple[Queued, str, int]]:
        """The batches that are not as they were written: the file that holds each of them, and where in it."""
        for n in range(self.queue.count):
            if not self.queue.is_sound(n):
                # Nobody knows which batch it was.
                continue
            queued = self.queue.glance(n)
            try:
                file, at = self._commit.locate(queued.place, queued.size_bytes)
                data = memoryview(file.pread(queued.size_bytes, at))
                (position, header), *more = iter_headers(data)
                is_whole = not more and header.base_offset == queued.base_offset and crc_matches(data, position, header)
                is_whole = is_whole and not self._commit.is_of_another(queued.place, self._store.owner)
            except (CorruptMessage, InvalidBatch, ValueError):
                is_whole = False
            if not is_whole:
                yield queued, *self._commit.file_at(queued.place)

    def is_of_another(self, owner: Owner) -> bool:
        """Whether the queue points at what belongs to another partition, by its first entry."""
        try:
            return bool(self.queue.count) and self._commit.is_of_another(self.queue.entry(0).place, owner)
        except CorruptMessage:
            return False

    def epochs(self) -> Iterator[Queued]:
        """The entries with which another leader epoch begins. Raises CorruptMessage where one is damaged."""
        n = 0
        while n < self.queue.count:
            queued = self.queue.follower(n)
            yield queued
            n = self.queue.first_past_epoch(queued.leader_epoch, n)

    def entries(self, position: int) -> Iterator[Queued]:
        """Of the queue, from a boundary on. Raises CorruptMessage where one is damaged."""
        for n in range(self.queue.at_position(position), self.queue.count):
            queued = self.queue.entry(n)
            if queued.position != position:
                raise self.queue.damaged(n)
            yield queued
            position = queued.end

    # --- cutting

    def truncate_to(self, offset: int, now_ms: int) -> int:
        # What may fail comes first: who tries again must find the batch that holds the offset.
        self.txn_index.read()
        offset = self.cut_queue(offset, now_ms)
        self.txn_index.truncate_to(offset)
        return offset

    def cut_queue(self, offset: int, now_ms: int) -> int:
        """As `truncate_to`, but for the transaction index, which a start writes anew. If it raises, nothing is cut."""
        n = self.queue.first_with(offset)
        if n < self.queue.count:
            queued = self.queue.entry(n)
            newest = self.queue.entry(n - 1).newest if n else self._newest
            self.queue.cut(n)
            offset = min(offset, queued.base_offset)
            self.size, self._newest = queued.position, newest
        if self.size == 0:
            self.created_ms = now_ms
            self._first_timestamp = None
        self._least_place = None
        self.cuts += 1
        self._touch()
        return offset

    def refill(self, entries: Iterable[Queued], now_ms: int) -> None:
        """Makes the queue anew, of entries whose positions do not matter, and whose deltas stand as in a file."""
        self.queue.cut(0)
        self.size = 0
        self.created_ms, self._first_timestamp = now_ms, None
        for each in entries:
            fields = each.last_offset, each.place, each.newest, each.size_bytes, each.delta, each.leader_epoch
            self._queue_up(*fields)
        self._least_place = None
        self.cuts += 1
        self._touch()

    # --- opening

    def trust(self, checkpoint: int) -> bool:
        """Of a queue from an earlier life: keeps the entries that point before the checkpoint of the commit log.

        Returns whether any others were there.
        """
        queue = self.queue
        written = queue.count
        count, last = queue.trusted(checkpoint)
        if count < written:
            queue.cut(count)
            self._touch()
        if last is not None:
            self.size, self._newest = last.end, last.newest
        return count < written

    # --- places

    def least_place(self) -> tuple[int | None, bool]:
        """The least place that the queue points at, None in a segment that is empty or has left; and whether later
        segments point further.

        They do where a batch was not moved: places rise from there on. Raises CorruptMessage where an entry that tells
        is damaged: then nobody knows.
        """
        if self._has_left:
            return None, False
        if self._least_place is None:
            try:
                self._least_place = self._find_least_place()
            except FileNotFoundError:
                self.leave_if_removed()
                return None, False
        return self._least_place

    def _find_least_place(self) -> tuple[int | None, bool]:
        queue, least = self.queue, None
        for n in range(queue.count):
            place = queue.follower(n).place
            least = place if least is None else min(least, place)
            if not queue.is_moved(n):
                return least, True
        return least, False

    def points_at(self, last_offset: int, place: int) -> bool:
        """Whether the batch with this last offset is the one that stands at a place; not where the segment has left."""
        if self._has_left:
            return False
        try:
            n = self.queue.first_with(last_offset)
            if n == self.queue.count and n:
                self.queue.entry(n - 1)
            return n < self.queue.count and self.queue.follower(n).place == place
        except FileNotFoundError:
            self.leave_if_removed()
            return False

    def held(self) -> Iterator[Queued]:
        """The entries of the queue; none where the segment has left. Raises CorruptMessage where one is damaged."""
        try:
            yield from () if self._has_left else self.entries(0)
        except FileNotFoundError:
            self.leave_if_removed()

    def renewal(self, places: dict[int, int]) -> QueueRenewal | None:
        """The queue with new places for old ones; None where the segment has left."""
        try:
            return None if self._has_left else QueueRenewal(self, self._disk, places)
        except FileNotFoundError:
            self.leave_if_removed()
            return None

    def renewed(self, content: bytearray) -> None:
        self.queue.renewed(content)
        self._least_place = None

    @property
    def has_left(self) -> bool:
        """The segment has left its log, or the log its directory."""
        return self._has_left


class QueueRenewal:
    """A queue that is to take the place of the one that a segment has."""

    __slots__ = ("_content", "_cuts", "_disk", "_segment")

    def __init__(self, segment: QueueSegment, disk: Disk, places: dict[int, int]) -> None:
        self._segment = segment
        self._disk = disk
        self._cuts = segment.cuts
        self._content = segment.queue.content()
        for n in range(segment.queue.count):
            place = places.get(segment.queue.entry(n).place)
            if place is not None:
                Queue.move_in(self._content, n, place)

    def write(self) -> None:
        """For a worker."""
        try:
            if not self._segment.has_left:
                write_beside(self._disk, self._segment.log_path, bytes(self._content)).sync()
        except FileNotFoundError:
            self._segment.leave_if_removed()

    def put_in_place(self) -> bool:
        """False where the segment was cut meanwhile; what was added to it meanwhile follows."""
        try:
            return self._segment.has_left or self._put_in_place()
        except FileNotFoundError:
            self._segment.leave_if_removed()
            return True

    def _put_in_place(self) -> bool:
        segment = self._segment
        if segment.is_removed:
            # Its directory must not get a file back while it is emptied.
            self._disk.remove(segment.log_path + BESIDE)
            segment.park_all()
            return True
        if segment.cuts != self._cuts:
            self._disk.remove(segment.log_path + BESIDE)
            return False
        more = segment.queue.content()[len(self._content) :]
        if more:
            self._disk.open(segment.log_path + BESIDE).write(more, len(self._content))
            self._content += more
        put_in_place(self._disk, segment.log_path)
        segment.renewed(self._content)
        return True
