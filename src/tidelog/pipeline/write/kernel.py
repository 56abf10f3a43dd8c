# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False, cdivision=True
"""The loops that turn the rows of an Arrow batch into records of v2 batches, no object per record.

This file is ordinary Python and runs as it stands. Where a C compiler was at hand at installation, Cython has compiled
it with the types in `kernel.pxd`; nothing else may then differ but the speed, so the code keeps to what means the same
in both: no signed integer leaves 64 bits, nothing negative is divided, offsets are checked before anything is read
through them, every write against the room that there is. The compiled loops run without the interpreter's lock.

Three steps, each over all rows of an Arrow batch:

    place    row -> lane. A lane is a partition of a topic. A row with a partition goes there, one with a key where its
             hash says (murmur2, as the Java client has it); the others stick to a partition for a while.
    sort     the rows by lane, in the order in which they came
    write    the rows of a lane into its draft, the batch that is being written for it, until the draft is full

A record of a v2 batch, every number but the attributes a zigzag varint:

    length        int32   bytes after this field
    attributes    int8    unused
    timestamp     int64   delta to the batch's base timestamp
    offset        int32   delta to the batch's base offset
    key           int32 length, -1 for null, then the bytes
    value         int32 length, -1 for null, then the bytes
    headers       int32 count, then for each: key length (never null), key, value length or -1, value

A column of bytes, as Arrow lays it out: `offsets` (int32, one more than there are rows), `data`, and `validity`, a bit
per row, or none where no row is null. Headers are a list column: offsets and a validity of their own, over two columns
of bytes that have a row for each header. Timestamps come in microseconds.
"""

from __future__ import annotations

from typing import Any

try:
    import cython  # type: ignore[import-untyped, unused-ignore]
except ImportError:
    from tidelog.wire.kernel_primitives import cython

if not cython.compiled:
    from tidelog.wire.kernel_primitives import copy_bytes, varint_size, write_varint  # isort: skip

# Why writing stopped.
_DONE = 0
_FULL = 1
_NO_ROOM = 2
_TOO_LARGE = 3
_NULL_NAME = 4
_BAD_TIMESTAMP = 5
_BAD_ROW = 6

# The codes for those outside: the compiled loop has them as C numbers, which nobody else sees.
DONE, FULL, NO_ROOM, TOO_LARGE = _DONE, _FULL, _NO_ROOM, _TOO_LARGE
NULL_NAME = _NULL_NAME

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
#: about what a record adds to its key and value
_RECORD_OVERHEAD = 12


def murmur2(data: Any, pos: int, length: int) -> int:
    """The hash of `data[pos:pos + length]`: 32 bits, without a sign."""
    value = _SEED ^ length
    end = pos + length
    while end - pos >= 4:
        word: int = data[pos]
        word |= data[pos + 1] << 8
        word |= data[pos + 2] << 16
        word |= data[pos + 3] << 24
        word = word * _M & _MASK
        word = (word ^ (word >> 24)) * _M & _MASK
        value = value * _M & _MASK ^ word
        pos += 4
    if pos < end:
        word = data[pos]
        if end - pos > 1:
            word |= data[pos + 1] << 8
        if end - pos > 2:
            word |= data[pos + 2] << 16
        value = (value ^ word) * _M & _MASK
    value = (value ^ (value >> 13)) * _M & _MASK
    return value ^ (value >> 15)


