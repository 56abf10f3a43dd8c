"""Between Arrow's types and the kernel's columns: columns for a schema, and arrays from what the kernel put there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.pipeline.values.forms import kernel as forms
from tidelog.pipeline.values.json_rules import FLOAT_MAX
from tidelog.pipeline.values.shred import kernel as shred

_DECIMAL_DIGITS = 38


class Filled(NamedTuple):
    array: Any
    misfits: Any  # np.ndarray: the entries with a string that does not stand for what it should


def columns_of(fields: Any, rows: int) -> shred.ShredColumn:
    """The root column for rows of these fields."""
    return _struct(list(fields), False, rows)


def _struct(fields: list[Any], nullable: bool, rows: int) -> shred.ShredColumn:
    column = shred.ShredColumn(shred.STRUCT, nullable, rows)
    column.name([field.name.encode() for field in fields], [_column(field, rows) for field in fields])
    return column


def _column(field: Any, rows: int) -> shred.ShredColumn:
    kind = field.type
    if pa.types.is_struct(kind):
        return _struct(list(kind), field.nullable, rows)
    column = shred.ShredColumn(_kind(kind), field.nullable, rows)
    if pa.types.is_signed_integer(kind):
        column.low, column.high = -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1
    elif kind == pa.float32():
        column.highest = FLOAT_MAX
    elif pa.types.is_map(kind):
        column.keys = shred.ShredColumn(shred.TEXT, False, 0)
        column.items = _column(kind.item_field, 0)
    elif pa.types.is_list(kind):
        column.items = _column(kind.value_field, 0)
    return column


def _kind(kind: Any) -> int:
    if pa.types.is_boolean(kind):
        return shred.BOOLEAN
    if pa.types.is_signed_integer(kind):
        return shred.INTEGER
    if pa.types.is_floating(kind):
        return shred.FLOAT
    if pa.types.is_decimal(kind):
        return shred.DIGITS
    if pa.types.is_map(kind):
        return shred.MAP
    if pa.types.is_list(kind):
        return shred.ARRAY
    return shred.SCALAR if pa.types.is_string(kind) else shred.TEXT


def arrays_of(column: shred.ShredColumn, fields: Any) -> tuple[list[Any], list[int]]:
    """An array for each field, and the rows in which a string does not stand for what it should."""
    filled = [_filled(child, field.type) for child, field in zip(column.children, fields, strict=True)]
    return [one.array for one in filled], _union([one.misfits for one in filled]).tolist()


def _filled(column: shred.ShredColumn, kind: Any) -> Filled:
    count = column.count
    if column.kind == shred.INTEGER:
        return Filled(_fixed(column, kind, np.asarray(column.ints)[:count]), _NO_MISFITS)
    if column.kind == shred.FLOAT:
        return Filled(_fixed(column, kind, np.asarray(column.floats)[:count]), _NO_MISFITS)
    if column.kind == shred.BOOLEAN:
        bits = np.packbits(np.asarray(column.ints)[:count].view(np.uint8)[::8], bitorder="little")
        return Filled(pa.Array.from_buffers(kind, count, [_validity(column), pa.py_buffer(bits)]), _NO_MISFITS)
    if column.kind in (shred.TEXT, shred.DIGITS, shred.SCALAR):
        return _text(column, kind)
    if column.kind == shred.STRUCT:
        arrays, misfits = arrays_of(column, list(kind))
        array = pa.StructArray.from_buffers(kind, count, [_validity(column)], children=arrays)
        return Filled(array, np.asarray(misfits, np.int64))
    return _nested(column, kind)


_NO_MISFITS = np.zeros(0, np.int64)


def _fixed(column: shred.ShredColumn, kind: Any, numbers: Any) -> Any:
    with np.errstate(over="ignore"):  # of records that are dropped because of it
        numbers = numbers.astype(kind.to_pandas_dtype(), copy=False)
    return pa.Array.from_buffers(kind, column.count, [_validity(column), pa.py_buffer(numbers)])


def _nested(column: shred.ShredColumn, kind: Any) -> Filled:
    starts = np.asarray(column.starts)[: column.count + 1]
    if column.kind == shred.MAP:
        items = _filled(column.items, kind.item_type)
        entry = pa.struct([kind.key_field, kind.item_field])
        both = [_keys(column.keys), items.array]
        children = [pa.StructArray.from_buffers(entry, column.keys.count, [None], children=both)]
    else:
        items = _filled(column.items, kind.value_type)
        children = [items.array]
    buffers = [_validity(column), pa.py_buffer(starts)]
    array = pa.Array.from_buffers(kind, column.count, buffers, children=children)
    return Filled(array, np.unique(np.searchsorted(starts, items.misfits, side="right") - 1))


def _keys(column: shred.ShredColumn) -> Any:
    """A null key makes Arrow abort the process. Only a record that is dropped can leave one, so any text will do."""
    starts, data = np.asarray(column.starts)[: column.count + 1], np.asarray(column.data)[: column.size]
    return pa.Array.from_buffers(pa.string(), column.count, [None, pa.py_buffer(starts), pa.py_buffer(data)])


def _text(column: shred.ShredColumn, kind: Any) -> Filled:
    valid = np.asarray(column.valid)[: column.count]
    starts = np.asarray(column.starts)[: column.count + 1]
    data = np.asarray(column.data)[: column.size]
    if pa.types.is_string(kind):
        buffers = [_validity(column), pa.py_buffer(starts), pa.py_buffer(data)]
        return Filled(pa.Array.from_buffers(kind, column.count, buffers), _NO_MISFITS)
    if pa.types.is_decimal(kind):
        array = _decimals(data, starts, valid, kind)
    elif pa.types.is_binary(kind):
        size = forms.binaries(data.data, starts.data, valid.data)
        buffers = [_bits(valid), pa.py_buffer(starts), pa.py_buffer(data[:size])]
        array = pa.Array.from_buffers(kind, len(valid), buffers)
    elif pa.types.is_date32(kind):
        days = np.zeros(len(valid), np.int32)
        forms.dates(data.data, starts.data, valid.data, days.data)
        array = pa.Array.from_buffers(kind, len(valid), [_bits(valid), pa.py_buffer(days)])
    else:
        micros = np.zeros(len(valid), np.int64)
        forms.timestamps(data.data, starts.data, valid.data, kind.tz is not None, micros.data)
        array = pa.Array.from_buffers(kind, len(valid), [_bits(valid), pa.py_buffer(micros)])
    return Filled(array, np.flatnonzero(valid == forms.MISFIT))


def _decimals(data: Any, starts: Any, valid: Any, kind: Any) -> Any:
    digits = np.empty(len(valid) * (kind.precision + 1) + 1, np.uint8)
    ends = np.zeros(len(valid) + 1, np.int32)
    texts = (data.data, starts.data, valid.data)
    size = forms.decimals(*texts, kind.precision, kind.scale, digits.data, ends.data)
    bits = _bits(valid)
    text = pa.Array.from_buffers(pa.string(), len(valid), [bits, pa.py_buffer(ends), pa.py_buffer(digits[:size])])
    # The digits without their point are the decimal itself, as it is kept: an integer.
    integers = text.cast(pa.decimal128(_DECIMAL_DIGITS, 0))
    return pa.Array.from_buffers(kind, len(valid), [bits, integers.buffers()[1]])


def _validity(column: shred.ShredColumn) -> Any:
    return _bits(np.asarray(column.valid)[: column.count])


def _bits(valid: Any) -> Any:
    """The validity of entries as Arrow keeps it, None if all are valid. Neither nulls nor misfits are."""
    good = valid == 1
    return None if good.all() else pa.py_buffer(np.packbits(good, bitorder="little"))


def _union(misfits: list[Any]) -> Any:
    return np.unique(np.concatenate([_NO_MISFITS, *misfits]))
