"""A table that knows how far a pipeline is: rows and offsets together, forward only, one runner at a time."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from tidelog.pipeline.errors import Foreign, PipelineError, Superseded
from tidelog.pipeline.offset_ranges import OffsetRange
from tidelog.pipeline.table.parquet_files import SinkSettings, WrittenFile, part_prefix, write_rows
from tidelog.pipeline.table.pipeline_table import PipelineTable, TableChange
from tidelog.pipeline.table.rewriting import LETTERS, without

SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
AT = ("t", 0)


@pytest.fixture
def table(tmp_path: Path) -> PipelineTable:
    return PipelineTable.create(str(tmp_path / "table"), "p", SCHEMA, ())


def files(table: PipelineTable, *ranges: OffsetRange, schema: pa.Schema = SCHEMA, **more: Any) -> list[WrittenFile]:
    rows = [{"topic": r.topic, "partition": r.partition, "offset": o, **more} for r in ranges for o in range(*r[2:])]
    settings = SinkSettings(root=table.path, prefix=part_prefix(1, 1, 1), target_bytes=1 << 20, max_bytes=1 << 20)
    return list(write_rows(settings, [pa.RecordBatch.from_pylist(rows, schema)]))


def batch(table: PipelineTable, start: int, until: int, before: int | None = -1) -> TableChange:
    return TableChange(
        files=files(table, OffsetRange(*AT, start, until)), offsets={AT: (start if before == -1 else before, until)}
    )


def offsets(table: PipelineTable) -> list[int]:
    return sorted(DeltaTable(table.path).to_pyarrow_table().column("offset").to_pylist())


def test_rows_and_offsets_are_one_entry_of_the_log(table: PipelineTable) -> None:
    epoch = table.take_over(marks={"t/0": 0})
    table.commit(epoch, batch(table, 0, 5))
    entry = Path(table.path, "_delta_log", f"{table.version:020}.json").read_text().splitlines()
    kinds = [next(iter(json.loads(line))) for line in entry]
    assert kinds.count("add") == 1 and kinds.count("txn") == 3
    again = PipelineTable.open(table.path, "p")
    assert again is not None and again.offset(AT) == 5 and offsets(table) == [0, 1, 2, 3, 4]


def test_an_offset_only_grows(table: PipelineTable) -> None:
    epoch = table.take_over(marks={"t/0": 0})
    table.commit(epoch, batch(table, 0, 5))
    for wrong in (batch(table, 0, 5), batch(table, 0, 3), batch(table, 3, 9), batch(table, 7, 9)):
        with pytest.raises(PipelineError, match="up to offset 5"):
            table.commit(epoch, wrong)
    with pytest.raises(PipelineError, match="from 5 to 4"):
        table.commit(epoch, batch(table, 5, 4))
    assert table.offset(AT) == 5 and offsets(table) == [0, 1, 2, 3, 4]


def test_an_older_runner_is_fenced_at_its_next_commit(table: PipelineTable) -> None:
    epoch = table.take_over(marks={"t/0": 0})
    rival = PipelineTable.open(table.path, "p")
    assert rival is not None and rival.take_over() == epoch + 1
    for attempt in (
        lambda: table.commit(epoch, batch(table, 0, 5)),
        lambda: table.add_columns(epoch, [pa.field("new", pa.int64())]),
        lambda: table.set_pin(epoch, "{}"),
    ):
        with pytest.raises(Superseded, match=f"its epoch is {epoch + 1}, this one's {epoch}"):
            attempt()
    rival.commit(epoch + 1, batch(rival, 0, 2))
    assert offsets(table) == [0, 1]


def test_a_takeover_right_behind_a_commit_is_not_overlooked(
    table: PipelineTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rival takes over, and commits, after a commit was written and before its runner looks at the table again."""
    epoch = table.take_over(marks={"t/0": 0})
    write = DeltaTable.create_write_transaction

    def then_the_rival(*arguments: Any, **named: Any) -> None:
        monkeypatch.undo()
        write(*arguments, **named)
        rival = PipelineTable.open(table.path, "p")
        assert rival is not None
        rival.commit(rival.take_over(), batch(rival, 2, 4))

    monkeypatch.setattr(DeltaTable, "create_write_transaction", then_the_rival)
    table.commit(epoch, batch(table, 0, 2))
    assert (table.epoch, table.offset(AT)) == (epoch + 1, 4)
    with pytest.raises(Superseded):
        table.commit(epoch, batch(table, 2, 5))
    assert offsets(table) == [0, 1, 2, 3]