class InputColumn:
    """A column of bytes, or of lists. `offsets` begin with those of row 0, the bits of `validity` with `first_bit`."""

    offsets: Any
    data: Any
    validity: Any
    first_bit: int
    nullable: bool
    rows: int

    def use(self, rows: int, offsets: Any, data: Any, validity: Any, first_bit: int) -> None:
        self._use(rows, offsets, len(data), validity, first_bit)
        self.data = data

    def use_lists(self, rows: int, offsets: Any, children: int, validity: Any, first_bit: int) -> None:
        """A row is a list of some of the `children` rows of other columns."""
        self._use(rows, offsets, children, validity, first_bit)

    def _use(self, rows: int, offsets: Any, end: int, validity: Any, first_bit: int) -> None:
        """Checks once what every later read relies on."""
        if len(offsets) <= rows or (validity is not None and 8 * len(validity) < first_bit + rows):
            raise ValueError("the column is shorter than its rows")
        before = 0
        at = 0
        while at <= rows:
            offset: int = offsets[at]
            if offset < before:
                raise ValueError("the offsets of the column do not grow")
            before = offset
            at += 1
        if before > end:
            raise ValueError("the offsets of the column reach beyond its data")
        self.offsets = offsets
        self.validity = validity
        self.first_bit = first_bit
        self.nullable = validity is not None
        self.rows = rows

    def length(self, row: int) -> int:
        """-1 for null."""
        if self.nullable:
            bit = self.first_bit + row
            if not self.validity[bit >> 3] >> (bit & 7) & 1:
                return -1
        length: int = self.offsets[row + 1] - self.offsets[row]
        return length


class BatchDraft:
    """The batch that is being written for a lane: `size` bytes of records in `out`, `count` of them."""

    out: Any
    room: int
    size: int
    count: int
    base_timestamp: int
    max_timestamp: int

    def use(self, out: Any, size: int, count: int) -> None:
        """Goes on in another buffer, which begins with the `size` bytes of `count` records that there are."""
        self.out = out
        self.room = len(out)
        self.size = size
        self.count = count

    def number(self, value: int) -> None:
        """Writes a zigzag varint of up to 64 bits. The caller has made sure that there is room."""
        self.size = write_varint(self.out, self.size, value)

    def field(self, column: InputColumn, row: int, length: int) -> None:
        """Writes a length and the bytes it counts."""
        self.number(length)
        if length > 0:
            copy_bytes(column.data, column.offsets[row], self.out, self.size, length)
            self.size += length


