"""Schemas as text and back.

The kept form is the JSON of Spark's StructType, which Delta uses too:

    {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": false, "metadata": {}}, ...]}

`inferring.py` makes schemas from values and widens them.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidelog.pipeline.values.ddl import PLAIN_TYPES, SchemaError, decimal_type, parse_ddl

_JSON_NAMES = ("boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date")
_TO_JSON: dict[Any, str] = {
    **{PLAIN_TYPES[name]: name for name in _JSON_NAMES},
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}
_DDL_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


def schema_to_json(schema: Any) -> str:
    """Stable: the same schema gives the same text."""
    return json.dumps(_struct_to_json(schema), ensure_ascii=False, indent=2)


def schema_from_json(text: str) -> Any:
    try:
        described = json.loads(text)
    except ValueError as error:
        raise SchemaError(f"schema: not JSON ({error})") from None
    if not isinstance(described, dict) or described.get("type") != "struct":
        raise SchemaError('schema: wanted the JSON of a Spark schema, {"type": "struct", "fields": [...]}')
    return pa.schema(_fields_from_json(described))


def parse_schema(text: str) -> Any:
    """A schema as a person wrote it: Spark DDL, or the JSON of a Spark schema."""
    return schema_from_json(text) if text.lstrip().startswith("{") else parse_ddl(text)


def read_schema_file(path: str) -> bytes:
    try:
        # Some editors write UTF-8's mark first. (A descriptor set never begins so.)
        return Path(path).read_bytes().removeprefix(BOM_UTF8)
    except OSError as error:
        raise SchemaError(f"decode.schema_file: cannot read {path}: {error.strerror}") from None


def type_name(kind: Any) -> str:
    """As Spark writes it: bigint, array<string>, struct<a:int>."""
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{type_name(field.type)}' for field in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    name: str = _type_to_json(kind)
    return _DDL_NAMES.get(name, name)


def _struct_to_json(fields: Iterable[Any]) -> dict[str, Any]:
    described = [
        {"name": field.name, "type": _type_to_json(field.type), "nullable": field.nullable, "metadata": {}}
        for field in fields
    ]
    return {"type": "struct", "fields": described}


def _type_to_json(kind: Any) -> Any:
    if kind in _TO_JSON:
        return _TO_JSON[kind]
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return _struct_to_json(kind)
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _type_to_json(kind.key_type),
            "valueType": _type_to_json(kind.item_type),
            "valueContainsNull": kind.item_field.nullable,
        }
    if pa.types.is_list(kind):
        return {
            "type": "array",
            "elementType": _type_to_json(kind.value_type),
            "containsNull": kind.value_field.nullable,
        }
    raise SchemaError(f"schema: tables have no type for {kind}")


def _fields_from_json(described: dict[str, Any]) -> list[Any]:
    try:
        return [
            pa.field(field["name"], _type_from_json(field["type"]), field.get("nullable", True))
            for field in described["fields"]
        ]
    except (KeyError, TypeError):
        raise SchemaError("schema: every field of a struct needs a name and a type") from None


def _type_from_json(described: Any) -> Any:
    if isinstance(described, str):
        if described == "decimal" or described.startswith("decimal("):
            numbers = described.removeprefix("decimal").strip("()").split(",")
            return decimal_type(*(int(number) for number in numbers if number.strip()))
        if described in PLAIN_TYPES:
            return PLAIN_TYPES[described]
        raise SchemaError(f"schema: no type {described!r}")
    if described["type"] == "struct":
        return pa.struct(_fields_from_json(described))
    if described["type"] == "array":
        return pa.list_(
            pa.field("item", _type_from_json(described["elementType"]), described.get("containsNull", True))
        )
    if described["type"] == "map":
        value = pa.field("value", _type_from_json(described["valueType"]), described.get("valueContainsNull", True))
        return pa.map_(_type_from_json(described["keyType"]), value)
    raise SchemaError(f"schema: no type {described['type']!r}")
