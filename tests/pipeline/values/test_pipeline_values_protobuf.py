"""Protobuf values: every type, presence, well-known messages, schemas with and without protoc."""

from __future__ import annotations

import importlib.util
import pickle
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from values_records import Decode, offsets, records

from tidelog.pipeline.values import DecodeStopped, SchemaError, decoder_for, proto_files
from tidelog.pipeline.values.proto_files import find_message

F = descriptor_pb2.FieldDescriptorProto


def field(message: Any, name: str, kind: int, **more: Any) -> Any:
    number = len(message.field) + 1
    return message.field.add(name=name, number=number, type=kind, label=more.pop("label", F.LABEL_OPTIONAL), **more)


def descriptors() -> bytes:
    """What protoc would write for a file with the message shop.Order, made by hand."""
    found = descriptor_pb2.FileDescriptorSet()
    file = found.file.add(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in ("timestamp", "wrappers", "struct", "empty"))
    item = file.message_type.add(name="Item")
    field(item, "sku", F.TYPE_STRING)
    field(item, "count", F.TYPE_INT32)
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="NONE", number=0)
    colour.value.add(name="RED", number=1)
    order = file.message_type.add(name="Order")
    for name in [
        "double",
        "float",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "sint32",
        "fixed64",
        "bool",
        "string",
        "bytes",
    ]:
        field(order, f"a_{name}", getattr(F, f"TYPE_{name.upper()}"))
    field(order, "colour", F.TYPE_ENUM, type_name=".shop.Colour")
    field(order, "item", F.TYPE_MESSAGE, type_name=".shop.Item")
    field(order, "items", F.TYPE_MESSAGE, type_name=".shop.Item", label=F.LABEL_REPEATED)
    field(order, "tags", F.TYPE_STRING, label=F.LABEL_REPEATED)
    for name, (kind, type_name) in {"prices": (F.TYPE_DOUBLE, None), "stock": (F.TYPE_MESSAGE, ".shop.Item")}.items():
        entry = order.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        field(entry, "key", F.TYPE_STRING)
        field(entry, "value", kind, type_name=type_name)
        field(order, name, F.TYPE_MESSAGE, type_name=f".shop.Order.{entry.name}", label=F.LABEL_REPEATED)
    order.oneof_decl.add(name="pay")
    field(order, "card", F.TYPE_STRING, oneof_index=0)
    field(order, "cash", F.TYPE_INT32, oneof_index=0)
    order.oneof_decl.add(name="_maybe")
    field(order, "maybe", F.TYPE_INT32, oneof_index=1, proto3_optional=True)
    for name in ("Timestamp", "Int64Value", "StringValue", "Struct", "Empty"):
        field(order, f"g_{name.lower()}", F.TYPE_MESSAGE, type_name=f".google.protobuf.{name}")
    return found.SerializeToString()


DESCRIPTORS = descriptors()
Order = find_message(DESCRIPTORS, "shop.Order")
UNSET = {"item": None, "card": None, "cash": None, "maybe": None, "g_timestamp": None, "g_int64value": None}
UNSET |= {"g_stringvalue": None, "g_struct": None, "g_empty": None, "_offset": 100}


@pytest.fixture(scope="module")
def schema_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("proto") / "shop.desc"
    path.write_bytes(DESCRIPTORS)
    return str(path)


def decoder(schema_file: str, **keys: Any) -> Any:
    keys = {"message": "shop.Order", "metadata": (("offset", "_offset"),), **keys}
    return pickle.loads(pickle.dumps(decoder_for(Decode("protobuf", schema_file=schema_file, **keys))))


def test_each_type_lands_in_its_column(schema_file: str) -> None:
    order = Order(
        a_double=0.1, a_float=1.5, a_int32=-1, a_int64=1 << 40, a_uint32=(1 << 32) - 1, a_uint64=(1 << 64) - 1
    )
    order.a_sint32, order.a_fixed64, order.a_bool, order.a_string, order.a_bytes = -5, 9, True, "größe", b"\xff"
    order.colour = 1
    order.item.sku = "a"
    order.items.add(sku="b", count=2)
    order.tags.extend(["x", "y"])
    order.prices["EUR"] = 2.5
    order.stock["k"].count = 3
    order.cash = 0
    order.maybe = 0
    order.g_timestamp.seconds, order.g_timestamp.nanos = 1_700_000_000, 1999
    order.g_int64value.value = 0
    order.g_struct["k"] = [1, None]
    order.g_empty.SetInParent()
    made = decoder(schema_file)
    rows = made.decode(records([order.SerializeToString(), None])).rows
    rows.validate(full=True)
    assert rows.schema == made.schema
    assert rows.to_pylist()[0] == {
        "a_double": 0.1,
        "a_float": 1.5,
        "a_int32": -1,
        "a_int64": 1 << 40,
        "a_uint32": (1 << 32) - 1,
        "a_uint64": Decimal((1 << 64) - 1),
        "a_sint32": -5,
        "a_fixed64": Decimal(9),
        "a_bool": True,
        "a_string": "größe",
        "a_bytes": b"\xff",
        "colour": "RED",
        "item": {"sku": "a", "count": 0},
        "items": [{"sku": "b", "count": 2}],
        "tags": ["x", "y"],
        "prices": [("EUR", 2.5)],
        "stock": [("k", {"sku": "", "count": 3})],
        "card": None,
        "cash": 0,
        "maybe": 0,
        "g_timestamp": datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC),
        "g_int64value": 0,
        "g_stringvalue": None,
        "g_struct": '{"k": [1.0, null]}',
        "g_empty": True,
        "_offset": 100,
    }
    assert set(rows.to_pylist()[1].values()) == {None, 101}