class Rows:
    """The rows of one Arrow batch. `at` is the row that writing stopped at, `need_bytes` what its record takes."""

    count: int
    key: InputColumn
    value: InputColumn
    keyed: bool
    # headers
    headed: bool
    header_lists: InputColumn
    names: InputColumn
    contents: InputColumn
    # times
    timed: bool
    times: Any
    time_validity: Any
    time_nullable: bool
    time_bit: int
    now_ms: int
    # where writing stopped
    at: int
    need_bytes: int
    timestamp: int

    def use(self, count: int, key: InputColumn | None, value: InputColumn, now_ms: int) -> None:
        if value.rows < count or (key is not None and key.rows < count):
            raise ValueError("the columns are shorter than the rows")
        self.count = count
        self.keyed = key is not None
        self.key = value if key is None else key
        self.value = value
        self.now_ms = now_ms
        self.headed = False
        self.timed = False
        self.at = 0
        self.need_bytes = 0

    def use_headers(self, lists: InputColumn, names: InputColumn, contents: InputColumn) -> None:
        """`lists` has a list of headers for each row, of those whose names and contents are in the other columns."""
        if lists.rows < self.count or lists.offsets[lists.rows] > min(names.rows, contents.rows):
            raise ValueError("the headers are shorter than the rows")
        self.headed = True
        self.header_lists = lists
        self.names = names
        self.contents = contents

    def use_times(self, times: Any, validity: Any, first_bit: int) -> None:
        """Microseconds; a row that has none is of `now_ms`."""
        if len(times) < self.count or (validity is not None and 8 * len(validity) < first_bit + self.count):
            raise ValueError("the times are shorter than the rows")
        self.timed = True
        self.times = times
        self.time_validity = validity
        self.time_nullable = validity is not None
        self.time_bit = first_bit

    # --- which lane -------------------------------------------------------------------------------------------------

    def place(self, lanes: Any, topics: Any, partitions: Any, validity: Any, first_bit: int, spread: Spread) -> int:
        """Writes the lane of each row to `lanes`; the first row whose partition does not exist, or -1.

        `topics` is the topic of each row, by its number in `spread`; None where there is but one. `partitions` is the
        partition of each row, None where no row says.
        """
        if len(lanes) < self.count or (topics is not None and len(topics) < self.count):
            raise ValueError("the lanes need more room")
        if partitions is not None and len(partitions) < self.count:
            raise ValueError("the partitions are shorter than the rows")
        if validity is not None and 8 * len(validity) < first_bit + self.count:
            raise ValueError("the partitions are shorter than the rows")
        many = topics is not None
        given = partitions is not None
        nullable = validity is not None
        row = 0
        with cython.nogil:
            while row < self.count:
                topic: int = 0
                if many:
                    topic = topics[row]
                    if topic < 0 or topic >= spread.topics:
                        return row
                partition = -1
                if given:
                    bit = first_bit + row
                    if not nullable or validity[bit >> 3] >> (bit & 7) & 1:
                        partition = partitions[row]
                        if partition < 0 or partition >= spread.partitions[topic]:
                            return row
                if partition < 0:
                    partition = self._choose(row, topic, spread)
                lanes[row] = spread.first_lane[topic] + partition
                row += 1
        return -1

    def _choose(self, row: int, topic: int, spread: Spread) -> int:
        if self.keyed:
            length = self.key.length(row)
            if length >= 0:
                hashed = murmur2(self.key.data, self.key.offsets[row], length) & 0x7FFFFFFF
                partition: int = hashed % spread.partitions[topic]
                return partition
        length = self.value.length(row)
        if length < 0:
            length = 0
        return spread.stick(topic, length + _RECORD_OVERHEAD)

    # --- records ----------------------------------------------------------------------------------------------------

    def write(self, draft: BatchDraft, order: Any, first: int, until: int, limit_bytes: int, max_bytes: int) -> int:
        """Appends the rows `order[first:until]` to the draft; why it stopped, at the row `order[at]`.

        FULL: the batch would be larger than `limit_bytes`; a record that is larger alone is a batch of its own.
        NO_ROOM: the draft's buffer is too small, `need_bytes` are missing. TOO_LARGE: the record takes `need_bytes`,
        more than `max_bytes`.
        """
        if first < 0 or until < first or until > len(order):
            raise ValueError("there are not so many rows")
        with cython.nogil:
            stop = self._write(draft, order, first, until, limit_bytes, max_bytes)
        if stop == _BAD_ROW:
            raise ValueError("there is no such row")
        return stop

    def _write(self, draft: BatchDraft, order: Any, first: int, until: int, limit_bytes: int, max_bytes: int) -> int:
        at = first
        stop = _DONE
        while at < until:
            row: int = order[at]
            if row < 0 or row >= self.count:
                stop = _BAD_ROW
                break
            self.timestamp = self._time(row)
            if self.timestamp < 0:
                stop = _BAD_TIMESTAMP
                break
            if draft.count == 0:
                draft.base_timestamp = self.timestamp
                draft.max_timestamp = self.timestamp
            length = self._measure(row, self.timestamp - draft.base_timestamp, draft.count)
            if length < 0:
                stop = _NULL_NAME
                break
            whole = varint_size(length) + length
            self.need_bytes = whole
            if whole > max_bytes:
                stop = _TOO_LARGE
                break
            if draft.count > 0 and draft.size + whole > limit_bytes:
                stop = _FULL
                break
            if whole > draft.room - draft.size:
                stop = _NO_ROOM
                break
            self._put(draft, row, length)
            at += 1
        self.at = at
        return stop

    def _time(self, row: int) -> int:
        """In milliseconds; -1 where it lies before 1970."""
        if not self.timed:
            return self.now_ms
        if self.time_nullable:
            bit = self.time_bit + row
            if not self.time_validity[bit >> 3] >> (bit & 7) & 1:
                return self.now_ms
        micros: int = self.times[row]
        return -1 if micros < 0 else micros // 1000

    def _measure(self, row: int, timestamp_delta: int, offset_delta: int) -> int:
        """The length of a record, as it stands before it; -1 where a header has no name."""
        key_length = self.key.length(row) if self.keyed else -1
        value_length = self.value.length(row)
        length = 1 + varint_size(timestamp_delta) + varint_size(offset_delta)
        length += varint_size(key_length) + varint_size(value_length)
        if key_length > 0:
            length += key_length
        if value_length > 0:
            length += value_length
        if not self.headed or self.header_lists.length(row) <= 0:
            return length + 1
        at: int = self.header_lists.offsets[row]
        until: int = self.header_lists.offsets[row + 1]
        length += varint_size(until - at)
        while at < until:
            name_length = self.names.length(at)
            if name_length < 0:
                return -1
            content_length = self.contents.length(at)
            length += varint_size(name_length) + name_length + varint_size(content_length)
            if content_length > 0:
                length += content_length
            at += 1
        return length

    def _put(self, draft: BatchDraft, row: int, length: int) -> None:
        draft.number(length)
        draft.out[draft.size] = 0
        draft.size += 1
        draft.number(self.timestamp - draft.base_timestamp)
        draft.number(draft.count)
        if self.keyed:
            draft.field(self.key, row, self.key.length(row))
        else:
            draft.number(-1)
        draft.field(self.value, row, self.value.length(row))
        if not self.headed or self.header_lists.length(row) <= 0:
            draft.number(0)
        else:
            at: int = self.header_lists.offsets[row]
            until: int = self.header_lists.offsets[row + 1]
            draft.number(until - at)
            while at < until:
                draft.field(self.names, at, self.names.length(at))
                draft.field(self.contents, at, self.contents.length(at))
                at += 1
        draft.count += 1
        if self.timestamp > draft.max_timestamp:
            draft.max_timestamp = self.timestamp


