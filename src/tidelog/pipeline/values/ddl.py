"""Spark's schema notation, `id BIGINT NOT NULL, tags ARRAY<STRING>`, read without a JVM.

    columns  = column {"," column}                      also as a whole: struct<columns>
    column   = name [":"] type ["NOT" "NULL"] ["COMMENT" text]
    type     = array<type> | map<type, type> | struct<[columns]> | decimal[(precision[, scale])]
             | char(n) | varchar(n) | one of the plain names below
    name     = letters, digits and _ , or anything between backquotes (a backquote is doubled)

Names keep their case, keywords and types have none.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

PLAIN_TYPES: dict[str, Any] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMALS = ("decimal", "dec", "numeric")
_TEXTS = ("char", "varchar", "character")
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|(\w+)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|([<>(),:]))")


class SchemaError(ValueError):
    """A schema that cannot be read; the message says where and why."""


class _Tokens:
    def __init__(self, text: str) -> None:
        self.text = text
        self.found: list[tuple[str, int]] = []
        self.at = 0
        place = 0
        end = len(text.rstrip())
        while place < end:
            match = _TOKEN.match(text, place)
            if match is None:
                self.found.append((text[place:].split()[0], place))
                break
            self.found.append((match.group().strip(), match.end()))
            place = match.end()

    def peek(self) -> str:
        return self.found[self.at][0] if self.at < len(self.found) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def take(self, *wanted: str) -> bool:
        """Moves past these tokens if they are next."""
        ahead = [token.lower() for token, _ in self.found[self.at : self.at + len(wanted)]]
        if ahead != list(wanted):
            return False
        self.at += len(wanted)
        return True

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise self.error(f"{token!r}")

    def error(self, wanted: str) -> SchemaError:
        found = f"found {self.peek()!r}" if self.peek() else "the schema ends"
        before = " ".join(token for token, _ in self.found[max(0, self.at - 4) : self.at])
        after = f" after '{before}'" if before else ""
        return SchemaError(f"schema: wanted {wanted}{after}, but {found}")


def parse_ddl(text: str) -> Any:
    """The Arrow schema that a Spark DDL string describes."""
    tokens = _Tokens(text)
    whole = tokens.take("struct", "<")
    fields = _columns(tokens)
    if whole:
        tokens.expect(">")
    if tokens.peek():
        raise tokens.error("',' or the end")
    return pa.schema(fields)


def _columns(tokens: _Tokens) -> list[Any]:
    fields = [_column(tokens)]
    while tokens.take(","):
        fields.append(_column(tokens))
    names = [field.name.lower() for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise SchemaError(f"schema: field {name!r} appears twice (names are compared without case)")
    return fields


def _column(tokens: _Tokens) -> Any:
    name = _name(tokens)
    tokens.take(":")
    kind = _type(tokens)
    nullable = not tokens.take("not", "null")
    if tokens.take("comment"):
        while tokens.peek().startswith(("'", '"')):
            tokens.next()
    return pa.field(name, kind, nullable)


def _name(tokens: _Tokens) -> str:
    token = tokens.peek()
    if token.startswith("`") and len(token) > 2:
        tokens.next()
        return token[1:-1].replace("``", "`")
    if not re.fullmatch(r"\w+", token):
        raise tokens.error("a field's name")
    return tokens.next()


def _type(tokens: _Tokens) -> Any:
    name = tokens.peek().lower()
    if name in PLAIN_TYPES:
        tokens.next()
        return PLAIN_TYPES[name]
    if name in _TEXTS:
        tokens.next()
        _numbers(tokens)
        return pa.string()
    if name in _DECIMALS:
        tokens.next()
        return decimal_type(*_numbers(tokens))
    if name not in ("array", "map", "struct"):
        raise tokens.error("a type such as BIGINT, STRING or ARRAY<STRING>")
    tokens.next()
    tokens.expect("<")
    kind = _nested(tokens, name)
    tokens.expect(">")
    return kind


def _nested(tokens: _Tokens, name: str) -> Any:
    if name == "struct":
        return pa.struct(_columns(tokens))
    first = _type(tokens)
    if name == "array":
        return pa.list_(first)
    tokens.expect(",")
    return pa.map_(first, _type(tokens))


def _numbers(tokens: _Tokens) -> list[int]:
    numbers: list[int] = []
    if tokens.take("("):
        while True:
            if not tokens.peek().isdecimal():
                raise tokens.error("a number")
            numbers.append(int(tokens.next()))
            if not tokens.take(","):
                break
        tokens.expect(")")
    return numbers


def decimal_type(precision: int = 10, scale: int = 0, *more: int) -> Any:
    if more or not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise SchemaError(f"schema: decimal({precision},{scale}) cannot be; precision is 1 to 38, scale at most that")
    return pa.decimal128(precision, scale)
