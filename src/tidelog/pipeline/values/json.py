"""JSON values as columns of a schema.

A record's fate follows from the rules in `json_rules`. The batch is read by the compiled loop in `shred`, which knows
good from bad; the few records that it has something to say about are then read again by the rules, one at a time: bad
ones for the reason, and, if the table evolves, those with fields that the schema lacks (see `inferring`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.pipeline.values.decoded import CHANGED_TYPE, MALFORMED, Decoded, Fault, RowShape, as_text
from tidelog.pipeline.values.framing import take_frames_off
from tidelog.pipeline.values.inferring import misnamed, widen
from tidelog.pipeline.values.json_rules import Object, Unfit, parse, read_struct
from tidelog.pipeline.values.schema_room import MAX_FIELDS, SchemaRoom
from tidelog.pipeline.values.schemas import type_name
from tidelog.pipeline.values.shred import kernel
from tidelog.pipeline.values.shredding import arrays_of, columns_of


class JsonDecoder:
    __slots__ = ("_evolve", "_framed", "_most", "_needs_fields", "_reserved", "_shape", "columns", "fields", "schema")

    def __init__(self, shape: RowShape, evolve: bool, framed: bool = False, most_fields: int = MAX_FIELDS) -> None:
        _check_maps(shape.fields)
        self._shape = shape
        self._evolve = evolve
        self._framed = framed
        self._most = most_fields
        self._reserved = frozenset(name.lower() for name in shape.metadata.values())
        self._needs_fields = any(not field.nullable for field in shape.fields)
        self.fields = shape.fields
        self.columns = shape.columns()
        self.schema = shape.schema()

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonDecoder, (self._shape, self._evolve, self._framed, self._most)

    def decode(self, records: Any) -> Decoded:
        values = records.column("value")
        faults: list[Fault] = []
        if self._framed:
            bare, _, faults = take_frames_off(values.to_pylist())
            values = pa.array(bare, pa.binary())
        root = columns_of(self.fields, len(values))
        status = self._read(root, values)
        arrays, misfits = arrays_of(root, self.fields)
        status[misfits] = kernel.BAD
        known = {fault.row for fault in faults}
        bad = [row for row in np.flatnonzero(status == kernel.BAD).tolist() if row not in known]
        faults += [self._explain(row, values[row].as_py()) for row in bad]
        wider = self._look_beside(values, np.flatnonzero(status == kernel.UNSEEN), faults) if self._evolve else None
        return self._shape.part(records, arrays, faults, wider)

    def _read(self, root: kernel.ShredColumn, values: Any) -> Any:
        """The values into the columns; OK, BAD or UNSEEN for each, or something else for those without a value."""
        status = np.zeros(len(values), np.uint8)
        if values.null_count:
            status[values.is_null().to_numpy(zero_copy_only=False)] = kernel.BAD if self._needs_fields else _NO_VALUE
        status[as_text(values)[1]] = kernel.BAD
        if len(values):
            _, starts, data = values.buffers()
            ends = memoryview(starts).cast("B").cast("i")[values.offset : values.offset + len(values) + 1]
            kernel.ShredReader(root).read(memoryview(data or b"").cast("B"), ends, status.data)
        return status

    def _explain(self, row: int, value: bytes | None) -> Fault:
        try:
            read_struct(self.fields, Object() if value is None else parse(value))
        except Unfit as unfit:
            return Fault(row, unfit.kind, unfit.reason)
        return Fault(row, MALFORMED, "the value cannot be read")

    def _look_beside(self, values: Any, rows: Any, faults: list[Fault]) -> Any:
        """The schema that these rows ask for; rows whose fields cannot become columns are faults."""
        wide = []
        room = SchemaRoom(self.fields, self._most)
        for row in rows.tolist():
            found = parse(values[row].as_py())
            reason = misnamed(self.fields, found, self._reserved) or room.take(found)
            if reason is None:
                wide.append(found)
            else:
                faults.append(Fault(row, CHANGED_TYPE, reason))
        wider = widen(self.fields, wide)
        return None if wider == self.fields else wider


_NO_VALUE = 255


def _check_maps(fields: Any) -> None:
    for field in fields:
        kind = field.type
        if pa.types.is_map(kind):
            if kind.key_type != pa.string():
                raise ValueError(f"field {field.name}: names in JSON are strings, so {type_name(kind)} cannot be read")
            _check_maps([kind.item_field])
        elif pa.types.is_list(kind):
            _check_maps([kind.value_field])
        elif pa.types.is_struct(kind):
            _check_maps(kind)
