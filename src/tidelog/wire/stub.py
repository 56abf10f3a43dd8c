"""Writes `messages.pyi`, from which type checkers know the classes that `messages` makes from the tables at run time.

    python -m tidelog.wire.stub        # after a change to a table; a test fails while the stub is out of date

A field is None where some version allows null, or where it is a tagged struct, which None stands for while it has its
defaults. In a version that lacks a field it has its default, so the type of a field is the same in every version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidelog.wire.apis import APIS
from tidelog.wire.codec import schema_of
from tidelog.wire.schema import STORED
from tidelog.wire.table import FIXED, Field, Schema, Struct

STUB: Final = Path(__file__).with_name("messages.pyi")

_HEAD: Final = '''\
"""The types of the message classes. Made from the tables by `python -m tidelog.wire.stub`: do not edit."""

from tidelog.wire.classes import Message, Records, RequestMessage
'''
_TYPES: Final = {
    **dict.fromkeys(FIXED, "int"),
    "bool": "bool",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "bytes",
}


def text() -> str:
    """The whole stub, in the form that the formatter leaves as it is."""
    classes = []
    for api in APIS.values():
        # The response stands first because mypy loses the structs of a class whose base names a class further down.
        classes.append(_message(schema_of(f"{api.name}Response"), "Message"))
        classes.append(_message(schema_of(f"{api.name}Request"), f"RequestMessage[{api.name}Response]"))
    classes.extend(_message(schema_of(name), "Message") for name in STORED)
    return "\n".join([_HEAD, *classes])


def _message(schema: Schema, base: str) -> str:
    lines = _class(schema.name, base, [_field(field, "") for field in schema.fields])
    for struct in schema.structs.values():
        lines.append("")
        lines.extend("    " + line for line in _struct(schema, struct))
    return "\n".join(lines) + "\n"


def _struct(schema: Schema, struct: Struct) -> list[str]:
    """A struct's class stands in its message's; from inside of it the names of its siblings need the message's."""
    return _class(struct.name, "Message", [_field(field, f"{schema.name}.") for field in struct.fields])


def _class(name: str, base: str, fields: list[str]) -> list[str]:
    if not fields:
        return [f"class {name}({base}): ..."]
    return [f"class {name}({base}):", *("    " + field for field in fields)]


def _field(field: Field, prefix: str) -> str:
    if field.type == "records":
        return f"{field.name}: Records = ..."
    kind = prefix + field.type if field.struct is not None else _TYPES[field.type]
    if field.array:
        kind = f"list[{kind}]"
    if field.nullable is not None or field.default is None:
        kind += " | None"
    return f"{field.name}: {kind} = ..."


if __name__ == "__main__":
    STUB.write_text(text())
