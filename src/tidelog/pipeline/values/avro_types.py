"""Avro's types as Arrow's.

    boolean, int, long, float, double, bytes, string    as they are
    enum, uuid                      string
    fixed                           binary
    decimal                         decimal(precision, scale)
    date                            date
    timestamp-millis/-micros/-nanos timestamp, in microseconds
    local-timestamp-…               timestamp_ntz
    time-millis                     int, milliseconds of the day (tables have no such type)
    time-micros                     bigint, microseconds of the day
    record, array, map              struct, array, map
    union with null                 the other type; everything is nullable anyway
    union of int and long, or of float and double       the larger
    any other union                 struct of member0, member1, …, as Spark has it; one of them is not null

Some of these need a word with fastavro's values; `Converter` is a function for that, None where there is nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

from tidelog.pipeline.values.ddl import SchemaError

Converter = Callable[[Any], Any]
_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "null": pa.string(),
}
_LARGER = ({"int", "long"}, pa.int64()), ({"float", "double"}, pa.float64())
_PYTHON = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float,),
    "double": (float,),
    "bytes": (bytes,),
    "string": (str,),
    "array": (list,),
    "map": (dict,),
}
_PYTHON_LOGICAL: dict[str, tuple[type, ...]] = {
    "decimal": (Decimal,),
    "date": (date,),
    "time-millis": (time,),
    "time-micros": (time,),
    "uuid": (UUID,),
    "timestamp-nanos": (int,),
    "local-timestamp-nanos": (int,),
    **{f"{kind}timestamp-{unit}": (datetime,) for kind in ("", "local-") for unit in ("millis", "micros")},
}


class Mapped(NamedTuple):
    kind: Any  # pa.DataType
    convert: Converter | None


class AvroTypes:
    """Maps a parsed schema; `named` are the definitions that fastavro found in it, by full name.

    Values of a union's named branches come as (name, value). Not so where the writer's schema was another one and it
    had no more than one such branch: `resolved` values come bare then, and are known by what they look like.
    """

    def __init__(self, named: dict[str, Any], resolved: bool = False) -> None:
        self._named = named
        self._resolved = resolved
        self._open: list[str] = []

    def fields_of(self, schema: Any) -> tuple[Any, Converter | None]:
        """The fields of a record, and what to do with its values."""
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise SchemaError("decode.schema: the Avro schema of a value must be a record")
        if not schema.get("fields"):
            raise SchemaError(f"decode.schema: the Avro record {schema['name']} has no fields")
        mapped = self._map(schema)
        return pa.schema(list(mapped.kind)), mapped.convert

    def _map(self, schema: Any) -> Mapped:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return Mapped(_PLAIN[schema], None) if schema in _PLAIN else self._map(self._named[schema])
        name = schema["type"]
        logical = self._logical(schema)
        if logical is not None:
            return logical
        if name in ("record", "error"):
            return self._record(schema)
        if name == "enum":
            return Mapped(pa.string(), None)
        if name == "fixed":
            return Mapped(pa.binary(), None)
        if name == "array":
            items = self._map(schema["items"])
            return Mapped(pa.list_(items.kind), _each(items.convert))
        if name == "map":
            items = self._map(schema["values"])
            return Mapped(pa.map_(pa.string(), items.kind), _entries(items.convert))
        return self._map(name)

    def _record(self, schema: Any) -> Mapped:
        name = schema["name"]
        if name in self._open:
            raise SchemaError(f"decode.schema: record {name} holds itself, and a table has no type for that")
        self._open.append(name)
        mapped = {field["name"]: self._map(field["type"]) for field in schema["fields"]}
        self._open.pop()
        converters = {key: one.convert for key, one in mapped.items() if one.convert is not None}
        return Mapped(pa.struct([(key, one.kind) for key, one in mapped.items()]), _fields(converters))

    def _logical(self, schema: Any) -> Mapped | None:
        logical = schema.get("logicalType")
        base = schema["type"]
        if logical == "decimal" and base in ("bytes", "fixed"):
            precision, scale = schema["precision"], schema.get("scale", 0)
            if precision > 38:
                raise SchemaError(f"decode.schema: decimals have at most 38 digits, not {precision}")
            return Mapped(pa.decimal128(precision, scale), None)
        return _LOGICAL.get((base, logical))

    def _union(self, branches: list[Any]) -> Mapped:
        others = [branch for branch in branches if branch != "null"]
        if len(others) < 2:
            only = self._map(others[0] if others else "null")
            is_named = bool(others) and self._definition(others[0]) is not None
            return Mapped(only.kind, _without_name(only.convert)) if is_named else only
        names = {branch if isinstance(branch, str) else branch["type"] for branch in others}
        plain = all(isinstance(branch, str) or "logicalType" not in branch for branch in others)
        for larger, kind in _LARGER:
            if plain and names <= larger:
                return Mapped(kind, None)
        mapped = [self._map(branch) for branch in others]
        kinds = pa.struct([(f"member{number}", one.kind) for number, one in enumerate(mapped)])
        # What looks like a value of a named branch is one: any text may be a string, and few are an enum's.
        order = sorted(range(len(others)), key=lambda number: self._definition(others[number]) is None)
        tests = [(number, self._test(others[number])) for number in order]
        return Mapped(kinds, _members(tests, [one.convert for one in mapped]))

    def _definition(self, branch: Any) -> Any | None:
        """Of a named type; None for all others."""
        found = self._named[branch] if isinstance(branch, str) and branch not in _PLAIN else branch
        return found if isinstance(found, dict) and found["type"] in ("record", "error", "enum", "fixed") else None

    def _test(self, branch: Any) -> Callable[[Any], bool]:
        """Whether a value is of this branch."""
        named = self._definition(branch)
        if named is not None:
            name, looks = named["name"], _looks_of(named) if self._resolved else _never
            return lambda value: value[0] == name if isinstance(value, tuple) else looks(value)
        base = branch if isinstance(branch, str) else str(branch["type"])
        if isinstance(branch, dict) and self._logical(branch) is not None:
            # Such come as dates, times, decimals or UUIDs, and at most one of each can be in a union.
            kinds = _PYTHON_LOGICAL[branch["logicalType"]]
            return lambda value: type(value) in kinds
        plain = _PYTHON[base]
        return lambda value: type(value) in plain


def _time_of_day(unit: int) -> Converter:
    """Parts of a second since midnight; `unit` microseconds make one."""

    def convert(value: Any) -> Any:
        if not isinstance(value, time):
            return value
        seconds = value.hour * 3600 + value.minute * 60 + value.second
        return (seconds * 1_000_000 + value.microsecond) // unit

    return convert


def _text(value: Any) -> Any:
    return None if value is None else str(value)


def _micros(value: Any) -> Any:
    """fastavro leaves nanoseconds as they are."""
    return value // 1000 if isinstance(value, int) else value


def _uuid(value: Any) -> Any:
    return str(UUID(bytes=value)) if isinstance(value, bytes) else value


_MOMENT, _LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_LOGICAL: dict[tuple[str, str | None], Mapped] = {
    ("int", "date"): Mapped(pa.date32(), None),
    ("int", "time-millis"): Mapped(pa.int32(), _time_of_day(1000)),
    ("long", "time-micros"): Mapped(pa.int64(), _time_of_day(1)),
    ("string", "uuid"): Mapped(pa.string(), _text),
    ("fixed", "uuid"): Mapped(pa.string(), _uuid),
    ("long", "timestamp-millis"): Mapped(_MOMENT, None),
    ("long", "timestamp-micros"): Mapped(_MOMENT, None),
    ("long", "timestamp-nanos"): Mapped(_MOMENT, _micros),
    ("long", "local-timestamp-millis"): Mapped(_LOCAL, None),
    ("long", "local-timestamp-micros"): Mapped(_LOCAL, None),
    ("long", "local-timestamp-nanos"): Mapped(_LOCAL, _micros),
}


def _each(convert: Converter | None) -> Converter | None:
    return None if convert is None else lambda items: None if items is None else [convert(item) for item in items]


def _entries(convert: Converter | None) -> Converter:
    """A map's entries as Arrow takes them."""
    if convert is None:
        return lambda entries: None if entries is None else list(entries.items())
    return lambda entries: None if entries is None else [(key, convert(item)) for key, item in entries.items()]


