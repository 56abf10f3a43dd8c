"""Random values for every field of a schema: the messages that the codec's tests are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from tidelog.wire.apis import APIS
from tidelog.wire.codec import Codec, request_codec, response_codec, schema_of, stored_codec
from tidelog.wire.schema import STORED
from tidelog.wire.table import FRESH, ZERO_UUID, Field, Struct

BOUNDS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
STRINGS = ("", "a", "topic-1", "Übertragung", "💾", "x" * 126, "y" * 127, "z" * 128, "é" * 200)


def all_codecs() -> Iterator[Codec]:
    """Every message in every version that has a schema."""
    for api in APIS.values():
        for codec_of, suffix in ((request_codec, "Request"), (response_codec, "Response")):
            first, last = schema_of(api.name + suffix).versions
            for version in range(first, last + 1):
                yield codec_of(api.key, version)
    for name in STORED:
        first, last = schema_of(name).versions
        for version in range(first, last + 1):
            yield stored_codec(name, version)


def by_schema(codecs: Iterable[Codec]) -> dict[str, list[Codec]]:
    grouped: dict[str, list[Codec]] = {}
    for codec in codecs:
        grouped.setdefault(codec.schema.name, []).append(codec)
    return grouped


def label(codec: Codec) -> str:
    return f"{codec.schema.name}-v{codec.version}"


def random_message(codec: Codec, random: Random) -> Any:
    """A message with a random value in every field that the version has, and the default in every other."""
    return _Values(codec, random).struct(codec.schema, codec.message_class)


class _Values:
    def __init__(self, codec: Codec, random: Random) -> None:
        self.codec = codec
        self.random = random

    def struct(self, struct: Struct, cls: Any) -> Any:
        present = [field for field in struct.fields if field.in_version(self.codec.version)]
        return cls(**{field.name: self.field(field) for field in present})

    def field(self, field: Field) -> Any:
        if field.nullable_in(self.codec.version) and self.random.random() < 0.25:
            return None
        if field.tag is not None and self.random.random() < 0.3:
            return self.default(field)
        if field.array:
            return [self.value(field) for _ in range(self.count(field))]
        value = self.value(field)
        if field.tag is not None and field.struct is not None and not field.nullable and value == type(value)():
            # A tagged struct with nothing but defaults is not written, and None is what is read in its place.
            return None
        return value

    def default(self, field: Field) -> Any:
        if field.default is not FRESH:
            return field.default
        return [] if field.array else getattr(self.codec.message_class, field.type)()

    def count(self, field: Field) -> int:
        if field.struct is None and self.random.random() < 0.1:
            return self.random.choice((16, 17, 127, 128, 300))
        return self.random.choice((0, 1, 1, 2, 3))

    def value(self, field: Field) -> Any:
        if field.struct is not None:
            return self.struct(field.struct, getattr(self.codec.message_class, field.struct.name))
        kind = field.type
        if kind in BOUNDS:
            low, high = BOUNDS[kind]
            return self.random.choice((low, high, 0, 1, max(low, -1), self.random.randint(low, high)))
        if kind == "bool":
            return self.random.random() < 0.5
        if kind == "float64":
            return self.random.choice((0.0, -1.5, 1e300, self.random.random()))
        if kind == "uuid":
            return self.random.choice((ZERO_UUID, self.random.randbytes(16)))
        if kind == "string":
            return self.random.choice(STRINGS)
        return self.random.randbytes(self.random.choice((0, 1, 5, 126, 127, 128, 300)))
