"""How far the schema of an evolving table may grow: in number, depth and names of its fields, and not inside maps.

Whoever may write to a topic decides what is in a record, and so which columns a table gets. Readers of Delta bear some
forty levels of nesting, and become slow with thousands of columns; a table that was once given more cannot be opened
by anybody, and catalogues refuse names of hundreds of characters. What grows by itself is therefore bounded far below
that. A record that asks for more is a dead letter, with the reason; a schema that a person writes down is not bounded
here.

Inside a map a struct does not grow at all: readers cannot give older files the fields that their maps lack.

Whether there is room left for a record depends on those before it, which is the one exception to the rule that its fate
depends on nothing but its own bytes and the schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from tidelog.pipeline.values.json_rules import Object, has_substance

#: fields of a schema, those inside of others included
MAX_FIELDS = 2000
#: levels of a column, itself included
MAX_DEPTH = 16
#: characters of a field's name
MAX_NAME = 255
_ITEM, _MAP = "[]", "{}"
Path = tuple[str, ...]


def count_fields(fields: Iterable[Any]) -> int:
    return sum(1 + _fields_within(field.type) for field in fields)


def _fields_within(kind: Any) -> int:
    if pa.types.is_struct(kind):
        return count_fields(kind)
    if pa.types.is_map(kind):
        return _fields_within(kind.item_type)
    return _fields_within(kind.value_type) if pa.types.is_list(kind) else 0


class SchemaRoom:
    """What a schema may still get, as one record after the other asks for it."""

    def __init__(self, fields: Any, most: int = MAX_FIELDS) -> None:
        self._fields = fields
        self._most = most
        self._left = max(0, most - count_fields(fields))
        self._asked: set[Path] = set()

    def take(self, value: Object) -> str | None:
        """Why the fields that the schema lacks cannot all become columns; None where they can."""
        new: set[Path] = set()
        for path in _beside(self._fields, value, ()):
            if _MAP in path:
                return f"field {_shown(path)} is new inside a map, where older files cannot be given it"
            if len(path) > MAX_DEPTH:
                return f"field {_shown(path)} is nested more than {MAX_DEPTH} deep"
            if len(path[-1]) > MAX_NAME:
                return f"field {_shown(path)} has a name of {len(path[-1])} characters: columns have at most {MAX_NAME}"
            if path[-1] != _ITEM and path not in self._asked:
                new.add(path)
                if len(self._asked) + len(new) > self._left:
                    return (
                        f"field {_shown(path)} is one too many: a schema grows to {MAX_FIELDS} fields, and no further"
                    )
        self._asked |= new
        return None


def _beside(fields: Any, value: Object, path: Path) -> Iterator[Path]:
    """What an object has that its fields do not, with all that is inside."""
    known = {field.name: field.type for field in fields}
    for name, item in value:
        if not has_substance(item):
            continue
        if name in known:
            yield from _beside_within(known[name], item, (*path, name))
        else:
            yield from _inside(item, (*path, name))


def _beside_within(kind: Any, value: Any, path: Path) -> Iterator[Path]:
    if pa.types.is_struct(kind) and isinstance(value, Object):
        yield from _beside(kind, value, path)
    elif pa.types.is_map(kind) and isinstance(value, Object):
        for _, item in value:
            yield from _beside_within(kind.item_type, item, (*path, _MAP))
    elif pa.types.is_list(kind) and isinstance(value, list):
        for item in value:
            yield from _beside_within(kind.value_type, item, (*path, _ITEM))


def _inside(value: Any, path: Path) -> Iterator[Path]:
    """A new field, and the fields in it; not much deeper than is asked for."""
    yield path
    if len(path) > MAX_DEPTH:
        return
    if isinstance(value, Object):
        for name, item in value:
            if has_substance(item):
                yield from _inside(item, (*path, name))
    elif isinstance(value, list):
        for item in value:
            if has_substance(item):
                yield from _inside(item, (*path, _ITEM))


def _shown(path: Path) -> str:
    text = ".".join(path).replace("." + _ITEM, _ITEM).replace("." + _MAP, _MAP)
    shown = text if len(text) <= 80 else text[:77] + "..."
    return shown if shown.isprintable() else ascii(shown)
