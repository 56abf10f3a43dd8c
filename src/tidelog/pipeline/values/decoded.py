"""What every value decoder takes and gives, and how records part into rows and dead letters.

A decoder gets a batch of records in the stock connector's columns and gives two batches: rows, and dead letters for the
records it could not read. No record is in both, none in neither, and both keep the order of the records.

Faults are of two kinds. A *malformed* value cannot be read at all (not UTF-8, not JSON, cut short): `on_error` says
what becomes of it. A value of a *changed type* reads well but does not fit the schema: `on_type_change` says. Either is
"dead_letter", or "stop", which raises `DecodeStopped` for the first such record and writes nothing.

A record's fate depends on its own bytes and the schema, never on its neighbours in the batch: a rerun with other batch
limits sends it to the same place.

A record without a value (a tombstone) becomes a row whose fields are null, so that deletions can be seen in the table.
For a table with keys a column says so (`DELETION`), and a row without its key is a fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KAFKA_TYPES: dict[str, Any] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}
#: whether the record has no value: among the metadata of rows, and no column of Kafka's
DELETION = "deleted"
LETTER_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")
DEAD_LETTERS = pa.schema([*((name, KAFKA_TYPES[name]) for name in LETTER_COLUMNS), ("reason", pa.string())])

MALFORMED = "malformed"
CHANGED_TYPE = "changed type"


class DecodeSpec(Protocol):
    """What the decoders read of the pipeline file's `[decode]`."""

    @property
    def format(self) -> str: ...
    @property
    def schema(self) -> str | None: ...
    @property
    def schema_file(self) -> str | None: ...
    @property
    def infer(self) -> bool: ...
    @property
    def message(self) -> str | None: ...
    @property
    def on_error(self) -> str: ...
    @property
    def on_type_change(self) -> str: ...
    @property
    def evolve(self) -> bool: ...
    @property
    def framing(self) -> str: ...
    @property
    def writer_schema_file(self) -> str | None: ...
    @property
    def writer_schemas(self) -> Mapping[str, str]: ...
    @property
    def key_format(self) -> str: ...
    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Kafka columns and the names of their columns in the rows."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns of the rows that must not be null."""


class Decoded(NamedTuple):
    rows: Any  # pa.RecordBatch
    dead: Any  # pa.RecordBatch of DEAD_LETTERS
    #: the decoder's fields and those that the rows had beside them; None where there were none or nobody asked
    wider: Any = None  # pa.Schema | None


class ValueDecoder(Protocol):
    """Picklable: made on the driver, used on the executors."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The Kafka columns that `decode` must be given."""

    @property
    def schema(self) -> Any:
        """Of the rows."""

    @property
    def fields(self) -> Any:
        """The part of the schema that comes from the values: what is pinned."""

    def decode(self, records: Any) -> Decoded: ...