def _fields(converters: dict[str, Converter]) -> Converter | None:
    if not converters:
        return None

    def convert(record: Any) -> Any:
        if record is not None:
            for name, converter in converters.items():
                record[name] = converter(record[name])
        return record

    return convert


def _never(_: Any) -> bool:
    return False


def _looks_of(named: Any) -> Callable[[Any], bool]:
    """Whether a bare value looks like one of this type."""
    if named["type"] == "enum":
        symbols = frozenset(named["symbols"])
        return lambda value: type(value) is str and value in symbols
    if named["type"] == "fixed":
        kinds, size = _PYTHON_LOGICAL.get(named.get("logicalType"), ()), named["size"]
        return lambda value: type(value) in kinds or (type(value) is bytes and len(value) == size)
    names = {field["name"] for field in named["fields"]}
    return lambda value: type(value) is dict and value.keys() == names


def _without_name(convert: Converter | None) -> Converter:
    def bare(value: Any) -> Any:
        value = value[1] if isinstance(value, tuple) else value
        return value if convert is None else convert(value)

    return bare


def _members(tests: list[tuple[int, Callable[[Any], bool]]], converters: list[Converter | None]) -> Converter:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        number = next(number for number, fits in tests if fits(value))
        converter = converters[number]
        bare = value[1] if isinstance(value, tuple) else value
        return {f"member{number}": bare if converter is None else converter(bare)}

    return convert
