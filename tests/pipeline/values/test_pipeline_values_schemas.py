"""Schemas as people write them, and as they are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from values_records import Decode

from tidelog.pipeline.values import SchemaError, decoder_for, schema_from_json, schema_to_json
from tidelog.pipeline.values.ddl import parse_ddl
from tidelog.pipeline.values.schemas import type_name

EVERYTHING = """
    a boolean, b tinyint, c byte, d SMALLINT, e short, f int, g Integer, h bigint, i LONG NOT NULL, j float, k real,
    l double, m string, n char(3), o varchar(10), p binary, q date, r timestamp, s timestamp_ltz, t timestamp_ntz,
    u decimal, v dec(5), w numeric(38, 18), x array<array<int>>, y map<string, array<double>>,
    z struct<a: int, `b c`: string NOT NULL COMMENT 'it''s', d struct<e:date>> COMMENT "z, the last"
"""


def test_ddl_reads_every_type_of_spark() -> None:
    schema = parse_ddl(EVERYTHING)
    micros = pa.timestamp("us", tz="UTC")
    kinds = [pa.bool_(), pa.int8(), pa.int8(), pa.int16(), pa.int16(), pa.int32(), pa.int32(), pa.int64(), pa.int64()]
    kinds += [pa.float32(), pa.float32(), pa.float64(), pa.string(), pa.string(), pa.string(), pa.binary(), pa.date32()]
    kinds += [micros, micros, pa.timestamp("us"), pa.decimal128(10, 0), pa.decimal128(5, 0), pa.decimal128(38, 18)]
    kinds += [pa.list_(pa.list_(pa.int32())), pa.map_(pa.string(), pa.list_(pa.float64()))]
    inner = [
        pa.field("a", pa.int32()),
        pa.field("b c", pa.string(), False),
        pa.field("d", pa.struct([("e", pa.date32())])),
    ]
    assert schema.types == [*kinds, pa.struct(inner)]
    assert [field.name for field in schema if not field.nullable] == ["i"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "wanted a field's name, but the schema ends"),
        ("id", "wanted a type such as BIGINT, STRING or ARRAY<STRING> after 'id', but the schema ends"),
        ("id bigit", "wanted a type such as BIGINT, STRING or ARRAY<STRING> after 'id', but found 'bigit'"),
        ("id int name string", "wanted ',' or the end after 'id int', but found 'name'"),
        ("id int,", "wanted a field's name after 'id int ,', but the schema ends"),
        ("a array<int", "wanted '>' after 'a array < int', but the schema ends"),
        ("a map<string>", "wanted ',' after 'a map < string', but found '>'"),
        ("a decimal(x)", "wanted a number after 'a decimal (', but found 'x'"),
        ("a decimal(39)", "decimal(39,0) cannot be"),
        ("a decimal(5,6)", "decimal(5,6) cannot be"),
        ("a int, A string", "field 'a' appears twice"),
        ("a int; b int", "wanted ',' or the end after 'a int', but found ';'"),
        ('{"type": "record"}', 'wanted the JSON of a Spark schema, {"type": "struct"'),
        ('{"type": "struct"}', "every field of a struct needs a name and a type"),
        ('{"type": "struct", "fields": [{"name": "a", "type": "int8"}]}', "no type 'int8'"),
        ("{", "not JSON"),
    ],
)
def test_a_schema_that_cannot_be_read_says_where_and_why(text: str, said: str) -> None:
    with pytest.raises(SchemaError) as caught:
        decoder_for(Decode(schema=text or " "))
    assert said in str(caught.value)


def test_what_is_kept_is_the_json_of_spark_and_reads_back_the_same() -> None:
    schema = parse_ddl(EVERYTHING)
    kept = schema_to_json(schema)
    assert schema_from_json(kept) == schema and schema_to_json(schema_from_json(kept)) == kept
    assert json.loads(kept)["fields"][8] == {"name": "i", "type": "long", "nullable": False, "metadata": {}}
    nullable = pa.schema([pa.field("l", pa.list_(pa.field("item", pa.int32(), nullable=False)))])
    assert schema_from_json(schema_to_json(nullable)) == nullable


def test_types_are_named_as_spark_names_them() -> None:
    assert type_name(parse_ddl("a struct<b: array<map<string, decimal(5,2)>>, c: timestamp>").field("a").type) == (
        "struct<b:array<map<string,decimal(5,2)>>,c:timestamp>"
    )


def test_a_schema_may_stand_in_a_file_as_ddl_or_json(tmp_path: Path) -> None:
    ddl, spark = tmp_path / "orders.ddl", tmp_path / "orders.json"
    ddl.write_text("id BIGINT,\n  note STRING\n")
    spark.write_text(schema_to_json(parse_ddl("id BIGINT, note STRING")))
    assert decoder_for(Decode(schema_file=str(ddl))).fields == decoder_for(Decode(schema_file=str(spark))).fields


def test_the_pinned_schema_counts_whatever_the_file_says() -> None:
    assert decoder_for(Decode(schema="a INT"), parse_ddl("b INT")).fields.names == ["b"]


def test_values_without_a_schema_are_an_error_that_says_what_to_write() -> None:
    with pytest.raises(SchemaError, match="schema, schema_file, or infer = true"):
        decoder_for(Decode())
    with pytest.raises(SchemaError, match=r"cannot read .*nowhere\.ddl"):
        decoder_for(Decode(schema_file="nowhere.ddl"))