class DecodeStopped(Exception):
    """A record that the pipeline file says to stop at."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(topic, partition, offset, reason)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}: {self.reason}"


class Fault(NamedTuple):
    row: int
    kind: str
    reason: str


class RowShape(NamedTuple):
    """How decoded fields and metadata make a row, and what is done about faults."""

    fields: Any  # pa.Schema
    metadata: Mapping[str, str]
    key_is_text: bool
    stops: frozenset[str]  # the kinds of faults that stop the pipeline
    keys: tuple[str, ...] = ()

    def schema(self) -> Any:
        extra = (pa.field(name, self._type_of(column)) for column, name in self.metadata.items())
        return pa.schema([*self.fields, *extra])

    def columns(self) -> tuple[str, ...]:
        own = (*LETTER_COLUMNS, DELETION)
        return (*LETTER_COLUMNS, *(column for column in self.metadata if column not in own))

    def part(self, records: Any, fields: Sequence[Any], faults: list[Fault], wider: Any = None) -> Decoded:
        """`fields` holds an array per field with an entry for each record; those of faulty records do not matter."""
        arrays = list(fields)
        for column in self.metadata:
            array = records.column("value" if column == DELETION else column)
            if column == DELETION:
                array = pc.is_null(array)
            if column == "key" and self.key_is_text:
                array, untexted = as_text(array)
                known = {fault.row for fault in faults}
                faults += [Fault(row, MALFORMED, "the key is not UTF-8") for row in untexted if row not in known]
            arrays.append(array)
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema())
        faults += self._keyless(rows, {fault.row for fault in faults})
        if not faults:
            return Decoded(rows, letters(records, faults), wider)
        faults.sort()
        for fault in faults:
            if fault.kind in self.stops:
                topic, partition, offset = (records.column(name)[fault.row].as_py() for name in LETTER_COLUMNS[:3])
                raise DecodeStopped(topic, partition, offset, fault.reason)
        return Decoded(
            rows.filter(all_but((fault.row for fault in faults), len(rows))), letters(records, faults), wider
        )

    def _keyless(self, rows: Any, known: set[int]) -> list[Fault]:
        found = []
        for key in self.keys:
            first, *inner = key.split(".")
            missing = np.asarray(pc.is_null(reduce(pc.struct_field, inner, rows.column(first))))
            new = [row for row in np.flatnonzero(missing).tolist() if row not in known]
            found += [Fault(row, MALFORMED, f"it has no {key}, which is a key of the table") for row in new]
            known.update(new)
        return found

    def _type_of(self, column: str) -> Any:
        if column == DELETION:
            return pa.bool_()
        return pa.string() if column == "key" and self.key_is_text else KAFKA_TYPES[column]


def shape_of(decode: DecodeSpec, fields: Any) -> RowShape:
    metadata = dict(decode.metadata)
    for column in metadata:
        if column not in KAFKA_TYPES and column != DELETION:
            raise ValueError(f"{column!r} is no Kafka column; metadata can be {', '.join(KAFKA_TYPES)}")
    taken = {name.lower() for name in fields.names}
    if len(taken) < len(fields.names):
        twice = next(name for name in fields.names if [other.lower() for other in fields.names].count(name.lower()) > 1)
        raise ValueError(f"the schema has the field {twice!r} twice; columns are compared without case")
    for column, name in metadata.items():
        if name.lower() in taken:
            raise ValueError(f"field {name!r} of the schema and the metadata column for {column!r} have the same name")
    policies = {MALFORMED: decode.on_error, CHANGED_TYPE: decode.on_type_change}
    stops = frozenset(kind for kind, policy in policies.items() if policy == "stop")
    # A key that is no column is told of when the rows are compared with the table.
    keys = tuple(key for key in decode.keys if key.split(".")[0] in {*fields.names, *metadata.values()})
    return RowShape(fields, metadata, decode.key_format == "text", stops, keys)


def all_but(rows: Iterable[int], count: int) -> Any:
    mask = np.ones(count, dtype=bool)
    mask[list(rows)] = False
    return pa.array(mask)


def letters(records: Any, faults: Sequence[Fault]) -> Any:
    """The dead letters of a batch; `faults` in the order of their rows."""
    if not faults:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in DEAD_LETTERS], schema=DEAD_LETTERS)
    taken = records.select(LETTER_COLUMNS).take(pa.array([fault.row for fault in faults], pa.int64()))
    reasons = pa.array([fault.reason for fault in faults], pa.string())
    return pa.RecordBatch.from_arrays([*taken.columns, reasons], schema=DEAD_LETTERS)


def as_text(array: Any) -> tuple[Any, list[int]]:
    """Binary as UTF-8 text, without a copy where all of it is; else null where it is not, and the rows where."""
    try:
        return array.cast(pa.string()), []
    except pa.ArrowInvalid:
        bad = _not_text(array, 0)
        return pc.if_else(all_but(bad, len(array)), array, None).cast(pa.string()), bad


def _not_text(array: Any, first: int) -> list[int]:
    """Halves the array until the bad rows stand alone: there are few, if any."""
    try:
        array.cast(pa.string())
    except pa.ArrowInvalid:
        half = len(array) // 2
        return [first] if half == 0 else _not_text(array[:half], first) + _not_text(array[half:], first + half)
    return []
