"""Our codec beside kio, an independent one: both must read and write every message byte for byte alike.

Fields are matched by their order in the schema, and their names compared: kio drops the unit where it has a type for
time. kio accepts less than the wire does in a few types (error codes, times), so those values are drawn from what it
accepts.
"""

from __future__ import annotations

import datetime
import io
import uuid
from dataclasses import fields as fields_of
from importlib import import_module
from importlib.util import find_spec
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from wire_values import all_codecs, by_schema, label, random_message

from tidelog.wire.codec import Codec
from tidelog.wire.table import ZERO_UUID, Field, Struct

ERROR_CODES = sorted(code.value for code in KioErrorCode)
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


def kio_class(codec: Codec) -> Any:
    """kio's class for the same message and version, or None where it has none."""
    name = codec.schema.name
    kinds = {"Request": "request", "Response": "response", "Header": "header"}
    suffix = next((suffix for suffix in kinds if name.endswith(suffix)), "")
    package = name if suffix in ("", "Header") else name.removesuffix(suffix)
    snake = "".join("_" + letter.lower() if letter.isupper() else letter for letter in package).lstrip("_")
    module = f"kio.schema.{snake}.v{codec.version}.{kinds.get(suffix, 'data')}"
    try:
        known = find_spec(module) is not None
    except ModuleNotFoundError:
        known = False
    return getattr(import_module(module), name) if known else None


SHARED = [codec for codec in all_codecs() if kio_class(codec) is not None]
SCHEMAS = by_schema(SHARED)


def test_kio_knows_all_but_the_messages_between_brokers_our_own_and_the_refused_versions() -> None:
    shared = {label(codec) for codec in SHARED}
    missing = {label(codec) for codec in all_codecs() if codec.schema.name.endswith(("Request", "Response"))} - shared
    between_brokers = ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "PublishMetadata")
    refused = {f"Produce{kind}-v{version}" for kind in ("Request", "Response") for version in (0, 1, 2)}
    own = ("DescribeDelays", "CancelDelays")
    assert {name for name in missing if not name.startswith(between_brokers + own)} == refused


def accepted_by_kio(message: Any, struct: Struct, kio: Any, version: int, random: Random) -> Any:
    """Bring values into the ranges that kio has types for, in place."""
    for field, theirs in paired(struct, kio, version):
        value = getattr(message, field.name)
        if field.struct is not None:
            inner = kio_element(theirs)
            for item in (value or []) if field.array else [value]:
                if item is not None:
                    accepted_by_kio(item, field.struct, inner, version, random)
            continue
        kind = theirs.metadata.get("kafka_type")
        fix = {
            "error_code": lambda _: random.choice(ERROR_CODES),
            "timedelta_i64": lambda number: number % 10**12,
            "datetime_i64": lambda number: number % 10**12,
        }.get(kind)
        if fix is not None and value is not None:
            setattr(message, field.name, [fix(item) for item in value] if field.array else fix(value))
    return message


def paired(struct: Struct, kio: Any, version: int) -> list[tuple[Field, Any]]:
    ours = [field for field in struct.fields if field.in_version(version)]
    theirs = list(fields_of(kio))
    assert len(ours) == len(theirs), (struct.name, [field.name for field in ours], [field.name for field in theirs])
    for field, other in zip(ours, theirs, strict=True):
        assert same_name(field.name, other.name), (struct.name, field.name, other.name)
    return list(zip(ours, theirs, strict=True))


def same_name(ours: str, theirs: str) -> bool:
    plain = ours.replace("_", "")
    return plain.removesuffix("ms") == theirs.replace("_", "").removesuffix("ms")


def kio_element(field: Any) -> Any:
    """The class of a struct field of kio, under its tuple and its Optional."""
    candidates = [field.type]
    while candidates:
        kind = candidates.pop()
        if hasattr(kind, "__dataclass_fields__"):
            return kind
        candidates += getattr(kind, "__args__", ())
    raise AssertionError(field)


def plain(value: Any) -> Any:
    """A value of kio as ours: numbers for codes and times, bytes for ids."""
    if isinstance(value, KioErrorCode):
        return value.value
    if isinstance(value, datetime.timedelta):
        return value // MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // MILLISECOND
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value


def check_same(message: Any, struct: Struct, kio: Any, version: int) -> None:
    for field, theirs in paired(struct, type(kio), version):
        ours, other = getattr(message, field.name), getattr(kio, theirs.name)
        where = f"{struct.name}.{field.name}"
        if field.array and ours is not None:
            assert len(ours) == len(other), where
            pairs = list(zip(ours, other, strict=True))
        else:
            pairs = [(ours, other)]
        for mine, yours in pairs:
            check_same_value(mine, yours, field, where, version)


def check_same_value(mine: Any, yours: Any, field: Field, where: str, version: int) -> None:
    if field.struct is not None and yours is not None and mine is not None:
        check_same(mine, field.struct, yours, version)
    elif field.struct is not None and mine is None and field.nullable is None:
        assert yours == type(yours)(), f"{where}: None must stand for the struct with its defaults"
    elif field.type == "uuid":
        assert mine == (ZERO_UUID if yours is None else yours.bytes), where
    elif yours is None and isinstance(mine, int):
        assert mine == field.default or mine == -1, where
    else:
        assert mine == plain(yours), where


def check_parity(codec: Codec, random: Random) -> None:
    kio = kio_class(codec)
    message = accepted_by_kio(random_message(codec, random), codec.schema, kio, codec.version, random)
    ours = codec.encode(message)
    theirs, size = entity_reader(kio)(ours, 0)
    assert size == len(ours)
    check_same(message, codec.schema, theirs, codec.version)
    out = io.BytesIO()
    entity_writer(kio)(out, theirs)
    written = out.getvalue()
    assert written == ours
    assert codec.decode(written) == (message, len(written))


@pytest.mark.parametrize("name", SCHEMAS)
def test_kio_reads_and_writes_the_same_bytes(name: str) -> None:
    for codec in SCHEMAS[name]:
        for number in range(4):
            check_parity(codec, Random(f"{label(codec)} {number}"))


@settings(deadline=None, max_examples=200)
@given(codec=st.sampled_from(SHARED), seed=st.integers(0, 1 << 32))
def test_any_message_is_the_same_to_kio(codec: Codec, seed: int) -> None:
    check_parity(codec, Random(seed))