def test_two_runners_that_take_over_at_once_have_different_epochs(table: PipelineTable) -> None:
    rival = PipelineTable.open(table.path, "p")
    assert rival is not None
    assert (table.take_over(), rival.take_over()) == (1, 2)
    with pytest.raises(Superseded):
        table.commit(1, TableChange(marks={"x": 1}))


def test_a_slower_starter_does_not_set_a_partition_back_that_another_has_begun(table: PipelineTable) -> None:
    """Both saw an empty table; one was faster and has already committed a batch when the other takes over."""
    rival = PipelineTable.open(table.path, "p")
    assert rival is not None
    table.commit(table.take_over(marks={"t/0": 0, "t/0/start": 0}), batch(table, 0, 5))
    rival.take_over(marks={"t/0": 0, "t/0/start": 0, "t/1": 3})
    assert (rival.offset(AT), rival.offset(("t", 1))) == (5, 3)


def test_an_epoch_that_was_taken_elsewhere_is_followed_by_its_runner_only(table: PipelineTable) -> None:
    rival = PipelineTable.open(table.path, "p")
    assert rival is not None
    table.follow(3)
    table.follow(3)
    with pytest.raises(Superseded, match="its epoch is 3, this one's 2"):
        rival.follow(2)
    rival.follow(4)
    with pytest.raises(Superseded):
        table.commit(3, TableChange(marks={"x": 1}))


def test_others_may_commit_in_between_and_nothing_is_lost(table: PipelineTable) -> None:
    """Somebody compacts, changes a property, or another pipeline appends: the batch is committed on top of that."""
    epoch = table.take_over(marks={"t/0": 0})
    table.commit(epoch, batch(table, 0, 3))
    table.commit(epoch, batch(table, 3, 6))
    DeltaTable(table.path).optimize.compact()
    table.commit(epoch, batch(table, 6, 8))
    DeltaTable(table.path).alter.set_table_properties({"delta.logRetentionDuration": "interval 3 days"})
    table.commit(epoch, batch(table, 8, 9))
    write_deltalake(
        table.path, pa.Table.from_pylist([{"topic": "x", "partition": 0, "offset": 99}], SCHEMA), mode="append"
    )
    table.commit(epoch, batch(table, 9, 10))
    assert offsets(table) == [*range(10), 99]


def test_a_commit_whose_answer_was_lost_is_not_made_twice(
    table: PipelineTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = table.take_over(marks={"t/0": 0})
    write = DeltaTable.create_write_transaction

    def loses_the_answer(*arguments: Any, **named: Any) -> None:
        write(*arguments, **named)
        raise CommitFailedError("the connection broke after the write")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", loses_the_answer)
    table.commit(epoch, batch(table, 0, 5))
    monkeypatch.undo()
    assert table.offset(AT) == 5 and offsets(table) == [0, 1, 2, 3, 4]


def test_the_log_is_checkpointed_and_the_offsets_survive_that(table: PipelineTable) -> None:
    epoch = table.take_over(marks={"t/0": 0})
    for n in range(102):
        table.commit(epoch, TableChange(offsets={AT: (n, n + 1)}, marks={"other": n}))
    log = Path(table.path, "_delta_log")
    assert list(log.glob("*.checkpoint.parquet"))
    for entry in sorted(log.glob("*.json"))[:90]:
        entry.unlink()  # as an expired log is cleaned
    again = PipelineTable.open(table.path, "p")
    assert again is not None and (again.offset(AT), again.mark("other"), again.epoch) == (102, 101, epoch)


def test_columns_are_added_and_a_changed_type_is_refused(table: PipelineTable) -> None:
    epoch = table.take_over(marks={"t/0": 0})
    table.commit(epoch, batch(table, 0, 2))
    wider = pa.schema([*SCHEMA, ("inner", pa.struct([("a", pa.int64())]))])
    missing = table.missing(wider)
    assert [f.name for f in missing] == ["inner"]
    table.add_columns(epoch, missing)
    assert table.missing(wider) == []
    assert [f.name for f in table.missing(pa.schema([("inner", pa.struct([("b", pa.string())]))]))] == ["inner"]
    table.add_columns(epoch, table.missing(pa.schema([("inner", pa.struct([("b", pa.string())]))])))
    more = files(table, OffsetRange(*AT, 2, 3), schema=wider, inner={"a": 7})
    table.commit(epoch, TableChange(files=more, offsets={AT: (2, 3)}))
    found = DeltaTable(table.path).to_pyarrow_table().sort_by("offset").column("inner").to_pylist()
    assert found == [None, None, {"a": 7, "b": None}]
    for changed in (("offset", pa.string()), ("inner", pa.string()), ("inner", pa.struct([("a", pa.string())]))):
        with pytest.raises(PipelineError, match=f"column {changed[0]}"):
            table.missing(pa.schema([changed]))


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "photos.zip").touch()
    with pytest.raises(Foreign, match=r"holds other files: photos\.zip"):
        PipelineTable.create(str(tmp_path / "mine"), "p", SCHEMA, ())
    (tmp_path / "file").touch()
    with pytest.raises(Foreign, match="is a file"):
        PipelineTable.create(str(tmp_path / "file"), "p", SCHEMA, ())


