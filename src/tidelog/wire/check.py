"""What a leader checks before it stores a produced batch, and what a follower checks before it stores a copied one.

The leader's rules are those of Apache Kafka 4, in its order, with its error codes:

    no whole batch, more than one batch, message format v0 or v1      INVALID_RECORD
    a length or magic that no batch can have                          CORRUPT_MESSAGE
    a base offset other than 0                                        INVALID_RECORD    clients only
    larger than max.message.bytes, before or after recompression      MESSAGE_TOO_LARGE
    CRC                                                               CORRUPT_MESSAGE
    record count <= 0 or not last offset delta + 1                    INVALID_RECORD    clients only
    a control batch, a producer id without a sequence number          INVALID_RECORD    clients only
    a record that is malformed, bytes between or after records        INVALID_RECORD
    a record without a key in a compacted topic                       INVALID_RECORD    with the records' indexes
    a timestamp out of bounds                                         INVALID_TIMESTAMP with the records' indexes
    a batch that claims log append time where the broker is to stamp  INVALID_TIMESTAMP with the records' indexes

Stricter than Apache Kafka on purpose, where it would store what consumers cannot use: offset deltas must count up from
zero (Kafka rewrites them in compressed batches and stores them as they are in others), a null length is -1 and nothing
else, a codec id that does not exist is UNSUPPORTED_COMPRESSION_TYPE and a payload that does not unpack INVALID_RECORD
(Kafka answers both with UNKNOWN_SERVER_ERROR), and one that unpacks beyond the limit MESSAGE_TOO_LARGE. A claim of log
append time in a topic of create time is struck out, as Kafka does; the records' own times are then what is checked.

Every record is looked at, as Kafka does: that is how the largest timestamp is known, which the time index needs and
which a client may have stated wrongly; it is then put right.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from tidelog.wire import kernel
from tidelog.wire.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MIN_RECORD_SIZE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    InvalidBatch,
    NotOneBatch,
    batch_header,
    computed_crc,
    crc32c,
    crc_matches,
    next_header,
    pack_batch,
    patch_timestamps,
    read_header,
)
from tidelog.wire.compression import (
    DEFAULT_LIMIT_BYTES,
    GZIP,
    NONE,
    ZSTD,
    BadCompression,
    TooLarge,
    compress,
    decompress,
    expected_bytes,
    said_by_gzip,
)
from tidelog.wire.errors import ErrorCode

_unpack_header: Final = HEADER.unpack_from
_MAX_INT64: Final = 0x7FFFFFFFFFFFFFFF
_MIN_INT64: Final = -_MAX_INT64 - 1
#: what is unpacked while others wait: a few milliseconds' worth; and what next to all batches unpack to
SHORT_BYTES: Final = 1 << 20
MEDIUM_BYTES: Final = 1 << 23
#: packing into another codec takes as long as unpacking so many times as much
PACKING: Final = 16
#: records that are walked in one go
PART_RECORDS: Final = 50_000
#: records that a refusal names
NAMED_RECORDS: Final = 1_000


class AppendRules:
    """What a topic's configuration asks of the batches that are produced to it."""

    __slots__ = (
        "codec",
        "compacted",
        "level",
        "log_append_time",
        "max_message_bytes",
        "max_unpacked_bytes",
        "stores_as_is",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
    )

    def __init__(
        self,
        *,
        max_message_bytes: int = 1048588,
        compacted: bool = False,
        log_append_time: bool = False,
        timestamp_before_max_ms: int = _MAX_INT64,
        timestamp_after_max_ms: int = 3_600_000,
        codec: int | None = None,
        level: int | None = None,
        max_unpacked_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        self.max_message_bytes = max_message_bytes
        self.compacted = compacted
        self.log_append_time = log_append_time
        self.timestamp_before_max_ms = timestamp_before_max_ms
        self.timestamp_after_max_ms = timestamp_after_max_ms
        #: the codec to store with; None keeps what the producer chose (compression.type=producer)
        self.codec = codec
        self.level = level
        self.max_unpacked_bytes = max_unpacked_bytes
        #: a batch without compression is stored as it comes, if its records are in order
        self.stores_as_is = codec in (None, NONE) and not compacted and not log_append_time


class TakesLong(Exception):
    """More has to be unpacked, or packed again, than others should wait for: to be checked elsewhere.

    `expected_bytes` is about what it unpacks to.
    """

    def __init__(self, expected_bytes: int) -> None:
        super().__init__(expected_bytes)
        self.expected_bytes = expected_bytes


class CheckedBatch:
    """A batch that may be stored once it has its offset and leader epoch (`patch_place(batch, 0, …)`).

    `batch` is writable: the very bytes that came, timestamps put right, or a recompressed copy of them. `header` is its
    header. `last_offset_delta + 1` is how many offsets it takes, `max_timestamp` what the time index is to know.
    """

    __slots__ = ("batch", "header")

    def __init__(self, batch: memoryview, header: BatchHeader) -> None:
        self.batch = batch
        self.header = header


def check_produced(
    records: memoryview,
    rules: AppendRules,
    now_ms: int,
    *,
    from_client: bool = True,
    ignore_size: bool = False,
    most_bytes: int | None = None,
) -> CheckedBatch:
    """Checks the message set of one partition of a produce request, and settles its timestamps and codec.

    `from_client` is False for batches that the broker itself writes (coordinators, transaction markers), which may be
    control batches and carry any base offset. Raises InvalidBatch; nothing else escapes, but for TakesLong where more
    than `most_bytes` would have to be unpacked.
    """
    if rules.stores_as_is and from_client:
        plain = _plain_batch(records, rules, now_ms)
        if plain is not None:
            return plain
    header = _only_batch(records)
    size = LOG_OVERHEAD + header.length
    batch = records[:size]
    if from_client and header.base_offset != 0:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD, f"the base offset of a produced batch must be 0, not {header.base_offset}"
        )
    if size > rules.max_message_bytes and not ignore_size:
        raise _too_large(size, rules)
    if not crc_matches(batch, 0, header):
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch says CRC {header.crc:08x}, its bytes {computed_crc(batch, 0, size):08x}",
        )
    if from_client:
        _check_client_header(header)
    if most_bytes is None:
        payload = unpack(batch, header, rules.max_unpacked_bytes)
    else:
        payload = _unpack_little(batch, header, rules, most_bytes)
    max_timestamp = _check_records(header, payload, rules, now_ms)
    return _settle(batch, header, payload, rules, now_ms, max_timestamp, ignore_size)


