"""What a JSON value means under a schema, one record at a time: exact, and slow.

`json.py` decodes batches by a compiled kernel; this module is what the kernel must agree with. It serves where speed
does not matter: to say in words why a record does not fit, and to look at fields that the schema does not have.

The rules:

- A value is one JSON object (RFC 8259), in UTF-8, with whitespace around it at most, nested at most `MAX_NESTING` deep.
- A missing field is null. Null fits every field but NOT NULL. A field named twice fits nothing.
- Numbers fit integers if they are written as integers and in range, doubles if finite, decimals if exact.
- A string column takes strings, and numbers and booleans as they are written.
- Other strings are dates `2026-01-31`, timestamps ISO 8601 (`2026-01-31T12:00:00.5+02:00`, UTC where no zone is given,
  digits beyond microseconds cut off), decimals, or base64 of binary. Nothing else is converted.
- Objects are structs or maps with string keys, arrays are arrays.
- Fields that the schema lacks must be JSON, and are not looked at otherwise; unless the table evolves: see `json.py`.
"""

from __future__ import annotations

import base64
import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidelog.pipeline.values.decoded import CHANGED_TYPE, MALFORMED
from tidelog.pipeline.values.schemas import type_name

MAX_NESTING = 256
_LONG_MAX = (1 << 63) - 1
#: the largest double that is still rounded to a float, and not to infinity
FLOAT_MAX = math.nextafter((2 - 2**-24) * 2.0**127, 0)
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(?:([Zz])|([+-])([0-9]{2})(?::?([0-9]{2}))?)?)?"
)


