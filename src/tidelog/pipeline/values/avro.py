"""Avro values: the bare datum, or one behind a schema's id (`framing = "confluent"`).

`schema` is what the table has (the reader's schema). Values that were written with another one need that as well, since
Avro does not say it with each value: `writer_schema_file`, or with ids `writer_schemas`, a file for each id. Fields are
then matched by Avro's rules of resolution: promotions, defaults, aliases. fastavro reads, a value at a time.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidelog.pipeline.values.avro_types import AvroTypes, Converter
from tidelog.pipeline.values.ddl import SchemaError
from tidelog.pipeline.values.decoded import CHANGED_TYPE, MALFORMED, Decoded, DecodeSpec, Fault, RowShape, shape_of
from tidelog.pipeline.values.framing import is_framed, take_frames_off
from tidelog.pipeline.values.schemas import read_schema_file


def avro_decoder(decode: DecodeSpec) -> AvroDecoder:
    if decode.schema:
        reader = decode.schema
    elif decode.schema_file:
        reader = read_schema_file(decode.schema_file).decode()
    else:
        raise SchemaError("decode: Avro values need their schema: write schema or schema_file")
    writers = {int(number): read_schema_file(path).decode() for number, path in decode.writer_schemas.items()}
    writer = read_schema_file(decode.writer_schema_file).decode() if decode.writer_schema_file else reader
    return AvroDecoder(shape_of(decode, avro_fields(reader)[0]), reader, writer, writers, is_framed(decode))


def parse_avro(text: str) -> tuple[Any, dict[str, Any]]:
    """A schema as fastavro has it, and the definitions in it by name."""
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    named: dict[str, Any] = {}
    try:
        return parse_schema(json.loads(text), named_schemas=named), named
    except json.JSONDecodeError as error:
        raise SchemaError(f"schema: an Avro schema is JSON, and this is not: {error}") from None
    except UnknownType as error:
        raise SchemaError(f"schema: Avro knows no type {error.name}") from None
    except (SchemaParseException, KeyError, TypeError) as error:
        raise SchemaError(f"schema: not an Avro schema: {error}") from None


def avro_fields(text: str, resolved: bool = False) -> tuple[Any, Converter | None]:
    schema, named = parse_avro(text)
    try:
        return AvroTypes(named, resolved).fields_of(schema)
    except KeyError as error:
        raise SchemaError(f"schema: not an Avro schema: {error} is missing") from None


class AvroDecoder:
    __slots__ = ("_converters", "_parsed", "_reader", "_shape", "_texts", "columns", "fields", "schema")

    def __init__(self, shape: RowShape, reader: str, writer: str, writers: Mapping[int, str], framed: bool) -> None:
        self._shape = shape
        self._texts = (reader, writer, dict(writers), framed)
        #: of values that were written with the reader's own schema, and of those that were not
        self._converters = [avro_fields(reader, resolved)[1] for resolved in (False, True)]
        self._reader = parse_avro(reader)[0]
        self._parsed = {text: parse_avro(text)[0] for text in {writer, *writers.values()}}
        self.fields = shape.fields
        self.columns = shape.columns()
        self.schema = shape.schema()

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroDecoder, (self._shape, *self._texts)

    def decode(self, records: Any) -> Decoded:
        values = records.column("value").to_pylist()
        faults: list[Fault] = []
        ids: list[int] | None = None
        if self._texts[3]:
            values, ids, faults = take_frames_off(values)
        rows: list[Any] = []
        for row, value in enumerate(values):
            rows.append(None)
            if value is not None:
                try:
                    rows[row] = self._read(value, None if ids is None else ids[row])
                except _Unreadable as error:
                    faults.append(Fault(row, MALFORMED, str(error)))
        return self._shape.part(records, self._columns(rows, faults), faults)

    def _read(self, value: bytes, schema_id: int | None) -> Any:
        from fastavro import schemaless_reader

        reader, writer, writers, _ = self._texts
        if schema_id is not None and writers:
            if schema_id not in writers:
                raise _Unreadable(f"schema id {schema_id} is not in decode.writer_schemas")
            writer = writers[schema_id]
        stream = io.BytesIO(value)
        resolved = writer != reader
        convert = self._converters[resolved]
        try:
            found = schemaless_reader(
                stream,
                self._parsed[writer],
                self._reader if resolved else None,
                return_named_type=True,
                # Resolving, fastavro fails over the name where one schema defines what the other only refers to: there
                # it is asked for names only where a union has several, see `AvroTypes`.
                return_named_type_override=resolved,
            )
            found = found if convert is None else convert(found)
        except Exception as error:
            # Bytes of something else make fastavro fail in many ways, and none of them is its documented one.
            raise _Unreadable(f"not Avro of this schema: {type(error).__name__} {error}".strip()) from None
        left = len(value) - stream.tell()
        if left:
            raise _Unreadable(f"not Avro of this schema: {left} bytes are left over")
        return found

    def _columns(self, rows: list[Any], faults: list[Fault]) -> list[Any]:
        """The rows as arrays. What Arrow does not take, such as a decimal with too many digits, is a fault."""
        arrays = []
        faulty = {fault.row for fault in faults}
        for field in self.fields:
            cells = [None if row is None else row[field.name] for row in rows]
            try:
                arrays.append(pa.array(cells, field.type))
            except (pa.ArrowException, OverflowError, ValueError, TypeError):
                for row, cell in enumerate(cells):
                    try:
                        pa.array([cell], field.type)
                    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
                        cells[row] = None
                        if row not in faulty:
                            faults.append(Fault(row, CHANGED_TYPE, f"field {field.name}: {error}"))
                            faulty.add(row)
                arrays.append(pa.array(cells, field.type))
        return arrays


class _Unreadable(Exception):
    pass