def check_built(batch: memoryview, rules: AppendRules, now_ms: int) -> CheckedBatch:
    """For a batch that this broker has just built: nothing in it is in doubt, but the topic may want it otherwise."""
    header = read_header(batch)
    other_codec = rules.codec is not None and rules.codec != header.attributes & CODEC_MASK
    if other_codec or rules.log_append_time or len(batch) > rules.max_message_bytes or batch.readonly:
        return check_produced(batch, rules, now_ms, from_client=False)
    return CheckedBatch(batch, header)


def _plain_batch(records: memoryview, rules: AppendRules, now_ms: int) -> CheckedBatch | None:
    """The common case in one go: a single uncompressed batch that breaks no rule and needs no change.

    None says that it is not that case; the careful way then finds out what is wrong, or different, and says so.
    """
    size = len(records)
    if size < HEADER_SIZE or size > rules.max_message_bytes or records.readonly:
        return None
    fields = _unpack_header(records)
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        delta,
        base_timestamp,
        max_timestamp,
        producer,
        _,
        sequence,
        count,
    ) = fields
    if (
        length + LOG_OVERHEAD != size
        or magic != 2
        or base_offset != 0
        or attributes & ~TRANSACTIONAL_FLAG
        or delta + 1 != count
        or count * MIN_RECORD_SIZE > size
        or count <= 0
        or (producer >= 0 and sequence < 0)
        or crc32c(records[ATTRIBUTES_AT:]) != crc
    ):
        return None
    outcome, _, smallest, largest, _, _ = kernel.walk_records(records, HEADER_SIZE, size, count, True, None)
    if (
        outcome != kernel.OK
        or base_timestamp + largest != max_timestamp
        or now_ms - base_timestamp - smallest > rules.timestamp_before_max_ms
        or max_timestamp - now_ms > rules.timestamp_after_max_ms
    ):
        return None
    return CheckedBatch(records, batch_header(fields))


def unpack(batch: memoryview, header: BatchHeader, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Buffer:
    """The records of a batch, unpacked where they are compressed; InvalidBatch where they cannot be."""
    codec = header.attributes & CODEC_MASK
    payload = batch[HEADER_SIZE : LOG_OVERHEAD + header.length]
    if codec == NONE:
        return payload
    if codec > ZSTD:
        raise InvalidBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} does not exist")
    try:
        return decompress(codec, payload, limit_bytes)
    except TooLarge as e:
        raise InvalidBatch(ErrorCode.MESSAGE_TOO_LARGE, str(e)) from None
    except BadCompression as e:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"the records do not unpack: {e}") from None