class Unfit(Exception):
    """A value that does not fit; `kind` as in `decoded`."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


class Object(list[tuple[str, Any]]):
    """A JSON object, with its names in their order and as often as they come."""

    __slots__ = ()


class Whole(str):
    """A number without fraction or exponent, as it was written."""

    __slots__ = ()


class Fraction(str):
    """Any other number."""

    __slots__ = ()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_READER = json.JSONDecoder(
    object_pairs_hook=Object, parse_int=Whole, parse_float=Fraction, parse_constant=_refuse_constant
)


def parse(value: bytes) -> Object:
    value = value.removeprefix(BOM_UTF8)
    if not value:
        raise Unfit(MALFORMED, "the value is empty")
    try:
        found = _READER.decode(value.decode())
    except UnicodeDecodeError as error:
        raise Unfit(MALFORMED, f"the value is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise Unfit(MALFORMED, f"not JSON: {error.msg} at character {error.pos}") from None
    except ValueError as error:
        raise Unfit(MALFORMED, f"not JSON: {error}") from None
    except RecursionError:
        raise Unfit(MALFORMED, f"nested more than {MAX_NESTING} deep") from None
    if _depth(found) > MAX_NESTING:
        raise Unfit(MALFORMED, f"nested more than {MAX_NESTING} deep")
    if not isinstance(found, Object):
        raise Unfit(MALFORMED, f"found {found_name(found)}, wanted an object")
    return found


def _depth(value: Any) -> int:
    depth = 0
    level = [value]
    while holders := [item for item in level if isinstance(item, list)]:
        depth += 1
        level = [pair[1] for holder in holders if isinstance(holder, Object) for pair in holder]
        level += [item for holder in holders if not isinstance(holder, Object) for item in holder]
    return depth


def has_substance(value: Any) -> bool:
    """Whether there is anything but nulls in it: only then does an unknown field ask for a column."""
    if isinstance(value, Object):
        return any(has_substance(item) for _, item in value)
    if isinstance(value, list):
        return any(has_substance(item) for item in value)
    return value is not None


def found_name(value: Any) -> str:
    names: dict[type, str] = {bool: "boolean", Whole: "integer", Fraction: "number", Object: "object", list: "array"}
    return "null" if value is None else names.get(type(value), "string")


def read_struct(fields: Any, value: Object, path: str = "") -> dict[str, Any]:
    """The fields of an object, as Python values that Arrow takes for their types."""
    known = {field.name: field for field in fields}
    read: dict[str, Any] = {}
    for name, item in value:
        field = known.get(name)
        if field is None:
            continue
        if name in read:
            raise Unfit(CHANGED_TYPE, f"field {path}{name} appears twice")
        read[name] = read_value(field, item, path + name)
    for field in fields:
        if not field.nullable and read.get(field.name) is None:
            raise Unfit(CHANGED_TYPE, f"field {path}{field.name} is null, wanted {type_name(field.type)} not null")
    return read


def read_value(field: Any, value: Any, path: str) -> Any:
    if value is None:
        if not field.nullable:
            raise Unfit(CHANGED_TYPE, f"field {path} is null, wanted {type_name(field.type)} not null")
        return None
    for matches, reader in _READERS:
        if matches(field.type):
            return reader(field.type, value, path)
    raise TypeError(f"no reader for {field.type}")


def _mismatch(kind: Any, value: Any, path: str) -> Unfit:
    return Unfit(CHANGED_TYPE, f"field {path}: found {found_name(value)}, wanted {type_name(kind)}")


def _misfit(kind: Any, value: str, path: str) -> Unfit:
    shown = value if len(value) <= 40 else value[:37] + "..."
    return Unfit(CHANGED_TYPE, f"field {path}: {shown!a} is no {type_name(kind)}")


def _read_boolean(kind: Any, value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise _mismatch(kind, value, path)
    return value


def _read_integer(kind: Any, value: Any, path: str) -> int:
    if not isinstance(value, Whole):
        raise _mismatch(kind, value, path)
    # Twenty characters hold every long; longer ones need not be converted to know that they do not fit.
    number = int(value) if len(value) <= 20 else _LONG_MAX + 1
    limit = 1 << (kind.bit_width - 1)
    if not -limit <= number < limit:
        raise _misfit(kind, value, path)
    return number


def _read_float(kind: Any, value: Any, path: str) -> float:
    if not isinstance(value, Whole | Fraction):
        raise _mismatch(kind, value, path)
    number = float(value)
    if math.isinf(number) or (kind.bit_width == 32 and abs(number) > FLOAT_MAX):
        raise _misfit(kind, value, path)
    return number


def read_text(kind: Any, value: Any, path: str) -> str:
    if type(value) is not str:
        raise _mismatch(kind, value, path)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unfit(CHANGED_TYPE, f"field {path}: half of a surrogate pair is no text") from None
    return value


def _read_scalar(kind: Any, value: Any, path: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, Whole | Fraction) else read_text(kind, value, path)


def _read_binary(kind: Any, value: Any, path: str) -> bytes:
    text = read_text(kind, value, path)
    if not _BASE64.fullmatch(text):
        raise Unfit(CHANGED_TYPE, f"field {path}: binary must be base64")
    return base64.b64decode(text)


def read_decimal(kind: Any, value: Any, path: str) -> Decimal:
    if not isinstance(value, str):
        raise _mismatch(kind, value, path)
    if not re.fullmatch(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?", value):
        raise _misfit(kind, value, path)
    # Digits enough for every decimal; an exponent of four digits cannot make the number large.
    number = Decimal(value)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    shift = exponent + kind.scale
    unscaled = "".join(map(str, digits)).lstrip("0")
    if shift < 0:
        unscaled, cut = unscaled[:shift], unscaled[shift:]
        if cut.strip("0"):
            raise _misfit(kind, value, path)
    if unscaled and len(unscaled) + max(shift, 0) > kind.precision:
        raise _misfit(kind, value, path)
    unscaled += "0" * max(shift, 0) if unscaled else ""
    return Decimal((sign if unscaled else 0, tuple(map(int, unscaled or "0")), -kind.scale))


def read_date(kind: Any, value: Any, path: str) -> date:
    text = read_text(kind, value, path)
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise _misfit(kind, text, path)


def read_timestamp(kind: Any, value: Any, path: str) -> int:
    """Microseconds since 1970."""
    text = read_text(kind, value, path)
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise _misfit(kind, text, path)
    year, month, day, hour, minute, second, digits, utc, sign, zone_hours, zone_minutes = match.groups()
    if kind.tz is None and (utc or sign):
        raise Unfit(CHANGED_TYPE, f"field {path}: found a timestamp with a zone, wanted timestamp_ntz")
    try:
        micros = int((digits or "0").ljust(6, "0")[:6])
        moment = datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), micros)
        if sign:
            if int(zone_hours) > 23 or int(zone_minutes or 0) > 59:
                raise ValueError(text)
            ahead = timedelta(hours=int(zone_hours), minutes=int(zone_minutes or 0))
            moment = moment - ahead if sign == "+" else moment + ahead
    except (ValueError, OverflowError):
        raise _misfit(kind, text, path) from None
    return (moment - _EPOCH) // _MICROSECOND


def _read_list(kind: Any, value: Any, path: str) -> list[Any]:
    if type(value) is not list:
        raise _mismatch(kind, value, path)
    return [read_value(kind.value_field, item, path + "[]") for item in value]


def _read_map(kind: Any, value: Any, path: str) -> list[tuple[str, Any]]:
    if not isinstance(value, Object):
        raise _mismatch(kind, value, path)
    if len({name for name, _ in value}) < len(value):
        raise Unfit(CHANGED_TYPE, f"field {path} has a key twice")
    return [
        (read_text(kind.key_type, name, path + "{}"), read_value(kind.item_field, item, path + "{}"))
        for name, item in value
    ]


def _read_object(kind: Any, value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, Object):
        raise _mismatch(kind, value, path)
    return read_struct(kind, value, path + ".")


_READERS: tuple[tuple[Callable[[Any], bool], Callable[[Any, Any, str], Any]], ...] = (
    (pa.types.is_boolean, _read_boolean),
    (pa.types.is_signed_integer, _read_integer),
    (pa.types.is_floating, _read_float),
    (pa.types.is_string, _read_scalar),
    (pa.types.is_binary, _read_binary),
    (pa.types.is_decimal, read_decimal),
    (pa.types.is_date32, read_date),
    (pa.types.is_timestamp, read_timestamp),
    (pa.types.is_map, _read_map),
    (pa.types.is_list, _read_list),
    (pa.types.is_struct, _read_object),
)
