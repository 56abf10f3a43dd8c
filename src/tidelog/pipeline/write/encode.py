"""Arrow columns into record batches: what a task that writes to topics does with its rows.

    encoder = ArrowEncoder(producer.topic, producer.send_encoded, topic="orders", compression="zstd")
    for batch in batches:
        encoder.write(batch)
    encoder.close()                         # what is left of each partition becomes its last batch
    producer.flush()

The columns are those of Spark's stock Kafka connector: `value`, and where they are there `key`, `headers`, `topic` and
`partition`; all others are left alone. Values and keys are strings or bytes, null values are tombstones. The rows of a
partition keep their order.

A partition's records gather in a draft until the batch is large enough; the drafts of all partitions together have a
bound, at which they are all given away, however small. A record that is larger than a whole batch is a batch of its
own, up to the largest that a request may be. The loops over rows are `encoding/kernel.py`.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from random import randrange
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from tidelog.client.cluster import TopicInfo
from tidelog.client.partitioner import STICKY_BYTES
from tidelog.client.producer import Encoded
from tidelog.pipeline.options.sink_options import BATCH_BYTES, MAX_REQUEST_BYTES
from tidelog.pipeline.write import kernel
from tidelog.wire.batch import HEADER_SIZE
from tidelog.wire.compression import CODEC_NAMES, NONE, compress

MAX_DRAFTED_BYTES: Final = 32 * 1024 * 1024
_FIRST_ROOM_BYTES: Final = 16 * 1024
#: an empty buffer would reach the compiled kernel without an address
_NOTHING: Final = bytes(8)

Topics = Callable[[str], tuple[TopicInfo, Sequence[int]]]
Give = Callable[[str, int, Encoded], None]


class RowRefused(ValueError):
    """A row that cannot become a record, said so that its author finds it."""


class Lane(NamedTuple):
    topic: str
    partition: int


class _Draft:
    """A kernel's draft with the buffer it writes to."""

    __slots__ = ("buffer", "kernel")

    def __init__(self) -> None:
        self.kernel: Any = kernel.BatchDraft()
        self.renew()

    def renew(self) -> None:
        self.buffer = bytearray(_FIRST_ROOM_BYTES)
        self.kernel.use(self.buffer, 0, 0)

    def grow(self, need_bytes: int) -> int:
        """Moves to a buffer that has the room; how many bytes it is larger."""
        before, size = len(self.buffer), self.kernel.size
        larger = bytearray(max(2 * before, size + need_bytes))
        larger[:size] = memoryview(self.buffer)[:size]
        self.buffer = larger
        self.kernel.use(larger, size, self.kernel.count)
        return len(larger) - before


