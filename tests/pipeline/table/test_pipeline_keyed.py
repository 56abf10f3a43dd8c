"""A topic of changes as a table of the latest state: order, deletions, replays, and runners that die."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bench.systems.process import BrokerProcess
from deltalake import DeltaTable, write_deltalake
from kill_points import KILLED, run_until
from pipeline_site import Site

from tidelog.client import Client, Message
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.land.executor import InProcess
from tidelog.pipeline.land.progress_events import Event, Step, StepReached
from tidelog.pipeline.run.checking import findings
from tidelog.pipeline.run.table_replay import Replay
from tidelog.pipeline.spec import Pipeline, SpecError
from tidelog.pipeline.table.changes import Keyed, resolve
from tidelog.pipeline.table.graves import Graves

TEXT = 'format = "json"\nschema = "n BIGINT, at BIGINT, op STRING"\nkey_format = "text"'
KEYED = 'keys = ["_key"]'
ORDERED = 'keys = ["_key"]\norder_by = "at"\ndeletes = "op=d"'


class Changes:
    """A topic of changes and the state that they come to, by a fold of our own."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.state: dict[str, int] = {}
        self._orders: dict[str, int] = {}

    def send(self, *changes: tuple[str, int | None, int | None, str | None]) -> None:
        """(key, number, order, op); a number of None is a record without a value. A key keeps to its partition."""
        with Client(self.site.bootstrap) as client:
            for key, number, at, op in changes:
                value = None if number is None else json.dumps({"n": number, "at": at, "op": op}).encode()
                partition = sum(key.encode()) % self.site.partitions
                client.produce(self.site.topic, [Message(value, key=key.encode())], partition=partition)

    def fold(self, ordered: bool, *changes: tuple[str, int | None, int | None, str | None]) -> None:
        self.send(*changes)
        for key, number, at, op in changes:
            order = -1 if at is None else at
            if ordered and number is not None and order < self._orders.get(key, -1):
                continue
            if number is not None:
                self._orders[key] = order
            if number is None or (ordered and op == "d"):
                self.state.pop(key, None)
            else:
                self.state[key] = number

    def found(self) -> dict[str, int]:
        rows = self.site.rows()
        found = {row["_key"]: row["n"] for row in rows}
        assert len(found) == len(rows), "a key is there twice"
        return found


@pytest.fixture
def site(broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]) -> Site:
    return Site(broker.bootstrap, tmp_path, unique("p"))


@pytest.fixture
def changes(site: Site) -> Changes:
    return Changes(site)


def keyed(site: Site, table: str = KEYED, **more: Any) -> Pipeline:
    return site.pipeline(decode=more.pop("decode", TEXT), table=table, **more)


def replay(pipeline: Pipeline, wanted: Any = None, **options: Any) -> Any:
    return Replay(pipeline, InProcess(), timeout_s=20).run(wanted, **options)


def test_a_topic_of_changes_becomes_a_table_of_the_latest_state(site: Site, changes: Changes) -> None:
    small = keyed(site, limits="max_records_per_batch = 3\ntasks = 2")
    changes.fold(
        False, ("a", 1, 9, "d"), ("b", 1, 9, None), ("a", 2, 1, None), ("c", 3, 0, None), ("b", None, None, None)
    )
    site.run(pipeline=small)
    assert changes.found() == changes.state == {"a": 2, "c": 3}
    assert "_deleted" not in site.rows()[0]
    changes.fold(False, ("c", None, None, None), ("d", None, None, None), ("b", 7, 0, None), ("a", 3, 0, None))
    site.run(pipeline=small)
    assert changes.found() == changes.state == {"a": 3, "b": 7}
    assert not list(Path(small.table.path).glob("_tidelog/staging/**/*.parquet"))


