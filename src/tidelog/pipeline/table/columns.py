"""The columns of a table and those of rows that are to be added: whether they fit, and what the table lacks.

Nothing is given to a table that it could not be opened with afterwards: a schema is read back before it is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from deltalake import Schema

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.values import is_reserved_name


def delta_schema(schema: pa.Schema) -> Schema:
    """Every column of a table may be null: later files may lack it. PipelineError where nobody could read it back."""
    found = Schema.from_arrow(pa.schema([field.with_nullable(True).remove_metadata() for field in schema]))
    try:
        Schema.from_json(found.to_json())
    except ValueError as error:
        raise PipelineError(
            f"a table with these columns could not be opened any more: {first_line(error)}",
            "give the schema fewer levels of nesting; what is inside can be kept as text",
        ) from error
    return found


def check_names(names: Iterable[str]) -> None:
    """Raises PipelineError if one of them is a name that no new column can have."""
    for name in names:
        if is_reserved_name(name):
            raise PipelineError(
                f"the rows have a column {name}, a name that no column can have: Delta has other uses for it",
                "give it another name in the schema or in the transform",
            )


def missing(table: pa.Schema, rows: pa.Schema, path: str) -> list[pa.Field]:
    """The columns of these rows that the table lacks, in whole or in part; PipelineError where they do not fit."""
    known = {column.name: column for column in table}
    spelled = {name.lower(): name for name in known}
    for column in rows:
        there = spelled.get(column.name.lower(), column.name)
        if there != column.name:
            raise PipelineError(
                f"column {column.name} of the rows differs from column {there} of {path} in case only",
                f"call it {there}, or by another name",
            )
    _check_nulls(table, rows, path, "")
    found = [
        column
        for column in rows
        if column.name not in known or not _fits(column.type, known[column.name].type, path, column.name)
    ]
    check_names(column.name for column in found if column.name not in known)
    # Whether the table could be opened with them is known before they are added.
    delta_schema(pa.schema(found))
    return found


def _check_nulls(table: pa.Schema | pa.DataType, rows: pa.Schema | pa.DataType, path: str, within: str) -> None:
    """PipelineError where the table wants values of which the rows may have none."""
    own = {field.name: field for field in rows}
    for field in table:
        there = own.get(field.name)
        if not field.nullable and (there is None or there.nullable):
            raise PipelineError(
                f"column {within}{field.name} of {path} is NOT NULL, and rows may have no value for it",
                f"write {field.name} … NOT NULL in the schema under [decode], which makes such values dead letters; "
                f"or let it be null in the table (ALTER TABLE … ALTER COLUMN {within}{field.name} DROP NOT NULL)",
            )
        if there is not None:
            for one, other in _inner(field.type, there.type):
                _check_nulls(one, other, path, f"{within}{field.name}.")


def _inner(table: pa.DataType, rows: pa.DataType) -> Iterator[tuple[pa.DataType | pa.Schema, pa.DataType | pa.Schema]]:
    if pa.types.is_struct(table) and pa.types.is_struct(rows):
        yield table, rows
    elif pa.types.is_map(table) and pa.types.is_map(rows):
        yield _one("value", table.item_field), _one("value", rows.item_field)
    elif _is_array(table) and _is_array(rows):
        yield _one("element", table.value_field), _one("element", rows.value_field)


def _one(name: str, field: pa.Field) -> pa.Schema:
    return pa.schema([field.with_name(name)])


def _is_array(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind)) and not pa.types.is_map(kind)


def _fits(rows: pa.DataType, table: pa.DataType, path: str, name: str) -> bool:
    """Whether the table's type has all of the rows' type; False where fields are missing inside a struct."""
    if pa.types.is_struct(rows) and pa.types.is_struct(table):
        known = {field.name: field.type for field in table}
        return all(f.name in known and _fits(f.type, known[f.name], path, f"{name}.{f.name}") for f in rows)
    if pa.types.is_map(rows) and pa.types.is_map(table):
        keys = _fits(rows.key_type, table.key_type, path, f"{name}.key")
        if not (_fits(rows.item_type, table.item_type, path, f"{name}.value") and keys):
            raise PipelineError(
                f"column {name} of {path} is a map, and the rows have fields in it that the table lacks",
                "readers of Delta cannot add fields inside a map to older files; "
                "`tidelog pipeline replay` rebuilds the table with them",
            )
        return True
    if _is_array(rows) and _is_array(table):
        return _fits(rows.value_type, table.value_type, path, f"{name}[]")
    if not rows.equals(table):
        raise PipelineError(
            f"column {name} of {path} is {table}, and the rows have it as {rows}",
            "give the rows the table's type, or the column another name; "
            "`tidelog pipeline replay` rebuilds the table with new types",
        )
    return True


def all_nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, with nothing in them that must have a value."""
    return pa.schema([_nullable(field) for field in schema])


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(inner) for inner in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_type, _nullable(kind.item_field))
    elif _is_array(kind):
        kind = pa.list_(_nullable(kind.value_field))
    return field.with_type(kind).with_nullable(True)


def has_zoneless(kind: pa.DataType) -> bool:
    """Whether a timestamp without a zone is in the type, at any depth."""
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(has_zoneless(kind.field(index).type) for index in range(kind.num_fields))


def first_line(error: Exception) -> str:
    """A trace of the library's own may follow it."""
    return str(error).partition("\n")[0]