class Spread:
    """The partitions of the topics, and where each topic's rows without a key go at the moment.

    Topic t has `partitions[t]` of them, whose lanes begin with `first_lane[t]`. Those with a leader are
    `open_partitions[open_starts[t]:open_starts[t + 1]]`; `turn[t]` says which of them has its turn, and `given[t]` how
    many bytes it was given.
    """

    topics: int
    partitions: Any
    first_lane: Any
    open_starts: Any
    open_partitions: Any
    turn: Any
    given: Any
    sticky_bytes: int

    def use(
        self,
        partitions: Any,
        first_lane: Any,
        open_starts: Any,
        open_partitions: Any,
        turn: Any,
        given: Any,
        sticky_bytes: int,
    ) -> None:
        topics = len(partitions)
        if len(first_lane) < topics or len(open_starts) <= topics or len(turn) < topics or len(given) < topics:
            raise ValueError("the spread is shorter than its topics")
        at = 0
        while at < topics:
            if open_starts[at] < 0 or open_starts[at] >= open_starts[at + 1] or partitions[at] < 1 or turn[at] < 0:
                raise ValueError("a topic must have partitions")
            at += 1
        if topics > 0 and open_starts[topics] > len(open_partitions):
            raise ValueError("the spread is shorter than its partitions")
        self.topics = topics
        self.partitions = partitions
        self.first_lane = first_lane
        self.open_starts = open_starts
        self.open_partitions = open_partitions
        self.turn = turn
        self.given = given
        self.sticky_bytes = sticky_bytes

    def stick(self, topic: int, size_bytes: int) -> int:
        """The partition for a record without a key."""
        self.given[topic] += size_bytes
        if self.given[topic] > self.sticky_bytes:
            self.given[topic] = size_bytes
            self.turn[topic] += 1
        first: int = self.open_starts[topic]
        among: int = self.open_starts[topic + 1] - first
        partition: int = self.open_partitions[first + self.turn[topic] % among]
        return partition


def sort(lanes: Any, count: int, starts: Any, order: Any) -> None:
    """Sorts rows by lane, keeping their order: those of lane l become `order[starts[l]:starts[l + 1]]`.

    `starts` must be zero and have two elements more than there are lanes.
    """
    if count > len(lanes) or count > len(order):
        raise ValueError("the rows need more room")
    lane_count = len(starts) - 2
    row = 0
    while row < count:
        lane: int = lanes[row]
        if lane < 0 or lane >= lane_count:
            raise ValueError("there is no such lane")
        starts[lane + 2] += 1
        row += 1
    at = 2
    while at < lane_count + 2:
        starts[at] += starts[at - 1]
        at += 1
    # Each lane's start moves to its end, which is where the next one starts.
    row = 0
    while row < count:
        lane = lanes[row]
        order[starts[lane + 1]] = row
        starts[lane + 1] += 1
        row += 1