class ArrowEncoder:
    """`topics` tells a topic and its partitions that have a leader, `give` takes each batch that is ready.

    `topic`, where given, is the topic of all rows. `timestamp` is the column with the records' times; without it they
    are of now. `batch_bytes` counts before compression.
    """

    def __init__(
        self,
        topics: Topics,
        give: Give,
        *,
        topic: str | None = None,
        timestamp: str | None = None,
        compression: str = "none",
        batch_bytes: int = BATCH_BYTES,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        max_drafted_bytes: int = MAX_DRAFTED_BYTES,
    ) -> None:
        self._topics = topics
        self._give = give
        self._topic = topic
        self._timestamp = timestamp
        self._codec = CODEC_NAMES.index(compression)
        self._max_record_bytes = max_request_bytes - HEADER_SIZE
        self._batch_bytes = min(batch_bytes, self._max_record_bytes)
        self._max_drafted_bytes = max_drafted_bytes
        self._numbers: dict[str, int] = {}
        self._lanes: list[Lane] = []
        self._spread = _Spread()
        self._drafts: dict[int, _Draft] = {}
        self._drafted_bytes = 0
        self.rows_written = 0

    # --- rows in ------------------------------------------------------------------------------------

    def write(self, batch: pa.RecordBatch) -> None:
        count = batch.num_rows
        if count == 0:
            return
        rows: Any = kernel.Rows()
        key = None if (found := _column(batch, "key")) is None else _bytes_column(found)
        value = _column(batch, "value")
        if value is None:
            raise RowRefused("Required attribute 'value' not found")
        rows.use(count, key, _bytes_column(value), int(time.time() * 1000))
        if (headers := _column(batch, "headers")) is not None:
            rows.use_headers(*_header_columns(headers))
        if self._timestamp is not None:
            times = batch.column(self._timestamp)
            # The zone is how a time is shown: the number beneath it counts from 1970 in Greenwich.
            times = times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64())
            rows.use_times(_numbers(times, "q"), *_validity(times))
        lanes = self._place(batch, rows)
        # Two more than there are lanes: see `sort`.
        starts = array("i", bytes(4 * (len(self._lanes) + 2)))
        order = array("i", bytes(4 * count))
        kernel.sort(lanes, count, starts, order)
        for lane in range(len(self._lanes)):
            if starts[lane] != starts[lane + 1]:
                self._fill(lane, rows, order, starts[lane], starts[lane + 1])
        self.rows_written += count
        if self._drafted_bytes > self._max_drafted_bytes:
            self.close()

    def _place(self, batch: pa.RecordBatch, rows: Any) -> array[int]:
        """The lane of each row."""
        topics = None
        if self._topic is not None:
            self._number(self._topic)
        else:
            column = _column(batch, "topic")
            if column is None or column.null_count:
                raise RowRefused("null topic present in the data. Use the topic option for setting a topic.")
            encoded = column.dictionary_encode()
            ours = pa.array([self._number(name) for name in encoded.dictionary.to_pylist()], pa.int32())
            topics = _numbers(ours.take(encoded.indices), "i")
        lanes = array("i", bytes(4 * batch.num_rows))
        partitions, validity, first_bit = None, None, 0
        if (given := _column(batch, "partition")) is not None:
            given = given.cast(pa.int32())
            partitions = _numbers(given, "i")
            validity, first_bit = _validity(given)
        bad = rows.place(lanes, topics, partitions, validity, first_bit, self._spread.kernel)
        if bad >= 0:
            topic = self._topic or batch.column("topic")[bad].as_py()
            asked = batch.column("partition")[bad].as_py()
            last = self._spread.partitions[self._numbers[topic]] - 1
            raise RowRefused(
                f"Invalid partition given with record: {asked} is not in the range of topic {topic}, 0 to {last}"
            )
        return lanes

    def _number(self, topic: str) -> int:
        """The number of a topic, by which the kernel knows it."""
        number = self._numbers.get(topic)
        if number is None:
            info, available = self._topics(topic)
            number = self._numbers[topic] = len(self._numbers)
            self._spread.add(len(self._lanes), len(info.partitions), available)
            self._lanes += [Lane(topic, partition) for partition in range(len(info.partitions))]
        return number

    def _fill(self, lane: int, rows: Any, order: array[int], first: int, until: int) -> None:
        draft = self._drafts.get(lane)
        if draft is None:
            draft = self._drafts[lane] = _Draft()
            self._drafted_bytes += len(draft.buffer)
        while True:
            stop = rows.write(draft.kernel, order, first, until, self._batch_bytes, self._max_record_bytes)
            first = rows.at
            if stop == kernel.DONE:
                return
            if stop == kernel.FULL:
                self._seal(lane, draft)
            elif stop == kernel.NO_ROOM:
                self._drafted_bytes += draft.grow(rows.need_bytes)
            else:
                raise self._refusal(stop, self._lanes[lane], rows.need_bytes)

    def _refusal(self, stop: int, lane: Lane, need_bytes: int) -> RowRefused:
        where = f"a record for {lane.topic}-{lane.partition}"
        if stop == kernel.TOO_LARGE:
            most = self._max_record_bytes + HEADER_SIZE
            return RowRefused(
                f"{where} is {need_bytes + HEADER_SIZE} bytes when serialized, which is larger than {most}, the value "
                "of kafka.max.request.size; raise it, and max.message.bytes of the topic with it"
            )
        if stop == kernel.NULL_NAME:
            return RowRefused(f"{where} has a header without a key")
        return RowRefused(f"{where} has a timestamp before 1970")

    # --- batches out --------------------------------------------------------------------------------

    def _seal(self, lane: int, draft: _Draft) -> None:
        written = draft.kernel
        payload: Any = memoryview(draft.buffer)[: written.size]
        if self._codec != NONE:
            payload = compress(self._codec, payload)
        encoded = Encoded(payload, self._codec, written.count, written.base_timestamp, written.max_timestamp)
        if self._codec == NONE:
            # The buffer is the batch now.
            self._drafted_bytes -= len(draft.buffer)
            draft.renew()
            self._drafted_bytes += len(draft.buffer)
        else:
            written.use(draft.buffer, 0, 0)
        self._give(*self._lanes[lane], encoded)

    def close(self) -> None:
        """Gives away what there is of every partition."""
        drafts, self._drafts = self._drafts, {}
        for lane, draft in drafts.items():
            if draft.kernel.count:
                self._seal(lane, draft)
        self._drafted_bytes = 0


