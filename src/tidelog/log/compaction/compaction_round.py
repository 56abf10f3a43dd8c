"""One round of compaction of one log, on a worker thread: segment files in, `.cleaned` files out.

The first step reads the dirty part and notes for each key the newest offset, as far as the map has room: up to there
the round will go. Each further step takes one group of segments and copies what stays of it into a new segment:

    the newest record of each key         but a tombstone only until its delete horizon, `delete.retention.ms` from
                                          the round that first met it
    records past the end of the map       as they are
    the last batch of each producer       at least its header, for the sequence number in it
    the last batch of the round           at least its header, so that the log's offsets have no hole at its end
    records without a key, and those      never
    of aborted transactions
    transaction markers                   until nothing of their transaction is left, and then until a delete horizon

Offsets never change. The plan (`Job`) was made on the broker's thread and holds all that is needed; from the files
nothing is read but sealed segments. Should retention or a truncation take one of these away meanwhile, the round fails
or its result is not used, and nothing is lost but time.

A batch that fails its CRC, or whose records are malformed, ends the round: damage is not rewritten into something that
looks whole.
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from tidelog.log import kernel
from tidelog.log.cleaned_segment import CleanedSegment, Output
from tidelog.log.compaction.cleaner_throttle import Throttle
from tidelog.log.compaction.compaction_plan import CompactionSource, group
from tidelog.log.compaction.compaction_txn import CompactedTransactions
from tidelog.log.config import LogConfig
from tidelog.log.disk import AppendedFile, Disk
from tidelog.log.errors import CorruptMessage
from tidelog.log.txn_index import AbortedTxn, TxnIndex
from tidelog.wire.batch import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_OVERHEAD,
    BatchHeader,
    InvalidBatch,
    pack_batch,
    read_header,
)
from tidelog.wire.check import unpack
from tidelog.wire.compression import compress
from tidelog.wire.records import read_end_txn_marker

_SLOT_SIZE: Final = 16
_LEAST_SLOTS: Final = 16
_MAX_SLOTS: Final = 0xFFFFFFFF
_LEAST_BUFFER_BYTES: Final = 16 << 10
#: from this size on large pages are asked for
_LARGE_BYTES: Final = 4 << 20
_MIN_RECORD_SIZE: Final = 7

#: by the kernel's codes
_FAULTS: Final = {
    kernel.Stop.CUT: "the file ends inside a batch",
    kernel.Stop.BAD_BATCH: "these bytes cannot be the header of a batch",
    kernel.Stop.BAD_CRC: "the batch fails its CRC",
    kernel.Stop.BAD_RECORDS: "the records of the batch are malformed",
}

#: takes whole batches from a piece of a segment that was read from a position on; returns how many bytes, -1 to stop
Step = Callable[[CompactionSource, int, bytes], int]


@dataclass(slots=True, frozen=True)
class CleanerConfig:
    """`log.cleaner.*`, with Apache Kafka's defaults."""

    dedupe_buffer_size: int = 128 << 20
    io_buffer_size: int = 512 << 10
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = float("inf")


@dataclass(slots=True, frozen=True)
class Job:
    """What a round needs to know, as it was when the round was planned."""

    disk: Disk
    #: of the partition
    directory: str
    config: LogConfig
    #: all segments below the first uncleanable offset
    sources: list[CompactionSource]
    first_dirty_offset: int
    #: where the batch with the first dirty offset begins, in the source that holds it
    first_dirty_position: int
    first_uncleanable_offset: int
    #: transactions that have records in the range, but their abort marker behind it
    aborted_behind: list[AbortedTxn]
    #: the last offset of each producer's last batch
    last_data_offsets: list[int]
    #: the epochs of producers of which only a marker is known
    marker_epochs: dict[int, int]
    now_ms: int


@dataclass(slots=True)
class CleanerStats:
    """What a round has done so far."""

    map_bytes_read: int = 0
    map_entries: int = 0
    map_slots: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0