def test_what_cannot_be_opened_is_told_with_its_path_and_what_to_do(table: PipelineTable, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Foreign, match=r"/file is a file"):
        PipelineTable.open(str(tmp_path / "file"), "p")
    with pytest.raises(PipelineError, match=r"no table can be made at nosuch://x: ") as error:
        PipelineTable.create("nosuch://x", "p", SCHEMA, ())
    assert error.value.hint
    (entry,) = (Path(table.path) / "_delta_log").glob("*.json")
    whole = entry.read_text()
    foreign = whole.replace('"minReaderVersion":1', '"minReaderVersion":99')
    assert foreign != whole
    for text in (whole[: len(whole) // 2] + "{", foreign):
        entry.write_text(text)
        with pytest.raises(PipelineError, match=r"/table cannot be read as a Delta table: ") as error:
            PipelineTable.open(table.path, "p")
        assert "\n" not in error.value.message and "_delta_log" in (error.value.hint or "")


def test_pipelines_in_one_table_do_not_know_each_other(table: PipelineTable) -> None:
    epoch = table.take_over(marks={"t/0": 0})
    other = PipelineTable.open(table.path, "q")
    assert other is not None and other.epoch is None and other.offset(AT) is None
    other.take_over(marks={"t/0": 7})
    table.commit(epoch, batch(table, 0, 2))
    other.commit(1, batch(other, 7, 9))
    assert offsets(table) == [0, 1, 7, 8]


@pytest.mark.parametrize(
    ("ranges", "touched"),
    [
        ([OffsetRange("t", 0, 0, 100)], 2),
        ([OffsetRange("t", 0, 3, 7)], 2),
        ([OffsetRange("t", 1, 0, 5), OffsetRange("u", 0, 2, 3)], 2),
        ([OffsetRange("nothing", 0, 0, 5)], 0),
    ],
)
def test_taking_rows_out_leaves_all_others_and_touches_only_files_that_hold_them(
    table: PipelineTable, ranges: list[OffsetRange], touched: int
) -> None:
    epoch = table.take_over()
    held = [OffsetRange("t", 0, 0, 5), OffsetRange("t", 0, 5, 10), OffsetRange("t", 1, 0, 5), OffsetRange("u", 0, 0, 5)]
    table.commit(
        epoch, TableChange(files=[*files(table, *held[:1]), *files(table, *held[1:3]), *files(table, held[3])])
    )
    before = {file.path for file in table.files()}
    settings = SinkSettings(root=table.path, prefix=part_prefix(1, 1, 2), target_bytes=1 << 20, max_bytes=1 << 20)
    removed, kept = without(table, LETTERS, ranges, settings)
    table.commit(epoch, TableChange(files=kept, removed=removed))

    def is_out(row: dict[str, Any]) -> bool:
        return any(r[:2] == (row["topic"], row["partition"]) and r.start <= row["offset"] < r.until for r in ranges)

    all_rows = [dict(zip(SCHEMA.names, (r.topic, r.partition, o), strict=True)) for r in held for o in range(*r[2:])]
    found = DeltaTable(table.path).to_pyarrow_table().to_pylist()
    assert sorted(map(str, found)) == sorted(str(row) for row in all_rows if not is_out(row))
    assert len(before - {file.path for file in table.files()}) == touched


def test_a_rebuild_with_timestamps_without_a_zone_leaves_a_table_that_opens(table: PipelineTable) -> None:
    epoch = table.take_over()
    local = pa.timestamp("us")
    for kind in (pa.list_(pa.struct([("at", local)])), pa.map_(pa.string(), local), local):
        table.commit(epoch, TableChange(rebuild=pa.schema([*SCHEMA, ("at", kind)])))
        again = PipelineTable.open(table.path, "p")
        assert again is not None and again.epoch == epoch
        assert again.schema.field("at").type == kind and offsets(again) == []


@pytest.mark.parametrize("depth", ["column", "field"])
def test_a_new_column_of_timestamps_without_a_zone_leaves_a_table_that_opens(table: PipelineTable, depth: str) -> None:
    epoch = table.take_over()
    kind = pa.timestamp("us") if depth == "column" else pa.struct([("at", pa.timestamp("us"))])
    table.add_columns(epoch, [pa.field("new", kind)])
    again = PipelineTable.open(table.path, "p")
    assert again is not None and again.schema.field("new").type == kind and offsets(again) == []


def test_an_older_runner_does_not_change_what_the_table_may_hold(table: PipelineTable) -> None:
    epoch = table.take_over()
    rival = PipelineTable.open(table.path, "p")
    assert rival is not None
    rival.take_over()
    before = rival.version
    with pytest.raises(Superseded):
        table.commit(epoch, TableChange(rebuild=pa.schema([("at", pa.timestamp("us"))])))
    rival.refresh()
    assert rival.version == before


@pytest.mark.parametrize("zone", ["UTC", None])
def test_rows_are_taken_out_of_a_table_that_is_partitioned_by_a_time(tmp_path: Path, zone: str | None) -> None:
    schema = pa.schema([*SCHEMA, ("at", pa.timestamp("us", zone))])
    table = PipelineTable.create(str(tmp_path / "timed"), "p", schema, ("at",))
    epoch = table.take_over()
    settings = SinkSettings(
        root=table.path, prefix=part_prefix(1, 1, 1), partition_by=("at",), target_bytes=1 << 20, max_bytes=1 << 20
    )
    moments = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 12, 30, 15, 250, tzinfo=UTC), None]
    if zone is None:
        moments = [moment and moment.replace(tzinfo=None) for moment in moments]
    rows = [{"topic": "t", "partition": 0, "offset": n, "at": moments[n % 3]} for n in range(9)]
    table.commit(epoch, TableChange(files=write_rows(settings, [pa.RecordBatch.from_pylist(rows, schema)])))
    removed, kept = without(table, LETTERS, [OffsetRange(*AT, 2, 6)], settings)
    table.commit(epoch, TableChange(files=kept, removed=removed))
    found = DeltaTable(table.path).to_pyarrow_table().sort_by("offset").to_pylist()
    assert found == [row for row in rows if not 2 <= row["offset"] < 6]


@pytest.mark.parametrize(("until", "left"), [(5, []), (3, [3, 4])])
def test_rows_are_taken_out_of_files_without_statistics(table: PipelineTable, until: int, left: list[int]) -> None:
    epoch = table.take_over()
    bare = [replace(file, stats="{}") for file in files(table, OffsetRange(*AT, 0, 5))]
    table.commit(epoch, TableChange(files=bare))
    assert [file.rows for file in table.files()] == [0]
    settings = SinkSettings(root=table.path, prefix=part_prefix(1, 1, 2), target_bytes=1 << 20, max_bytes=1 << 20)
    removed, kept = without(table, LETTERS, [OffsetRange(*AT, 0, until)], settings)
    table.commit(epoch, TableChange(files=kept, removed=removed))
    assert offsets(table) == left
    removed, kept = without(table, LETTERS, [OffsetRange(*AT, 7, 9)], settings)
    assert (removed, kept) == ([], [])