def test_late_changes_do_not_win_against_later_ones_nor_bring_back_what_was_deleted(
    site: Site, changes: Changes
) -> None:
    for batch in (
        [("a", 1, 5, "c"), ("b", 1, 5, "c"), ("c", 1, 5, "c")],
        [("a", 2, 4, "u"), ("b", 2, 6, "d"), ("c", None, None, None)],
        [("a", 9, 2, "u"), ("b", 3, 5, "u"), ("c", 3, 4, "u"), ("z", 3, 4, "d")],
        [("b", 4, 6, "u"), ("c", 4, 5, "u"), ("z", 4, 3, "u"), ("a", None, None, None), ("a", 5, 4, "u")],
        [("a", 6, 1, "u")],
    ):
        changes.fold(True, *batch)  # type: ignore[arg-type]
        site.run(pipeline=keyed(site, ORDERED))
        assert changes.found() == changes.state
    assert changes.state == {"b": 4, "c": 4}


def test_a_deletion_is_remembered_for_as_long_as_the_file_says(site: Site, changes: Changes) -> None:
    for kept, late_row_is_back in (("1h", False), ("1ms", True)):
        pipeline = keyed(site, f'{ORDERED}\nkeep_deleted = "{kept}"')
        for change in (("a", 1, 5, "d"), ("z", 1, 9, None), ("a", 2, 4, "u")):
            changes.send(change)
            site.run(pipeline=pipeline)
        assert ("a" in changes.found()) == late_row_is_back


def test_what_was_deleted_is_forgotten_when_its_time_is_over_and_takes_up_no_room(tmp_path: Path) -> None:
    now_ms = 1_000_000
    graves, version = Graves(str(tmp_path), "p", keep_ms=100, now_ms=lambda: now_ms), None
    for turn in range(60):
        version = graves.add(version, pa.table({"key0": [f"k{turn}"], "order": [turn]}))
        now_ms += 10
        found = graves.read(version)
        assert found is not None and found.schema.names == ["key0", "order"]
        assert sorted(found["order"].to_pylist()) == list(range(max(0, turn - 8), turn + 1))
    (directory,) = (tmp_path / "_tidelog" / "deleted").iterdir()
    assert DeltaTable(directory).to_pyarrow_table().num_rows <= 22


def test_graves_that_do_not_say_since_when_count_as_new(tmp_path: Path) -> None:
    path = tmp_path / "_tidelog" / "deleted" / "p"
    write_deltalake(str(path), pa.table({"key0": ["old"], "order": [1]}))
    graves = Graves(str(tmp_path), "p", keep_ms=100)
    version = graves.add(0, pa.table({"key0": ["new"], "order": [2]}))
    found = graves.read(version)
    assert found is not None and sorted(found["key0"].to_pylist()) == ["new", "old"]


@pytest.mark.parametrize("kind", ["BIGINT", "STRING"])
def test_a_merge_reads_no_file_whose_keys_are_not_among_the_batch(site: Site, kind: str) -> None:
    pipeline = keyed(site, 'keys = ["k"]', decode=f'format = "json"\nschema = "k {kind}, n BIGINT"')
    quote = '"' if kind == "STRING" else ""
    for first in (1000, 3000, 5000, 3000):
        values = [f'{{"k": {quote}{first + n}{quote}, "n": {n}}}'.encode() for n in (1, 2)]
        site.produce_values(site.topic, values, partitions=1)
        site.run(pipeline=pipeline)
    assert len(site.rows()) == 6
    metrics = next(e["operationMetrics"] for e in site.table.history() if e["operation"] == "MERGE")
    assert metrics["num_target_files_scanned"] == 1 and metrics["num_target_files_skipped_during_scan"] == 2


@pytest.mark.parametrize("key", ["it's", 'a"b', "ä\\n\U0001f600", "'; --", "`", ""])
def test_keys_with_any_character_are_found_again(site: Site, changes: Changes, key: str) -> None:
    for number in (1, 2):
        with Client(site.bootstrap) as client:
            value = json.dumps({"n": number, "at": 1}).encode()
            client.produce(site.topic, [Message(value, key=key.encode())], partition=0)
        site.run(pipeline=keyed(site))
    assert changes.found() == {key: 2}


def test_a_record_that_lacks_its_key_is_a_dead_letter(site: Site, changes: Changes) -> None:
    by_value = keyed(site, 'keys = ["n"]')
    changes.send(("a", 1, 1, None), ("b", None, None, None), ("c", 1, 2, None))
    with Client(site.bootstrap) as client:
        client.produce(site.topic, [b'{"at": 3}'], partition=0)
    site.run(pipeline=by_value)
    assert [(row["n"], row["at"]) for row in site.rows()] == [(1, 2)]
    assert {row["reason"] for row in site.dead()} == {"it has no n, which is a key of the table"}
    assert len(site.dead()) == 2


