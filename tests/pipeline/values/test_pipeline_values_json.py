"""JSON values: the batch decoder against the rules, record by record, on both faces of its kernels."""

from __future__ import annotations

import json
import math
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from values_documents import any_value
from values_kernels import FACES, use_face
from values_records import Decode, offsets, records

from tidelog.pipeline.values import DecodeStopped, decoder_for, infer_schema, join_schemas
from tidelog.pipeline.values.inferring import misnamed, widen
from tidelog.pipeline.values.json_rules import Object, Unfit, parse, read_struct
from tidelog.pipeline.values.schema_room import MAX_DEPTH, MAX_FIELDS, MAX_NAME, SchemaRoom, count_fields


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use_face(monkeypatch, request.param)
    return str(request.param)


def decoder(schema: str, **keys: Any) -> Any:
    return decoder_for(Decode(schema=schema, **keys))


def by_the_rules(fields: Any, values: list[bytes | None], evolve: bool) -> tuple[list, list, Any]:
    """Rows and reasons by offset, and the wider schema: one record after the other, nothing shared with the batch."""
    rows, dead, wide = [], [], []
    for offset, value in enumerate(values, 100):
        try:
            found = Object() if value is None else parse(value)
            read = read_struct(fields, found)
            reason = (
                (misnamed(fields, found, frozenset(["_offset"])) or SchemaRoom(fields).take(found)) if evolve else None
            )
            if reason:
                raise Unfit("", reason)
        except Unfit as unfit:
            dead.append((offset, unfit.reason))
            continue
        arrays = [pa.array([read.get(field.name)], field.type) for field in fields]
        rows.append((offset, [repr(array[0].as_py()) for array in arrays]))
        if widen(fields, [found]) != fields:
            wide.append(found)
    wider = widen(fields, wide) if evolve else fields
    return rows, dead, None if wider == fields else wider


def check_against_the_rules(fields: list[Any], values: list[bytes | None], evolve: bool) -> None:
    made = decoder_for(Decode(evolve=evolve, metadata=(("offset", "_offset"),)), pa.schema(fields))
    decoded = made.decode(records(values))
    decoded.rows.validate(full=True)
    rows, dead, wider = by_the_rules(made.fields, values, evolve)
    names = made.fields.names
    found = [(row["_offset"], [repr(row[name]) for name in names]) for row in decoded.rows.to_pylist()]
    assert found == rows
    assert list(zip(offsets(decoded.dead), decoded.dead.column("reason").to_pylist(), strict=True)) == dead
    assert decoded.wider == wider


SCHEMA = (
    "i BIGINT, n INT, t TINYINT NOT NULL, d DOUBLE, f FLOAT, b BOOLEAN, s STRING, x BINARY, dec DECIMAL(9,3), "
    "big DECIMAL(38,0), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, l ARRAY<BIGINT>, ll ARRAY<ARRAY<STRING>>, "
    'o STRUCT<i: INT, `ä "quoted"`: STRING, at: TIMESTAMP, o: STRUCT<d: DECIMAL(4,1)>>, '
    "lo ARRAY<STRUCT<a: INT NOT NULL, day: DATE>>, m MAP<STRING, DECIMAL(5,2)>, mo MAP<STRING, STRUCT<k: BINARY>>"
)
FIELDS = list(decoder(SCHEMA).fields)


def test_the_mark_of_utf8_before_a_value_is_no_part_of_it(face: str) -> None:
    marked = b"\xef\xbb\xbf"
    values = [marked + b'{"id": 1}', marked + b' {"id": 2, "new": true}', marked, marked[:2] + b"{}", b"{}" + marked]
    decoded = decoder("id BIGINT", evolve=True).decode(records(values))
    assert decoded.rows.column("id").to_pylist() == [1, 2]
    assert decoded.wider.names == ["id", "new"]
    reasons = decoded.dead.column("reason").to_pylist()
    assert reasons[0] == "the value is empty" and len(reasons) == 3
    assert infer_schema(values[:2], evolve=True).names == ["id", "new"]