class _Spread:
    """The partitions of the topics, as the kernel wants them."""

    def __init__(self) -> None:
        self.kernel: Any = kernel.Spread()
        self.partitions = array("i")
        self._first_lanes = array("i")
        self._open_starts = array("i", [0])
        self._open = array("i")
        self._turn = array("q")
        self._given = array("q")

    def add(self, first_lane: int, partitions: int, available: Sequence[int]) -> None:
        # Arrays that the kernel looks at cannot grow.
        self.partitions = self.partitions + array("i", [partitions])
        self._first_lanes = self._first_lanes + array("i", [first_lane])
        self._open = self._open + array("i", available or range(partitions))
        self._open_starts = self._open_starts + array("i", [len(self._open)])
        # Tasks begin at different partitions, so that many small ones fill them all.
        self._turn = self._turn + array("q", [randrange(1 << 16)])
        self._given = self._given + array("q", [0])
        self.kernel.use(
            self.partitions, self._first_lanes, self._open_starts, self._open, self._turn, self._given, STICKY_BYTES
        )


# --- columns as the kernel reads them ---------------------------------------------------------------


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    at = batch.schema.get_field_index(name)
    return None if at < 0 else batch.column(at)


def _validity(column: pa.Array) -> tuple[Any, int]:
    """The bits of a column, and where its first is; none where no row is null."""
    bits = column.buffers()[0]
    return (None, 0) if bits is None or column.null_count == 0 else (_bytes_of(bits), column.offset)


def _bytes_of(buffer: Any) -> memoryview:
    return memoryview(buffer if buffer is not None and buffer.size else _NOTHING).cast("B")


def _numbers(column: pa.Array, code: Literal["i", "q"]) -> memoryview:
    view = _bytes_of(column.buffers()[1]).cast(code)
    return view[column.offset : column.offset + len(column)] if len(column) else view


def _offsets(buffer: Any, first: int, count: int) -> memoryview:
    """Of a column without rows the offsets may be missing."""
    return _bytes_of(buffer).cast("i")[first : first + count + 1]


def _bytes_column(column: pa.Array) -> Any:
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        column = column.cast(pa.binary())
    _, offsets, data = column.buffers()
    made: Any = kernel.InputColumn()
    made.use(len(column), _offsets(offsets, column.offset, len(column)), _bytes_of(data), *_validity(column))
    return made


def _header_columns(column: pa.Array) -> tuple[Any, Any, Any]:
    if not pa.types.is_list(column.type):
        column = column.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    # Flattened, a header that is null as a whole has no name either.
    names, contents = column.values.flatten()[:2]
    lists: Any = kernel.InputColumn()
    offsets = _offsets(column.buffers()[1], column.offset, len(column))
    lists.use_lists(len(column), offsets, len(column.values), *_validity(column))
    return lists, _bytes_column(names), _bytes_column(contents)
