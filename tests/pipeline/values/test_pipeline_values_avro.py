"""Avro values: every type, unions, evolution, schema ids, and bytes that are no Avro."""

from __future__ import annotations

import io
import json
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st
from values_records import Decode, offsets, records

from tidelog.pipeline.values import DecodeStopped, SchemaError, decoder_for

INNER = {"type": "record", "name": "In", "fields": [{"name": "q", "type": "shop.Two"}]}
DAY = {"type": "int", "logicalType": "date"}
EVERYTHING = {
    "type": "record",
    "name": "shop.Everything",
    "fields": [
        {"name": "b", "type": "boolean"},
        {"name": "i", "type": "int"},
        {"name": "l", "type": "long"},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "y", "type": "bytes"},
        {"name": "s", "type": "string"},
        {"name": "n", "type": ["null", "long"]},
        {"name": "e", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "x", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "dec", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": DAY},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "ns", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "tm", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "tu", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "fid", "type": {"type": "fixed", "name": "Id", "size": 16, "logicalType": "uuid"}},
        {"name": "a", "type": {"type": "array", "items": ["null", "shop.Colour"]}},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {
            "name": "r",
            "type": ["null", {"type": "record", "name": "In", "fields": [{"name": "q", "type": "shop.Two"}]}],
        },
        {"name": "rs", "type": {"type": "array", "items": "shop.In"}},
        {"name": "wide", "type": ["null", "int", "long"]},
        {
            "name": "u",
            "type": ["null", "string", "long", "shop.Colour", "shop.In", {"type": "int", "logicalType": "date"}],
        },
    ],
}
ONE = {
    "b": True,
    "i": -1,
    "l": 1 << 40,
    "f": 1.5,
    "d": 0.1,
    "y": b"\xff",
    "s": "größe",
    "n": None,
    "e": "BLUE",
    "x": b"ab",
    "dec": Decimal("-12.34"),
    "day": date(2024, 2, 29),
    "ms": datetime(2024, 1, 1, 0, 0, 0, 5000, tzinfo=UTC),
    "us": datetime(2024, 1, 1, 0, 0, 0, 5, tzinfo=UTC),
    "ns": 1_700_000_000_000_001_999,
    "local": datetime(2024, 1, 1, 12),
    "tm": time(0, 0, 1, 2000),
    "tu": time(0, 0, 1, 2),
    "id": UUID(int=5),
    "fid": UUID(int=6).bytes,
    "a": ["RED", None],
    "m": {"k": [1, 2]},
    "r": {"q": b"zz"},
    "rs": [{"q": b"yy"}],
    "wide": 1 << 40,
    "u": "text",
}
ROW = ONE | {
    "ns": datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC),
    "tm": 1002,
    "tu": 1_000_002,
    "id": str(UUID(int=5)),
    "fid": str(UUID(int=6)),
    "m": [("k", [1, 2])],
    "u": {"member0": "text", "member1": None, "member2": None, "member3": None, "member4": None},
}


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), value)
    return out.getvalue()


def decoder(schema: Any, **keys: Any) -> Any:
    made = decoder_for(Decode("avro", schema=json.dumps(schema), metadata=(("offset", "_offset"),), **keys))
    return pickle.loads(pickle.dumps(made))


def record(*fields: Any) -> dict[str, Any]:
    named = [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields]
    return {"type": "record", "name": "R", "fields": named}


def test_each_type_lands_in_its_column() -> None:
    made = decoder(EVERYTHING)
    rows = made.decode(records([encoded(EVERYTHING, ONE), None])).rows
    rows.validate(full=True)
    assert rows.schema == made.schema
    assert rows.to_pylist()[0] == ROW | {"_offset": 100}
    assert set(rows.to_pylist()[1].values()) == {None, 101}
    assert made.fields.field("dec").type == pa.decimal128(9, 2) and made.fields.field("wide").type == pa.int64()


def test_a_union_of_several_types_has_a_member_for_each() -> None:
    made = decoder(EVERYTHING)
    choices = [None, "text", 7, ("shop.Colour", "RED"), {"q": b"ab"}, date(2024, 1, 1)]
    rows = made.decode(records([encoded(EVERYTHING, ONE | {"u": choice}) for choice in choices])).rows
    members = [None, "text", 7, "RED", {"q": b"ab"}, date(2024, 1, 1)]
    for number, found in enumerate(rows.column("u").to_pylist()):
        expected = {f"member{place}": members[place + 1] if place + 1 == number else None for place in range(5)}
        assert found == (expected if number else None)


COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
TWO = {"type": "fixed", "name": "Two", "size": 2}
POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
MONEY = {"type": "fixed", "name": "Money", "size": 4, "logicalType": "decimal", "precision": 5, "scale": 1}
#: a union with one named branch, and values of its members
ONE_NAMED = [
    (["null", "string", COLOUR], ["RED", ("Colour", "RED")], ["RED", "RED"]),
    ([COLOUR, "string"], [("Colour", "BLUE"), "other"], ["BLUE", "other"]),
    (["null", "bytes", TWO], [b"ab", ("Two", b"ab")], [b"ab", b"ab"]),
    (["string", POINT, "long"], ["text", {"x": 1}, 7], ["text", {"x": 1}, 7]),
    (
        [{"type": "map", "values": "int"}, POINT],
        [("map", {"x": 1}), ("Point", {"x": 2})],
        [[("x", 1)], {"x": 2}],
    ),
    (["long", MONEY], [5, Decimal("1.5")], [5, Decimal("1.5")]),
]


@pytest.mark.parametrize(("union", "values", "expected"), ONE_NAMED)
def test_a_union_with_one_named_type_tells_it_from_what_looks_the_same(
    union: list[Any], values: list[Any], expected: list[Any]
) -> None:
    schema = record(("u", union))
    written = [encoded(schema, {"u": value}) for value in values]
    if union[0] != "null" and isinstance(union[0], dict) and union[0]["type"] == "map":
        # The writer would take either for the other.
        written = [b"\0\x02\x02x\x02\0", b"\x02\x04"]
    rows, dead, _ = decoder(schema).decode(records(written))
    assert dead.num_rows == 0
    for number, found in enumerate(rows.column("u").to_pylist()):
        assert found == {f"member{n}": expected[n] if n == number else None for n in range(len(expected))}


@pytest.mark.parametrize("named", [COLOUR, TWO, POINT, MONEY])
def test_a_nullable_named_type_is_its_bare_value(named: dict[str, Any]) -> None:
    value = {"Colour": "RED", "Two": b"ab", "Point": {"x": 1}, "Money": Decimal("1.5")}[named["name"]]
    schema = record(("u", ["null", named]), ("a", {"type": "array", "items": ["null", named["name"]]}))
    rows = decoder(schema).decode(records([encoded(schema, {"u": value, "a": [value, None]})])).rows
    assert rows.to_pylist() == [{"u": value, "a": [value, None], "_offset": 100}]


def test_named_types_of_another_writers_union_find_their_member(tmp_path: Path) -> None:
    writer = record(("u", ["null", "string", POINT]), ("e", COLOUR), ("n", ["null", TWO]))
    reader = record(
        ("e", ["null", "string", COLOUR]), ("u", ["string", POINT, "Colour"]), ("n", TWO), ("more", "int", 0)
    )
    (tmp_path / "writer.avsc").write_text(json.dumps(writer))
    made = decoder(reader, writer_schema_file=str(tmp_path / "writer.avsc"))
    values = [{"u": {"x": 1}, "e": "RED", "n": b"ab"}, {"u": "text", "e": "BLUE", "n": b"cd"}]
    rows, dead, _ = made.decode(records([encoded(writer, value) for value in values]))
    assert dead.num_rows == 0
    assert [(row["u"], row["e"]["member1"], row["n"]) for row in rows.to_pylist()] == [
        ({"member0": None, "member1": {"x": 1}, "member2": None}, "RED", b"ab"),
        ({"member0": "text", "member1": None, "member2": None}, "BLUE", b"cd"),
    ]


def test_a_record_with_several_fields_that_do_not_fit_is_one_dead_letter() -> None:
    short = {"type": "bytes", "logicalType": "decimal", "precision": 3}
    schema = record(("a", short), ("b", short))
    long = record(("a", {**short, "precision": 9}), ("b", {**short, "precision": 9}))
    values = [encoded(long, {"a": Decimal(a), "b": Decimal(b)}) for a, b in ((12345, 67890), (1, 2), (3, 45678))]
    rows, dead, _ = decoder(schema).decode(records(values))
    assert offsets(rows) == [101] and offsets(dead) == [100, 102]
    assert [reason[:8] for reason in dead.column("reason").to_pylist()] == ["field a:", "field b:"]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "i": st.integers(-(1 << 31), (1 << 31) - 1),
                "s": st.text(),
                "n": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
                "a": st.lists(st.none() | st.sampled_from(["RED", "BLUE"])),
                "m": st.dictionaries(st.text(max_size=3), st.lists(st.integers(0, 9))),
                "r": st.none() | st.just({"q": b"ab"}),
            }
        ),
        max_size=5,
    ),
    st.data(),
)
def test_what_was_written_is_read_and_what_was_cut_or_lengthened_is_a_dead_letter(batch: list[Any], data: Any) -> None:
    values = []
    spoiled = []
    for number, fields in enumerate(batch):
        value = encoded(EVERYTHING, ONE | fields)
        spoil = data.draw(st.sampled_from([0, 0, 1, -1]))
        values.append(
            value if not spoil else value + b"\0" if spoil > 0 else value[: data.draw(st.integers(0, len(value) - 1))]
        )
        spoiled += [100 + number] if spoil else []
    rows, dead, _ = decoder(EVERYTHING).decode(records(values))
    assert offsets(dead) == spoiled
    good = [fields for number, fields in enumerate(batch) if 100 + number not in spoiled]
    expected = [ROW | fields | {"m": list(fields["m"].items())} for fields in good]
    assert [{key: item for key, item in row.items() if key != "_offset"} for row in rows.to_pylist()] == expected


