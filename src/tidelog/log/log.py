"""One partition on disk: segments in the order of their base offsets, the last of them active.

    log_start_offset   the first offset that may be read; moved up by retention and DeleteRecords
    log_end_offset     the next offset to be given away
    recovery_point     offsets below it are on the device; after a crash only what lies past it is checked

An append checks the batch, gives it its offset and leader epoch in place, and writes it with one write: whatever came
over the wire goes to the file as it is. A read returns a slice of a file, whole batches, for `sendfile`.

Finding a position costs the same at any log size: bisect for the segment, binary search in its mapped index, a scan of
a few KiB of headers. Readers at the end of the log, and readers that go on where they stopped, do not even need that:
the positions of the last appends and of the ends of the last reads are remembered.

A write that fails is cut off again and takes the directory offline: nothing half-written stays behind, and nothing that
failed was ever counted.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from tidelog.log.config import LOG_APPEND_TIME, LogConfig
from tidelog.log.disk import Disk, File
from tidelog.log.errors import (
    CorruptMessage,
    InvalidRecord,
    MessageTooLarge,
    OffsetOutOfRange,
    RecordListTooLarge,
    UnexpectedAppendOffset,
)
from tidelog.log.flush import FlushWork
from tidelog.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from tidelog.log.leader_epochs import LeaderEpochs
from tidelog.log.log_dir import LogDir, PendingDeletion
from tidelog.log.segment import Segment
from tidelog.wire.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    BatchHeader,
    InvalidBatch,
    computed_crc,
    crc_matches,
    iter_headers,
    patch_place,
    patch_timestamps,
    read_header,
)

#: how many positions each of the two generations of remembered positions holds
_REMEMBERED: Final = 128


class FileSlice:
    """Whole batches in a file, ready for `sendfile`. Holds the file: it stays readable whatever becomes of the log."""

    __slots__ = ("file", "position", "size_bytes")

    def __init__(self, file: File, position: int, size_bytes: int) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes

    def fileno(self) -> int:
        return self.file.fileno()

    def read(self) -> bytes:
        """The bytes themselves, for those who cannot send a file."""
        return self.file.pread(self.size_bytes, self.position)


class LogRead:
    """What a read found. `slice` is None where there is nothing below the bound, or nothing that fits."""

    __slots__ = ("next_offset", "slice")

    def __init__(self, slice: FileSlice | None, next_offset: int) -> None:
        self.slice = slice
        #: every offset of the slice is below it, and the log goes on there
        self.next_offset = next_offset

    @property
    def size_bytes(self) -> int:
        return 0 if self.slice is None else self.slice.size_bytes


class AppendInfo:
    __slots__ = (
        "duplicate",
        "first_offset",
        "flush_due",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "max_timestamp",
        "size_bytes",
    )

    def __init__(self, first_offset: int, last_offset: int, max_timestamp: int, size_bytes: int) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.size_bytes = size_bytes
        #: -1 unless the topic stamps append time
        self.log_append_time_ms = -1
        self.log_start_offset = 0
        #: the batch was already in the log; the offsets are those of then, and nothing was written
        self.duplicate = False
        #: `flush.messages` is reached: not to be acknowledged before a flush
        self.flush_due = False


class TimestampedOffset(NamedTuple):
    """The answer to a lookup by time. `leader_epoch` is -1 where it is not known."""

    timestamp: int
    offset: int
    leader_epoch: int


class Log:
    __slots__ = (
        "_append_time",
        "_bases",
        "_config",
        "_disk",
        "_flushed_ms",
        "_generation",
        "_old",
        "_young",
        "active",
        "directory",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "path",
        "recovery_point",
        "segments",
        "topic",
        "topic_id",
    )

    def __init__(self, directory: LogDir, path: str, topic: str, partition: int, config: LogConfig) -> None:
        self.directory = directory
        self._disk: Disk = directory.disk
        self.path = path
        self.topic = topic
        self.partition = partition
        self.topic_id: bytes | None = None
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.recovery_point = 0
        self.leader_epochs = LeaderEpochs()
        #: never empty once the log is open; the last one is `active`
        self.segments: list[Segment] = []
        self._bases: list[int] = []
        self.active: Segment
        #: positions of batches by the offset they begin with: a young and an old generation
        self._young: dict[int, tuple[Segment, int]] = {}
        self._old: dict[int, tuple[Segment, int]] = {}
        self._generation = 0
        self._flushed_ms = 0
        self.config = config

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._append_time = config.message_timestamp_type == LOG_APPEND_TIME

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def adopt(self, segments: list[Segment]) -> None:
        """Takes the segments that were loaded, in order."""
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self._forget_positions()

    # --- appending

    def append_as_leader(self, records: memoryview, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Appends what a client sent: exactly one batch, which is patched in place and must be writable."""
        if self.directory.failure is not None:
            raise self.directory.offline()
        if len(records) < HEADER_SIZE:
            raise CorruptMessage(f"{len(records)} bytes are no batch")
        header = read_header(records)
        records = self._check_produced(records, header)
        config = self._config
        size_bytes = len(records)
        if size_bytes > config.segment_bytes:
            raise RecordListTooLarge(f"{size_bytes} bytes exceed segment.bytes = {config.segment_bytes}")
        first_offset = self.log_end_offset
        last_offset = first_offset + header.last_offset_delta
        max_timestamp = header.max_timestamp
        if self._append_time:
            max_timestamp = now_ms
            patch_timestamps(records, 0, header, header.attributes | LOG_APPEND_TIME_FLAG, now_ms)
        patch_place(records, 0, first_offset, header.length, leader_epoch)
        if leader_epoch != self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, first_offset)
        info = self._write(records, first_offset, last_offset, max_timestamp, now_ms, None)
        if self._append_time:
            info.log_append_time_ms = now_ms
        return info

    def _check_produced(self, records: memoryview, header: BatchHeader) -> memoryview:
        size_bytes = header.size_bytes
        if size_bytes > self._config.max_message_bytes:
            raise MessageTooLarge(f"{size_bytes} bytes exceed max.message.bytes = {self._config.max_message_bytes}")
        if header.magic != 2:
            raise InvalidRecord(f"message format {header.magic} is not supported")
        if size_bytes < HEADER_SIZE or size_bytes > len(records):
            raise CorruptMessage(f"a batch claims {size_bytes} bytes, {len(records)} came")
        if size_bytes < len(records):
            records = records[:size_bytes]
        if computed_crc(records, 0, size_bytes) != header.crc:
            raise CorruptMessage(f"the CRC of a batch for {self.name} does not match")
        if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
            raise InvalidRecord(f"{header.record_count} records and a last offset delta of {header.last_offset_delta}")
        if header.base_offset != 0:
            raise InvalidRecord(f"the base offset of a produced batch must be 0, not {header.base_offset}")
        return records

    def append_as_follower(self, records: memoryview, now_ms: int = 0) -> AppendInfo:
        """Appends what a leader sent: batches with their offsets, continuing this log; a torn last one is left out."""
        if self.directory.failure is not None:
            raise self.directory.offline()
        spans: list[tuple[int, int, int]] = []
        epochs: list[tuple[int, int]] = []
        first_offset = last_offset = -1
        max_timestamp = -1
        end = 0
        try:
            for position, header in iter_headers(records):
                if not crc_matches(records, position, header):
                    raise CorruptMessage(f"the CRC of a fetched batch for {self.name} does not match")
                if first_offset < 0:
                    first_offset = header.base_offset
                    last_offset = self.log_end_offset - 1
                if header.base_offset <= last_offset or header.last_offset_delta < 0:
                    raise UnexpectedAppendOffset(
                        f"{self.name} ends at {last_offset + 1}, a batch of {header.base_offset} to "
                        f"{header.last_offset} cannot follow",
                        first_offset,
                        header.last_offset,
                    )
                last_offset = header.last_offset
                end = position + header.size_bytes
                max_timestamp = max(max_timestamp, header.max_timestamp)
                spans.append((last_offset, header.max_timestamp, header.size_bytes))
                if header.leader_epoch >= 0 and (not epochs or epochs[-1][0] != header.leader_epoch):
                    epochs.append((header.leader_epoch, header.base_offset))
        except InvalidBatch as error:
            raise CorruptMessage(str(error)) from None
        if not spans:
            return AppendInfo(self.log_end_offset, self.log_end_offset - 1, -1, 0)
        if end > self._config.segment_bytes:
            raise RecordListTooLarge(f"{end} bytes exceed segment.bytes = {self._config.segment_bytes}")
        for epoch, start_offset in epochs:
            self.leader_epochs.assign(epoch, start_offset)
        records = records if end == len(records) else records[:end]
        return self._write(records, first_offset, last_offset, max_timestamp, now_ms, spans if len(spans) > 1 else None)

    def _write(
        self,
        records: memoryview,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
        now_ms: int,
        spans: list[tuple[int, int, int]] | None,
    ) -> AppendInfo:
        size_bytes = len(records)
        segment = self.active
        config = self._config
        try:
            if segment.should_roll(size_bytes, last_offset, max_timestamp, now_ms, config):
                segment = self.roll(now_ms, first_offset)
            position = segment.append(records, last_offset, max_timestamp, spans)
        except OSError as error:
            raise self.directory.fail(error) from error
        self.log_end_offset = last_offset + 1
        self._remember(first_offset, segment, position)
        info = AppendInfo(first_offset, last_offset, max_timestamp, size_bytes)
        info.log_start_offset = self.log_start_offset
        if last_offset + 1 - self.recovery_point >= config.flush_messages:
            info.flush_due = True
            self.directory.flushes.add(self)
        return info

    def roll(self, now_ms: int, next_offset: int | None = None) -> Segment:
        """Seals the active segment and opens the next one; an empty one stays, unless the next offset does not fit."""
        base_offset = self.log_end_offset if next_offset is None else max(next_offset, self.log_end_offset)
        old = self.active
        if old.size == 0 and old.base_offset == base_offset:
            return old
        if self.directory.recovery_points_stale:
            # Sealed segments below the recovery point are trusted after a crash, so it may not lie any longer.
            self.directory.checkpoint_recovery_points()
        old.seal()
        segment = Segment.create(self._disk, self.path, base_offset, self._config, now_ms)
        segment.roll_jitter_ms = self._jitter_ms(base_offset)
        self.segments.append(segment)
        self._bases.append(base_offset)
        self.active = segment
        self.directory.flushes.add(self)
        return segment

    def _jitter_ms(self, base_offset: int) -> int:
        """Different for each log and segment, the same in each run: rolls spread without a source of chance."""
        bound = min(self._config.segment_jitter_ms, self._config.segment_ms)
        if bound <= 0:
            return 0
        import zlib

        return zlib.crc32(f"{self.name}/{base_offset}".encode()) % bound

    # --- reading

    def read(self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool = True) -> LogRead:
        """Whole batches from the one that holds `offset` on, all below `max_offset`, from one segment.

        At most `max_bytes`, except that `min_one_batch` brings the first batch whatever its size.
        """
        end_offset = self.log_end_offset
        if offset < self.log_start_offset or offset > end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.name} is not within {self.log_start_offset} and {end_offset}"
            )
        if max_offset > end_offset:
            max_offset = end_offset
        if offset >= max_offset:
            return LogRead(None, offset)
        if self.directory.failure is not None:
            raise self.directory.offline()
        try:
            return self._read(offset, max_bytes, max_offset, min_one_batch)
        except OSError as error:
            raise self.directory.fail(error) from error

    def _read(self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool) -> LogRead:
        found = self._position(offset)
        if found is None:
            return LogRead(None, offset)
        segment, position = found
        end, next_offset = self._bound(segment, max_offset)
        if end <= position:
            return LogRead(None, offset)
        if end - position > max_bytes:
            end, next_offset = segment.boundary(position, position + max_bytes)
            if end == position:
                if not min_one_batch:
                    return LogRead(None, offset)
                span = segment.span_at(position)
                end, next_offset = position + span.size_bytes, span.last_offset + 1
        self._remember(next_offset, segment, end)
        return LogRead(FileSlice(segment.file, position, end - position), next_offset)

    def _bound(self, segment: Segment, max_offset: int) -> tuple[int, int]:
        """How far a reader bounded by `max_offset` may go in the segment, and the offset that comes there."""
        if max_offset == self.log_end_offset:
            if segment is self.active:
                return segment.size, max_offset
        else:
            found = self._position(max_offset)
            if found is not None and found[0] is segment:
                return found[1], max_offset
        # The bound lies in a later segment: all of this one may be read.
        return segment.size, self._bases[bisect_right(self._bases, segment.base_offset)]

    def _position(self, offset: int) -> tuple[Segment, int] | None:
        """The segment and position of the batch that holds `offset`, or of the first one after it."""
        found = self._young.get(offset) or self._old.get(offset)
        if found is not None and found[1] < found[0].size:
            return found
        at = bisect_right(self._bases, offset) - 1
        while at < len(self.segments):
            segment = self.segments[at]
            span = segment.find(offset)
            if span is not None:
                if span.base_offset == offset:
                    self._remember(offset, segment, span.position)
                return segment, span.position
            at += 1
        return None

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        young = self._young
        if len(young) >= _REMEMBERED:
            self._old = young
            young = self._young = {}
        young[offset] = (segment, position)

    def _forget_positions(self) -> None:
        self._young = {}
        self._old = {}

    # --- cutting

    def truncate_to(self, offset: int, now_ms: int = 0) -> bool:
        """Cuts everything from `offset` on; returns whether there was anything. A batch that holds it goes whole."""
        if offset < 0:
            raise ValueError(f"cannot truncate to {offset}")
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        try:
            keep = bisect_right(self._bases, offset)
            self._drop(keep, len(self.segments))
            self.active = self.segments[-1]
            self.active.truncate_to(offset, now_ms)
        except OSError as error:
            raise self.directory.fail(error) from error
        self._ends_at(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.leader_epochs.truncate_from_end(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> None:
        """Drops everything; the log is empty and begins at `offset`."""
        try:
            self._drop(0, len(self.segments))
            segment = Segment.create(self._disk, self.path, offset, self._config, now_ms)
        except OSError as error:
            raise self.directory.fail(error) from error
        self.adopt([segment])
        self._ends_at(offset)
        self.log_start_offset = offset
        self.leader_epochs.clear()

    def _ends_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self._generation += 1
        if self.recovery_point > offset:
            self.recovery_point = offset
            self.directory.recovery_points_stale = True
        self._forget_positions()

    def _drop(self, first: int, end: int) -> None:
        """Takes segments out of the log; their files go after `file.delete.delay.ms`."""
        dropped = self.segments[first:end]
        del self.segments[first:end], self._bases[first:end]
        self._forget_positions()
        paths = [path for segment in dropped for path in segment.rename_deleted()]
        if paths:
            deletion = PendingDeletion(self._disk, paths, self._config.file_delete_delay_ms)
            self.directory.deletions.append(deletion)

    # --- flushing

    def flush_work(self) -> FlushWork | None:
        """What must be synced for the whole log to be on the device; None if it is already."""
        self.directory.flushes.discard(self)
        point = self.recovery_point
        if point >= self.log_end_offset and not self.leader_epochs.dirty:
            return None
        work = FlushWork(self.log_end_offset, self._generation)
        first = max(bisect_right(self._bases, point) - 1, 0)
        for segment in self.segments[first:]:
            work.add(segment.file.sync)
            if segment is not self.active:
                work.add_path(self._disk, segment.offset_index.path)
                work.add_path(self._disk, segment.time_index.path)
        if self.leader_epochs.dirty:
            work.add_replacement(self._disk, f"{self.path}/{LEADER_EPOCH_FILE}", self.leader_epochs.format())
            self.leader_epochs.dirty = False
        if self._bases[-1] >= point:
            work.add_directory(self._disk, self.path)
        return work

    def flush_done(self, work: FlushWork) -> None:
        """Takes note of work that ran; raises if it failed."""
        if work.error is not None:
            raise self.directory.fail(work.error) from work.error
        if work.generation == self._generation and work.end_offset > self.recovery_point:
            self.recovery_point = work.end_offset

    def flush(self) -> None:
        """Synchronous: the log is on the device when this returns."""
        work = self.flush_work()
        if work is not None:
            work()
            self.flush_done(work)

    # --- leaving

    def move(self, path: str) -> None:
        """Renames the log's directory; the log goes on under the new name."""
        self._disk.rename(self.path, path)
        self.path = path
        for segment in self.segments:
            segment.moved(path)

    def close(self) -> None:
        """Flushes, trims and gives everything back, so that the next opening need not scan."""
        self.flush()
        try:
            self.active.seal()
            if self.log_end_offset > self.active.base_offset:
                self.active.sync()
                self.active.offset_index.sync()
                self.active.time_index.sync()
        except OSError as error:
            raise self.directory.fail(error) from error
        self.abandon()

    def abandon(self) -> None:
        """Gives descriptors and mappings back without touching the disk."""
        self.directory.flushes.discard(self)
        for segment in self.segments:
            segment.park()