class Compaction:
    __slots__ = (
        "_chunk_bytes",
        "_group_at",
        "_groups",
        "_job",
        "_load_factor",
        "_map_bytes",
        "_out",
        "_output",
        "_sieve",
        "_throttle",
        "_txns",
        "end_offset",
        "result",
        "stats",
    )

    def __init__(self, job: Job, config: CleanerConfig, throttle: Throttle) -> None:
        self._job = job
        self._map_bytes = config.dedupe_buffer_size
        self._load_factor = config.io_buffer_load_factor
        self._chunk_bytes = max(config.io_buffer_size // 2, _LEAST_BUFFER_BYTES)
        self._throttle = throttle
        self._sieve = kernel.Sieve()
        self._txns = CompactedTransactions(())
        self._groups: list[list[CompactionSource]] | None = None
        self._group_at = 0
        self._out = bytearray()
        self._output: Output | None = None
        #: everything below it is clean when the round is over; known after the first step
        self.end_offset = job.first_dirty_offset
        #: what the last step made: a group and the segment that is to replace it; None where it stays as it is
        self.result: tuple[list[CompactionSource], CleanedSegment] | None = None
        self.stats = CleanerStats()

    @property
    def finished(self) -> bool:
        return self._groups is not None and self._group_at >= len(self._groups)

    def step(self) -> None:
        """The next piece of work, on any thread. Any error that escapes ends the round."""
        self.result = None
        try:
            if self._groups is None:
                self._fill()
                self._begin_sifting()
            else:
                self._clean_next(self._groups[self._group_at])
                self._group_at += 1
        except BaseException:
            self._forget()
            raise
        if self.finished:
            self._forget()

    def _forget(self) -> None:
        """Gives the map back here and not on the broker's thread: unmapping it takes its time."""
        self._sieve = kernel.Sieve()

    def _clean_next(self, sources: list[CompactionSource]) -> None:
        output = self._output = Output(self._job.disk, self._job.directory, sources[0].base_offset, self._job.config)
        try:
            cleaned = self._clean(sources, output)
        except BaseException:
            output.remove()
            raise
        if cleaned is not None:
            self.result = (sources, cleaned)

    def _walk(self, source: CompactionSource, position: int, step: Step) -> None:
        """Reads a segment from a batch boundary on, and hands it over piece by piece until all of it is taken."""
        file = self._job.disk.open(source.log_path)
        self._sieve.use_bounds(source.base_offset, source.end_offset)
        want = self._chunk_bytes
        while position < source.size:
            data = file.pread(min(want, source.size - position), position)
            self._throttle(len(data))
            try:
                taken = step(source, position, data)
            except InvalidBatch as error:
                raise _corrupt(source, position, error.message) from None
            if taken < 0:
                return
            position += taken
            want = self._chunk_bytes if taken else self._size_at(source, position, data)

    def _size_at(self, source: CompactionSource, position: int, data: bytes) -> int:
        """The size of a batch that was not read as a whole, and must be in the file."""
        size = LOG_OVERHEAD + int.from_bytes(data[LENGTH_AT:LOG_OVERHEAD], "big") if len(data) >= LOG_OVERHEAD else 0
        if size <= len(data) or size > source.size - position:
            raise _corrupt(source, position, kernel.Stop.CUT)
        return size

    # --- the first step: which offset of each key is the newest

    def _fill(self) -> None:
        job = self._job
        offsets = max(job.first_uncleanable_offset - job.first_dirty_offset, 1)
        # No more keys than offsets: a small log takes a small map.
        wanted = int(offsets / self._load_factor) + _LEAST_SLOTS
        slots = max(min(wanted, self._map_bytes // _SLOT_SIZE, _MAX_SLOTS), _LEAST_SLOTS)
        limit = max(min(int(slots * self._load_factor), slots - 1), 1)
        secret = os.urandom(16)
        secrets = int.from_bytes(secret[:8], "big"), int.from_bytes(secret[8:], "big")
        self._sieve.use_map(_memory(slots * _SLOT_SIZE), limit, *secrets, crc_tables(), job.first_dirty_offset)
        ahead = [txn for txn in self._all_aborted() if txn.last_offset >= job.first_dirty_offset]
        self._txns = CompactedTransactions(ahead)
        first = max((at for at, s in enumerate(job.sources) if s.base_offset <= job.first_dirty_offset), default=0)
        for at, source in enumerate(job.sources[first:]):
            self._walk(source, 0 if at else job.first_dirty_position, self._fill_from)
            if self._sieve.stop == kernel.Stop.FULL:
                break
            self._sieve.pass_over(source.end_offset - 1)
        self.end_offset = max(self._sieve.latest_offset + 1, job.first_dirty_offset)
        self.stats.map_entries = self._sieve.entries
        self.stats.map_slots = slots

    def _all_aborted(self) -> list[AbortedTxn]:
        """The aborted transactions that have records in the range of the round."""
        aborted = list(self._job.aborted_behind)
        for source in self._job.sources:
            aborted += TxnIndex(AppendedFile(self._job.disk, source.txn_index_path), source.base_offset).entries()
        return aborted

    def _fill_from(self, source: CompactionSource, position: int, data: bytes) -> int:
        """Takes the whole batches of a piece; -1 when the map is full."""
        sieve = self._sieve
        at = 0
        while True:
            at = sieve.fill(data, at, len(data))
            stop = sieve.stop
            if stop == kernel.Stop.SPECIAL:
                header = read_header(data, at)
                batch = memoryview(data)[at : at + header.size_bytes]
                stop = self._fill_special(header, batch)
                at += header.size_bytes if stop == kernel.Stop.DONE else 0
            if stop == kernel.Stop.FULL:
                return -1
            if stop == kernel.Stop.CUT:
                self.stats.map_bytes_read += at
                return at
            if stop != kernel.Stop.DONE:
                raise _corrupt(source, position + at, stop)

    def _fill_special(self, header: BatchHeader, batch: memoryview) -> int:
        if header.is_control:
            self._txns.may_go(header, _marker_kind(header, batch))
        elif not self._txns.is_aborted(header):
            plain = _plain(header, batch)
            stop = self._sieve.fill_one(plain, 0, len(plain))
            if stop != kernel.Stop.DONE:
                return stop
        self._sieve.pass_over(header.last_offset)
        return kernel.Stop.DONE

    # --- the other steps: what stays

    def _begin_sifting(self) -> None:
        job = self._job
        self._groups = group([source for source in job.sources if source.base_offset < self.end_offset], job.config)
        self._txns = CompactedTransactions(self._all_aborted())
        keep_ends = sorted({*job.last_data_offsets, job.first_uncleanable_offset - 1})
        self._sieve.use_rules(array("q", keep_ends), job.now_ms, job.now_ms + job.config.delete_retention_ms)
        self._make_room(self._chunk_bytes)

    def _make_room(self, batch_bytes: int) -> None:
        """An output buffer for at least one batch of this size, of whatever records."""
        most_records = batch_bytes // _MIN_RECORD_SIZE
        self._out = bytearray(2 * batch_bytes + 12 * most_records)
        self._sieve.use_output(self._out, array("q", bytes(8 * (most_records + 2))))

    def _find_room(self, batch_bytes: int) -> None:
        """The sieve has found no room for a batch of this size."""
        if self._sieve.out_at:
            self._flush()
        else:
            self._make_room(batch_bytes)

    def _clean(self, sources: list[CompactionSource], output: Output) -> CleanedSegment | None:
        sieve = self._sieve
        sieve.changed = len(sources) > 1
        read, kept = sieve.records_read, sieve.records_kept
        for source in sources:
            self._walk(source, 0, self._sift_from)
        self._flush()
        self.stats.messages_read += sieve.records_read - read
        self.stats.messages_written += sieve.records_kept - kept
        indexed = self._txns.take_indexed()
        if not sieve.changed:
            # Nothing goes: the segment is left alone.
            output.remove()
            return None
        return output.finish(indexed, self._job.disk.modified_ms(sources[-1].log_path))

    def _flush(self) -> None:
        assert self._output is not None
        size = self._sieve.out_at
        if size:
            self._throttle(size)
            self._output.write(memoryview(self._out)[:size])
            self.stats.bytes_written += size
            self._sieve.out_at = 0

    def _sift_from(self, source: CompactionSource, position: int, data: bytes) -> int:
        """Takes the whole batches of a piece."""
        sieve = self._sieve
        at = 0
        while True:
            at = sieve.sift(data, at, len(data))
            stop = sieve.stop
            if stop == kernel.Stop.SPECIAL:
                header = read_header(data, at)
                stop = self._sift_special(header, memoryview(data)[at : at + header.size_bytes])
                if stop == kernel.Stop.DONE:
                    at += header.size_bytes
            elif stop == kernel.Stop.NO_ROOM:
                self._find_room(read_header(data, at).size_bytes)
                continue
            if stop == kernel.Stop.CUT:
                self.stats.bytes_read += at
                return at
            if stop != kernel.Stop.DONE:
                raise _corrupt(source, position + at, stop)

    def _sift_special(self, header: BatchHeader, batch: memoryview) -> int:
        how = self._judge(header, batch)
        codec = header.attributes & CODEC_MASK
        plain = _plain(header, batch) if how == kernel.How.SIFT else batch
        sieve = self._sieve
        start = sieve.out_at
        while (stop := sieve.sift_one(plain, 0, len(plain), how)) == kernel.Stop.NO_ROOM:
            self._find_room(len(plain))
            start = 0
        if stop != kernel.Stop.DONE or codec == 0 or how != kernel.How.SIFT or sieve.out_at == start:
            return stop
        if sieve.untouched:
            packed: bytes | bytearray | memoryview = batch
        else:
            left = read_header(self._out, start)
            if left.record_count == 0:
                return stop
            payload = memoryview(self._out)[start + HEADER_SIZE : sieve.out_at]
            packed = pack_batch(left._replace(attributes=left.attributes | codec), compress(codec, payload))
        sieve.out_at = start
        self._append(packed)
        return stop

    def _append(self, batch: bytes | bytearray | memoryview) -> None:
        sieve = self._sieve
        while sieve.out_at + len(batch) > len(self._out):
            self._find_room(len(batch))
        end = sieve.out_at + len(batch)
        self._out[sieve.out_at : end] = batch
        sieve.out_at = end

    def _judge(self, header: BatchHeader, batch: memoryview) -> int:
        """What becomes of a batch that is transactional, a marker or compressed."""
        if not header.is_control:
            return kernel.How.DISCARD if self._txns.is_aborted(header) else kernel.How.SIFT
        may_go = self._txns.may_go(header, _marker_kind(header, batch))
        horizon_ms = header.delete_horizon_ms
        over = may_go and horizon_ms is not None and horizon_ms <= self._job.now_ms
        if over or header.record_count == 0:
            # Where nothing but a marker tells of a producer, its header goes on telling the epoch.
            last = self._job.marker_epochs.get(header.producer_id) == header.producer_epoch
            return kernel.How.EMPTY if last else kernel.How.DISCARD
        return kernel.How.KEEP_FOR_NOW if may_go else kernel.How.KEEP


def _memory(size_bytes: int) -> memoryview:
    """Zeroed memory, as numbers of 64 bits; real only where it is touched, and in large pages where there are any."""
    try:
        memory = mmap.mmap(-1, size_bytes)
    except OSError as error:
        # It is no error of the disk.
        raise MemoryError(f"{size_bytes} bytes for the keys: {error.strerror}") from None
    if size_bytes >= _LARGE_BYTES:
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except (AttributeError, OSError):
            pass
    return memoryview(memory).cast("Q")


def _plain(header: BatchHeader, batch: memoryview) -> memoryview | bytearray:
    """The batch with its records unpacked, as far as the sieve looks at it."""
    if header.attributes & CODEC_MASK == 0 or header.record_count == 0:
        return batch
    plain = bytearray(batch[:HEADER_SIZE])
    plain += unpack(batch, header)
    fields = header._replace(length=len(plain) - LOG_OVERHEAD, attributes=header.attributes & ~CODEC_MASK)
    HEADER.pack_into(plain, 0, *fields)
    return plain


def _marker_kind(header: BatchHeader, batch: memoryview) -> int | None:
    marker = read_end_txn_marker(batch) if header.record_count else None
    return None if marker is None else marker.type


def _corrupt(source: CompactionSource, position: int, fault: int | str) -> CorruptMessage:
    what = fault if isinstance(fault, str) else _FAULTS[fault]
    return CorruptMessage(f"{source.log_path} at position {position}: {what}")


@cache
def crc_tables() -> array[int]:
    """CRC-32C eight bytes at a time: entry 256 * n + b is what byte b does with n zero bytes behind it."""
    table = array("I", bytes(4 * 8 * 256))
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table[byte] = crc
    for at in range(256, 8 * 256):
        crc = table[at - 256]
        table[at] = table[crc & 0xFF] ^ crc >> 8
    return table
