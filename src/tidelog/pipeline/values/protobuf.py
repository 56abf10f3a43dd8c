"""Protobuf values, read by the message that `message` names.

    int32, sint32, sfixed32         int                 bool        boolean
    uint32, int64 and the like      bigint              string      string
    uint64, fixed64                 decimal(20,0)       bytes       binary
    float, double                   float, double       enum        string, its name; an unknown number as text
    message, group                  struct              repeated    array
    map                             map                 oneof       each member a column, one of them not null
    Timestamp                       timestamp           Int64Value and the like     the value, nullable
    Struct, Value, ListValue        string, as JSON     a message without fields    boolean, true where it is there

A field is null where the message can tell that it was not set: `optional`, messages, members of a oneof. Other fields
have their default then, as Protobuf wants it. With `framing = "confluent"`, the schema's id and the message's indexes
before the value are taken off; the message is the named one whatever they say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import pyarrow as pa

from tidelog.pipeline.values.ddl import SchemaError
from tidelog.pipeline.values.decoded import CHANGED_TYPE, MALFORMED, Decoded, DecodeSpec, Fault, RowShape, shape_of
from tidelog.pipeline.values.framing import is_framed, take_frames_off
from tidelog.pipeline.values.proto_files import descriptor_set, find_message

ReadField = Callable[[Any], Any]
_GOOGLE = "google.protobuf."
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = {f"{_GOOGLE}{name}Value" for name in _WRAPPED}
_AS_JSON = {f"{_GOOGLE}{name}" for name in ("Struct", "Value", "ListValue")}


def protobuf_decoder(decode: DecodeSpec) -> ProtobufDecoder:
    descriptors = descriptor_set(decode.schema, decode.schema_file)
    fields = pa.schema(
        [(name, kind) for name, kind, _ in message_columns(find_message(descriptors, decode.message).DESCRIPTOR)]
    )
    return ProtobufDecoder(shape_of(decode, fields), descriptors, decode.message, is_framed(decode))


class ProtobufDecoder:
    __slots__ = ("_class", "_framed", "_given", "_readers", "_shape", "columns", "fields", "schema")

    def __init__(self, shape: RowShape, descriptors: bytes, message: str | None, framed: bool) -> None:
        self._shape = shape
        self._given = (descriptors, message)
        self._framed = framed
        self._class = find_message(descriptors, message)
        self._readers = [read for _, _, read in message_columns(self._class.DESCRIPTOR)]
        self.fields = shape.fields
        self.columns = shape.columns()
        self.schema = shape.schema()

    def __reduce__(self) -> tuple[Any, ...]:
        return ProtobufDecoder, (self._shape, *self._given, self._framed)

    def decode(self, records: Any) -> Decoded:
        values = records.column("value").to_pylist()
        faults: list[Fault] = []
        if self._framed:
            values, _, faults = take_frames_off(values)
        messages = self._parse(values, faults)
        arrays = [
            _column(messages, field, read, faults) for field, read in zip(self.fields, self._readers, strict=True)
        ]
        return self._shape.part(records, arrays, faults)

    def _parse(self, values: list[bytes | None], faults: list[Fault]) -> list[Any]:
        from google.protobuf.message import DecodeError

        parse = self._class.FromString
        messages: list[Any] = []
        for row, value in enumerate(values):
            try:
                bare = value if value is None or not self._framed else _past_indexes(value)
                messages.append(None if bare is None else parse(bare))
            except DecodeError:
                messages.append(None)
                faults.append(Fault(row, MALFORMED, f"not a Protobuf message {self._class.DESCRIPTOR.full_name}"))
        return messages


def _column(messages: list[Any], field: Any, read: ReadField, faults: list[Fault]) -> Any:
    """A field of all messages; what cannot be read or does not fit is a fault."""
    try:
        return pa.array([None if message is None else read(message) for message in messages], field.type)
    except (pa.ArrowException, ValueError, OverflowError):
        cells: list[Any] = []
        for row, message in enumerate(messages):
            try:
                cells.append(None if message is None else read(message))
                pa.array(cells[-1:], field.type)
            except (pa.ArrowException, ValueError, OverflowError) as error:
                cells[row:] = [None]
                if row not in {fault.row for fault in faults}:
                    faults.append(Fault(row, CHANGED_TYPE, f"field {field.name}: {error}"))
        return pa.array(cells, field.type)


def _past_indexes(value: bytes) -> bytes:
    """What follows the path to the message in its file: a count and so many numbers, or a single 0 for the first."""
    from google.protobuf.message import DecodeError

    at = 0
    left = 1
    first = True
    while left:
        end = at
        while end < len(value) and value[end] >= 0x80:
            end += 1
        if end >= len(value):
            raise DecodeError
        if first:
            zigzag = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(value[at : end + 1]))
            left = (zigzag >> 1) + 1
            first = False
        left -= 1
        at = end + 1
    return value[at:]


# --- types --------------------------------------------------------------------------------------------


def message_columns(descriptor: Any, above: tuple[str, ...] = ()) -> list[tuple[str, Any, ReadField]]:
    """Name, type and reader of each field of a message."""
    if descriptor.full_name in above:
        path = " > ".join((*above[above.index(descriptor.full_name) :], descriptor.full_name))
        raise SchemaError(f"decode.message: {path}: a message that holds itself has no type in a table")
    inner = (*above, descriptor.full_name)
    return [(field.name, *_field(field, inner)) for field in descriptor.fields]


def _field(field: Any, above: tuple[str, ...]) -> tuple[Any, ReadField]:
    get = attrgetter(field.name)
    if _is_map(field):
        entry = field.message_type.fields_by_name
        key_kind, key = _single(entry["key"], above)
        kind, value = _single(entry["value"], above)
        return pa.map_(key_kind, kind), _map_reader(get, key, value)
    kind, convert = _single(field, above)
    if _is_repeated(field):
        return pa.list_(kind), _list_reader(get, convert)
    if field.has_presence and not field.has_default_value:
        return kind, _optional_reader(field.name, get, convert)
    return kind, get if convert is None else lambda message: convert(get(message))


def _is_repeated(field: Any) -> bool:
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)


def _is_map(field: Any) -> bool:
    kind = field.message_type
    return kind is not None and bool(kind.has_options and kind.GetOptions().map_entry) and _is_repeated(field)


def _map_reader(get: ReadField, key: ReadField | None, value: ReadField | None) -> ReadField:
    def read(message: Any) -> Any:
        entries: Iterable[Any] = get(message).items()
        if key is not None:
            entries = ((key(name), item) for name, item in entries)
        return list(entries) if value is None else [(name, value(item)) for name, item in entries]

    return read


def _list_reader(get: ReadField, convert: ReadField | None) -> ReadField:
    if convert is None:
        return lambda message: list(get(message))
    return lambda message: [convert(item) for item in get(message)]


def _optional_reader(name: str, get: ReadField, convert: ReadField | None) -> ReadField:
    if convert is None:
        return lambda message: get(message) if message.HasField(name) else None
    return lambda message: convert(get(message)) if message.HasField(name) else None


def _single(field: Any, above: tuple[str, ...]) -> tuple[Any, ReadField | None]:
    """The type of one value of a field, and what to do with it, None for nothing."""
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return pa.string(), lambda number: names.get(number) or str(number)
    if field.message_type is not None:
        return _message(field.message_type, above)
    return _SCALARS[field.type], None


def _message(descriptor: Any, above: tuple[str, ...]) -> tuple[Any, ReadField | None]:
    name = descriptor.full_name
    if name == f"{_GOOGLE}Timestamp":
        return pa.timestamp("us", tz="UTC"), lambda at: at.seconds * 1_000_000 + at.nanos // 1000
    if name in _WRAPPERS:
        return _SCALARS[descriptor.fields_by_name["value"].type], attrgetter("value")
    if name in _AS_JSON:
        return pa.string(), _json
    columns = message_columns(descriptor, above)
    if not columns:
        return pa.bool_(), lambda _: True
    kind = pa.struct([(name, inner) for name, inner, _ in columns])
    return kind, lambda message: {name: read(message) for name, _, read in columns}


def _json(message: Any) -> str:
    from google.protobuf.json_format import MessageToJson

    return str(MessageToJson(message, indent=None))


def _scalars() -> dict[int, Any]:
    from google.protobuf.descriptor import FieldDescriptor as F

    return {
        F.TYPE_DOUBLE: pa.float64(),
        F.TYPE_FLOAT: pa.float32(),
        **dict.fromkeys((F.TYPE_INT32, F.TYPE_SINT32, F.TYPE_SFIXED32), pa.int32()),
        **dict.fromkeys((F.TYPE_INT64, F.TYPE_SINT64, F.TYPE_SFIXED64, F.TYPE_UINT32, F.TYPE_FIXED32), pa.int64()),
        **dict.fromkeys((F.TYPE_UINT64, F.TYPE_FIXED64), pa.decimal128(20, 0)),
        F.TYPE_BOOL: pa.bool_(),
        F.TYPE_STRING: pa.string(),
        F.TYPE_BYTES: pa.binary(),
    }


_SCALARS = _scalars()
