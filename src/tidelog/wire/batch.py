"""Record batches, format v2: the unit that producers send, the log stores and consumers receive.

    offset  field                     type    in the CRC
    0       base offset               int64   no: assigned by the broker
    8       batch length              int32   no: bytes after this field
    12      partition leader epoch    int32   no: assigned by the broker
    16      magic (2)                 int8    no
    17      CRC-32C of byte 21 on     uint32
    21      attributes                int16   yes
    23      last offset delta         int32   yes
    27      base timestamp            int64   yes
    35      max timestamp             int64   yes
    43      producer id               int64   yes
    51      producer epoch            int16   yes
    53      base sequence             int32   yes
    57      record count              int32   yes
    61      records, compressed as one block where attributes say so

Attributes: bits 0-2 codec, 3 timestamp type (1 = log append time), 4 transactional, 5 control,
6 delete horizon set (base timestamp then holds the horizon).

A message set is batches one after another; its last batch may be cut short, and is then not part of it. A batch
is stored as it came, but for base offset, leader epoch and, where the topic stamps append time, the timestamps:
these are patched in place. What a leader must check before it stores a batch stands in `check.py`, what is inside a
batch in `records.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi as _crc32c

from tidelog.wire.errors import CodedError, ErrorCode
from tidelog.wire.quick_tuples import quick

HEADER_SIZE: Final = 61
#: base offset + batch length: what must be read to know where a batch ends
LOG_OVERHEAD: Final = 12
#: length, attributes, timestamp, offset, key, value, headers: one byte each
MIN_RECORD_SIZE: Final = 7
HEADER: Final = struct.Struct(">qiibIhiqqqhii")

LENGTH_AT: Final = 8
MAGIC_AT: Final = 16
CRC_AT: Final = 17
#: where the range of the CRC begins; the attributes in use are in the second byte
ATTRIBUTES_AT: Final = 21
LAST_OFFSET_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
RECORD_COUNT_AT: Final = 57

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

MAGIC: Final = 2
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1
MAX_SEQUENCE: Final = 0x7FFFFFFF

#: the smallest length that any format of Kafka's could have (a v0 message); below it the bytes are no batch at all
_LEAST_LENGTH: Final = 14
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
#: the two halves of HEADER: up to the CRC, and what the CRC covers
_UNCOVERED: Final = struct.Struct(">qiibI")
_COVERED: Final = struct.Struct(">hiqqqhii")
_ATTRIBUTES: Final = struct.Struct(">h")
_TIMESTAMP: Final = struct.Struct(">q")
_PLACE: Final = struct.Struct(">qii")

Buffer = bytes | bytearray | memoryview


class InvalidBatch(CodedError):
    """A batch that must not be stored; `record_errors` are the faulty records as (index, reason)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.record_errors = record_errors


class NotOneBatch(InvalidBatch):
    """What came is not a single whole batch: seen before any log is looked at."""


class BatchHeader(NamedTuple):
    """The fixed part of a batch, as `HEADER` unpacks it: `batch_header(HEADER.unpack_from(view, pos))`."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return LOG_OVERHEAD + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return advance_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None


def advance_sequence(sequence: int, steps: int) -> int:
    """The sequence number `steps` after `sequence`: after 2^31-1 comes 0."""
    return (sequence + steps) & MAX_SEQUENCE


#: from the values that `HEADER` unpacks
batch_header: Final = quick(BatchHeader)


def read_header(view: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`; the caller has made sure that `HEADER_SIZE` bytes are there."""
    return batch_header(HEADER.unpack_from(view, pos))


def next_header(view: Buffer, pos: int, end: int) -> BatchHeader | None:
    """The header of the batch at `pos`, or None where fewer bytes are left than the batch has.

    Raises InvalidBatch where the bytes cannot be a batch of format v2, however many would follow.
    """
    if end - pos < LOG_OVERHEAD:
        return None
    (length,) = _LENGTH.unpack_from(view, pos + LENGTH_AT)
    if length < _LEAST_LENGTH:
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE, f"batch length {length} is below the smallest possible, {_LEAST_LENGTH}"
        )
    if end - pos <= MAGIC_AT:
        return None
    magic = view[pos + MAGIC_AT]
    if magic > MAGIC:
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"magic {magic} is unknown")
    if end - pos < LOG_OVERHEAD + length:
        return None
    if magic != MAGIC:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"message format v{magic} is no longer supported, only v2 is")
    if length < HEADER_SIZE - LOG_OVERHEAD:
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"batch length {length} is below the size of a header")
    return batch_header(HEADER.unpack_from(view, pos))


def iter_headers(view: Buffer, pos: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch from `pos` to `end`; a batch that is cut short ends the set."""
    end = len(view) if end is None else end
    while (header := next_header(view, pos, end)) is not None:
        yield pos, header
        pos += LOG_OVERHEAD + header.length


crc32c: Final[Callable[[Buffer], int]] = _crc32c


def computed_crc(view: Buffer, pos: int, end: int) -> int:
    """CRC-32C of the batch in `view[pos:end]`, from its attributes to its end. Pass a memoryview: no copy is made."""
    return crc32c(view[pos + ATTRIBUTES_AT : end])


def crc_matches(view: Buffer, pos: int, header: BatchHeader) -> bool:
    return crc32c(view[pos + ATTRIBUTES_AT : pos + LOG_OVERHEAD + header.length]) == header.crc


#: `patch_place(view, pos, base_offset, length, leader_epoch)` gives the batch at `pos` its base offset and its leader
#: epoch; neither is in the CRC. `length` stays as it is.
patch_place: Final[Callable[[bytearray | memoryview, int, int, int, int], None]] = _PLACE.pack_into


def patch_timestamps(view: memoryview, pos: int, header: BatchHeader, attributes: int, max_timestamp: int) -> None:
    """Sets timestamp type (in `attributes`) and max timestamp, and the CRC that follows from them."""
    _ATTRIBUTES.pack_into(view, pos + ATTRIBUTES_AT, attributes)
    _TIMESTAMP.pack_into(view, pos + MAX_TIMESTAMP_AT, max_timestamp)
    _CRC.pack_into(view, pos + CRC_AT, computed_crc(view, pos, pos + LOG_OVERHEAD + header.length))


def pack_batch(header: BatchHeader, payload: Buffer) -> bytearray:
    """A batch of `header`'s fields around `payload`, the records as they are to be stored.

    Length, magic and CRC of `header` are not looked at: they follow from the payload.
    """
    batch = bytearray(HEADER_SIZE)
    batch += payload
    base_offset, _, leader_epoch, _, _, *rest = header
    write_header(batch, base_offset, leader_epoch, *rest)
    return batch


def write_header(batch: bytearray, base_offset: int, leader_epoch: int, *rest: int) -> None:
    """Writes the header over the first bytes of a batch whose records stand behind it.

    `rest` is what the CRC covers: the fields of `BatchHeader` from the attributes on.
    """
    _COVERED.pack_into(batch, ATTRIBUTES_AT, *rest)
    with memoryview(batch) as view:
        crc = crc32c(view[ATTRIBUTES_AT:])
    _UNCOVERED.pack_into(batch, 0, base_offset, len(batch) - LOG_OVERHEAD, leader_epoch, MAGIC, crc)
