"""What is inside the records: values to columns.

Is: decoders for raw, text, JSON, Avro and Protobuf values, and the schemas they decode to.
Takes: batches of records as Arrow, in the stock connector's columns.
Gives: rows, and dead letters with a reason for each record that cannot be a row.
Never: reads a topic, writes a table or starts Spark.
"""

from __future__ import annotations

from typing import Any

from tidelog import how_to_install
from tidelog.pipeline.values.ddl import SchemaError
from tidelog.pipeline.values.decoded import (
    DEAD_LETTERS,
    Decoded,
    DecodeSpec,
    DecodeStopped,
    ValueDecoder,
    shape_of,
)
from tidelog.pipeline.values.framing import is_framed
from tidelog.pipeline.values.inferring import infer_schema, is_reserved_name, join_schemas
from tidelog.pipeline.values.schema_room import MAX_FIELDS
from tidelog.pipeline.values.schemas import parse_schema, read_schema_file, schema_from_json, schema_to_json

__all__ = [
    "DEAD_LETTERS",
    "MAX_FIELDS",
    "DecodeSpec",
    "DecodeStopped",
    "Decoded",
    "SchemaError",
    "ValueDecoder",
    "decoder_for",
    "infer_schema",
    "is_reserved_name",
    "join_schemas",
    "schema_from_json",
    "schema_to_json",
]


def decoder_for(decode: DecodeSpec, pinned: Any = None, most_fields: int = MAX_FIELDS) -> ValueDecoder:
    """The decoder that a pipeline file's `[decode]` asks for.

    `pinned` is the schema of the fields that is kept beside the table; where there is one, it counts, and what the file
    says is not read again. An evolving schema grows to `most_fields`.
    """
    from tidelog.pipeline.values import json, raw, text

    if decode.format == "raw":
        return raw.RawDecoder()
    if decode.format == "text":
        return text.TextDecoder(shape_of(decode, text.FIELDS))
    if decode.format == "json":
        fields = pinned if pinned is not None else declared_schema(decode)
        return json.JsonDecoder(shape_of(decode, fields), decode.evolve, is_framed(decode), most_fields)
    try:
        if decode.format == "avro":
            from tidelog.pipeline.values.avro import avro_decoder

            return avro_decoder(decode)
        if decode.format == "protobuf":
            from tidelog.pipeline.values.protobuf import protobuf_decoder

            return protobuf_decoder(decode)
    except ModuleNotFoundError as error:
        hint = how_to_install("schema")
        raise SchemaError(f"decode.format: {decode.format} needs {error.name}, which is not there: {hint}") from error
    raise SchemaError(f"decode.format: {decode.format!r} is none of json, avro, protobuf, text, raw")


def declared_schema(decode: DecodeSpec) -> Any:
    """The schema in the pipeline file, or in the file that it names."""
    if decode.schema:
        return parse_schema(decode.schema)
    if decode.schema_file:
        return parse_schema(read_schema_file(decode.schema_file).decode())
    raise SchemaError("decode: give the values a schema: schema, schema_file, or infer = true")