def test_values_of_another_writer_are_matched_by_avros_rules(tmp_path: Path) -> None:
    writer = record(("gone", "string"), ("count", "int"), ("name", "string"))
    reader = record(("name", ["null", "string"]), ("count", "double"), ("added", "string", "none yet"))
    (tmp_path / "writer.avsc").write_text(json.dumps(writer))
    made = decoder(reader, writer_schema_file=str(tmp_path / "writer.avsc"))
    rows = made.decode(records([encoded(writer, {"gone": "x", "count": 3, "name": "n"})])).rows
    assert rows.to_pylist() == [{"name": "n", "count": 3.0, "added": "none yet", "_offset": 100}]


def test_schema_ids_choose_the_writers_schema(tmp_path: Path) -> None:
    old, new = record(("n", "int")), record(("n", "int"), ("s", "string", "-"))
    for number, schema in ((7, old), (300, new)):
        (tmp_path / f"{number}.avsc").write_text(json.dumps(schema))
    files = {str(number): str(tmp_path / f"{number}.avsc") for number in (7, 300)}
    made = decoder(new, framing="confluent", writer_schemas=files)
    values = [
        b"\0\0\0\0\x07" + encoded(old, {"n": 1}),
        b"\0\0\0\x01\x2c" + encoded(new, {"n": 2, "s": "x"}),
        b"\0\0\0\0\x08" + encoded(old, {"n": 1}),
        encoded(new, {"n": 2, "s": "xxxx"}),
        b"\0\0\0",
        None,
    ]
    rows, dead, _ = made.decode(records(values))
    assert [(row["n"], row["s"], row["_offset"]) for row in rows.to_pylist()] == [
        (1, "-", 100),
        (2, "x", 101),
        (None, None, 105),
    ]
    assert dead.column("reason").to_pylist() == [
        "schema id 8 is not in decode.writer_schemas",
        "the value does not begin with a schema's id (a zero byte and four more)",
        "3 bytes are too few for a schema's id",
    ]
    assert decoder(old, framing="confluent").decode(records(values[:1])).rows.num_rows == 1


def test_bytes_that_are_no_avro_are_dead_letters_or_stop() -> None:
    schema = record(
        ("s", "string"), ("u", ["null", "int"]), ("d", {"type": "bytes", "logicalType": "decimal", "precision": 3})
    )
    values = [
        b"",
        b"\x04a",
        b"\x02\xff\0\0",
        b"\0\x09\0",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\0\0",
        b"\0\0\x04\x7f\xff",
    ]
    rows, dead, _ = decoder(schema).decode(records([*values, b"\x02a\0\0"]))
    assert offsets(rows) == [106] and offsets(dead) == [100, 101, 102, 103, 104, 105]
    assert all(
        reason.startswith(("not Avro of this schema: ", "field d: ")) for reason in dead.column("reason").to_pylist()
    )
    with pytest.raises(DecodeStopped, match="orders-3 offset 100: not Avro"):
        decoder(schema, on_error="stop").decode(records(values))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "an Avro schema is JSON"),
        ('"string"', "must be a record"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "strin"}]}', "knows no type strin"),
        ('{"type": "record", "name": "R"}', "record R has no fields"),
        ('{"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}', "record R holds itself"),
        (None, "write schema or schema_file"),
    ],
)
def test_a_schema_that_cannot_be_used_says_why(schema: str | None, said: str) -> None:
    with pytest.raises(SchemaError) as caught:
        decoder_for(Decode("avro", schema=schema))
    assert said in str(caught.value)


def test_fields_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(ValueError, match="'id' twice"):
        decoder(record(("id", "int"), ("ID", "int")))
