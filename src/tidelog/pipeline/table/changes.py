"""A table of the latest state: one row for each key, out of a stream of changes.

    row         takes the place of the row with its key
    deletion    takes that row out: a record without a value, or a row that is marked as one

Which change of a key is the latest is said by a column, `order_by`: the greatest value wins, and of equal ones the one
that was read later. Without it the one that was read later wins; a key keeps to its partition, where that is the order
of offsets. A batch is resolved to one change for each key first, and then merged into the table: it makes no difference
how the stream is cut into batches.

With `order_by` a change may come after a later one. A row that the table has says how late it is; a key that was
deleted has no row, so its order is kept beside the table (`graves.py`), and a late row does not bring it back.

A deletion may have no order of its own, as a record without a value has none. It stands for the moment at which it was
read: it deletes what there is then, however late that is, and only later changes than that come after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.spec import DELETED, KEEP_DELETED_MS

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import CommitProperties

ORDER: Final = "order"
_GONE, _ORDER, _PLACE = "__gone", "__order", "__place"
_SOURCE, _TARGET = "s", "t"


@dataclass(frozen=True, slots=True)
class Keyed:
    """What a row is told apart by, which one is the latest, and which ones are deletions."""

    keys: tuple[str, ...]
    order_by: str | None = None
    #: a column that is true, or `column=value`
    deletes: str | None = None
    #: how long a deletion is known, so that no older change than it brings the row back
    keep_deleted_ms: int = KEEP_DELETED_MS

    @property
    def key_names(self) -> list[str]:
        """Of the columns that keys have on their own."""
        return [f"key{number}" for number in range(len(self.keys))]

    def key_values(self, rows: pa.Table) -> pa.Table:
        return pa.table([one_of_equals(values_of(rows, key)) for key in self.keys], self.key_names)


@dataclass(frozen=True, slots=True)
class Changes:
    """One for each key. `rows` have the columns of the table, and two of our own."""

    rows: pa.Table
    #: keys and orders of what is deleted, where an order says that
    graves: pa.Table | None


def resolve(
    rows: pa.Table,
    keyed: Keyed,
    graves: Callable[[], pa.Table | None],
    orders: Callable[[], pa.Table],
) -> Changes:
    """The change of each key, of rows in the order in which they were read.

    `graves` and `orders` give keys and orders (`ORDER`): of what was deleted before, and of what the table has. Each is
    asked only if the answer matters.
    """
    gone = _deletions(rows, keyed)
    data = _with_keys(rows.select(stored(rows.schema).names), keyed)
    keys = keyed.key_values(rows)
    if keyed.order_by is None:
        chosen = _last(keys)
        return Changes(_source(data, chosen, gone[chosen], None), None)
    events = keys.append_column(ORDER, values_of(rows, keyed.order_by))
    # A deletion without an order is of the moment in which it is read; all else without one is before everything.
    timeless = gone & np.asarray(pc.is_null(events[ORDER]))
    buried, there = graves(), orders() if timeless.any() else None
    before = [_as_events(found, events.schema) for found in (buried, there) if found is not None]
    first = sum(len(found) for found in before)
    events = pa.concat_tables([*before, events])
    timed = np.concatenate([np.ones(first, bool), ~timeless])
    winners = _last(events.select(keyed.key_names), _by_order(events[ORDER], timed))
    ends = _last_of(events.select(keyed.key_names), first + np.flatnonzero(timeless))[winners]
    # What was before is as it was, unless a deletion without an order takes out what the table has.
    from_table = (winners >= first - (0 if there is None else len(there))) & (winners < first)
    changed = (winners >= first) | (from_table & (ends >= 0))
    winners, ends = winners[changed], ends[changed]
    index = np.where(winners >= first, winners, ends) - first
    is_gone = gone[index] | (ends > winners)
    latest = events.take(pa.array(winners))
    sunk = latest.filter(pa.array(is_gone & np.asarray(pc.is_valid(latest[ORDER]))))
    return Changes(_source(data, index, is_gone, latest[ORDER]), sunk if len(sunk) else None)


def merge(delta: DeltaTable, changes: Changes, keyed: Keyed, properties: CommitProperties) -> None:
    """Commits the changes. Where nothing changes, nothing is committed."""
    names = [name for name in changes.rows.schema.names if name not in (_GONE, _ORDER)]
    columns = {quoted(name): f"{_SOURCE}.{quoted(name)}" for name in names}
    same = " AND ".join(f"({_TARGET}.{_path(key)} IS NOT DISTINCT FROM {_SOURCE}.{_path(key)})" for key in keyed.keys)
    later = ""
    if keyed.order_by is not None:
        there = f"{_TARGET}.{_path(keyed.order_by)}"
        later = f" AND ({there} IS NULL OR {_SOURCE}.{_ORDER} >= {there})"
    wanted = " AND ".join([same, *_within(changes.rows, keyed)])
    merged = delta.merge(changes.rows, wanted, source_alias=_SOURCE, target_alias=_TARGET, commit_properties=properties)
    merged = merged.when_matched_delete(f"{_SOURCE}.{_GONE}{later}")
    merged = merged.when_matched_update(columns, f"NOT {_SOURCE}.{_GONE}{later}")
    merged.when_not_matched_insert(columns, f"NOT {_SOURCE}.{_GONE}").execute()


def _within(rows: pa.Table, keyed: Keyed) -> list[str]:
    """What keys lie between, for the statistics of files to tell which of them can be left unread.

    Numbers with a fraction are left out (no range has a NaN), and so is what cannot be written down as it is.
    """
    found = []
    for key in keyed.keys:
        kind = rows.schema.field(key).type if key in rows.schema.names else None
        if kind is None or not (pa.types.is_integer(kind) or pa.types.is_string(kind)) or not len(rows):
            continue
        if not rows[key].null_count:
            ends = pc.min_max(rows[key]).as_py()
            least, greatest = (str(end) if isinstance(end, int) else _literal(end) for end in ends.values())
            found.append(f"{_TARGET}.{quoted(key)} BETWEEN {least} AND {greatest}")
    return found


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def orders_of(delta: DeltaTable, keyed: Keyed) -> pa.Table:
    """Keys and orders of all rows that the table has."""
    assert keyed.order_by is not None
    columns = sorted({path.split(".")[0] for path in (*keyed.keys, keyed.order_by)})
    rows = delta.to_pyarrow_table(columns=columns)
    return keyed.key_values(rows).append_column(ORDER, values_of(rows, keyed.order_by))


def stored(schema: pa.Schema) -> pa.Schema:
    """The columns that a table gets of rows with these."""
    return pa.schema([field for field in schema if field.name != DELETED])


# --- which ones -----------------------------------------------------------------------------------------


def _deletions(rows: pa.Table, keyed: Keyed) -> Any:
    gone = np.zeros(len(rows), bool)
    if DELETED in rows.schema.names:
        gone |= _true(rows[DELETED])
    if keyed.deletes is not None:
        name, equals, value = keyed.deletes.partition("=")
        column = values_of(rows, name.strip())
        if equals:
            column = pc.equal(column, pa.scalar(value.strip()).cast(column.type))
        gone |= _true(column)
    return gone


def _true(column: Any) -> Any:
    return np.asarray(pc.fill_null(column, False)).astype(bool)


def _by_order(order: Any, which: Any) -> Any:
    """The places of these events from the least order to the greatest, those without one first; in turn where equal."""
    places = pa.array(np.flatnonzero(which))
    sorted_ = pc.sort_indices(pa.table({"by": order.take(places)}), sort_keys=[("by", "ascending", "at_start")])
    return np.asarray(places.take(sorted_))


def _last(keys: pa.Table, places: Any = None) -> Any:
    """For each key its last place; in the order of places, unless they are given."""
    places = np.arange(len(keys)) if places is None else places
    numbered = keys.take(pa.array(places)).append_column(_PLACE, pa.array(np.arange(len(places))))
    found = numbered.group_by(keys.schema.names).aggregate([(_PLACE, "max")])[f"{_PLACE}_max"]
    return np.sort(places[np.asarray(found)])


def _last_of(keys: pa.Table, places: Any) -> Any:
    """For each event the last of these places that has its key; -1 where there is none."""
    if not len(places):
        return np.full(len(keys), -1)
    number = _codes(keys)
    last = np.full(int(number.max()) + 1, -1)
    np.maximum.at(last, number[places], places)
    return last[number]


def one_of_equals(column: Any) -> Any:
    """The values, with one zero and one NaN among them: those of either sign are grouped apart, and merged as one."""
    if not pa.types.is_floating(column.type):
        return column
    zeroed = pc.add(column, pa.scalar(0.0, column.type))
    return pc.if_else(pc.is_nan(zeroed), pa.scalar(float("nan"), column.type), zeroed)


def _with_keys(data: pa.Table, keyed: Keyed) -> pa.Table:
    for key in keyed.keys:
        if key in data.schema.names:
            at = data.schema.get_field_index(key)
            data = data.set_column(at, data.schema.field(at), one_of_equals(data[key]))
    return data


def _as_events(found: pa.Table, schema: pa.Schema) -> pa.Table:
    """Keys and orders that were kept, perhaps before their zeros were made one."""
    columns = [found[name] if name == ORDER else one_of_equals(found[name]) for name in schema.names]
    return pa.table(columns, schema.names).cast(schema)


def _codes(keys: pa.Table) -> Any:
    """A number for each key, the same for the same."""
    codes = np.zeros(len(keys), np.int64)
    for column in keys.columns:
        encoded = pc.dictionary_encode(pa.concat_arrays(column.chunks), null_encoding="encode")
        codes = codes * (len(encoded.dictionary) + 1) + np.asarray(encoded.indices)
        codes = np.unique(codes, return_inverse=True)[1]
    return codes


def _source(data: pa.Table, chosen: Any, gone: Any, order: Any) -> pa.Table:
    found = data.take(pa.array(chosen)).append_column(_GONE, pa.array(gone))
    return found if order is None else found.append_column(_ORDER, order)


# --- names ----------------------------------------------------------------------------------------------


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _path(key: str) -> str:
    """A column, or a field of one: window.start."""
    first, *inner = key.split(".")
    return quoted(first) + "".join(f"['{name}']" for name in inner)


def values_of(rows: pa.Table, key: str) -> Any:
    first, *inner = key.split(".")
    if first not in rows.schema.names:
        raise PipelineError(f"there is no column {first}", f"the columns are {', '.join(rows.schema.names)}")
    column = rows[first]
    for name in inner:
        column = pc.struct_field(column, name)
    return column


def doubled(rows: pa.Table, keyed: Keyed) -> int:
    """How many rows have the key of another one."""
    keys = keyed.key_values(rows)
    return len(keys) - len(_last(keys))


def without_key(rows: pa.Table, keys: Sequence[str]) -> int:
    """How many rows lack a part of their key."""
    missing = np.zeros(len(rows), bool)
    for key in keys:
        missing |= np.asarray(pc.is_null(values_of(rows, key)))
    return int(missing.sum())