def _unpack_little(batch: memoryview, header: BatchHeader, rules: AppendRules, most_bytes: int) -> Buffer:
    """As `unpack`, and TakesLong where that, or what follows from it, would take long."""
    codec = header.attributes & CODEC_MASK
    packed = batch[HEADER_SIZE : LOG_OVERHEAD + header.length]
    may_be_more = rules.max_unpacked_bytes > most_bytes
    # The other codecs look at what the bytes say before they unpack any.
    if codec == GZIP and may_be_more and said_by_gzip(packed) > most_bytes:
        raise TakesLong(said_by_gzip(packed))
    try:
        payload = unpack(batch, header, min(rules.max_unpacked_bytes, most_bytes))
    except InvalidBatch as refused:
        if refused.code == ErrorCode.MESSAGE_TOO_LARGE and may_be_more:
            raise TakesLong(expected_bytes(codec, packed)) from None
        raise
    if rules.codec not in (None, NONE, codec) and len(payload) > most_bytes // PACKING:
        raise TakesLong(len(payload) * PACKING)
    return payload


def check_replicated(records: memoryview) -> tuple[int, list[tuple[int, BatchHeader]]]:
    """Checks a message set fetched from a leader: sizes, CRCs, offsets that only grow.

    Returns (bytes of whole batches, [(position, header), …]); a batch that is cut short at the end is not counted.
    """
    headers: list[tuple[int, BatchHeader]] = []
    pos = 0
    last_offset = -1
    while (header := next_header(records, pos, len(records))) is not None:
        if not crc_matches(records, pos, header):
            raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} fails its CRC")
        if header.last_offset_delta < 0 or header.base_offset <= last_offset:
            raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"offset {header.base_offset} does not follow {last_offset}")
        last_offset = header.last_offset
        headers.append((pos, header))
        pos += LOG_OVERHEAD + header.length
    return pos, headers


def _too_large(size: int, rules: AppendRules) -> InvalidBatch:
    return InvalidBatch(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the batch is {size} bytes, the topic allows {rules.max_message_bytes} (max.message.bytes)",
    )


def _only_batch(records: memoryview) -> BatchHeader:
    header = next_header(records, 0, len(records))
    if header is None:
        raise NotOneBatch(ErrorCode.INVALID_RECORD, "the message set holds no whole batch")
    size = LOG_OVERHEAD + header.length
    if size != len(records) and next_header(records, size, len(records)) is not None:
        raise NotOneBatch(ErrorCode.INVALID_RECORD, "a produce request may hold one batch per partition, not more")
    return header


def _check_client_header(header: BatchHeader) -> None:
    if header.last_offset_delta < 0:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"last offset delta {header.last_offset_delta} is negative")
    if header.record_count <= 0:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"record count {header.record_count} is not positive")
    if header.last_offset_delta + 1 != header.record_count:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records do not fit last offset delta {header.last_offset_delta}",
        )
    if header.attributes & CONTROL_FLAG:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD, f"producer {header.producer_id} sent sequence number {header.base_sequence}"
        )


def _check_records(header: BatchHeader, payload: Buffer, rules: AppendRules, now_ms: int) -> int:
    """Walks the records; the largest timestamp among them."""
    count = header.record_count
    if count < 0 or count * MIN_RECORD_SIZE > len(payload):
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"{count} records do not fit into {len(payload)} bytes")
    smallest, largest, null_keys = _walk(payload, count)
    earliest = header.base_timestamp + smallest
    latest = header.base_timestamp + largest
    if latest > _MAX_INT64 or earliest < _MIN_INT64:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "a timestamp leaves 64 bits")
    if (
        (null_keys and rules.compacted)
        or (rules.log_append_time and header.attributes & LOG_APPEND_TIME_FLAG)
        or (
            not rules.log_append_time
            and (now_ms - earliest > rules.timestamp_before_max_ms or latest - now_ms > rules.timestamp_after_max_ms)
        )
    ):
        _name_faulty_records(header, payload, rules, now_ms)
    return max(latest, NO_TIMESTAMP) if count else header.max_timestamp


