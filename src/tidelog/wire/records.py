"""What is inside a record batch: reading records, building batches, and rebuilding them for the log.

Reading goes through an index: one pass of the kernel finds where each key and value lies, and objects are made only of
what is asked for. Building makes the whole batch in one buffer.

Rebuilding keeps what the log must not lose. A batch from which compaction takes records keeps its base offset, last
offset delta and base sequence, from which the producer's state is restored, so that the offset deltas of its records
have gaps; emptied, it is a bare header. If a delete horizon is set, it takes the place of the base timestamp, and the
records' timestamp deltas are rewritten against it.

A control batch holds one record: key = version int16, type int16 (0 abort, 1 commit); for these two the value is
version int16, coordinator epoch int32.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tidelog.wire import kernel
from tidelog.wire.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    MIN_RECORD_SIZE,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    Buffer,
    InvalidBatch,
    iter_headers,
    pack_batch,
    read_header,
    write_header,
)
from tidelog.wire.check import unpack
from tidelog.wire.compression import DEFAULT_LIMIT_BYTES, NONE, compress
from tidelog.wire.errors import ErrorCode

ABORT: Final = 0
COMMIT: Final = 1

_MAX_INT64: Final = 0x7FFFFFFFFFFFFFFF
_CONTROL_KEY: Final = struct.Struct(">hh")
_END_TXN_VALUE: Final = struct.Struct(">hi")
_SEQUENCES: Final = (list, tuple)

Headers = Sequence[tuple[str | bytes, bytes | None]]
#: (timestamp, key, value, headers): what a batch is built of
NewRecord = tuple[int, Buffer | None, Buffer | None, Headers | None]


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class EndTxnMarker(NamedTuple):
    """The control record that ends a transaction on a partition."""

    type: int
    coordinator_epoch: int


class RecordIndex:
    """Where the records of one batch lie: `payload` unpacked, `columns` as the kernel's `walk_records` writes them."""

    __slots__ = ("columns", "count", "header", "payload")

    def __init__(self, batch: Buffer, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        view = memoryview(batch)
        self.header = header = read_header(view)
        self.payload = payload = unpack(view, header, limit_bytes)
        self.count = count = header.record_count
        if count < 0 or count * MIN_RECORD_SIZE > len(payload):
            raise InvalidBatch(ErrorCode.INVALID_RECORD, f"{count} records do not fit into {len(payload)} bytes")
        self.columns = array("q", bytes(8 * kernel.COLUMNS * count))
        # An empty array would reach the compiled kernel as a buffer without an address.
        out = self.columns if count else None
        outcome, index, *_ = kernel.walk_records(payload, 0, len(payload), count, False, out)
        if outcome != kernel.OK:
            raise InvalidBatch(ErrorCode.INVALID_RECORD, f"record {index}: {kernel.REASONS[outcome]}")

    def column(self, which: int) -> array[int]:
        return self.columns[which * self.count : (which + 1) * self.count]

    def records(self) -> Iterator[Record]:
        """The records as objects, in order."""
        header = self.header
        stamped = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
        # Slices of bytes are the cheapest way to a bytes object each.
        payload = bytes(self.payload)
        base_offset, base_timestamp = header.base_offset, header.base_timestamp
        columns = [self.column(which) for which in range(kernel.COLUMNS)]
        for offset, timestamp, key_at, key_length, value_at, value_length, headers_at, end in zip(
            *columns, strict=True
        ):
            yield Record(
                base_offset + offset,
                base_timestamp + timestamp if stamped is None else stamped,
                payload[key_at : key_at + key_length] if key_length >= 0 else None,
                payload[value_at : value_at + value_length] if value_length >= 0 else None,
                () if payload[headers_at] == 0 else _read_headers(payload, headers_at, end),
            )


def _read_headers(payload: bytes, at: int, end: int) -> tuple[tuple[str, bytes | None], ...]:
    spans = iter(kernel.header_spans(payload, at, end))
    return tuple(
        (
            payload[name_at : name_at + name_length].decode("utf-8", "surrogateescape"),
            payload[value_at : value_at + value_length] if value_length >= 0 else None,
        )
        for name_at, name_length, value_at, value_length in zip(spans, spans, spans, spans, strict=True)
    )


def read_records(batch: Buffer, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Iterator[Record]:
    """The records of one batch, control records included."""
    return RecordIndex(batch, limit_bytes).records()


def iter_records(message_set: Buffer, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Iterator[Record]:
    """The records of all whole batches of a message set, without control batches."""
    view = memoryview(message_set)
    for pos, header in iter_headers(view):
        if not header.is_control:
            yield from RecordIndex(view[pos : pos + header.size_bytes], limit_bytes).records()


def locate_timestamp(
    batch: Buffer, timestamp: int, least_offset: int = 0, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> tuple[int, int] | None:
    """(offset, timestamp) of the batch's first record at or after `timestamp` that is not below `least_offset`."""
    view = memoryview(batch)
    header = read_header(view)
    if header.max_timestamp < timestamp or header.last_offset < least_offset:
        return None
    if header.attributes & LOG_APPEND_TIME_FLAG or least_offset > header.base_offset:
        records = RecordIndex(view, limit_bytes).records()
        return next(
            ((r.offset, r.timestamp) for r in records if r.timestamp >= timestamp and r.offset >= least_offset), None
        )
    payload = unpack(view, header, limit_bytes)
    # A target before every possible delta would leave 64 bits.
    least_delta = max(timestamp - header.base_timestamp, ~_MAX_INT64)
    if least_delta > _MAX_INT64:
        return None
    index, offset_delta, timestamp_delta = kernel.locate_timestamp(
        payload, 0, len(payload), header.record_count, least_delta
    )
    if index < 0:
        return None
    return header.base_offset + offset_delta, header.base_timestamp + timestamp_delta


def build_batch(
    records: Iterable[NewRecord],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: int = NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """A batch of at least one record, its offset deltas counting from zero.

    `log_append_time_ms`, where given, stamps the whole batch; the records keep their own times beneath it.
    """
    if not isinstance(records, _SEQUENCES):
        records = list(records)
    if not records:
        raise ValueError("a batch must have records")
    base_timestamp = records[0][0]
    batch = bytearray(HEADER_SIZE)
    max_timestamp = kernel.append_records(batch, records, base_timestamp)
    if codec != NONE:
        with memoryview(batch) as view:
            packed = compress(codec, view[HEADER_SIZE:], level)
        batch[HEADER_SIZE:] = packed
    attributes = codec
    if transactional:
        attributes |= TRANSACTIONAL_FLAG
    if control:
        attributes |= CONTROL_FLAG
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = log_append_time_ms
    write_header(
        batch,
        base_offset,
        leader_epoch,
        attributes,
        len(records) - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return batch


def build_end_txn_marker(
    marker: EndTxnMarker,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The control batch that commits or aborts a producer's transaction on a partition."""
    key = _CONTROL_KEY.pack(0, marker.type)
    value = _END_TXN_VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [(timestamp, key, value, None)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_end_txn_marker(batch: Buffer) -> EndTxnMarker | None:
    """The marker in a control batch; None where the batch is empty or its control record is of another type."""
    record = next(read_records(batch), None)
    if record is None:
        return None
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "a control record's key is cut short")
    version, kind = _CONTROL_KEY.unpack_from(record.key)
    if version < 0:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"control record version {version} is negative")
    if kind not in (ABORT, COMMIT):
        return None
    if record.value is None or len(record.value) < _END_TXN_VALUE.size:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "a transaction marker's value is cut short")
    version, coordinator_epoch = _END_TXN_VALUE.unpack_from(record.value)
    if version < 0:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"transaction marker version {version} is negative")
    return EndTxnMarker(kind, coordinator_epoch)


def retain(
    index: RecordIndex, keep: Sequence[int], *, delete_horizon_ms: int | None = None, level: int | None = None
) -> bytearray:
    """The batch reduced to the records whose indexes `keep` lists in order, at their old offsets.

    An empty `keep` leaves the bare header, which still tells the producer's last sequence number. `delete_horizon_ms`
    sets the horizon after which tombstones and markers in the batch may go; one that is set already stays.
    """
    header = index.header
    if not keep:
        # Without records there is nothing to unpack, and no time but the largest, which retention still asks for.
        attributes = header.attributes & ~CODEC_MASK & ~DELETE_HORIZON_FLAG
        return pack_batch(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")
    timestamps = index.column(kernel.TIMESTAMP_DELTA)
    fields = {"record_count": len(keep)}
    if not header.attributes & LOG_APPEND_TIME_FLAG:
        fields["max_timestamp"] = header.base_timestamp + max(timestamps[i] for i in keep)
    if delete_horizon_ms is not None and not header.attributes & DELETE_HORIZON_FLAG:
        payload = _rebased(index, keep, delete_horizon_ms)
        fields["attributes"] = header.attributes | DELETE_HORIZON_FLAG
        fields["base_timestamp"] = delete_horizon_ms
    else:
        ends = index.column(kernel.RECORD_END)
        view = memoryview(index.payload)
        payload = bytearray().join(view[ends[i - 1] if i else 0 : ends[i]] for i in keep)
    return pack_batch(header._replace(**fields), compress(header.codec, payload, level))


def _rebased(index: RecordIndex, keep: Sequence[int], base_timestamp: int) -> bytearray:
    """The records of `keep` with their timestamps counted from another base."""
    out = bytearray()
    kept = set(keep)
    base_offset = index.header.base_offset
    stamped = index.header.base_timestamp
    timestamps = index.column(kernel.TIMESTAMP_DELTA)
    for i, record in enumerate(index.records()):
        if i in kept:
            delta = stamped + timestamps[i] - base_timestamp
            kernel.append_record(out, record.offset - base_offset, delta, record.key, record.value, record.headers)
    return out
