"""`messages.pyi`: what a type checker believes of messages is what they are."""

from __future__ import annotations

import ast
from functools import cache
from random import Random
from typing import Any

import pytest
from wire_values import all_codecs, by_schema, random_message

from tidelog.wire import messages, stub
from tidelog.wire.classes import Message, RequestMessage
from tidelog.wire.codec import Codec

CODECS = by_schema(all_codecs())
SIMPLE: dict[str, type] = {"int": int, "bool": bool, "float": float, "str": str, "bytes": bytes}


def test_the_stub_is_what_the_tables_say() -> None:
    assert stub.STUB.read_text() == stub.text(), "out of date: make types"


@cache
def annotations() -> dict[str, dict[str, str]]:
    """Class -> field -> what the stub says of it; structs by their full names."""
    found: dict[str, dict[str, str]] = {}

    def add(node: ast.ClassDef, prefix: str) -> None:
        rows = [row for row in node.body if isinstance(row, ast.AnnAssign)]
        found[prefix + node.name] = {ast.unparse(row.target): ast.unparse(row.annotation) for row in rows}
        for inner in node.body:
            if isinstance(inner, ast.ClassDef):
                add(inner, f"{prefix}{node.name}.")

    for node in ast.parse(stub.STUB.read_text()).body:
        if isinstance(node, ast.ClassDef):
            add(node, "")
    return found


def check(message: Message) -> None:
    name = type(message).__qualname__
    fields = annotations()[name]
    assert list(fields) == list(message.__slots_in_order__), name
    for field, annotation in fields.items():
        assert fits(getattr(message, field), annotation), f"{name}.{field} is no {annotation}"


def fits(value: Any, annotation: str) -> bool:
    if annotation == "Records":
        return value is None or isinstance(value, memoryview)
    if annotation.endswith(" | None"):
        return value is None or fits(value, annotation.removesuffix(" | None"))
    if annotation.startswith("list["):
        return isinstance(value, list) and all(fits(element, annotation[5:-1]) for element in value)
    if annotation in SIMPLE:
        return type(value) is SIMPLE[annotation]
    check(value)
    return type(value).__name__ == annotation.rpartition(".")[2]


@pytest.mark.parametrize("name", CODECS)
def test_every_message_that_is_read_has_the_types_of_the_stub(name: str) -> None:
    codecs: list[Codec] = CODECS[name]
    check(codecs[0].message_class())
    for codec in (codecs[0], codecs[-1]):
        for seed in range(3):
            message, _ = codec.decode(memoryview(codec.encode(random_message(codec, Random(seed)))))
            check(message)


def test_a_request_is_known_to_be_one() -> None:
    assert issubclass(messages.FetchRequest, RequestMessage)
    assert not issubclass(messages.FetchResponse, RequestMessage)
    assert not issubclass(messages.FetchRequest.FetchTopic, RequestMessage)
