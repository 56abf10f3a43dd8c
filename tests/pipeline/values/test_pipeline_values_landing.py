"""Every format from a topic into a table: rows and dead letters, nothing lost between them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.systems.process import BrokerProcess
from fastavro import parse_schema, schemaless_writer
from google.protobuf import descriptor_pb2
from pipeline_site import Site

from tidelog.pipeline.values.proto_files import find_message

COUNT = 40
AVRO = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}, {"name": "s", "type": "string"}]}


def avro(number: int) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(AVRO), {"id": number, "s": f"n{number}"})
    return b"\0\0\0\0\x07" + out.getvalue()


def descriptors() -> bytes:
    found = descriptor_pb2.FileDescriptorSet()
    message = found.file.add(name="o.proto", package="shop", syntax="proto3").message_type.add(name="O")
    kinds = {"id": descriptor_pb2.FieldDescriptorProto.TYPE_INT64, "s": descriptor_pb2.FieldDescriptorProto.TYPE_STRING}
    for index, (name, kind) in enumerate(kinds.items(), 1):
        message.field.add(name=name, number=index, type=kind, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL)
    return found.SerializeToString()


def protobuf(number: int) -> bytes:
    written: bytes = find_message(descriptors(), "shop.O")(id=number, s=f"n{number}").SerializeToString()
    return written


def as_json(number: int) -> bytes:
    return json.dumps({"id": number, "s": f"n{number}"}).encode()


FORMATS: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "json": ('format = "json"\nschema = "id BIGINT, s STRING"', as_json),
    "avro": (
        'format = "avro"\nschema_file = "o.avsc"\nframing = "confluent"\nwriter_schemas = { "7" = "o.avsc" }',
        avro,
    ),
    "protobuf": ('format = "protobuf"\nschema_file = "o.desc"\nmessage = "shop.O"', protobuf),
}


@pytest.mark.parametrize("name", FORMATS)
def test_values_become_rows_or_dead_letters(
    name: str, broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    decode, encode = FORMATS[name]
    (tmp_path / "o.avsc").write_text(json.dumps(AVRO))
    (tmp_path / "o.desc").write_bytes(descriptors())
    site = Site(broker.bootstrap, tmp_path, unique(name))
    site.produce_values(site.topic, [encode(n) if n % 5 else b"\xff\x01" for n in range(COUNT)])
    site.run(pipeline=site.pipeline(decode=f'{decode}\nkey_format = "text"'))
    rows = site.rows()
    assert sorted((row["id"], row["s"]) for row in rows) == [(n, f"n{n}") for n in range(COUNT) if n % 5]
    assert sorted(row["value"] for row in site.dead()) == [b"\xff\x01"] * (COUNT // 5)
    places = [(row["_partition"], row["_offset"]) for row in rows]
    places += [(row["partition"], row["offset"]) for row in site.dead()]
    assert sorted(places) == sorted((partition, offset) for _, partition, offset in site.acknowledged)
