"""Reads the log of a delay topic's partition: where the last picture is, when its records are due, and the records.

Everything here runs on workers, over bytes that were read from the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tidelog.deciding.decision import CoordinatorRecord
from tidelog.deliver.delivery_picture import CANCELLATION, PICTURE, RecordParcel, kind_of
from tidelog.deliver.due import due_ms
from tidelog.deliver.halves import HALF_ID, HalfRecord, read_half
from tidelog.deliver.wheels import Key
from tidelog.log.segment import Slice
from tidelog.log.txn_index import AbortedTxn
from tidelog.wire import kernel
from tidelog.wire.batch import LOG_APPEND_TIME_FLAG, BatchHeader, InvalidBatch, crc_matches, iter_headers
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import NewRecord, RecordIndex, build_batch, read_records

#: a record's own overhead in a batch, and that of each of its headers, at most
RECORD_BYTES: Final = 40
HEADER_BYTES: Final = 10
#: how often the sender of a half message was asked by now
HALF_CHECK: Final = b"tidelog-half-check"
ORIGIN_TOPIC: Final = b"tidelog-origin-topic"
ORIGIN_PARTITION: Final = b"tidelog-origin-partition"
ORIGIN_OFFSET: Final = b"tidelog-origin-offset"
ORIGIN_TIMESTAMP: Final = b"tidelog-origin-timestamp"
#: of all four, without the name of the topic
ORIGIN_BYTES: Final = 4 * HEADER_BYTES + 83 + 3 * 20
#: unpacked batches that are kept, for their records are often due one after the other
CACHED_BYTES: Final = 4 << 20
PRODUCER_EPOCH: Final = 0


class FoundPicture(NamedTuple):
    offset: int
    record: CoordinatorRecord


class Indexed(NamedTuple):
    """What a piece of the log says, in its order."""

    keys: list[Key]
    malformed: list[tuple[int, str]]
    #: with the offset of each
    cancellations: list[tuple[int, CoordinatorRecord]]


class HalfIndexed(NamedTuple):
    """What a piece of the log of a half topic says, in its order."""

    records: list[HalfRecord]
    malformed: list[tuple[int, str]]
    #: with the offset of each
    cancellations: list[tuple[int, CoordinatorRecord]]


class StoredRecord(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]

    @property
    def size_bytes(self) -> int:
        """At most, as part of a parcel from a topic without a name."""
        fields = len(self.key or b"") + len(self.value or b"")
        headers = sum(len(name) + len(value or b"") + HEADER_BYTES for name, value in self.headers)
        return fields + headers + RECORD_BYTES + ORIGIN_BYTES


def last_picture(data: bytes) -> FoundPicture | None:
    found = None
    view = memoryview(data)
    for at, header in iter_headers(view):
        if header.is_control and header.producer_id < 0:
            for record in _controls(view, at, header):
                if kind_of(record.key) == PICTURE:
                    found = FoundPicture(header.base_offset, record)
    return found


def _controls(view: memoryview, at: int, header: BatchHeader) -> Iterator[CoordinatorRecord]:
    batch = _checked(view, at, header)
    for record in read_records(batch):
        if record.key is not None:
            yield CoordinatorRecord(record.key, record.value)


def _checked(view: memoryview, at: int, header: BatchHeader) -> memoryview:
    if not crc_matches(view, at, header):
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} is damaged")
    return view[at : at + header.size_bytes]


def index(data: bytes, least_offset: int, aborted: Sequence[AbortedTxn], delays: Sequence[tuple[int, int]]) -> Indexed:
    """When the records from `least_offset` on are due. Those of aborted transactions are not there."""
    found = Indexed([], [], [])
    view = memoryview(data)
    for at, header in iter_headers(view):
        if header.is_control:
            found.cancellations.extend(_cancellations(view, at, header))
        elif not (header.is_transactional and _is_aborted(header, aborted)):
            _index_batch(RecordIndex(_checked(view, at, header)), least_offset, delays, found)
    return found


def _cancellations(view: memoryview, at: int, header: BatchHeader) -> Iterator[tuple[int, CoordinatorRecord]]:
    if header.producer_id < 0:  # or it is the end of a transaction
        for each in _controls(view, at, header):
            if kind_of(each.key) == CANCELLATION:
                yield header.base_offset, each


def _is_aborted(header: BatchHeader, aborted: Iterable[AbortedTxn]) -> bool:
    return any(
        each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
        for each in aborted
    )


def _index_batch(records: RecordIndex, least_offset: int, delays: Sequence[tuple[int, int]], found: Indexed) -> None:
    for offset, timestamp, headers in _rows(records, least_offset):
        due = due_ms(timestamp, headers, _delay_at(offset, delays))
        if isinstance(due, int):
            found.keys.append((due, offset))
        else:
            found.malformed.append((offset, due))


def index_halves(data: bytes, least_offset: int, aborted: Sequence[AbortedTxn]) -> HalfIndexed:
    """What the records from `least_offset` on say of half messages."""
    found = HalfIndexed([], [], [])
    view = memoryview(data)
    for at, header in iter_headers(view):
        if header.is_control:
            found.cancellations.extend(_cancellations(view, at, header))
        if header.is_control or (header.is_transactional and _is_aborted(header, aborted)):
            continue
        for offset, timestamp, headers in _rows(RecordIndex(_checked(view, at, header)), least_offset):
            half = read_half(offset, timestamp, headers)
            if isinstance(half, str):
                found.malformed.append((offset, half))
            else:
                found.records.append(half)
    return found


def _rows(records: RecordIndex, least_offset: int) -> Iterator[tuple[int, int, Sequence[tuple[bytes, bytes | None]]]]:
    """Offset, timestamp and headers of each record."""
    header, payload = records.header, bytes(records.payload)
    stamped = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    columns = (records.column(0), records.column(1), records.column(6), records.column(7))
    for offset_delta, timestamp_delta, headers_at, end in zip(*columns, strict=True):
        if base_offset + offset_delta >= least_offset:
            yield (
                base_offset + offset_delta,
                base_timestamp + timestamp_delta if stamped is None else stamped,
                () if payload[headers_at] == 0 else _headers(payload, headers_at, end),
            )


def _delay_at(offset: int, delays: Sequence[tuple[int, int]]) -> int:
    delay_ms = 0
    for from_offset, each in delays:
        if from_offset > offset:
            break
        delay_ms = each
    return delay_ms


def _headers(payload: bytes, at: int, end: int) -> list[tuple[bytes, bytes | None]]:
    spans = iter(kernel.header_spans(payload, at, end))
    return [
        (
            payload[name_at : name_at + name_length],
            payload[value_at : value_at + value_length] if value_length >= 0 else None,
        )
        for name_at, name_length, value_at, value_length in zip(spans, spans, spans, spans, strict=True)
    ]


class RecordReader:
    """Records by their offsets. One worker uses it at a time."""

    def __init__(self) -> None:
        self._cache: OrderedDict[int, tuple[RecordIndex, bytes]] = OrderedDict()
        self._cached_bytes = 0

    def read(self, pieces: Iterable[tuple[Slice, Sequence[int]]]) -> dict[int, StoredRecord]:
        """Those of the offsets that are there; each piece holds the batches of its offsets, which ascend."""
        found: dict[int, StoredRecord] = {}
        for piece, offsets in pieces:
            view = memoryview(piece.read())
            at = 0
            for position, header in iter_headers(view):
                first, at = at, bisect_left(offsets, header.next_offset, at)
                wanted = offsets[first:at]
                if wanted and not header.is_control:
                    self._pick(view, position, header, wanted, found)
        return found

    def forget(self) -> None:
        """Nothing is read for a while."""
        self._cache.clear()
        self._cached_bytes = 0

    def _pick(
        self,
        view: memoryview,
        position: int,
        header: BatchHeader,
        wanted: Sequence[int],
        found: dict[int, StoredRecord],
    ) -> None:
        records, payload = self._unpacked(view, position, header)
        stamped = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
        base_offset, base_timestamp = header.base_offset, header.base_timestamp
        columns = [records.column(which) for which in range(kernel.COLUMNS)]
        deltas, timestamps, keys_at, key_lengths, values_at, value_lengths, headers_at, ends = columns
        for offset in wanted:
            at = bisect_left(deltas, offset - base_offset)
            if at == len(deltas) or deltas[at] != offset - base_offset:
                continue
            key_at, key_length, value_at, value_length = keys_at[at], key_lengths[at], values_at[at], value_lengths[at]
            first_header = headers_at[at]
            found[offset] = StoredRecord(
                base_timestamp + timestamps[at] if stamped is None else stamped,
                payload[key_at : key_at + key_length] if key_length >= 0 else None,
                payload[value_at : value_at + value_length] if value_length >= 0 else None,
                [] if payload[first_header] == 0 else _headers(payload, first_header, ends[at]),
            )

    def _unpacked(self, view: memoryview, position: int, header: BatchHeader) -> tuple[RecordIndex, bytes]:
        cached = self._cache.get(header.base_offset)
        if cached is not None:
            self._cache.move_to_end(header.base_offset)
            return cached
        records = RecordIndex(_checked(view, position, header))
        payload = bytes(records.payload)
        # What it was read from is not needed any more, and would be kept with it.
        records.payload = payload
        self._cache[header.base_offset] = records, payload
        self._cached_bytes += len(payload)
        while self._cached_bytes > CACHED_BYTES and len(self._cache) > 1:
            _, (_, oldest) = self._cache.popitem(last=False)
            self._cached_bytes -= len(oldest)
        return records, payload


def build_parcel(
    parcel: RecordParcel, producer_id: int, topic: str, index: int, records: dict[int, StoredRecord]
) -> bytearray:
    """The same bytes for the same parcel, whenever they are built."""
    place = [(ORIGIN_TOPIC, topic.encode()), (ORIGIN_PARTITION, b"%d" % index)]
    rows: list[NewRecord] = []
    for _, offset in parcel.sent_keys:
        record = records[offset]
        origin = [*place, (ORIGIN_OFFSET, b"%d" % offset), (ORIGIN_TIMESTAMP, b"%d" % record.timestamp)]
        rows.append((parcel.decided_ms, record.key, record.value, [*record.headers, *origin]))
    return build_batch(rows, producer_id=producer_id, producer_epoch=PRODUCER_EPOCH, base_sequence=parcel.sequence)


class ToldHalf(NamedTuple):
    """A half message that somebody is told of."""

    half_id: bytes
    offset: int
    #: how often its sender was asked, with the question that is built
    asked: int
    record: StoredRecord


def build_question(halves: Iterable[ToldHalf], wall_ms: int, topic: str, index: int) -> bytearray:
    """Asks the senders of half messages how they end: the keys are the ids."""
    return build_batch([(wall_ms, half.half_id, half.record.value, _told(half, topic, index)) for half in halves])


def build_undecided(halves: Iterable[ToldHalf], wall_ms: int, topic: str, index: int) -> bytearray:
    """Copies of half messages, with their own keys."""
    return build_batch([(wall_ms, half.record.key, half.record.value, _told(half, topic, index)) for half in halves])


def _told(half: ToldHalf, topic: str, index: int) -> list[tuple[bytes, bytes | None]]:
    """The headers of the message, and what it is and where."""
    record = half.record
    return [
        *(header for header in record.headers if header[0] != HALF_ID),
        (HALF_ID, half.half_id),
        (HALF_CHECK, b"%d" % half.asked),
        (ORIGIN_TOPIC, topic.encode()),
        (ORIGIN_PARTITION, b"%d" % index),
        (ORIGIN_OFFSET, b"%d" % half.offset),
        (ORIGIN_TIMESTAMP, b"%d" % record.timestamp),
    ]
