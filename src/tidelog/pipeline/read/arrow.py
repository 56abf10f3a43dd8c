"""Record batches of the log as Arrow batches, with the columns of Spark's stock Kafka connector.

    key, value       binary
    topic            string
    partition        int32
    offset           int64
    timestamp        timestamp('us', 'UTC')
    timestampType    int32: 0 the producer's time, 1 the broker's
    headers          list<struct<key: string, value: binary>>, null where a record has none

The columns are filled by the kernel, straight from the records of a batch. Small batches of the log are gathered into
one Arrow batch, up to `max_rows` rows and `max_bytes` bytes of keys, values and headers; a large one becomes several.
No Arrow batch holds more than was fetched at once, or than the largest of those batches unpacked. A single record that
is larger than `max_bytes` has an Arrow batch to itself. Only the columns that are asked for are made; those that say
the same in every row are made once and shared.

Header names are text, as everywhere in Kafka. One that is not valid UTF-8 gets replacement characters in place of
what is wrong, as in the Java client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import pyarrow as pa

from tidelog.client.errors import ClientError
from tidelog.client.reader import AbortedTransactions, Chunk, Span, damaged
from tidelog.pipeline.read import kernel
from tidelog.wire.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_FLAG,
    Buffer,
    InvalidBatch,
    crc32c,
    next_header,
    read_header,
)
from tidelog.wire.check import unpack
from tidelog.wire.errors import ErrorCode

MAX_ROWS: Final = 32 * 1024
MAX_BYTES: Final = 16 * 1024 * 1024
_MOST_BYTES: Final = 0x7FFFFFFF
_NO_END: Final = 0x7FFFFFFFFFFFFFFF

HEADER_TYPE: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER_TYPE)),
}
COLUMNS: Final = tuple(_TYPES)


def schema_of(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """The schema of these columns, in this order."""
    unknown = [name for name in columns if name not in _TYPES]
    if unknown:
        raise ValueError(f"there is no column {unknown[0]!r}: the columns are {', '.join(COLUMNS)}")
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


class _Bytes:
    """A column of bytes: the buffers that the kernel fills."""

    __slots__ = ("_data", "_offsets", "_validity", "filled")

    def __init__(self, rows: int, max_bytes: int) -> None:
        self._offsets = pa.allocate_buffer(4 * (rows + 1))
        # Every buffer has an address, even where nothing will be put into it.
        self._data = pa.allocate_buffer(max(max_bytes, 1))
        self._validity = _all_valid(rows)
        self.filled = kernel.BytesColumn()
        self.filled.use(_view(self._offsets, "i"), _view(self._data, "B"), self._validity)

    def array(self, rows: int, kind: pa.DataType) -> pa.Array:
        nulls = self.filled.nulls
        data = self._data.slice(0, self.filled.size)
        return pa.Array.from_buffers(kind, rows, [_bits(self._validity, nulls), self._offsets, data], nulls)


class _Columns:
    """The columns of one Arrow batch while it is filled."""

    __slots__ = (
        "_contents",
        "_header_starts",
        "_header_validity",
        "_key",
        "_names",
        "_offset",
        "_timestamp",
        "_value",
        "runs",
    )

    def __init__(
        self, filler: kernel.Filler, wanted: frozenset[str], rows: int, max_bytes: int, header_rows: int
    ) -> None:
        #: (row where it ends, whether the broker stamped the time) of each run of rows, in order
        self.runs: list[tuple[int, bool]] = []
        self._offset = pa.allocate_buffer(8 * rows) if "offset" in wanted else None
        self._timestamp = pa.allocate_buffer(8 * rows) if "timestamp" in wanted else None
        self._key = _Bytes(rows, max_bytes) if "key" in wanted else None
        self._value = _Bytes(rows, max_bytes) if "value" in wanted else None
        filler.use_columns(
            rows,
            max_bytes,
            None if self._offset is None else _view(self._offset, "q"),
            None if self._timestamp is None else _view(self._timestamp, "q"),
            None if self._key is None else self._key.filled,
            None if self._value is None else self._value.filled,
        )
        if "headers" in wanted:
            self._header_starts = pa.allocate_buffer(4 * (rows + 1))
            self._header_validity = _all_valid(rows)
            self._names = _Bytes(header_rows, max_bytes)
            self._contents = _Bytes(header_rows, max_bytes)
            filler.use_headers(
                header_rows,
                _view(self._header_starts, "i"),
                self._header_validity,
                self._names.filled,
                self._contents.filled,
            )

    def end_run(self, filler: kernel.Filler) -> None:
        """Notes of what kind the times of the last rows are."""
        stamped = bool(filler.stamped)
        if self.runs and self.runs[-1][1] == stamped:
            self.runs.pop()
        self.runs.append((filler.row, stamped))

    def array(self, name: str, filler: kernel.Filler) -> pa.Array:
        rows = filler.row
        if name == "key" and self._key is not None:
            return self._key.array(rows, _TYPES[name])
        if name == "value" and self._value is not None:
            return self._value.array(rows, _TYPES[name])
        if name == "headers":
            return self._headers(filler)
        return pa.Array.from_buffers(
            _TYPES[name], rows, [None, self._offset if name == "offset" else self._timestamp], 0
        )

    def _headers(self, filler: kernel.Filler) -> pa.Array:
        count = filler.header_row
        names = self._names.array(count, pa.string())
        if not filler.ascii_names:
            names = _mended(names)
        pairs = pa.StructArray.from_arrays([names, self._contents.array(count, pa.binary())], fields=list(HEADER_TYPE))
        return pa.Array.from_buffers(
            _TYPES["headers"],
            filler.row,
            [_bits(self._header_validity, filler.headerless), self._header_starts],
            filler.headerless,
            children=[pairs],
        )


class ArrowDecoder:
    """Decodes chunks of one or several partitions; the Arrow batches have `columns` in that order."""

    def __init__(
        self,
        columns: Sequence[str] = COLUMNS,
        *,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
        check_crcs: bool = True,
    ) -> None:
        if max_rows < 1 or max_bytes < 1:
            raise ValueError("max_rows and max_bytes must be positive")
        self.schema = schema_of(columns)
        self._columns = tuple(columns)
        self._wanted = frozenset(columns)
        self._max_rows = min(max_rows, _MOST_BYTES)
        self._max_bytes = min(max_bytes, _MOST_BYTES)
        self._check_crcs = check_crcs
        self._constants: dict[tuple[str, object], pa.Array] = {}

    def decode(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """What a consumer may see of the chunk: from its start to the end of its span, as isolation has it."""
        span = chunk.span
        filler = kernel.Filler()
        filler.use_bounds(chunk.start, _NO_END if span.until is None else span.until)
        batches = kernel.Batches()
        batches.use(chunk.fetched.records)
        columns: _Columns | None = None
        try:
            for payload in self._visible(batches, chunk):
                filler.use_batch(batches, payload)
                while (stop := filler.fill()) != kernel.DONE:
                    if stop > kernel.TOO_LARGE:
                        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"record {filler.index}: {kernel.REASONS[stop]}")
                    if columns is not None and filler.row:
                        columns.end_run(filler)
                        yield self._batch(span, filler, columns)
                    columns = self._room(filler, max(len(chunk.fetched.records), len(payload or b"")))
                if columns is not None:
                    columns.end_run(filler)
        except InvalidBatch as error:
            header = read_header(chunk.fetched.records, batches.pos)
            raise damaged(f"{span.topic}-{span.partition}", header, error) from error
        if columns is not None and filler.row:
            yield self._batch(span, filler, columns)

    def _visible(self, batches: kernel.Batches, chunk: Chunk) -> Iterator[Buffer | None]:
        """Stops at each batch that may hold rows; its records, where they had to be unpacked."""
        view = chunk.fetched.records
        start, until = chunk.start, chunk.span.until
        transactions = chunk.fetched.aborted_transactions
        aborted = AbortedTransactions(transactions) if transactions else None
        while batches.next():
            pos, end = batches.pos, batches.end
            if self._check_crcs and crc32c(view[pos + ATTRIBUTES_AT : end]) != batches.crc:
                raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, "its checksum does not match")
            attributes = batches.attributes
            if aborted is not None:
                if aborted.hides(read_header(view, pos), view[pos:end]):
                    continue
            elif attributes & CONTROL_FLAG:
                continue
            base_offset = batches.base_offset
            if until is not None and base_offset >= until:
                return
            if base_offset + batches.last_delta >= start:
                yield unpack(view[pos:end], read_header(view, pos)) if attributes & CODEC_MASK else None
        self._check_end(batches, chunk)

    @staticmethod
    def _check_end(batches: kernel.Batches, chunk: Chunk) -> None:
        """Behind the last whole batch there may be one that is cut short, and nothing else."""
        view, span = chunk.fetched.records, chunk.span
        try:
            next_header(view, batches.end, len(view))
        except InvalidBatch as error:
            raise ClientError(
                f"byte {batches.end} of what was fetched from offset {chunk.start} of {span.topic}-{span.partition} "
                f"begins no batch: {error}",
                ErrorCode.CORRUPT_MESSAGE,
            ) from error

    def _room(self, filler: kernel.Filler, hint_bytes: int) -> _Columns:
        """New columns: no larger than it makes sense, or as large as the record that was too large for them."""
        max_bytes = max(min(self._max_bytes, hint_bytes), filler.need_bytes)
        return _Columns(filler, self._wanted, self._max_rows, max_bytes, max(self._max_rows, filler.need_headers))

    def _batch(self, span: Span, filler: kernel.Filler, columns: _Columns) -> pa.RecordBatch:
        rows = filler.row
        arrays = []
        for name in self._columns:
            if name == "topic":
                array = self._constant("topic", span.topic).slice(0, rows)
            elif name == "partition":
                array = self._constant("partition", span.partition).slice(0, rows)
            elif name == "timestampType":
                array = self._timestamp_types(columns.runs, rows)
            else:
                array = columns.array(name, filler)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _timestamp_types(self, runs: list[tuple[int, bool]], rows: int) -> pa.Array:
        if len(runs) == 1:
            return self._constant("timestampType", int(runs[0][1])).slice(0, rows)
        parts = []
        start = 0
        for end, stamped in runs:
            parts.append(self._constant("timestampType", int(stamped)).slice(0, end - start))
            start = end
        return pa.concat_arrays(parts)

    def _constant(self, name: str, value: object) -> pa.Array:
        array = self._constants.get((name, value))
        if array is None:
            array = pa.repeat(pa.scalar(value, _TYPES[name]), self._max_rows)
            self._constants[name, value] = array
        return array


def _view(buffer: pa.Buffer, kind: Literal["B", "i", "q"]) -> memoryview:
    return memoryview(buffer).cast("B").cast(kind)


def _all_valid(rows: int) -> bytearray:
    return bytearray(b"\xff") * ((rows + 7) // 8)


def _bits(validity: bytearray, nulls: int) -> pa.Buffer | None:
    return pa.py_buffer(validity) if nulls else None


def _mended(names: pa.Array) -> pa.Array:
    """Names with replacement characters where they were not UTF-8."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.cast(pa.binary()).to_pylist()], pa.string())
    return names