@pytest.mark.parametrize("which", FACES)
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 64), st.booleans())
def test_batches_decode_as_the_rules_say(which: str, seed: int, evolve: bool) -> None:
    random = Random(seed)
    fields = random.sample(FIELDS, 4)
    with pytest.MonkeyPatch.context() as patch:
        use_face(patch, which)
        check_against_the_rules(fields, [any_value(random, fields) for _ in range(40)], evolve)


def test_each_kind_of_value_lands_in_its_type(face: str) -> None:
    value = (
        b'{"i":-9223372036854775808,"n":7,"t":-128,"d":0.1,"f":1.5,"b":true,"s":"gr\\u00f6\\u00dfe \\ud83d\\ude00\\n",'
        b'"x":"AAH/","dec":"12.5","big":12345678901234567890123456789012345678,"day":"2024-02-29",'
        b'"at":"2024-02-29T23:30:00.123456789-01:30","local":"2024-02-29 12:00","l":[1,null,3],"ll":[["a"],[],null],'
        b'"o":{"i":1,"o":{"d":-0.5}},"lo":[{"a":1,"day":"1970-01-01"},null],"m":{"a":1,"b":null},"mo":{"z":{"k":"YQ=="}}}'
    )
    row = decoder(SCHEMA).decode(records([value])).rows.to_pylist()[0]
    assert row["i"] == -(1 << 63) and row["n"] == 7 and row["t"] == -128 and row["d"] == 0.1 and row["f"] == 1.5
    assert row["b"] is True and row["s"] == "größe 😀\n" and row["x"] == b"\x00\x01\xff"
    assert row["dec"] == Decimal("12.500") and row["big"] == Decimal("12345678901234567890123456789012345678")
    assert row["day"] == date(2024, 2, 29) and row["at"] == datetime(2024, 3, 1, 1, 0, 0, 123456, tzinfo=UTC)
    assert row["local"] == datetime(2024, 2, 29, 12) and row["l"] == [1, None, 3] and row["ll"] == [["a"], [], None]
    assert row["o"] == {"i": 1, 'ä "quoted"': None, "at": None, "o": {"d": Decimal("-0.5")}}
    assert row["lo"] == [{"a": 1, "day": date(1970, 1, 1)}, None]
    assert row["m"] == [("a", Decimal("1.00")), ("b", None)] and row["mo"] == [("z", {"k": b"a"})]
    assert row["_key"] == b"0" and row["_offset"] == 100 and row["_topic"] == "orders" and row["_partition"] == 3


def test_reasons_name_the_field_what_was_found_and_what_was_wanted(face: str) -> None:
    cases = {
        b"": "the value is empty",
        b"\xff{}": "the value is not UTF-8 at byte 0",
        b'{"t":1,': "not JSON: Expecting property name enclosed in double quotes at character 7",
        b"[1]": "found array, wanted an object",
        b"null": "found null, wanted an object",
        b"{}": "field t is null, wanted tinyint not null",
        b'{"t":null}': "field t is null, wanted tinyint not null",
        b'{"t":1,"i":"5"}': "field i: found string, wanted bigint",
        b'{"t":1,"i":5.0}': "field i: found number, wanted bigint",
        b'{"t":1,"n":3000000000}': "field n: '3000000000' is no int",
        b'{"t":1,"o":{"o":{"d":[1]}}}': "field o.o.d: found array, wanted decimal(4,1)",
        b'{"t":1,"lo":[{"a":true}]}': "field lo[].a: found boolean, wanted int",
        b'{"t":1,"m":{"k":0.001}}': "field m{}: '0.001' is no decimal(5,2)",
        b'{"t":1,"at":1700000000}': "field at: found integer, wanted timestamp",
        b'{"t":1,"local":"2024-01-01T00:00Z"}': "field local: found a timestamp with a zone, wanted timestamp_ntz",
        b'{"t":1,"s":"a","s":"b"}': "field s appears twice",
        b'{"t":1,"x":"?"}': "field x: binary must be base64",
    }
    dead = decoder(SCHEMA).decode(records(list(cases))).dead
    assert dict(zip(dead.column("value").to_pylist(), dead.column("reason").to_pylist(), strict=True)) == cases


