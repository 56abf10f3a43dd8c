# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""The loops that turn record batches into the columns of an Arrow batch, no object per record.

This file is ordinary Python and runs as it stands. Where a C compiler was at hand at installation, Cython has compiled
it with the types in `kernel.pxd`; nothing else may then differ but the speed, so the code keeps to what means the same
in both: no integer leaves 64 bits, every read is checked against the end of its record first, every write against the
room that there is. The compiled loop runs without the interpreter's lock.

A record of a v2 batch, every number but the attributes a zigzag varint:

    length        int32   bytes after this field
    attributes    int8    unused
    timestamp     int64   delta to the batch's base timestamp
    offset        int32   delta to the batch's base offset
    key           int32 length, -1 for null, then the bytes
    value         int32 length, -1 for null, then the bytes
    headers       int32 count, then for each: key length (never null), key, value length or -1, value

What is not asked for is hopped over: of a record without wanted headers nothing behind the value is looked at.

The columns, as Arrow lays them out. A column of bytes is `offsets` (int32, one more than there are rows, from 0 on),
`data`, and `validity`, a bit per row that is set beforehand and cleared for null. Headers are a list: `header_starts`
(int32, as offsets) and a validity of their own, null where a record has none, over two columns of bytes that have a row
for each header. Timestamps are microseconds; one that does not fit becomes the nearest that does.