def test_a_field_that_the_merging_library_has_a_use_for_stops_no_later_batch(site: Site, changes: Changes) -> None:
    values = [{"n": 1}, {"n": 2, "__delta_rs_target": "x", "_change_type": "y"}, {"n": 3}]
    for value in values:
        with Client(site.bootstrap) as client:
            client.produce(site.topic, [Message(json.dumps(value).encode(), key=b"a")], partition=0)
        site.run(pipeline=keyed(site))
    assert changes.found() == {"a": 3}
    assert [row["reason"] for row in site.dead()] == ["field '__delta_rs_target' has a name that no column can have"]


@pytest.mark.parametrize("name", ["__delta_rs_path", "_change_type"])
def test_a_declared_column_with_a_name_that_delta_keeps_for_itself_is_refused_before_anything_is_made(
    site: Site, name: str
) -> None:
    declared = keyed(site, decode=TEXT.replace("op STRING", f"op STRING, {name} STRING"))
    with pytest.raises(PipelineError, match=f"'{name}' is a name that no column can have"):
        site.run(pipeline=declared)
    (found,) = (row for row in findings(declared, 20) if not row.ok)
    assert found.what == "schema" and name in found.message and not Path(declared.table.path).exists()


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
@pytest.mark.parametrize("order", ["", '\norder_by = "at"'])
def test_zeros_of_either_sign_are_one_key(site: Site, kind: str, order: str) -> None:
    pipeline = keyed(site, f'keys = ["k"]{order}', decode=f'format = "json"\nschema = "k {kind}, n BIGINT, at BIGINT"')
    for batch in ([b'{"k": 0.0, "n": 1, "at": 1}'], [b'{"k": -0.0, "n": 2, "at": 2}', b'{"k": 0.0, "n": 3, "at": 3}']):
        site.produce_values(site.topic, batch, partitions=1)
        site.run(pipeline=pipeline)
    assert [(str(row["k"]), row["n"]) for row in site.rows()] == [("0.0", 3)]


def test_a_late_row_does_not_bring_back_the_zero_of_the_other_sign_that_was_deleted(site: Site) -> None:
    table = 'keys = ["k"]\norder_by = "at"\ndeletes = "op=d"'
    pipeline = keyed(site, table, decode='format = "json"\nschema = "k DOUBLE, at BIGINT, op STRING"')
    for value in (b'{"k": -0.0, "at": 5, "op": "d"}', b'{"k": 0.0, "at": 4}', b'{"k": 1.5, "at": 4}'):
        site.produce_values(site.topic, [value], partitions=1)
        site.run(pipeline=pipeline)
    assert [row["k"] for row in site.rows()] == [1.5]


def test_every_nan_is_one_key() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF8000000000002], np.uint64).view(np.float64)
    rows = pa.table({"k": pa.array([*bits, None, None, 2.0]), "n": range(6)})
    found = resolve(rows, Keyed(("k",)), lambda: None, lambda: rows).rows
    assert found["n"].to_pylist() == [2, 4, 5]


def test_raw_records_are_kept_by_their_keys(site: Site, changes: Changes) -> None:
    raw = keyed(site, 'keys = ["key"]', decode='format = "raw"')
    changes.send(("a", 1, 1, None), ("b", 2, 1, None), ("a", None, None, None), ("b", 3, 1, None))
    site.run(pipeline=raw)
    assert [(row["key"], json.loads(row["value"])["n"]) for row in site.rows()] == [(b"b", 3)]
    with Client(site.bootstrap) as client:
        client.produce(site.topic, [b"without a key"], partition=0)
    with pytest.raises(PipelineError, match="1 rows have no key"):
        site.run(pipeline=raw)


