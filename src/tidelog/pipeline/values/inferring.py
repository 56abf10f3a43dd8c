"""Schemas from JSON values: inferred where there is none, widened where values have fields that it lacks.

Inferred types are boolean, long, double, string, and arrays and structs of these. Types join: long and double make
double, structs join field by field, arrays element by element, and any other two make string. Joining is associative
and commutative with string on top, so that it does not matter which task saw what. A string column takes numbers and
booleans as they are written; an object or an array in it is a dead letter, like any other value that does not fit.
Nulls, and objects and arrays that hold nothing but such, say nothing.

How a table evolves, exactly once
    1. Tasks decode with the pinned schema. A record that fits it and has fields beside it is a row, and its further
       fields go into `Decoded.wider`: the pinned schema and what this batch has beside it.
    2. If any task found more, the driver joins all `wider`s (`join_schemas`), pins the result durably, throws the
       batch's files away and runs the batch again. Nothing was committed yet, neither rows nor dead letters.
    3. The second run finds nothing more, because every field with anything in it is in the joined schema.
  So all that is ever committed was decoded by a pinned schema that knows every field of every good record. Pinned
  schemas only grow by fields that earlier records did not have; the same record has therefore the same fate under every
  later schema, and a batch that is run again after a crash, perhaps with other limits, sends each record where it went
  before. Deciding types while committing could not promise this: with other limits another record would come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tidelog.pipeline.values.ddl import SchemaError
from tidelog.pipeline.values.framing import take_frames_off
from tidelog.pipeline.values.json_rules import Fraction, Object, Unfit, Whole, has_substance, parse
from tidelog.pipeline.values.schema_room import SchemaRoom, count_fields

_LONG_DIGITS = 18
#: what a change data feed has beside a table's columns
_FEED_NAMES = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
#: what the library that merges rows calls columns of its own
_LIBRARY_PREFIX = "__delta_rs_"


class Seen:
    """All that was seen in one place of many values."""

    __slots__ = ("fields", "items", "scalars")

    def __init__(self) -> None:
        self.scalars: set[str] = set()
        self.fields: dict[str, Seen] | None = None
        self.items: Seen | None = None

    def add(self, value: Any) -> None:
        if isinstance(value, Object):
            self.fields = self.fields if self.fields is not None else {}
            for name, item in value:
                if name not in self.fields:
                    self.fields[name] = Seen()
                self.fields[name].add(item)
        elif type(value) is list:
            self.items = self.items or Seen()
            for item in value:
                self.items.add(item)
        elif value is not None:
            self.scalars.add(_scalar(value))

    def type(self, empty: Any = None) -> Any:
        """None if nothing was seen; then `empty` stands for values that were always null."""
        fields = _struct_fields(self.fields, empty) if self.fields is not None else []
        items = self.items.type(empty) if self.items else None
        shapes = [pa.struct(fields)] if fields else []
        shapes += [pa.list_(items)] if items is not None else []
        shapes += [_SCALARS[name] for name in self.scalars]
        if not shapes:
            return empty if self.fields is None and self.items is None else None
        joined = shapes[0]
        for shape in shapes[1:]:
            joined = join_types(joined, shape)
        return joined


_SCALARS = {"boolean": pa.bool_(), "long": pa.int64(), "double": pa.float64(), "string": pa.string()}


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, Whole):
        return "long" if len(value) <= _LONG_DIGITS or -(1 << 63) <= int(value[:40]) < 1 << 63 else "double"
    return "double" if isinstance(value, Fraction) else "string"


def _struct_fields(fields: dict[str, Seen], empty: Any) -> list[Any]:
    """One field per name without regard to case; the first spelling counts, and the others' records will not fit."""
    types = {name: seen.type(empty) for name, seen in fields.items() if is_column_name(name)}
    spelled: dict[str, str] = {}
    for name, kind in types.items():
        if kind is not None:
            spelled.setdefault(name.lower(), name)
    return [pa.field(name, types[name]) for name in spelled.values()]


def is_column_name(name: str) -> bool:
    """Not empty, no control characters, no half surrogate pairs."""
    return bool(name) and name.isprintable()


def is_reserved_name(name: str) -> bool:
    """Whether no column of a table can have it: a table with such a one can no longer be merged into, or has no feed.

    A field inside a column may have it.
    """
    return name.lower() in _FEED_NAMES or name.lower().startswith(_LIBRARY_PREFIX)


def infer_schema(values: Iterable[bytes | None], *, evolve: bool, framed: bool = False) -> Any:
    """The schema of sampled JSON values; those that are malformed, or too much for a schema, are passed over.

    A field that was null in all of them is a string, or left out if the table evolves: it is added when it has a value.
    """
    seen = Seen()
    room = SchemaRoom(pa.schema([]))
    for value in take_frames_off(values).values if framed else values:
        if value is not None:
            try:
                found = parse(value)
            except Unfit:
                continue
            if room.take(found) is None:
                seen.add(found)
    kind = seen.type(None if evolve else pa.string())
    if kind is None or not pa.types.is_struct(kind):
        raise SchemaError("infer: no record of the sample is a JSON object with fields; give decode.schema instead")
    # A record that has such a field is a dead letter, if the table evolves; otherwise the field is passed over.
    return pa.schema([field for field in kind if not is_reserved_name(field.name)])