A `Filler` keeps its place in the records and in the columns, so that either can be changed when it is used up: many
small batches make one large Arrow batch, and one large batch several.
"""

from __future__ import annotations

from typing import Any

try:
    import cython  # type: ignore[import-untyped, unused-ignore]
except ImportError:
    from tidelog.wire.kernel_primitives import cython

if not cython.compiled:
    from tidelog.wire.batch import ATTRIBUTES_AT, BASE_TIMESTAMP_AT, CRC_AT, HEADER_SIZE  # isort: skip
    from tidelog.wire.batch import LAST_OFFSET_DELTA_AT, LENGTH_AT, LOG_APPEND_TIME_FLAG, LOG_OVERHEAD  # isort: skip
    from tidelog.wire.batch import MAGIC_AT, MAX_TIMESTAMP_AT, MIN_RECORD_SIZE, RECORD_COUNT_AT  # isort: skip
    from tidelog.wire.kernel_primitives import copy_bytes, has_high_bits, load_int32, load_int64  # isort: skip
    from tidelog.wire.kernel_primitives import read_varint32, read_varint64  # isort: skip

# Why the loop stopped.
_DONE = 0
_FULL = 1
_TOO_LARGE = 2
_BAD_COUNT = 3
_BAD_LENGTH = 4
_BAD_TIMESTAMP = 5
_BAD_OFFSET = 6
_BAD_KEY = 7
_BAD_VALUE = 8
_BAD_HEADERS = 9
_BYTES_LEFT_IN_RECORD = 10
_BYTES_LEFT_IN_BATCH = 11

# The codes for those outside: the compiled loop has them as C numbers, which nobody else sees.
DONE, TOO_LARGE = _DONE, _TOO_LARGE

REASONS = (
    "the records are all read",
    "the columns are full",
    "the record is larger than the columns",
    "the batch does not hold the declared count of records",
    "a record does not fit into the batch",
    "the timestamp is not a well-formed varint",
    "the offset does not lie between those of the record before and the end of the batch",
    "the key does not fit into the record",
    "the value does not fit into the record",
    "the headers do not fit into the record",
    "a record is longer than its content",
    "bytes are left after the declared count of records",
)

_MAX32 = 0x7FFFFFFF
_MAX64 = 0x7FFFFFFFFFFFFFFF
_MIN64 = -_MAX64 - 1

#: the largest time in milliseconds that 64 bits can say in microseconds
_MAX_MS = 9223372036854775


def micros(base_ms: int, delta_ms: int) -> int:
    """The microseconds of a time in milliseconds, the nearest there are where 64 bits cannot say it."""
    if delta_ms > 0 and base_ms > _MAX64 - delta_ms:
        time_ms = _MAX_MS
    elif delta_ms < 0 and base_ms < _MIN64 - delta_ms:
        time_ms = -_MAX_MS
    else:
        time_ms = base_ms + delta_ms
    if time_ms > _MAX_MS:
        time_ms = _MAX_MS
    elif time_ms < -_MAX_MS:
        time_ms = -_MAX_MS
    return time_ms * 1000


class Batches:
    """The headers of the batches of a message set, one after the other."""

    buf: Any
    #: the batch lies from `pos` to `end`
    pos: int
    end: int
    base_offset: int
    last_delta: int
    base_timestamp: int
    max_timestamp: int
    attributes: int
    count: int
    crc: int

    def use(self, buf: Any) -> None:
        self.buf = buf
        self.pos = 0
        self.end = 0

    def next(self) -> bool:
        """Moves on to the next batch; False where no whole one follows, or what follows is none."""
        pos = self.end
        left = len(self.buf) - pos
        if left < HEADER_SIZE:
            return False
        length = load_int32(self.buf, pos + LENGTH_AT)
        if length < HEADER_SIZE - LOG_OVERHEAD or length > left - LOG_OVERHEAD or self.buf[pos + MAGIC_AT] != 2:
            return False
        self.pos = pos
        self.end = pos + LOG_OVERHEAD + length
        self.base_offset = load_int64(self.buf, pos)
        self.crc = load_int32(self.buf, pos + CRC_AT) & 0xFFFFFFFF
        # Only the second byte of the attributes is in use.
        self.attributes = self.buf[pos + ATTRIBUTES_AT + 1]
        self.last_delta = load_int32(self.buf, pos + LAST_OFFSET_DELTA_AT)
        self.base_timestamp = load_int64(self.buf, pos + BASE_TIMESTAMP_AT)
        self.max_timestamp = load_int64(self.buf, pos + MAX_TIMESTAMP_AT)
        self.count = load_int32(self.buf, pos + RECORD_COUNT_AT)
        return True


class BytesColumn:
    """A column of bytes; rows are put in order. `size` bytes are in its data, `nulls` of its rows are null."""

    offsets: Any
    data: Any
    validity: Any
    size: int
    nulls: int

    def use(self, offsets: Any, data: Any, validity: Any) -> None:
        """Starts anew in these buffers: every bit of `validity` is set."""
        if len(offsets) < 1 or 8 * len(validity) < len(offsets) - 1:
            raise ValueError("the column has no room for its rows")
        self.offsets = offsets
        self.data = data
        self.validity = validity
        self.size = 0
        self.nulls = 0
        offsets[0] = 0

    def put(self, row: int, buf: Any, pos: int, length: int) -> None:
        """The caller has made sure that there is room; a length of -1 is null."""
        if length > 0:
            copy_bytes(buf, pos, self.data, self.size, length)
            self.size += length
        elif length < 0:
            self.nulls += 1
            self.validity[row >> 3] &= 0xFF ^ (1 << (row & 7))
        self.offsets[row + 1] = self.size


class Filler:
    """Fills columns from records: `row` rows are filled, `index` records of the batch are behind it."""

    # the columns; those that are not wanted are not there
    row: int
    rows: int
    max_bytes: int
    filled: int
    offsets: Any
    timestamps: Any
    key: BytesColumn
    value: BytesColumn
    header_starts: Any
    header_validity: Any
    names: BytesColumn
    contents: BytesColumn
    header_row: int
    header_rows: int
    headerless: int
    ascii_names: bool
    # what the next record needs, where it was TOO_LARGE or the columns were FULL
    need_bytes: int
    need_headers: int
    # the records
    buf: Any
    pos: int
    end: int
    record_end: int
    malformed: bool
    index: int
    count: int
    base_offset: int
    last_delta: int
    offset_delta: int
    base_timestamp: int
    stamped: bool
    stamp: int
    first_offset: int
    until_offset: int

    def __init__(self) -> None:
        # Without columns it is full.
        self.row = 0
        self.rows = 0
        self.need_bytes = 0
        self.need_headers = 0

    def use_columns(self, rows: int, max_bytes: int, offsets: Any, timestamps: Any, key: Any, value: Any) -> None:
        """Empty columns with room for `rows` rows and `max_bytes` of bytes in each; None where one is not wanted."""
        if (
            rows < 1
            or max_bytes > _MAX32
            or (offsets is not None and len(offsets) < rows)
            or (timestamps is not None and len(timestamps) < rows)
            or not _has_room(key, rows, max_bytes)
            or not _has_room(value, rows, max_bytes)
        ):
            raise ValueError("the columns have no room for the rows")
        self.rows = rows
        self.max_bytes = max_bytes
        self.wants_offset = offsets is not None
        self.offsets = offsets
        self.wants_timestamp = timestamps is not None
        self.timestamps = timestamps
        self.wants_key = key is not None
        self.key = key
        self.wants_value = value is not None
        self.value = value
        self.wants_headers = False
        self.row = 0
        self.filled = 0
        self.header_row = 0
        self.header_rows = 0
        self.headerless = 0
        self.ascii_names = True

    def use_headers(self, header_rows: int, starts: Any, validity: Any, names: Any, contents: Any) -> None:
        """Empty columns for the headers as well, with room for `header_rows` of them in all."""
        if (
            header_rows > _MAX32
            or len(starts) < self.rows + 1
            or 8 * len(validity) < self.rows
            or names is None
            or contents is None
            or not _has_room(names, header_rows, self.max_bytes)
            or not _has_room(contents, header_rows, self.max_bytes)
        ):
            raise ValueError("the columns have no room for the headers")
        self.wants_headers = True
        self.header_rows = header_rows
        self.header_starts = starts
        self.header_validity = validity
        self.names = names
        self.contents = contents
        starts[0] = 0

    def use_batch(self, batch: Batches, payload: Any) -> None:
        """The records of a batch come next: `payload` where they had to be unpacked, else as they lie there."""
        if payload is None:
            self.buf = batch.buf
            self.pos = batch.pos + HEADER_SIZE
            self.end = batch.end
        else:
            self.buf = payload
            self.pos = 0
            self.end = len(payload)
        self.malformed = False
        self.index = 0
        self.count = batch.count
        self.base_offset = batch.base_offset
        self.last_delta = batch.last_delta
        self.offset_delta = -1
        self.base_timestamp = batch.base_timestamp
        self.stamped = batch.attributes & LOG_APPEND_TIME_FLAG != 0
        self.stamp = micros(batch.max_timestamp, 0)

    def use_bounds(self, first_offset: int, until_offset: int) -> None:
        """Only records from `first_offset` up to `until_offset`, exclusive, become rows."""
        self.first_offset = first_offset
        self.until_offset = until_offset

    def fill(self) -> int:
        """Goes on until the records are done or the columns are full; anything else is the fault of record `index`."""
        with cython.nogil:
            return self._fill()

    def _fill(self) -> int:
        if self.count < 0:
            return _BAD_COUNT
        if self.base_offset < 0 or self.last_delta < 0 or self.base_offset > _MAX64 - 1 - self.last_delta:
            return _BAD_OFFSET
        while self.index < self.count:
            start = self.pos
            stop = self._read_record()
            if stop != _DONE:
                # A record that has no room is read again when there is some; after a faulty one nothing is.
                self.pos = start
                if stop > _TOO_LARGE:
                    self.rows = self.row
                return stop
            self.pos = self.record_end
            self.index += 1
        return _DONE if self.pos == self.end else _BYTES_LEFT_IN_BATCH

    def _read_record(self) -> int:
        self.record_end = self.end
        if self.pos >= self.end:
            return _BAD_COUNT
        length = self._number()
        if self.malformed or length < MIN_RECORD_SIZE - 1 or length > self.end - self.pos:
            return _BAD_LENGTH
        self.record_end = self.pos + length
        self.pos += 1
        timestamp_delta = self._long_number()
        if self.malformed:
            return _BAD_TIMESTAMP
        offset_delta = self._number()
        if self.malformed or offset_delta <= self.offset_delta or offset_delta > self.last_delta:
            return _BAD_OFFSET
        offset = self.base_offset + offset_delta
        if offset < self.first_offset or offset >= self.until_offset:
            self.offset_delta = offset_delta
            return _DONE
        if self.row >= self.rows:
            return _FULL
        stop = self._read_fields()
        if stop != _DONE:
            return stop
        row = self.row
        if self.wants_offset:
            self.offsets[row] = offset
        if self.wants_timestamp:
            self.timestamps[row] = self.stamp if self.stamped else micros(self.base_timestamp, timestamp_delta)
        if row == 0:
            self.need_bytes = 0
            self.need_headers = 0
        self.row = row + 1
        self.offset_delta = offset_delta
        return _DONE

    def _read_fields(self) -> int:
        """Key, value and headers, as far as they are wanted, into their columns."""
        if not self.wants_key and not self.wants_value and not self.wants_headers:
            return _DONE
        need = 0
        key_length = self._field()
        if self.malformed:
            return _BAD_KEY
        key_at = self.pos - key_length
        value_length = 0
        value_at = 0
        if self.wants_key and key_length > 0:
            need = key_length
        if self.wants_value or self.wants_headers:
            value_length = self._field()
            if self.malformed:
                return _BAD_VALUE
            value_at = self.pos - value_length
            if self.wants_value and value_length > 0:
                need += value_length
        if self.wants_headers:
            # What the headers take is not known yet, but they cannot take more than is left of the record.
            need += self.record_end - self.pos
        if need > self.max_bytes - self.filled:
            self.need_bytes = need
            return _TOO_LARGE if self.row == 0 else _FULL
        if self.wants_headers:
            stop = self._read_headers()
            if stop != _DONE:
                return stop
        if self.wants_key:
            self.key.put(self.row, self.buf, key_at, key_length)
        if self.wants_value:
            self.value.put(self.row, self.buf, value_at, value_length)
        self.filled += need
        return _DONE

    def _read_headers(self) -> int:
        count = self._number()
        if self.malformed or count < 0 or 2 * count > self.record_end - self.pos:
            return _BAD_HEADERS
        if count > self.header_rows - self.header_row:
            self.need_headers = count
            return _TOO_LARGE if self.row == 0 else _FULL
        at = self.header_row
        until = at + count
        while at < until:
            length = self._field()
            if self.malformed or length < 0:
                return _BAD_HEADERS
            if self.ascii_names and has_high_bits(self.buf, self.pos - length, length):
                self.ascii_names = False
            self.names.put(at, self.buf, self.pos - length, length)
            length = self._field()
            if self.malformed:
                return _BAD_HEADERS
            self.contents.put(at, self.buf, self.pos - length, length)
            at += 1
        if self.pos != self.record_end:
            return _BYTES_LEFT_IN_RECORD
        if count == 0:
            self.headerless += 1
            self.header_validity[self.row >> 3] &= 0xFF ^ (1 << (self.row & 7))
        self.header_row = until
        self.header_starts[self.row + 1] = until
        return _DONE

    def _number(self) -> int:
        """A varint of at most 32 bits that ends before `record_end`; if it is malformed, `malformed` says so."""
        number = read_varint32(self.buf, self.pos, self.record_end)
        if number.end < 0:
            self.malformed = True
        else:
            self.pos = number.end
        return number.value

    def _long_number(self) -> int:
        """As `_number`, of at most 64 bits."""
        number = read_varint64(self.buf, self.pos, self.record_end)
        if number.end < 0:
            self.malformed = True
        else:
            self.pos = number.end
        return number.value

    def _field(self) -> int:
        """Moves past a length and the bytes it counts; the length is -1 for null."""
        length = self._number()
        if length < -1 or length > self.record_end - self.pos:
            self.malformed = True
            return 0
        if length > 0:
            self.pos += length
        return length


def _has_room(column: Any, rows: int, max_bytes: int) -> bool:
    return column is None or (len(column.offsets) > rows and len(column.data) >= max_bytes)
