"""Values as UTF-8 text in one column, `text`; a value that is not UTF-8 is a dead letter."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelog.pipeline.values.decoded import MALFORMED, Decoded, Fault, RowShape, as_text

FIELDS = pa.schema([("text", pa.string())])


class TextDecoder:
    __slots__ = ("_shape", "columns", "schema")

    fields = FIELDS

    def __init__(self, shape: RowShape) -> None:
        self._shape = shape
        self.columns = shape.columns()
        self.schema = shape.schema()

    def __reduce__(self) -> tuple[Any, ...]:
        return TextDecoder, (self._shape,)

    def decode(self, records: Any) -> Decoded:
        text, bad = as_text(records.column("value"))
        return self._shape.part(records, [text], [Fault(row, MALFORMED, "the value is not UTF-8") for row in bad])
