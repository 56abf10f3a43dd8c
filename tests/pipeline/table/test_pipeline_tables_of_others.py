"""Tables that others touch too: restored, cloned, changed and emptied behind a pipeline's back."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bench.systems.process import BrokerProcess
from delta_log import commit, hide_row, latest
from deltalake import DeltaTable, Field, QueryBuilder, write_deltalake
from pipeline_site import Site

from tidelog.client import Client, Message
from tidelog.pipeline.errors import PipelineError, Restored, Unsupported
from tidelog.pipeline.land.executor import InProcess
from tidelog.pipeline.run import checking
from tidelog.pipeline.run.status import status
from tidelog.pipeline.run.table_replay import Replay
from tidelog.pipeline.table import restoring
from tidelog.pipeline.table.pipeline_table import PipelineTable
from tidelog.pipeline.values import MAX_FIELDS

RETENTION = "delta.setTransactionRetentionDuration"


@pytest.fixture
def site(broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]) -> Site:
    return Site(broker.bootstrap, tmp_path, unique("p"))


def send(site: Site, *values: dict[str, Any] | bytes, partition: int = 0, timestamp_ms: int | None = None) -> None:
    encoded = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    with Client(site.bootstrap) as client:
        client.produce(
            site.topic,
            [
                Message(value, timestamp_ms=timestamp_ms) if timestamp_ms is not None else Message(value)
                for value in encoded
            ],
            partition=partition,
        )


def ids(site: Site) -> list[int]:
    query = QueryBuilder().register("t", site.table).execute("SELECT id FROM t ORDER BY id")
    return list(pa.table(query).column("id").to_pylist())


def path_of(site: Site) -> str:
    return site.pipeline().table.path


def replay(site: Site, wanted: Any = None, **options: Any) -> None:
    Replay(site.pipeline(), InProcess(), timeout_s=20).run(wanted, **options)


def filled(site: Site) -> int:
    """Two batches in the table; the version of the first."""
    send(site, {"id": 1}, {"id": 2})
    send(site, {"id": 10}, partition=1)
    site.run()
    version = site.table.version()
    send(site, {"id": 3}, b"?")
    site.run()
    assert ids(site) == [1, 2, 3, 10]
    return version


# --- RESTORE ----------------------------------------------------------------------------------------


def test_a_restored_table_stops_the_pipeline_with_the_versions_and_what_to_do(site: Site) -> None:
    first = filled(site)
    last = site.table.version()
    site.table.restore(first)
    send(site, {"id": 4})
    for _ in range(2):
        with pytest.raises(Restored, match=f"rows of version {first} and the offsets of version {last}") as error:
            site.run()
        assert "replay" in (error.value.hint or "") and "read_again" in (error.value.hint or "")
    (found,) = (row for row in checking.findings(site.pipeline(), 20) if row.what == "table")
    assert not found.ok and "was restored" in found.message
    with pytest.raises(Restored):
        replay(site, {(site.topic, 0): (0, 1)})
    assert site.table.version() == last + 1 and ids(site) == [1, 2, 10]


def test_a_restore_that_undoes_only_what_others_did_stops_nothing(site: Site) -> None:
    filled(site)
    before = site.table.version()
    site.table.delete("id = 2")
    site.table.restore(before)
    undone = site.table.version()
    site.table.delete("id = 1")
    site.table.restore(undone)
    send(site, {"id": 4})
    site.run()
    assert ids(site) == [1, 2, 3, 4, 10]


def test_what_others_commit_meanwhile_does_not_change_the_numbers_of_older_entries(site: Site) -> None:
    first = filled(site)
    site.table.restore(first)
    seen = site.table
    for number in range(3):
        site.table.delete(f"id = {number}")
    assert restoring.restores(seen, 2) == [(seen.version(), first)]
    assert restoring.restores(seen) == [(seen.version(), first)]


def test_a_restore_to_one_that_took_rows_out_stops_the_pipeline(site: Site) -> None:
    first = filled(site)
    site.table.restore(first)
    taken_out = site.table.version()
    site.table.delete("id = 1")
    site.table.restore(taken_out)
    with pytest.raises(Restored, match=f"rows of version {first}"):
        site.run()


def test_a_replay_of_the_whole_brings_back_what_a_restore_took_out(site: Site) -> None:
    first = filled(site)
    site.table.restore(first)
    replay(site)
    send(site, {"id": 4})
    site.run()
    assert ids(site) == [1, 2, 3, 4, 10] and [row["offset"] for row in site.dead()] == [3]


def test_a_replay_that_dies_leaves_a_restored_table_restored(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first = filled(site)
    site.table.restore(first)

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Replay, "_land", dies)
    with pytest.raises(KeyboardInterrupt):
        replay(site)
    with pytest.raises(Restored):
        site.run()


def test_offsets_go_back_with_the_rows_where_the_file_says_so(site: Site) -> None:
    first = filled(site)
    with Client(site.bootstrap) as client:
        client.admin.create_partitions(site.topic, 3)
    send(site, {"id": 20}, partition=2)
    site.run()
    site.table.restore(first)
    send(site, {"id": 4})
    outcome = site.run(pipeline=site.pipeline(table='on_restore = "read_again"'))
    assert ids(site) == [1, 2, 3, 4, 10, 20] and (outcome.rows, outcome.dead_letters) == (3, 1)
    assert [row["offset"] for row in site.dead()] == [3]
    site.run()


def test_a_restore_to_a_version_that_was_itself_restored_goes_back_to_the_first(site: Site) -> None:
    first = filled(site)
    site.table.restore(first)
    restored = site.table.version()
    site.table.restore(first + 1)
    site.table.restore(restored)
    site.run(pipeline=site.pipeline(table='on_restore = "read_again"'))
    assert ids(site) == [1, 2, 3, 10]


def test_a_restore_may_be_left_as_it_is(site: Site) -> None:
    first = filled(site)
    site.table.restore(first)
    send(site, {"id": 4})
    site.run(pipeline=site.pipeline(table='on_restore = "go_on"'))
    site.run()
    assert ids(site) == [1, 2, 4, 10]


@pytest.mark.parametrize("answer", ["read_again", "go_on"])
def test_check_finds_nothing_wrong_with_a_restore_that_the_file_has_an_answer_to(site: Site, answer: str) -> None:
    first = filled(site)
    site.table.restore(first)
    version = site.table.version()
    answered = site.pipeline(table=f'on_restore = "{answer}"')
    assert all(row.ok for row in checking.findings(answered, 20)) and site.table.version() == version
    site.run(pipeline=answered)


def test_check_tells_of_a_restore_whose_offsets_are_no_longer_known_as_run_does(site: Site) -> None:
    first = filled(site)
    site.table.restore(first)
    site.table.create_checkpoint()
    for version in range(first + 1):
        (Path(path_of(site)) / "_delta_log" / f"{version:020}.json").unlink()
    answered = site.pipeline(table='on_restore = "read_again"')
    with pytest.raises(Restored, match="no longer tells the offsets") as error:
        site.run(pipeline=answered)
    (found,) = (row for row in checking.findings(answered, 20) if not row.ok)
    assert found.message == str(error.value)


def test_status_tells_of_a_restore_what_run_tells_and_nothing_where_run_goes_on(site: Site) -> None:
    first = filled(site)
    site.table.restore(first)
    with pytest.raises(Restored) as error:
        site.run()
    found = status(site.pipeline(), 20)
    assert (found.problem, found.hint) == (error.value.message, error.value.hint) and found.table is not None
    for answer in ("read_again", "go_on"):
        assert status(site.pipeline(table=f'on_restore = "{answer}"'), 20).problem is None


def test_status_tells_of_restored_dead_letters_what_run_tells(site: Site) -> None:
    filled(site)
    site.letters.restore(0)
    found = status(site.pipeline(), 20)
    (checked,) = (row for row in checking.findings(site.pipeline(), 20) if not row.ok)
    with pytest.raises(Restored) as error:
        site.run()
    assert found.problem == checked.message == error.value.message


@pytest.mark.parametrize("keys", [(), ("_partition", "_offset")])
def test_status_tells_of_a_feature_that_is_not_supported_what_run_tells(site: Site, keys: tuple[str, ...]) -> None:
    pipeline = site.pipeline(table=f"keys = {json.dumps(keys)}" if keys else "")
    send(site, {"id": 1})
    site.run(pipeline=pipeline)
    assert status(pipeline, 20).problem is None
    if keys:
        site.table.alter.set_table_properties({"delta.appendOnly": "true"})
    else:
        site.table.alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(Unsupported) as error:
        site.run(pipeline=pipeline)
    found = status(pipeline, 20)
    assert (found.problem, found.hint) == (error.value.message, error.value.hint)


def test_a_restore_during_a_batch_stops_it_before_the_commit(site: Site) -> None:
    first = filled(site)
    send(site, {"id": 4})

    class Overtaken(InProcess):
        def land(self, *arguments: Any) -> Any:
            site.table.restore(first)
            return super().land(*arguments)

    with pytest.raises(Restored):
        site.run(executor=Overtaken())
    assert ids(site) == [1, 2, 10]


def test_what_others_do_without_going_back_stops_nothing(site: Site) -> None:
    filled(site)
    site.table.optimize.compact()
    site.table.delete("id = 2")
    site.table.alter.add_columns([Field("theirs", "string")])
    send(site, {"id": 4})
    site.run()
    assert ids(site) == [1, 3, 4, 10]


def test_a_restore_to_the_very_first_version_reads_everything_again(site: Site) -> None:
    filled(site)
    site.table.restore(0)
    site.run(pipeline=site.pipeline(table='on_restore = "read_again"'))
    assert ids(site) == [1, 2, 3, 10] and [row["offset"] for row in site.dead()] == [3]


class Meddler(InProcess):
    """Somebody who writes to the table whenever a batch is about to be committed."""

    def __init__(self, site: Site, dice: random.Random) -> None:
        super().__init__()
        self._site = site
        self._dice = dice

    def land(self, *arguments: Any) -> Any:
        landed = super().land(*arguments)
        table = self._site.table
        match self._dice.randrange(6):
            case 0:
                table.optimize.compact()
            case 1:
                table.delete("id < 0")
            case 2:
                table.alter.add_columns([Field(f"theirs_{table.version()}", "string")])
            case 3:
                table.alter.set_table_properties({"theirs": str(table.version())}, raise_if_not_exists=False)
            case 4:
                table.restore(self._dice.randrange(max(0, table.version() - 12), table.version()))
        return landed


@pytest.mark.parametrize("seed", range(2))
def test_each_record_is_there_once_whatever_another_writer_does_meanwhile(site: Site, seed: int) -> None:
    dice = random.Random(seed)
    restored = 0
    for _ in range(6):
        site.produce(dice.randrange(1, 60))
        limits = f"max_records_per_batch = {dice.randrange(5, 40)}\ntasks = {dice.randrange(1, 4)}"
        try:
            site.run(Meddler(site, dice), pipeline=site.pipeline(limits=limits, table='on_restore = "read_again"'))
        except Restored as error:
            restored += 1
            if "go further than its offsets" in error.message:
                replay(site)
    site.run(pipeline=site.pipeline(table='on_restore = "read_again"'))
    assert restored
    site.check_exactly_once()


# --- entries that are gone --------------------------------------------------------------------------


def forget_entries(site: Site) -> None:
    """As a clone has the rows, properties and columns of a table, and none of its transaction entries."""
    for log in Path(path_of(site), "_delta_log").glob("*.json"):
        kept = [line for line in log.read_text().splitlines() if "txn" not in json.loads(line)]
        log.write_text("".join(f"{line}\n" for line in kept))


@pytest.mark.parametrize("adopt", ["", "adopt = true"])
def test_a_clone_without_entries_is_not_read_into_a_second_time(site: Site, adopt: str) -> None:
    filled(site)
    forget_entries(site)
    with pytest.raises(Restored, match=f"{site.topic}-0, {site.topic}-1") as error:
        site.run(pipeline=site.pipeline(table=adopt))
    assert "replay" in (error.value.hint or "")
    assert ids(site) == [1, 2, 3, 10]


def test_a_replay_of_the_whole_builds_a_table_again_that_has_lost_its_entries(site: Site) -> None:
    filled(site)
    forget_entries(site)
    shutil.rmtree(site.pipeline().dead_letters.path)
    replay(site)
    send(site, {"id": 4})
    site.run()
    assert ids(site) == [1, 2, 3, 4, 10] and [row["offset"] for row in site.dead()] == [3]


def test_entries_of_a_later_version_than_the_table_has_are_a_clones(site: Site) -> None:
    filled(site)
    last = site.table.version()
    log = Path(path_of(site), "_delta_log", f"{last:020d}.json")
    log.write_text(log.read_text().replace(f'/version","version":{last}', f'/version","version":{last + 40}'))
    with pytest.raises(Restored, match=f"at version {last}, and its transaction entries are of version {last + 40}"):
        site.run()


def test_the_end_of_transaction_entries_is_refused_before_it_loses_any(site: Site) -> None:
    filled(site)
    site.table.alter.set_table_properties({RETENTION: "interval 0 seconds"}, raise_if_not_exists=False)
    send(site, {"id": 4})
    with pytest.raises(Unsupported, match=RETENTION):
        site.run()
    metadata = latest(path_of(site), "metaData")
    del metadata["configuration"][RETENTION]
    commit(path_of(site), "UNSET TBLPROPERTIES", {"metaData": metadata})
    site.run()
    assert ids(site) == [1, 2, 3, 4, 10]


def test_every_commit_has_the_entries_of_all_partitions(site: Site) -> None:
    filled(site)
    send(site, {"id": 4})
    site.run()
    name, topic = site.name, site.topic
    entry = Path(path_of(site), "_delta_log", f"{site.table.version():020d}.json").read_text().splitlines()
    found = {txn["txn"]["appId"]: txn["txn"]["version"] for txn in map(json.loads, entry) if "txn" in txn}
    assert found[f"{name}/{topic}/0"] == 5 and found[f"{name}/{topic}/1"] == 1
    assert {f"{name}/{topic}/0/start", f"{name}/{topic}/1/start", f"{name}/{topic}/id"} <= found.keys()
    assert found[f"{name}/version"] == site.table.version()


# --- rows and columns of others ---------------------------------------------------------------------


def test_a_part_of_an_adopted_table_is_replayed_beside_the_rows_of_others(site: Site) -> None:
    write_deltalake(path_of(site), pa.table({"id": [100, 101]}))
    send(site, {"id": 1}, {"id": 2})
    pipeline = site.pipeline(table="adopt = true")
    site.run(pipeline=pipeline)
    Replay(pipeline, InProcess(), timeout_s=20).run({(site.topic, 0): (0, 1)})
    assert ids(site) == [1, 2, 100, 101]


def test_a_column_whose_type_others_change_during_a_batch_gets_no_file_of_the_old_one(site: Site) -> None:
    filled(site)
    send(site, {"id": 4})

    class Overtaken(InProcess):
        def land(self, *arguments: Any) -> Any:
            landed = super().land(*arguments)
            rows = pa.table({"id": ["a"], "_topic": ["t"], "_partition": pa.array([9], pa.int32()), "_offset": [0]})
            write_deltalake(path_of(site), rows, mode="overwrite", schema_mode="overwrite")
            return landed

    with pytest.raises(PipelineError, match=r"column id of .* is string, and the rows have it as int64"):
        site.run(executor=Overtaken())
    assert ids(site) == ["a"]


def test_a_column_that_others_add_first_with_another_type_is_told_in_words(site: Site) -> None:
    filled(site)
    send(site, {"id": 4, "x": 5})

    class Overtaken(InProcess):
        batches = 0

        def land(self, *arguments: Any) -> Any:
            self.batches += 1
            if self.batches == 2:
                site.table.alter.add_columns([Field("x", "string")])
            return super().land(*arguments)

    with pytest.raises(PipelineError, match=r"column x of .* is string, and the rows have it as int64"):
        site.run(executor=Overtaken())


def test_a_column_that_differs_in_case_only_is_refused_in_words(site: Site) -> None:
    write_deltalake(path_of(site), pa.table({"Id": [100]}))
    send(site, {"id": 1})
    with pytest.raises(PipelineError, match=r"column id of the rows differs from column Id of .* in case only"):
        site.run(pipeline=site.pipeline(table="adopt = true"))


def test_vacuum_leaves_live_deletion_vectors_alone(site: Site) -> None:
    filled(site)
    vector = hide_row(path_of(site), 1)
    table = PipelineTable.open(path_of(site), site.name)
    assert table is not None
    assert vector not in table.unreferenced(0) and vector in DeltaTable(path_of(site)).vacuum(
        0, dry_run=True, enforce_retention_duration=False, full=True
    )


# --- values that nobody sends on purpose ------------------------------------------------------------


def test_a_deeply_nested_value_is_a_dead_letter_and_the_table_stays_readable(site: Site) -> None:
    deep = b'{"id":2,"x":' + b'{"c":' * 45 + b"1" + b"}" * 46
    send(site, {"id": 1}, deep, {"id": 3, "y": {"c": 1}})
    site.run()
    assert ids(site) == [1, 3]
    (letter,) = site.dead()
    assert letter["value"] == deep and "nested more than 16 deep" in letter["reason"]
    replay(site)
    assert ids(site) == [1, 3]


def test_many_new_fields_over_several_tasks_end_in_dead_letters_and_not_in_columns(site: Site) -> None:
    for partition in range(2):
        for number in range(2):
            names = [f"f{partition}_{number}_{n}" for n in range(MAX_FIELDS // 3)]
            send(site, {"id": number, **dict.fromkeys(names, 1)}, partition=partition)
    send(site, {"id": 99})
    site.run(pipeline=site.pipeline(limits="tasks = 2"))
    assert ids(site) == [0, 0, 1, 99]
    (letter,) = site.dead()
    assert "one too many" in letter["reason"]
    assert len([field for field in site.table.schema().fields if not field.name.startswith("_")]) <= MAX_FIELDS


def test_a_schema_that_nobody_could_open_is_refused_before_the_table_is_made(site: Site) -> None:
    deep = "STRUCT<c:" * 45 + "INT" + ">" * 45
    send(site, {"id": 1})
    with pytest.raises(PipelineError, match="could not be opened any more"):
        site.run(pipeline=site.pipeline(decode=f'format = "json"\nschema = "id BIGINT, x {deep}"'))
    assert not Path(path_of(site)).exists()
    site.run()
    with pytest.raises(PipelineError, match="could not be opened any more"):
        site.run(pipeline=site.pipeline(decode=f'format = "json"\nschema = "id BIGINT, x {deep}"'))
    assert ids(site) == [1]


def test_fields_inside_a_map_are_refused_until_the_table_is_built_again(site: Site) -> None:
    def pipeline(inner: str) -> Any:
        return site.pipeline(decode=f'format = "json"\nschema = "id BIGINT, m MAP<STRING, STRUCT<{inner}>>"')

    send(site, {"id": 1, "m": {"k": {"a": 1, "z": 1}}})
    site.run(pipeline=pipeline("a: INT"))
    assert len(site.dead()) == 1
    send(site, {"id": 2, "m": {"k": {"a": 1, "z": 2}}})
    with pytest.raises(PipelineError, match=r"column m of .* is a map"):
        site.run(pipeline=pipeline("a: INT, z: INT"))
    Replay(pipeline("a: INT, z: INT"), InProcess(), timeout_s=20).run()
    site.run(pipeline=pipeline("a: INT, z: INT"))
    query = QueryBuilder().register("t", site.table).execute("SELECT id, m FROM t ORDER BY id")
    found = [(row["id"], dict(row["m"])) for row in pa.table(query).to_pylist()]
    assert found == [(1, {"k": {"a": 1, "z": 1}}), (2, {"k": {"a": 1, "z": 2}})]


@pytest.mark.parametrize("settings", ["compact_every = 1", 'partition_by = ["_timestamp"]'])
def test_times_before_the_year_1_disturb_nobody(site: Site, settings: str) -> None:
    send(site, {"id": 1}, b"?", timestamp_ms=-62_135_596_800_001)
    send(site, {"id": 2})
    pipeline = site.pipeline(table=settings, limits="max_records_per_batch = 1")
    site.run(pipeline=pipeline)
    Replay(pipeline, InProcess(), timeout_s=20).run({(site.topic, 0): (0, 1)})
    assert ids(site) == [1, 2]
    assert site.letters.to_pyarrow_table().column("timestamp").cast(pa.int64()).to_pylist() == [-62_135_596_800_001_000]


# --- commits that fail ------------------------------------------------------------------------------


def test_a_commit_that_fails_without_a_rival_tells_its_own_cause(site: Site) -> None:
    filled(site)
    site.table.create_checkpoint()
    for log in Path(path_of(site), "_delta_log").glob("*.json"):
        log.unlink()
    with pytest.raises(PipelineError, match="the commit failed: Invalid table version") as error:
        site.run()
    assert "others commit faster" not in str(error.value)