def test_a_string_column_takes_numbers_and_booleans_as_they_are_written(face: str) -> None:
    texts = ["7", "-0", "1.50", "1e3", "123456789012345678901234567890", "true", "false", '"n/a"', "null"]
    made = decoder("s STRING, l ARRAY<STRING>, day DATE")
    rows, dead, _ = made.decode(records([f'{{"s":{text},"l":[{text}]}}'.encode() for text in texts]))
    landed = [None if text == "null" else text.strip('"') for text in texts]
    assert rows.column("s").to_pylist() == landed and rows.column("l").to_pylist() == [[text] for text in landed]
    assert dead.num_rows == 0
    unfit = [
        b'{"s":{"a":1}}',
        b'{"s":[1]}',
        b'{"s":01}',
        b'{"s":tru}',
        b'{"s":falsy}',
        b'{"s":-}',
        b'{"day":1}',
        b'{"s":t',
    ]
    assert made.decode(records(unfit)).dead.num_rows == len(unfit)


def test_one_string_among_integers_makes_no_dead_letter_of_them(face: str) -> None:
    values = [b'{"n":1}', b'{"n":"n/a"}', b'{"n":3}', b'{"n":2.5}', b'{"n":true}']
    rows, dead, _ = decoder_for(Decode(), infer_schema(values, evolve=True)).decode(records(values))
    assert rows.column("n").to_pylist() == ["1", "n/a", "3", "2.5", "true"] and dead.num_rows == 0


def test_a_tombstone_is_a_row_of_nulls_unless_a_field_must_not_be_null(face: str) -> None:
    assert decoder("i INT").decode(records([None])).rows.column("i").to_pylist() == [None]
    assert decoder("i INT NOT NULL").decode(records([None])).dead.num_rows == 1


def test_values_that_hold_newlines_or_several_documents_shift_no_row(face: str) -> None:
    values = [b'{"i":1}', b'{\n "i":\n 2\n}\n', b"", b'{"i":3}\n{"i":4}', b'{"i":5}{"i":6}', b'\n{"i":7}', b'{"i":8}']
    rows, dead, _ = decoder("i INT").decode(records(values))
    assert list(zip(offsets(rows), rows.column("i").to_pylist(), strict=True)) == [
        (100, 1),
        (101, 2),
        (105, 7),
        (106, 8),
    ]
    assert offsets(dead) == [102, 103, 104]


def test_a_slice_of_a_batch_decodes_like_the_batch(face: str) -> None:
    batch = records([b'{"s":"%d","l":[%d]}' % (i, i) if i % 3 else None for i in range(50)])
    made = decoder("s STRING, l ARRAY<INT>")
    assert made.decode(batch.slice(7, 20)).rows == made.decode(batch).rows.slice(7, 20)
    assert made.decode(batch.slice(7, 0)).rows.num_rows == 0


def test_columns_grow_with_what_is_in_the_records(face: str) -> None:
    long = {"s": "ü" * 3000, "l": list(range(1000)), "o": [{"a": str(i)} if i % 2 else {} for i in range(700)]}
    values = [json.dumps(long).encode(), b"{}", json.dumps(long, ensure_ascii=False).encode()]
    rows = decoder("s STRING, l ARRAY<INT>, o ARRAY<STRUCT<a: STRING>>", metadata=()).decode(records(values)).rows
    expected = long | {"o": [{"a": item.get("a")} for item in long["o"]]}
    assert rows.to_pylist() == [expected, {"s": None, "l": None, "o": None}, expected]


def test_doubles_are_rounded_rightly(face: str) -> None:
    texts = [
        "0.1",
        "1e22",
        "1e23",
        "9007199254740993",
        "123456789012345678",
        "1.7976931348623157e308",
        "5e-324",
        "0.3e-5",
    ]
    texts += [repr(math.pi * 10.0**power) for power in range(-300, 300, 37)]
    rows = decoder("d DOUBLE").decode(records([b'{"d":-%s}' % text.encode() for text in texts])).rows
    assert rows.column("d").to_pylist() == [-float(text) for text in texts]


