"""A table as the sink of a query: each batch once, whoever commits it how often. Without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.pipeline.errors import Foreign, PipelineError
from tidelog.pipeline.table.changes import Keyed
from tidelog.pipeline.table.graves import Graves
from tidelog.pipeline.table.parquet_files import SinkSettings, WrittenFile, write_rows
from tidelog.pipeline.table.query_table import QueryTable

Rows = list[tuple[str | None, int]]
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])


def written(path: Path, rows: Rows, partition_by: tuple[str, ...] = ()) -> tuple[WrittenFile, ...]:
    sizes = {"target_bytes": 1 << 20, "max_bytes": 1 << 20}
    return write_rows(SinkSettings(root=str(path), prefix="part", partition_by=partition_by, **sizes), [batch(rows)])


def batch(rows: Rows) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"k": k, "n": n} for k, n in rows], schema=SCHEMA)


def read(path: Path) -> Rows:
    rows = DeltaTable(path).to_pyarrow_table().select(["k", "n"]).to_pylist()
    return sorted(((row["k"], row["n"]) for row in rows), key=str)


def opened(path: Path, **more: Any) -> QueryTable:
    return QueryTable.open(str(path), SCHEMA, **more)


def test_a_batch_is_in_the_table_once_however_often_it_is_committed(tmp_path: Path) -> None:
    for _ in range(3):
        opened(tmp_path / "t").append("q", 0, written(tmp_path / "t", [("a", 1)]))
    opened(tmp_path / "t").append("q", 2, written(tmp_path / "t", [("b", 2)]))
    opened(tmp_path / "t").append("q", 1, written(tmp_path / "t", [("late", 0)]))
    opened(tmp_path / "t").append("other", 0, written(tmp_path / "t", [("c", 3)]))
    assert read(tmp_path / "t") == [("a", 1), ("b", 2), ("c", 3)]


def test_of_two_runs_that_commit_the_same_batch_one_does(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "t"), opened(tmp_path / "t")
    first.append("q", 0, written(tmp_path / "t", [("a", 1)]))
    # It read the table before the other committed, and believes that the batch is still to be done.
    second.append("q", 0, written(tmp_path / "t", [("a", 1)]))
    second.merge("q", 0, pa.table(batch([("a", 9)])), Keyed(("k",)))
    assert read(tmp_path / "t") == [("a", 1)]


def test_commits_of_others_in_between_do_no_harm(tmp_path: Path) -> None:
    table = opened(tmp_path / "t")
    write_deltalake(tmp_path / "t", pa.table(batch([("other", 0)])), mode="append")
    table.append("q", 0, written(tmp_path / "t", [("a", 1)]))
    write_deltalake(tmp_path / "t", pa.table(batch([("another", 0)])), mode="append")
    table.merge("q", 1, pa.table(batch([("a", 2)])), Keyed(("k",)))
    write_deltalake(tmp_path / "t", pa.table(batch([("last", 0)])), mode="append")
    assert read(tmp_path / "t") == [("a", 2), ("another", 0), ("last", 0), ("other", 0)]
    table.replace("q", 2, written(tmp_path / "t", [("z", 1)]))
    assert read(tmp_path / "t") == [("z", 1)]
    table.replace("q", 3, [])
    assert read(tmp_path / "t") == []


KEYS = st.sampled_from([None, "a", "b", "it's", "`"])


@settings(max_examples=15, deadline=None)
@given(st.lists(st.dictionaries(KEYS, st.integers(0, 9), min_size=1, max_size=4), max_size=4), st.data())
def test_merges_keep_the_newest_row_of_each_key(
    tmp_path_factory: pytest.TempPathFactory, batches: list[dict[str | None, int]], data: Any
) -> None:
    path = tmp_path_factory.mktemp("merged") / "t"
    expected: dict[str | None, int] = {}
    opened(path)
    for number, rows in enumerate(batches):
        for _ in range(data.draw(st.integers(1, 2))):
            opened(path).merge("q", number, pa.table(batch(list(rows.items()))), Keyed(("k",)))
        expected |= rows
    assert read(path) == sorted(expected.items(), key=str)


def test_keys_may_be_fields_of_a_struct_and_columns_may_have_any_name(tmp_path: Path) -> None:
    schema = pa.schema([("window", pa.struct([("start", pa.int64())])), ("Total `of` it", pa.int64())])
    table = QueryTable.open(str(tmp_path / "t"), schema)
    for number, count in enumerate((1, 2)):
        rows = [{"window": {"start": start}, "Total `of` it": count} for start in (10, 20 + number)]
        table.merge("q", number, pa.Table.from_pylist(rows, schema=schema), Keyed(("window.start",)))
    found = DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()
    assert sorted((row["window"]["start"], row["Total `of` it"]) for row in found) == [(10, 2), (20, 1), (21, 2)]


def test_the_latest_row_of_a_key_is_chosen_by_order_and_never_by_chance(tmp_path: Path) -> None:
    rows = pa.table({"k": ["a", "b", "a", None, None], "n": [1, 2, 3, 4, 5], "at": [9, 1, 3, None, 0]})
    table = QueryTable.open(str(tmp_path / "t"), rows.schema)
    with pytest.raises(PipelineError, match="2 rows of a batch have the key"):
        table.merge("q", 0, rows, Keyed(("k",)))
    with pytest.raises(PipelineError, match="no column nn"):
        table.merge("q", 0, rows, Keyed(("nn",)))
    table.merge("q", 0, rows, Keyed(("k",), "at"))
    assert read(tmp_path / "t") == [("a", 1), ("b", 2), (None, 5)]


class Change(NamedTuple):
    key: str | None
    number: int
    order: int | None
    gone: bool


def state_of(changes: list[Change]) -> dict[str | None, int]:
    """One change after the other: what `order_by`, deletions and late changes mean."""
    orders: dict[str | None, int] = {}
    state: dict[str | None, int] = {}
    for change in changes:
        there = orders.get(change.key, -1)
        order = -1 if change.order is None else change.order
        if change.gone and change.order is None:
            state.pop(change.key, None)
        elif order >= there:
            orders[change.key] = order
            state.pop(change.key, None)
            if not change.gone:
                state[change.key] = change.number
    return state


CHANGES = st.lists(
    st.builds(Change, KEYS, st.integers(0, 99), st.sampled_from([None, 0, 1, 2, 3]), st.booleans()), max_size=16
)
CHANGED = pa.schema([*SCHEMA, ("at", pa.int64()), ("_deleted", pa.bool_())])


def changed(changes: list[Change]) -> pa.Table:
    rows = [{"k": c.key, "n": c.number, "at": c.order, "_deleted": c.gone} for c in changes]
    return pa.Table.from_pylist(rows, schema=CHANGED)


@settings(max_examples=25, deadline=None)
@given(CHANGES, st.lists(st.integers(1, 5), max_size=6))
def test_a_table_of_changes_is_their_fold_however_they_are_cut_into_batches(
    tmp_path_factory: pytest.TempPathFactory, changes: list[Change], sizes: list[int]
) -> None:
    path = tmp_path_factory.mktemp("changes") / "t"
    table = QueryTable.open(str(path), pa.schema([*SCHEMA, ("at", pa.int64())]))
    left = changes
    for number, size in enumerate([*sizes, len(changes)]):
        rows, left = left[:size], left[size:]
        table.merge("q", number, changed(rows), Keyed(("k",), "at"))
    assert read(path) == sorted(state_of(changes).items(), key=str)


def test_a_late_row_neither_replaces_a_later_one_nor_brings_back_what_was_deleted_later(tmp_path: Path) -> None:
    path, keyed = tmp_path / "t", Keyed(("k",), "at")
    table = QueryTable.open(str(path), pa.schema([*SCHEMA, ("at", pa.int64())]))

    def batch_of(number: int, *changes: Change) -> Rows:
        opened_again = QueryTable.open(str(path), table.schema)
        opened_again.merge("q", number, changed(list(changes)), keyed)
        assert opened_again.has("q", number), "a batch that changes nothing is remembered as well"
        return read(path)

    assert batch_of(0, Change("a", 1, 5, False), Change("b", 1, 5, False)) == [("a", 1), ("b", 1)]
    assert batch_of(1, Change("a", 2, 4, False)) == [("a", 1), ("b", 1)], "older than what is there"
    assert batch_of(2, Change("a", 0, 7, True), Change("c", 0, 7, True)) == [("b", 1)]
    assert batch_of(3, Change("a", 3, 6, False), Change("c", 3, 6, False)) == [("b", 1)], "deleted later than that"
    assert batch_of(4, Change("a", 4, 8, False)) == [("a", 4), ("b", 1)]
    assert batch_of(5, Change("b", 0, None, True)) == [("a", 4)], "a deletion of no time is of the moment it is read in"
    assert batch_of(6, Change("b", 5, 4, False)) == [("a", 4)]
    assert batch_of(7, Change("b", 6, 5, False)) == [("a", 4), ("b", 6)]
    # What a run wrote beside the table that died before its commit belongs to nobody.
    Graves(str(path), "q", keyed.keep_deleted_ms).add(None, pa.table({"key0": ["b"], "order": [99]}))
    assert batch_of(8, Change("b", 7, 9, False)) == [("a", 4), ("b", 7)]
    assert batch_of(9, Change("a", 0, 20, True)) == [("b", 7)]
    assert batch_of(10, Change("b", 8, 50, False), Change("a", 8, 19, False)) == [("b", 8)]


@pytest.mark.parametrize("deletes", ["gone", "op=d"])
def test_deletions_are_told_by_a_column_or_by_its_value(tmp_path: Path, deletes: str) -> None:
    rows = pa.table({"k": ["a", "b"], "n": [1, 2], "gone": [False, False], "op": ["c", None]})
    table = QueryTable.open(str(tmp_path / "t"), rows.schema)
    table.merge("q", 0, rows, Keyed(("k",), deletes=deletes))
    gone = pa.table({"k": ["b", "c"], "n": [0, 0], "gone": [True, True], "op": ["d", "d"]})
    table.merge("q", 1, gone, Keyed(("k",), deletes=deletes))
    assert read(tmp_path / "t") == [("a", 1)]


def test_columns_are_added_and_types_do_not_change(tmp_path: Path) -> None:
    opened(tmp_path / "t").append("q", 0, written(tmp_path / "t", [("a", 1)]))
    wider = pa.schema([*SCHEMA, ("more", pa.float64())])
    assert QueryTable.open(str(tmp_path / "t"), wider).schema.names == ["k", "n", "more"]
    opened(tmp_path / "t").append("q", 1, written(tmp_path / "t", [("b", 2)]))
    assert read(tmp_path / "t") == [("a", 1), ("b", 2)]
    with pytest.raises(PipelineError, match=r"column n of .* is int64, and the rows have it as string"):
        QueryTable.open(str(tmp_path / "t"), pa.schema([("n", pa.string())]))


def test_partitions_are_those_of_the_table(tmp_path: Path) -> None:
    opened(tmp_path / "t", partition_by=["k"]).append("q", 0, written(tmp_path / "t", [("a", 1), (None, 2)], ("k",)))
    assert read(tmp_path / "t") == [("a", 1), (None, 2)] and opened(tmp_path / "t").partition_by == ("k",)
    with pytest.raises(PipelineError, match="is partitioned by k, not by n"):
        opened(tmp_path / "t", partition_by=["n"])


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(Foreign, match=r"is no Delta table, and holds other files: notes\.txt"):
        opened(tmp_path)
