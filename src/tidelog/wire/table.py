"""Schema tables: the text that a human reads, and the fields that the codec compiles.

A table lists messages; a message lists fields, one a line, children of a struct indented below it:

    ProduceRequest 0-13 flexible 9+
        transactional_id    string?             3+    = null
        topic_data          []TopicProduceData
            name            string              0-12  ignorable
        struct Common
            ...

- The head gives the versions that are known and those that are flexible (compact lengths, tagged fields).
- A field is: name, type, versions, attributes. Versions left out mean: wherever its parent is.
- Types: bool, int8..int64, uint16, uint32, float64, uuid, string, bytes, records, a struct's name; `[]T` is an
  array. A `?` behind the type says that null is allowed, `?7+` that it is from version 7 on.
- Attributes: `tag N` (a tagged field), `= value` (the default where it is not 0, false, empty or the zero uuid),
  `ignorable` (dropped in silence where the version lacks it), `inflexible` (not compact even in flexible versions).
- `struct Name` below a message declares a struct that several fields use.
"""

from __future__ import annotations

from typing import Any, Final

Versions = tuple[int, int]

#: Fixed-width types and their `struct` codes.
FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
FIXED_SIZE: Final = {"?": 1, "b": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}
SIZED: Final = frozenset({"string", "bytes", "records"})
ZERO_UUID: Final = bytes(16)


class _Fresh:
    """The default of an array or of a plain struct: a new one for each message."""

    __slots__ = ()


FRESH: Final = _Fresh()


class Field:
    """One row; `type` is that of an element where the field is an array."""

    __slots__ = ("array", "default", "ignorable", "inflexible", "name", "nullable", "struct", "tag", "type", "versions")

    def __init__(self, name: str, type_name: str, versions: Versions) -> None:
        self.name = name
        self.type = type_name
        self.versions = versions
        self.array = False
        self.nullable: Versions | None = None
        self.tag: int | None = None
        self.default: Any = None
        self.ignorable = False
        self.inflexible = False
        self.struct: Struct | None = None

    def in_version(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def nullable_in(self, version: int) -> bool:
        return self.nullable is not None and self.nullable[0] <= version <= self.nullable[1]


class Struct:
    __slots__ = ("fields", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: list[Field] = []

    def present(self, version: int) -> list[Field]:
        """The fields that are written in a row, in their order; tagged ones come after them."""
        return [field for field in self.fields if field.tag is None and field.in_version(version)]

    def tagged(self, version: int) -> list[tuple[int, Field]]:
        known = [(field.tag, field) for field in self.fields if field.tag is not None and field.in_version(version)]
        return sorted(known, key=lambda pair: pair[0])

    def absent(self, version: int) -> list[Field]:
        return [field for field in self.fields if not field.in_version(version)]


class Schema(Struct):
    """A message: its own fields, every struct below it by name, and its versions."""

    __slots__ = ("flexible_from", "structs", "versions")

    def __init__(self, name: str, versions: Versions, flexible_from: int | None) -> None:
        super().__init__(name)
        self.versions = versions
        self.flexible_from = flexible_from
        self.structs: dict[str, Struct] = {}

    def flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    def has_records(self) -> bool:
        return any(field.type == "records" for struct in (self, *self.structs.values()) for field in struct.fields)


def parse(text: str) -> dict[str, Schema]:
    schemas: dict[str, Schema] = {}
    schema = Schema("", (0, 0), None)
    open_structs: list[tuple[int, Struct, Versions]] = []
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        indent = len(line) - len(line.lstrip())
        if indent == 0:
            schema = _head(words)
            schemas[schema.name] = schema
            open_structs = [(0, schema, schema.versions)]
            continue
        while open_structs[-1][0] >= indent:
            open_structs.pop()
        if words[0] == "struct":
            struct = schema.structs[words[1]] = Struct(words[1])
            open_structs.append((indent, struct, schema.versions))
            continue
        _, parent, versions = open_structs[-1]
        field = _field(words, versions)
        parent.fields.append(field)
        if field.type[0].isupper():
            # A struct that is declared elsewhere has no rows here; `_link` then finds the one that has.
            field.struct = Struct(field.type)
            open_structs.append((indent, field.struct, field.versions))
    for schema in schemas.values():
        _link(schema, schema)
    return schemas


def _link(schema: Schema, struct: Struct) -> None:
    """Register the structs that are declared in place, and find those that are declared elsewhere."""
    for field in struct.fields:
        if field.struct is None:
            continue
        if field.struct.fields:
            schema.structs[field.type] = field.struct
        else:
            field.struct = schema.structs[field.type]
        _link(schema, field.struct)


def _head(words: list[str]) -> Schema:
    versions = _versions(words[1], 0)
    flexible_from = _versions(words[3], versions[1])[0] if len(words) > 2 else None
    return Schema(words[0], versions, flexible_from)


def _versions(text: str, last: int) -> Versions:
    if text.endswith("+"):
        return int(text[:-1]), last
    first, _, end = text.partition("-")
    return int(first), int(end or first)


def _field(words: list[str], parent: Versions) -> Field:
    name, type_name, *rest = words
    versions = _versions(rest.pop(0), parent[1]) if rest and rest[0][0].isdigit() else parent
    type_name, question, nullable = type_name.partition("?")
    field = Field(name, type_name.removeprefix("[]"), versions)
    field.array = type_name.startswith("[]")
    if question:
        field.nullable = _versions(nullable, versions[1]) if nullable else versions
    default: str | None = None
    while rest:
        word = rest.pop(0)
        if word == "=":
            default = rest.pop(0)
        elif word == "tag":
            field.tag = int(rest.pop(0))
        elif word == "ignorable":
            field.ignorable = True
        elif word == "inflexible":
            field.inflexible = True
        else:
            raise ValueError(f"{name}: unknown attribute {word}")
    field.default = _default(field, default)
    return field


def _default(field: Field, text: str | None) -> Any:
    if text == "null" or field.type == "records":
        return None
    if field.array:
        return FRESH
    if field.type[0].isupper():
        # An absent tagged struct stands for its default: None says so without making one for each message, unless
        # null is a value of its own.
        return None if field.tag is not None and field.nullable is None else FRESH
    if field.type == "string":
        return text.strip('"') if text else ""
    if field.type == "bool":
        return text == "true"
    if field.type == "float64":
        return float(text or 0)
    if field.type == "bytes":
        return b""
    if field.type == "uuid":
        return ZERO_UUID
    return int(text or "0", 0)