def test_stop_applies_to_the_kind_of_fault_that_the_file_names(face: str) -> None:
    malformed, changed = b"{", b'{"i":"x"}'
    made = pickle.loads(pickle.dumps(decoder("i INT", on_error="stop")))
    assert made.decode(records([changed])).dead.num_rows == 1
    with pytest.raises(DecodeStopped, match="orders-3 offset 101: not JSON"):
        made.decode(records([changed, malformed]))
    made = decoder("i INT", on_type_change="stop")
    with pytest.raises(DecodeStopped, match="orders-3 offset 101: field i: found string, wanted int"):
        made.decode(records([malformed, changed]))


def test_fields_beside_the_schema_are_ignored_unless_the_table_evolves(face: str) -> None:
    values = [b'{"i":1,"new":"x"}', b'{"i":"bad","worse":1}', b'{"i":2,"o":{"a":1,"b":[{"c":true}]}}', b'{"none":null}']
    assert decoder("i INT, o STRUCT<a: INT>").decode(records(values)).wider is None
    decoded = decoder("i INT, o STRUCT<a: INT>", evolve=True).decode(records(values))
    assert decoded.rows.schema.names[:2] == ["i", "o"] and decoded.rows.num_rows == 3
    assert decoded.wider == decoder("i INT, o STRUCT<a: INT, b: ARRAY<STRUCT<c: BOOLEAN>>>, new STRING").fields


def test_a_field_that_cannot_be_a_column_is_a_dead_letter_of_an_evolving_table(face: str) -> None:
    values = [b'{"ID":1}', b'{"_Offset":1}', b'{"a":{"":1}}', b'{"ID":null,"":{},"_offset":[]}']
    decoded = decoder("id INT", evolve=True).decode(records(values))
    assert decoded.dead.column("reason").to_pylist() == [
        "field ID differs from column id in case only",
        "field _Offset has the name of a metadata column",
        "field 'a.' has a name that no column can have",
    ]
    assert decoded.wider is None and offsets(decoded.rows) == [103]


@pytest.mark.parametrize("name", ["__delta_rs_target", "_change_type", "_Commit_Version", "_commit_timestamp"])
def test_a_name_that_delta_keeps_for_itself_is_no_columns_but_may_be_a_fields_inside_of_one(
    name: str, face: str
) -> None:
    values = [json.dumps(value).encode() for value in ({name: 1}, {name: None, "id": 2}, {"o": {name: 1}})]
    decoded = decoder("id INT", evolve=True).decode(records(values))
    assert decoded.dead.column("reason").to_pylist() == [f"field {name!r} has a name that no column can have"]
    assert offsets(decoded.rows) == [101, 102] and decoded.wider.names == ["id", "o"]
    assert infer_schema([b'{"id": 1}', *values], evolve=False).names == ["id", "o"]


def test_a_record_that_nests_deeper_than_a_schema_grows_is_a_dead_letter(face: str) -> None:
    nested = [b'{"x":' * depth + b"1" + b"}" * depth for depth in (MAX_DEPTH, MAX_DEPTH + 1, 200)]
    listed = [b'{"l":' + b"[" * depth + b"1" + b"]" * depth + b"}" for depth in (MAX_DEPTH - 1, MAX_DEPTH, 200)]
    decoded = decoder("id INT", evolve=True).decode(records([*nested, *listed]))
    assert offsets(decoded.dead) == [101, 102, 104, 105]
    assert all(reason.endswith(" is nested more than 16 deep") for reason in decoded.dead.column("reason").to_pylist())
    assert [field.name for field in decoded.wider] == ["id", "x", "l"]


def test_a_record_with_a_name_longer_than_columns_have_is_a_dead_letter(face: str) -> None:
    names = ["n" * MAX_NAME, "n" * (MAX_NAME + 1), "n" * 70_000]
    values = [json.dumps(value).encode() for name in names for value in ({name: 1}, {"o": {name: 1}}, {name: None})]
    decoded = decoder("id INT", evolve=True).decode(records(values))
    assert offsets(decoded.dead) == [103, 104, 106, 107] and decoded.wider.names == ["id", names[0], "o"]
    assert decoded.dead.column("reason").to_pylist()[2] == (
        f"field {'n' * 77}... has a name of 70000 characters: columns have at most 255"
    )
    assert infer_schema(values, evolve=True).names == [names[0], "o"]


