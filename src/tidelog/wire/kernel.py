# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""The loops over the bytes of records: one pass each, no object per record.

This file is ordinary Python and runs as it is. If a C compiler was available at installation, Cython has compiled it
with the types in `kernel.pxd`. Only the speed may differ, so the code keeps to what means the same in both languages:
no integer leaves 64 bits, and every read is checked against `end` first.

A record of a v2 batch; every number except the attributes is a zigzag varint:

    length        int32   bytes after this field
    attributes    int8    unused
    timestamp     int64   delta to the batch's base timestamp
    offset        int32   delta to the batch's base offset
    key           int32 length, -1 for null, then the bytes
    value         int32 length, -1 for null, then the bytes
    headers       int32 count, then for each: key length (never null), key, value length or -1, value

A malformed number reads as `_MALFORMED`, which is no valid length, count or delta: checking the value also checks that
the number was well formed.

The index that `walk_records` can write is column-major: column c of record i goes to `out[c * count + i]`, so that a
column is contiguous and can become an Arrow or numpy array without a copy. The columns are offset delta, timestamp
delta, position and length of the key, position and length of the value, position of the headers, end of the record.
"""

from __future__ import annotations

from typing import Any

try:
    import cython  # type: ignore[import-untyped, unused-ignore]
except ImportError:
    from tidelog.wire.kernel_primitives import cython

if not cython.compiled:
    from tidelog.wire.batch import HEADER_SIZE, LAST_OFFSET_DELTA_AT, LENGTH_AT, LOG_OVERHEAD  # isort: skip
    from tidelog.wire.batch import MAX_TIMESTAMP_AT, MIN_RECORD_SIZE  # isort: skip
    from tidelog.wire.kernel_primitives import load_int32, load_int64, read_varint32, read_varint64  # isort: skip
    from tidelog.wire.kernel_primitives import varint_size  # isort: skip

# Outcomes of a walk. Anything but OK is a fault of the record whose index is returned with it.
OK = 0
BAD_COUNT = 1
BAD_LENGTH = 2
BAD_TIMESTAMP = 3
BAD_OFFSET_DELTA = 4
BAD_KEY = 5
BAD_VALUE = 6
BAD_HEADERS = 7
BYTES_LEFT_IN_RECORD = 8
BYTES_LEFT_IN_BATCH = 9

REASONS = (
    "well formed",
    "the batch ends before the declared count of records",
    "a record does not fit into the batch",
    "the timestamp is not a well-formed varint",
    "the offset deltas do not count up from zero",
    "the key does not fit into the record",
    "the value does not fit into the record",
    "the headers do not fit into the record",
    "a record is longer than its content",
    "bytes are left after the declared count of records",
)

#: what a malformed number reads as
_MALFORMED = -0x4000000000000000

# The columns of an index, and those that others ask for by name.
COLUMNS = 8
TIMESTAMP_DELTA = 1
KEY_LENGTH = 3
RECORD_END = 7


class Cursor:
    """A place in a buffer that moves forward as numbers are read, and never past `end`."""

    __slots__ = ("buf", "end", "malformed", "pos")

    # Made by `_cursor`: the arguments of a constructor would travel as objects, and the buffer would be acquired twice.
    buf: Any
    pos: int
    end: int
    malformed: bool

    def varint(self) -> int:
        """A zigzag varint of at most 32 bits."""
        number = read_varint32(self.buf, self.pos, self.end)
        if number.end < 0:
            return _MALFORMED
        self.pos = number.end
        return number.value

    def varlong(self) -> int:
        """A zigzag varint of at most 64 bits; sets `malformed` if it is not well formed."""
        number = read_varint64(self.buf, self.pos, self.end)
        if number.end < 0:
            self.malformed = True
        else:
            self.pos = number.end
        return number.value

    def field(self) -> int:
        """Moves past a length and as many bytes; returns the length: -1 for null, _MALFORMED if they do not fit."""
        length = self.varint()
        if length < -1 or length > self.end - self.pos:
            return _MALFORMED
        if length > 0:
            self.pos += length
        return length

    def skip_headers(self) -> bool:
        """Moves past the header count and the headers; False if they do not fit."""
        count = self.varint()
        if count < 0 or count > self.end - self.pos:
            return False
        while count > 0:
            count -= 1
            if self.field() < 0 or self.field() < -1:
                return False
        return True


def _cursor(buf: Any, pos: int, end: int) -> Cursor:
    # The compiled code reads what lies between the two without further checks.
    if pos < 0 or end < pos or end > len(buf):
        raise ValueError("the records do not lie within the buffer")
    cursor = Cursor()
    cursor.buf = buf
    cursor.pos = pos
    cursor.end = end
    cursor.malformed = False
    return cursor


def walk_records(
    buf: Any, pos: int, end: int, count: int, dense: bool, out: Any, first: int = 0
) -> tuple[int, int, int, int, int, int]:
    """Checks `count` records that must fill `buf[pos:end]` exactly.

    Returns (outcome, index of the faulty record, smallest timestamp delta, largest timestamp delta, null keys, where it
    stopped). `dense` demands the offset deltas 0, 1, 2 …, as a producer must write them; otherwise they only have to
    grow, as compaction leaves them. `out`, unless None, receives the columns (int64, `COLUMNS * count` of them). To
    walk a long batch in parts, pass the offset delta at which each part begins as `first`: BYTES_LEFT_IN_BATCH then
    means that the part was well formed and more records follow.
    """
    cursor = _cursor(buf, pos, end)
    indexed = out is not None
    if indexed and len(out) < 8 * count:
        raise ValueError("the index has no room for the records")
    outcome = OK
    smallest = 0
    largest = 0
    null_keys = 0
    offset_delta = first - 1
    index = 0
    while index < count:
        cursor.end = end
        if cursor.pos >= end:
            outcome = BAD_COUNT
            break
        length = cursor.varint()
        if length < MIN_RECORD_SIZE - 1 or length > end - cursor.pos:
            outcome = BAD_LENGTH
            break
        cursor.end = cursor.pos + length
        cursor.pos += 1
        timestamp_delta = cursor.varlong()
        if cursor.malformed:
            outcome = BAD_TIMESTAMP
            break
        if index == 0 or timestamp_delta > largest:
            largest = timestamp_delta
        if index == 0 or timestamp_delta < smallest:
            smallest = timestamp_delta

        expected = offset_delta + 1
        offset_delta = cursor.varint()
        if offset_delta != expected and (dense or offset_delta < expected):
            outcome = BAD_OFFSET_DELTA
            break

        key_length = cursor.field()
        if key_length < -1:
            outcome = BAD_KEY
            break
        key_end = cursor.pos
        if key_length < 0:
            null_keys += 1
        value_length = cursor.field()
        if value_length < -1:
            outcome = BAD_VALUE
            break
        if indexed:
            out[index] = offset_delta
            out[count + index] = timestamp_delta
            out[2 * count + index] = key_end - key_length if key_length > 0 else key_end
            out[3 * count + index] = key_length
            out[4 * count + index] = cursor.pos - value_length if value_length > 0 else cursor.pos
            out[5 * count + index] = value_length
            out[6 * count + index] = cursor.pos
            out[7 * count + index] = cursor.end

        # one zero byte is the header count of nearly every record
        if cursor.pos < cursor.end and buf[cursor.pos] == 0:
            cursor.pos += 1
        elif not cursor.skip_headers():
            outcome = BAD_HEADERS
            break
        if cursor.pos != cursor.end:
            outcome = BYTES_LEFT_IN_RECORD
            break
        index += 1
    if outcome == OK and cursor.pos != end:
        outcome = BYTES_LEFT_IN_BATCH
    return outcome, index, smallest, largest, null_keys, cursor.pos


def locate_timestamp(buf: Any, pos: int, end: int, count: int, least_delta: int) -> tuple[int, int, int]:
    """The first record whose timestamp delta is at least `least_delta`: (index, offset delta, timestamp delta).

    (-1, -1, -1) if there is none. Reads no more of a record than necessary, and never beyond `end`.
    """
    cursor = _cursor(buf, pos, end)
    index = 0
    while index < count:
        length = cursor.varint()
        if length < MIN_RECORD_SIZE - 1 or length > end - cursor.pos:
            break
        next_at = cursor.pos + length
        cursor.pos += 1
        timestamp_delta = cursor.varlong()
        if cursor.malformed:
            break
        if timestamp_delta >= least_delta:
            return index, cursor.varint(), timestamp_delta
        cursor.pos = next_at
        index += 1
    return -1, -1, -1


def index_points(buf: Any, end: int, position: int, interval: int, state: Any, points: Any) -> tuple[int, int]:
    """Walks over the whole batches in `buf[:end]`, whose first stands at `position` of its segment.

    Returns (number of points, where the whole batches end). There is a point wherever an index entry is due, which is
    more than `interval` bytes after the last one. It takes four numbers in `points`: last offset and position of the
    batch, the largest timestamp so far and the last offset of the batch that has it. `state` carries over from call to
    call: bytes since the last point, the largest timestamp and its offset. `points` needs room for one point per batch,
    which has at least 61 bytes.
    """
    if end > len(buf) or len(state) < 3 or len(points) < 4 * (end // HEADER_SIZE):
        raise ValueError("the points need more room")
    at = 0
    count = 0
    while end - at >= HEADER_SIZE:
        size = LOG_OVERHEAD + load_int32(buf, at + LENGTH_AT)
        if size < HEADER_SIZE or size > end - at:
            break
        last_offset = load_int64(buf, at) + load_int32(buf, at + LAST_OFFSET_DELTA_AT)
        timestamp = load_int64(buf, at + MAX_TIMESTAMP_AT)
        if timestamp > state[1]:
            state[1] = timestamp
            state[2] = last_offset
        if state[0] > interval:
            points[4 * count] = last_offset
            points[4 * count + 1] = position + at
            points[4 * count + 2] = state[1]
            points[4 * count + 3] = state[2]
            count += 1
            state[0] = size
        else:
            state[0] += size
        at += size
    return count, at


def header_spans(buf: Any, pos: int, end: int) -> list[int]:
    """The headers of a record that has passed `walk_records`: name at, name length, value at, value length, …"""
    cursor = _cursor(buf, pos, end)
    spans: list[int] = []
    count = cursor.varint()
    while count > 0 and cursor.pos < end:
        count -= 1
        length = cursor.field()
        if length < 0:
            raise ValueError("a header reaches beyond its record")
        spans.append(cursor.pos - length)
        spans.append(length)
        length = cursor.field()
        if length < -1:
            raise ValueError("a header reaches beyond its record")
        spans.append(cursor.pos - length if length > 0 else cursor.pos)
        spans.append(length)
    return spans


def _append_varint(out: bytearray, value: int) -> None:
    """Appends a zigzag varint of up to 64 bits."""
    # Zigzag by halves: the low bit is the sign, the rest never leaves 63 bits.
    if value >= 0:
        low = 0
        half = value
    else:
        low = 1
        half = -1 - value
    if half < 0x40:
        out.append((half << 1) | low)
        return
    out.append(0x80 | ((half & 0x3F) << 1) | low)
    half >>= 6
    while half >= 0x80:
        out.append(0x80 | (half & 0x7F))
        half >>= 7
    out.append(half)


def _append_headers(out: bytearray, headers: Any) -> None:
    _append_varint(out, len(headers))
    for name, content in headers:
        encoded = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
        _append_varint(out, len(encoded))
        out += encoded
        if content is None:
            _append_varint(out, -1)
        else:
            _append_varint(out, len(content))
            out += content


def append_record(out: bytearray, offset_delta: int, timestamp_delta: int, key: Any, value: Any, headers: Any) -> None:
    """Appends one record; key, value and header values are bytes-like or None, header names str or bytes-like."""
    key_length = -1 if key is None else len(key)
    value_length = -1 if value is None else len(value)
    length = 1 + varint_size(timestamp_delta) + varint_size(offset_delta)
    length += varint_size(key_length) + varint_size(value_length)
    if key_length > 0:
        length += key_length
    if value_length > 0:
        length += value_length
    encoded = None
    if headers:
        encoded = bytearray()
        _append_headers(encoded, headers)
        length += len(encoded)
    else:
        length += 1
    _append_varint(out, length)
    out.append(0)
    _append_varint(out, timestamp_delta)
    _append_varint(out, offset_delta)
    _append_varint(out, key_length)
    if key_length > 0:
        out += key
    _append_varint(out, value_length)
    if value_length > 0:
        out += value
    if encoded is None:
        out.append(0)
    else:
        out += encoded


def append_records(out: bytearray, records: Any, base_timestamp: int) -> int:
    """Appends records given as (timestamp, key, value, headers) with offset deltas 0, 1, 2 …; the largest timestamp."""
    latest = -1
    offset_delta = 0
    for timestamp, key, value, headers in records:
        stamp = timestamp
        if stamp > latest:
            latest = stamp
        append_record(out, offset_delta, stamp - base_timestamp, key, value, headers)
        offset_delta += 1  # noqa: SIM113  (enumerate would make an object of it)
    return latest
