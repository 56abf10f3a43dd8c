"""JSON values as columns of a schema.

A record's fate follows from the rules in `json_rules`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelog.pipeline.values.decoded import CHANGED_TYPE, Decoded, Fault, Shape
from tidelog.pipeline.values.inferring import misnamed, widen
from tidelog.pipeline.values.json_rules import Object, Unfit, parse, read_struct


class JsonDecoder:
    __slots__ = ("_evolve", "_shape", "columns", "fields", "schema")

    def __init__(self, shape: Shape, evolve: bool) -> None:
        self._shape = shape
        self._evolve = evolve
        self.fields = shape.fields
        self.columns = shape.columns()
        self.schema = shape.schema()

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonDecoder, (self._shape, self._evolve)

    def decode(self, records: Any) -> Decoded:
        faults: list[Fault] = []
        read: list[dict[str, Any]] = []
        wide: list[Object] = []
        for row, value in enumerate(records.column("value").to_pylist()):
            try:
                found = Object() if value is None else parse(value)
                struct = read_struct(self.fields, found)
                if self._evolve:
                    self._check_names(found)
                    wide.append(found)
                read.append(struct)
            except Unfit as unfit:
                faults.append(Fault(row, unfit.kind, unfit.reason))
                read.append({})
        arrays = [pa.array([row.get(field.name) for row in read], field.type) for field in self.fields]
        wider = widen(self.fields, wide) if wide else self.fields
        return self._shape.part(records, arrays, faults, None if wider == self.fields else wider)

    def _check_names(self, found: Object) -> None:
        reserved = frozenset(name.lower() for name in self._shape.metadata.values())
        fault = misnamed(self.fields, found, reserved)
        if fault:
            raise Unfit(CHANGED_TYPE, fault)