@pytest.mark.parametrize("table", [KEYED, ORDERED])
def test_a_replay_builds_the_same_state_from_the_log(site: Site, changes: Changes, table: str) -> None:
    dice = random.Random(1)
    ordered = table == ORDERED
    for _ in range(3):
        changes.fold(ordered, *(some_change(dice) for _ in range(25)))
        site.run(pipeline=keyed(site, table, limits="max_records_per_batch = 7"))
    assert changes.found() == changes.state
    site.table.update({"n": "-1"})
    site.table.delete("_key = 'a'")
    with pytest.raises(PipelineError, match="has the latest row of each key, and a part of the log does not tell"):
        replay(keyed(site, table), {(site.topic, 0): (0, 5)})
    replay(keyed(site, table, limits="max_records_per_batch = 9"), drop_most=True)
    assert changes.found() == changes.state
    assert not list(Path(keyed(site).table.path).glob("_tidelog/staging/**/*"))
    # What is known of deleted keys came back with the rest, and the runner goes on behind it.
    changes.fold(ordered, *(some_change(dice) for _ in range(25)))
    site.run(pipeline=keyed(site, table))
    assert changes.found() == changes.state


def some_change(dice: random.Random) -> tuple[str, int | None, int | None, str | None]:
    number = None if dice.random() < 0.15 else dice.randrange(1000)
    return dice.choice("abcdef"), number, dice.randrange(20), dice.choice(["u", "u", "d"])


POINTS = [
    *(f"step:{step}:{batch}" for step in (Step.LANDED, Step.LETTERS_COMMITTED, Step.COMMITTED) for batch in (1, 2)),
    *(f"merge:{n}" for n in (1, 2)),
    *(f"merged:{n}" for n in (1, 2)),
    *(f"graves:{n}" for n in (1, 2)),
]


@pytest.mark.parametrize("point", POINTS)
def test_a_runner_that_dies_anywhere_leaves_the_state_that_the_log_comes_to(
    site: Site, changes: Changes, point: str
) -> None:
    dice = random.Random(point)
    changes.fold(True, *(some_change(dice) for _ in range(40)))
    assert run_until(keyed(site, ORDERED, limits="max_records_per_batch = 15"), point) == KILLED
    changes.fold(True, *(some_change(dice) for _ in range(10)))
    # The batch that was in hand is cut differently.
    assert run_until(keyed(site, ORDERED, limits="max_records_per_batch = 6\ntasks = 2"), "") == 0
    assert changes.found() == changes.state


def test_other_writers_at_work_between_the_steps_of_a_batch_do_no_harm(site: Site, changes: Changes) -> None:
    dice = random.Random(3)
    work = iter(["compact", "delete", "compact", "column", "compact"] * 20)

    def others(event: Event) -> None:
        if isinstance(event, StepReached) and event.step in (Step.LANDED, Step.LETTERS_COMMITTED):
            table = DeltaTable(site.table.table_uri)
            match next(work):
                case "compact":
                    table.optimize.compact()
                case "delete":
                    table.delete("n = -5")
                case "column":
                    table.alter.set_table_properties({"delta.checkpointInterval": str(dice.randrange(5, 90))})

    for _ in range(4):
        changes.fold(True, *(some_change(dice) for _ in range(20)))
        site.run(pipeline=keyed(site, ORDERED, limits="max_records_per_batch = 8"), listeners=[others])
        assert changes.found() == changes.state


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('keys = ["nobody"]', "keys: the rows have no column nobody"),
        ('keys = ["_key"]\norder_by = "nobody"', "order_by: the rows have no column nobody"),
        ('keys = ["_key"]\ndeletes = "nobody=d"', "deletes: the rows have no column nobody"),
        ('keys = ["_key"]\nmetadata = { offset = false }', "do not say in which order they were read"),
    ],
)
def test_columns_that_are_not_there_are_refused_before_anything_is_made(site: Site, table: str, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        site.run(pipeline=keyed(site, table))
    assert not (site.directory / "lake").exists()
    (problem,) = [found for found in findings(keyed(site, table), 20, with_spark=False) if not found.ok]
    assert problem.what == "keys" and re.search(said, problem.message)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('order_by = "at"', "order_by: goes with keys"),
        ('keys = ["_key"]\nfsync = true', "fsync: cannot be had with keys"),
    ],
)
def test_what_does_not_go_together_is_told_of_the_file(site: Site, table: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        keyed(site, table)
    assert said in f"{error.value.problems[0].where}: {error.value.problems[0].message}".replace("[table] ", "")