def test_what_was_not_set_is_null_where_the_message_can_tell_and_a_default_elsewhere(schema_file: str) -> None:
    row = decoder(schema_file).decode(records([b""])).rows.to_pylist()[0]
    assert row["a_int32"] == 0 and row["a_string"] == "" and row["colour"] == "NONE"
    assert row["items"] == [] and row["tags"] == [] and row["prices"] == []
    assert {name: row[name] for name in UNSET} == UNSET


def test_an_enum_number_without_a_name_is_kept_as_text(schema_file: str) -> None:
    assert (
        decoder(schema_file).decode(records([Order(colour=9).SerializeToString()])).rows.column("colour")[0].as_py()
        == "9"
    )


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.text(), st.lists(st.text(), max_size=2)), max_size=5)
)
def test_what_was_written_is_read(batch: list[tuple[int, str, list[str]]]) -> None:
    import pyarrow as pa

    from tidelog.pipeline.values.decoded import shape_of
    from tidelog.pipeline.values.protobuf import ProtobufDecoder, message_columns

    fields = pa.schema([(name, kind) for name, kind, _ in message_columns(Order.DESCRIPTOR)])
    made = ProtobufDecoder(shape_of(Decode("protobuf"), fields), DESCRIPTORS, "shop.Order", False)
    values = [Order(a_int32=number, card=text, tags=tags).SerializeToString() for number, text, tags in batch]
    rows = made.decode(records(values)).rows.to_pylist()
    assert [(row["a_int32"], row["card"], row["tags"]) for row in rows] == batch


def test_bytes_that_are_no_message_are_dead_letters_or_stop(schema_file: str) -> None:
    far = Order()
    far.g_timestamp.seconds = 1 << 62
    values = [b"\xff", Order(a_int32=1).SerializeToString(), b"\x0a", far.SerializeToString()]
    rows, dead, _ = decoder(schema_file).decode(records(values))
    assert offsets(rows) == [101] and offsets(dead) == [100, 102, 103]
    reasons = dead.column("reason").to_pylist()
    assert reasons[0] == reasons[1] == "not a Protobuf message shop.Order" and reasons[2].startswith(
        "field g_timestamp: "
    )
    with pytest.raises(DecodeStopped, match="orders-3 offset 100"):
        decoder(schema_file, on_error="stop").decode(records(values))


def test_a_schema_id_and_the_messages_indexes_are_taken_off(schema_file: str) -> None:
    value = Order(a_int32=5).SerializeToString()
    headers = [b"\0\0\0\0\x01\0", b"\0\0\0\0\x01\x02\x02", b"\0\0\0\0\x01\x04\x00\x02"]
    rows, dead, _ = decoder(schema_file, framing="confluent").decode(
        records([*(h + value for h in headers), b"\0\0\0\0\1\x04\0"])
    )
    assert rows.column("a_int32").to_pylist() == [5, 5, 5] and offsets(dead) == [103]


def test_a_schema_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    junk, loop, lacking, some = (tmp_path / f"{name}.desc" for name in ("junk", "loop", "lacking", "some"))
    junk.write_bytes(b"\xff\xff")
    some.write_bytes(DESCRIPTORS)
    found = descriptor_pb2.FileDescriptorSet()
    node = found.file.add(name="n.proto").message_type.add(name="Node")
    field(node, "next", F.TYPE_MESSAGE, type_name=".Node")
    loop.write_bytes(found.SerializeToString())
    found.file[0].dependency.append("elsewhere.proto")
    lacking.write_bytes(found.SerializeToString())
    cases = [
        (junk, "Node", "not a descriptor set"),
        (loop, None, "Node > Node: a message that holds itself"),
        (lacking, "Node", "n.proto imports elsewhere.proto, which is not in the descriptor set"),
        (some, "shop.Ordre", "there is no message shop.Ordre; there are shop.Item, shop.Order"),
        (some, None, "say which message the values are: shop.Item, shop.Order"),
        (tmp_path / "none.desc", "X", "cannot read"),
    ]
    for path, message, said in cases:
        with pytest.raises(SchemaError) as caught:
            decoder_for(Decode("protobuf", schema_file=str(path), message=message))
        assert said in str(caught.value)


def test_proto_text_is_compiled_where_there_is_protoc_and_explained_where_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner.proto").write_text('syntax = "proto3"; message Inner { int32 n = 1; }')
    path = tmp_path / "outer.proto"
    path.write_text('syntax = "proto3"; import "inner.proto"; message Outer { Inner inner = 1; }')
    monkeypatch.setattr(proto_files.shutil, "which", lambda name: None)
    monkeypatch.setattr(proto_files.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SchemaError, match="needs protoc"):
        decoder_for(Decode("protobuf", schema_file=str(path)))
    monkeypatch.undo()
    if shutil.which("protoc") is None and importlib.util.find_spec("grpc_tools") is None:
        pytest.skip("neither protoc nor grpcio-tools")
    rows = decoder_for(Decode("protobuf", schema_file=str(path))).decode(records([b"\x0a\x02\x08\x05"])).rows
    assert rows.column("inner").to_pylist() == [{"n": 5}]
    inline = decoder_for(Decode("protobuf", schema='syntax = "proto3"; message M { string s = 1; }'))
    assert inline.fields.names == ["s"]
    path.write_text('syntax = "proto3"; message Outer { Innner inner = 1; }')
    with pytest.raises(SchemaError, match=r'protoc says: .*outer.proto:1:.*"Innner" is not defined'):
        decoder_for(Decode("protobuf", schema_file=str(path)))