def test_a_schema_grows_to_so_many_fields_and_what_asks_for_more_is_a_dead_letter(face: str) -> None:
    wide = json.dumps({f"k{n}": 1 for n in range(20_000)}).encode()
    most = json.dumps({"o": {f"k{n}": 1 for n in range(MAX_FIELDS - 3)}}).encode()
    values = [wide, most, b'{"one":1}', b'{"two":1}', b'{"one":2,"id":7}']
    decoded = decoder("id INT", evolve=True).decode(records(values))
    assert offsets(decoded.rows) == [101, 102, 104] and count_fields(decoded.wider) == MAX_FIELDS
    assert decoded.dead.column("reason").to_pylist() == [
        f"field k{MAX_FIELDS - 1} is one too many: a schema grows to {MAX_FIELDS} fields, and no further",
        f"field two is one too many: a schema grows to {MAX_FIELDS} fields, and no further",
    ]
    again = decoder_for(Decode(evolve=True), decoded.wider).decode(records(values))
    assert again.wider is None and offsets(again.dead) == [100, 103]


def test_tasks_that_together_ask_for_too_much_get_what_there_is_room_for() -> None:
    asked = [pa.schema([("id", pa.int32()), *((f"{task}{n}", pa.int64()) for n in range(4))]) for task in "abc"]
    joined = join_schemas(asked, most=7)
    assert joined.names == ["id", "a0", "a1", "a2", "a3", "b0", "b1"]
    grown = pa.schema([("id", pa.int32()), ("o", pa.struct([("x", pa.int64()), ("y", pa.int64())]))])
    assert join_schemas([pa.schema([("o", pa.struct([("x", pa.int64())]))]), grown], most=3).names == ["o", "id"]


def test_a_struct_inside_a_map_does_not_grow(face: str) -> None:
    values = [b'{"m":{"k":{"a":1,"z":2}}}', b'{"m":{"k":{"a":1,"z":null}}}', b'{"m":{"k":{"a":1}},"new":1}']
    decoded = decoder("m MAP<STRING, STRUCT<a: INT>>", evolve=True).decode(records(values))
    assert decoded.dead.column("reason").to_pylist() == [
        "field m{}.z is new inside a map, where older files cannot be given it"
    ]
    assert offsets(decoded.rows) == [101, 102] and decoded.wider.names == ["m", "new"]
    assert offsets(decoder("m MAP<STRING, STRUCT<a: INT>>", evolve=False).decode(records(values)).rows) == [
        100,
        101,
        102,
    ]


def test_a_schema_is_inferred_from_what_it_can_hold() -> None:
    deep = b'{"x":' * 45 + b"1" + b"}" * 45
    wide = json.dumps({f"k{n}": 1 for n in range(20_000)}).encode()
    assert infer_schema([deep, wide, b'{"id":1}'], evolve=True).names == ["id"]


def test_a_float_is_what_rounds_to_one(face: str) -> None:
    values = [b'{"f":3.4028235e38}', b'{"f":-3.4028235e38}', b'{"f":3.4028235677973366e38}', b'{"f":3.5e38}']
    decoded = decoder("f FLOAT").decode(records(values))
    assert offsets(decoded.rows) == [100, 101] and offsets(decoded.dead) == [102, 103]
    assert decoded.rows.column("f").to_pylist() == [3.4028234663852886e38, -3.4028234663852886e38]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 64))