def join_types(one: Any, other: Any) -> Any:
    if one == other:
        return one
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return pa.struct(_join_fields(list(one), list(other)))
    if _is_array(one) and _is_array(other):
        return pa.list_(pa.field("item", join_types(one.value_type, other.value_type), one.value_field.nullable))
    if pa.types.is_map(one) and pa.types.is_map(other) and one.key_type == other.key_type:
        return pa.map_(one.key_type, one.item_field.with_type(join_types(one.item_type, other.item_type)))
    return pa.string()


def _is_array(kind: Any) -> bool:
    return bool(pa.types.is_list(kind)) and not pa.types.is_map(kind)


def _join_fields(ones: Sequence[Any], others: Iterable[Any], most: int | None = None) -> list[Any]:
    """With `most`, fields of the others that would make it more are left out."""
    joined = {field.name.lower(): field for field in ones}
    left = None if most is None else most - count_fields(ones)
    for field in others:
        name = field.name.lower()
        known = joined.get(name)
        new = field if known is None else known.with_type(join_types(known.type, field.type))
        if left is not None:
            more = count_fields([new]) - (0 if known is None else count_fields([known]))
            if more > left:
                continue
            left -= more
        joined[name] = new
    return list(joined.values())


def join_schemas(schemas: Sequence[Any], most: int | None = None) -> Any:
    """The schema that all tasks of a batch together ask for; each is the pinned one or wider.

    With `most`, columns that would make it more fields than that are left out.
    """
    others = (field for schema in schemas[1:] for field in schema)
    return pa.schema(_join_fields(list(schemas[0]), others, most))


def widen(schema: Any, values: Iterable[Object]) -> Any:
    """The schema, and at the end of each struct in it the fields that these values have beside; the values fit it.

    A struct inside a map stays as it is: see `schema_room.py`.
    """
    seen = Seen()
    for value in values:
        seen.add(value)
    return pa.schema(_widen_fields(list(schema), seen))


def _widen_fields(fields: list[Any], seen: Seen) -> list[Any]:
    found = seen.fields or {}
    widened = [field.with_type(_widen_type(field.type, found.get(field.name))) for field in fields]
    known = {field.name.lower() for field in fields}
    more = {name: item for name, item in found.items() if name.lower() not in known}
    return widened + _struct_fields(more, None)


def _widen_type(kind: Any, seen: Seen | None) -> Any:
    if seen is None:
        return kind
    if pa.types.is_struct(kind):
        return pa.struct(_widen_fields(list(kind), seen))
    if _is_array(kind):
        return pa.list_(kind.value_field.with_type(_widen_type(kind.value_type, seen.items)))
    return kind


def misnamed(fields: Any, value: Object, reserved: frozenset[str] = frozenset(), path: str = "") -> str | None:
    """Why a field that the schema lacks cannot become a column of an evolving table; None if all can."""
    known = {field.name: field for field in fields}
    taken = {name.lower(): name for name in known}
    for name, item in value:
        if not has_substance(item):
            continue
        field = known.get(name)
        if field is not None:
            fault = _misnamed_within(field.type, item, f"{path}{name}")
            if fault:
                return fault
        elif name.lower() in taken:
            return f"field {path}{name} differs from column {taken[name.lower()]} in case only"
        elif name.lower() in reserved:
            return f"field {path}{name} has the name of a metadata column"
        elif not path and is_reserved_name(name):
            return f"field {name!a} has a name that no column can have"
        else:
            impossible = _impossible_name([(name, item)])
            if impossible is not None:
                return f"field {path}{impossible!a} has a name that no column can have"
    return None


def _impossible_name(pairs: Iterable[tuple[str, Any]]) -> str | None:
    """The first name in these fields, at any depth, that holds something and cannot be a column's."""
    for name, item in pairs:
        if has_substance(item) and not is_column_name(name):
            return name
        for holder in _objects(item):
            inner = _impossible_name(holder)
            if inner is not None:
                return f"{name}.{inner}"
    return None


def _objects(value: Any) -> list[Object]:
    """The object that a value is, or those that are in it if it is an array."""
    if isinstance(value, Object):
        return [value]
    return [found for item in value for found in _objects(item)] if isinstance(value, list) else []


def _misnamed_within(kind: Any, value: Any, path: str) -> str | None:
    if pa.types.is_struct(kind) and isinstance(value, Object):
        return misnamed(kind, value, path=path + ".")
    if _is_array(kind) and isinstance(value, list):
        faults = (_misnamed_within(kind.value_type, item, path + "[]") for item in value)
        return next((fault for fault in faults if fault), None)
    if pa.types.is_map(kind) and isinstance(value, Object):
        faults = (_misnamed_within(kind.item_type, item, path + "{}") for _, item in value)
        return next((fault for fault in faults if fault), None)
    return None