def _walk(payload: Buffer, count: int) -> tuple[int, int, int]:
    """(smallest timestamp delta, largest one, null keys) of records that are in order.

    In parts: on a worker's thread a walk over millions of records would keep every other thread waiting.
    """
    extremes: list[int] = []
    null_keys = pos = first = 0
    while True:
        part = min(count - first, PART_RECORDS)
        outcome, index, smallest, largest, nulls, pos = kernel.walk_records(
            payload, pos, len(payload), part, True, None, first
        )
        extremes += (smallest, largest)
        null_keys += nulls
        first += part
        if outcome == kernel.BYTES_LEFT_IN_BATCH and first < count:
            continue
        if outcome == kernel.OK and first < count:
            outcome, index = kernel.BAD_COUNT, part
        if outcome != kernel.OK:
            raise InvalidBatch(ErrorCode.INVALID_RECORD, f"record {first - part + index}: {kernel.REASONS[outcome]}")
        return min(extremes), max(extremes), null_keys


def _name_faulty_records(header: BatchHeader, payload: Buffer, rules: AppendRules, now_ms: int) -> None:
    """Raises with the index and the reason of records that break a rule; returns where only the suspicion did.

    Of a batch with many only the first are named. A record that carries no timestamp (-1) is never out of bounds, but
    the batch's extremes cannot tell.
    """
    errors: list[tuple[int, str]] = []
    untimely = False
    for index, timestamp, key_length in _places(header, payload):
        if len(errors) == NAMED_RECORDS:
            break
        if rules.compacted and key_length < 0:
            errors.append((index, "a record of a compacted topic must have a key"))
        elif rules.log_append_time:
            if header.attributes & LOG_APPEND_TIME_FLAG:
                untimely = True
                errors.append((index, "a producer may not stamp a batch with log append time"))
        elif timestamp != NO_TIMESTAMP and (
            now_ms - timestamp > rules.timestamp_before_max_ms or timestamp - now_ms > rules.timestamp_after_max_ms
        ):
            untimely = True
            earliest = now_ms - rules.timestamp_before_max_ms
            latest = now_ms + rules.timestamp_after_max_ms
            errors.append((index, f"timestamp {timestamp} is not within [{earliest}, {latest}]"))
    many = "or more " if len(errors) == NAMED_RECORDS else ""
    if untimely:
        why = f"{len(errors)} {many}records have a timestamp that is refused"
        raise InvalidBatch(ErrorCode.INVALID_TIMESTAMP, why, tuple(errors))
    if errors:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"{len(errors)} {many}records are refused", tuple(errors))


def _places(header: BatchHeader, payload: Buffer) -> Iterator[tuple[int, int, int]]:
    """(index, timestamp, length of the key) of each record, of a part of the batch at a time."""
    pos = 0
    for first in range(0, header.record_count, PART_RECORDS):
        part = min(header.record_count - first, PART_RECORDS)
        columns = array("q", bytes(8 * kernel.COLUMNS * part))
        *_, pos = kernel.walk_records(payload, pos, len(payload), part, True, columns, first)
        for at in range(part):
            timestamp = header.base_timestamp + columns[kernel.TIMESTAMP_DELTA * part + at]
            yield first + at, timestamp, columns[kernel.KEY_LENGTH * part + at]


def _settle(
    batch: memoryview,
    header: BatchHeader,
    payload: Buffer,
    rules: AppendRules,
    now_ms: int,
    max_timestamp: int,
    ignore_size: bool,
) -> CheckedBatch:
    """Gives the batch the timestamps and the codec it is stored with; in place where it can be."""
    attributes = header.attributes & ~LOG_APPEND_TIME_FLAG
    if rules.log_append_time:
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = now_ms
    codec = attributes & CODEC_MASK
    # Control batches stay as they are: they are tiny, and readers look into them often.
    if rules.codec is not None and rules.codec != codec and not attributes & CONTROL_FLAG:
        attributes = attributes & ~CODEC_MASK | rules.codec
        header = header._replace(attributes=attributes, max_timestamp=max_timestamp)
        rebuilt = memoryview(pack_batch(header, compress(rules.codec, payload, rules.level)))
        if len(rebuilt) > rules.max_message_bytes and not ignore_size:
            raise _too_large(len(rebuilt), rules)
        return CheckedBatch(rebuilt, read_header(rebuilt))
    if batch.readonly:
        batch = memoryview(bytearray(batch))
    if attributes != header.attributes or max_timestamp != header.max_timestamp:
        patch_timestamps(batch, 0, header, attributes, max_timestamp)
        header = read_header(batch)
    return CheckedBatch(batch, header)