def test_a_batch_run_again_with_the_joined_schema_asks_for_no_more(seed: int) -> None:
    random = Random(seed)
    fields = random.sample(FIELDS, 3)
    batches = [[any_value(random, fields) for _ in range(15)] for _ in range(3)]
    pinned = decoder_for(Decode(evolve=True, metadata=(("offset", "_offset"),)), pa.schema(fields))
    first = [pinned.decode(records(batch)) for batch in batches]
    joined = join_schemas([pinned.fields, *(decoded.wider for decoded in first if decoded.wider is not None)])
    assert [
        field
        for field in joined
        if field.name in pinned.fields.names and field.type == pinned.fields.field(field.name).type
    ]
    wide = decoder_for(Decode(evolve=True, metadata=(("offset", "_offset"),)), joined)
    for batch in batches:
        decoded = wide.decode(records(batch))
        assert decoded.wider is None
        # And with other limits every record goes where it went.
        alone = [wide.decode(records([value])).dead.num_rows for value in batch]
        assert [offset - 100 for offset in offsets(decoded.dead)] == [row for row, dead in enumerate(alone) if dead]


def test_a_schema_is_inferred_by_widening() -> None:
    values = [
        b'{"a":1,"b":1,"c":null,"d":[],"e":{},"f":[{"x":1}],"mixed":1,"big":99999999999999999999}',
        b'{"a":1.5,"b":2,"f":[{"y":"s"}],"mixed":"one","t":true}',
        b"not json",
        None,
    ]
    ddl = "a DOUBLE, b BIGINT, {}f ARRAY<STRUCT<x: BIGINT, y: STRING>>, mixed STRING, big DOUBLE, t BOOLEAN"
    assert infer_schema(values, evolve=True) == decoder(ddl.format("")).fields
    assert infer_schema(values, evolve=False) == decoder(ddl.format("c STRING, d ARRAY<STRING>, ")).fields
    framed = [b"\0\0\0\0\1" + value for value in values if value is not None]
    assert infer_schema(framed, evolve=True, framed=True) == infer_schema(values, evolve=True)
    with pytest.raises(ValueError, match="no record of the sample"):
        infer_schema([b"[]", None], evolve=True)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 64))
def test_joining_is_the_same_in_any_order_and_grouping(seed: int) -> None:
    random = Random(seed)
    widers = []
    for _ in range(3):
        made = decoder_for(Decode(evolve=True), pa.schema(FIELDS[2:3]))
        values = [b'{"t":1,"new":%s,"other":%s}' % (plain(random).encode(), plain(random).encode()) for _ in range(3)]
        widers.append(made.decode(records(values)).wider or made.fields)
    one, two, three = widers
    joined = by_name(join_schemas([one, two, three]))
    assert by_name(join_schemas([three, join_schemas([two, one])])) == joined
    assert by_name(join_schemas([join_schemas([one, three]), two, one])) == joined


def plain(random: Random, depth: int = 0) -> str:
    sort = random.randrange(8 if depth < 3 else 5)
    if sort < 5:
        return ("1", "2.5", '"s"', "true", "null")[sort]
    parts = [plain(random, depth + 1) for _ in range(random.randrange(3))]
    if sort == 5:
        return f"[{','.join(parts)}]"
    return "{" + ",".join(f'"{name}":{part}' for name, part in zip("ab", parts, strict=False)) + "}"


def by_name(kind: Any) -> Any:
    """A schema or type without the order of its fields."""
    if isinstance(kind, pa.Schema) or pa.types.is_struct(kind):
        return {field.name: by_name(field.type) for field in kind}
    return [by_name(kind.value_type)] if pa.types.is_list(kind) else str(kind)


def test_maps_need_string_keys_in_json() -> None:
    with pytest.raises(ValueError, match=r"field m: names in JSON are strings, so map<int,string> cannot be read"):
        decoder("a ARRAY<STRUCT<m: MAP<INT, STRING>>>")


def test_a_schemas_id_before_the_value_is_taken_off(face: str) -> None:
    values = [b'\0\0\0\0\1{"i":1}', b'{"i":2}', None, b"\0\0\0\0\1{", b'\0\0\1\0\1{"i":5,"new":1}']
    decoded = decoder("i INT NOT NULL", framing="confluent", evolve=True).decode(records(values))
    assert decoded.rows.column("i").to_pylist() == [1, 5] and decoded.wider.names == ["i", "new"]
    assert offsets(decoded.dead) == [101, 102, 103]
    assert "does not begin with a schema's id" in decoded.dead.column("reason")[0].as_py()
