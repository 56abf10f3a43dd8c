"""Vacuum removes what nobody needs, and nothing that a reader or a running batch does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bench.systems.process import BrokerProcess
from deltalake import DeltaTable, write_deltalake
from kill_points import KILLED, call, run_until
from pipeline_site import Site

from tidelog.pipeline.errors import Foreign
from tidelog.pipeline.land.executor import InProcess
from tidelog.pipeline.run.table_replay import Replay
from tidelog.pipeline.spec import Pipeline
from tidelog.pipeline.table import intent, storage
from tidelog.pipeline.table.intent import Intent
from tidelog.pipeline.table.parquet_files import part_prefix
from tidelog.pipeline.table.pipeline_table import PipelineTable
from tidelog.pipeline.table.tables import Tables
from tidelog.pipeline.table.vacuum import HOUR_MS, Orphan, find, remove


@pytest.fixture
def site(broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]) -> Site:
    return Site(broker.bootstrap, tmp_path, unique("p"))


def looked(site: Site) -> Tables:
    tables = Tables.look(site.pipeline())
    assert tables is not None
    return tables


def orphans(site: Site, older_than_ms: int, **options: bool) -> list[Orphan]:
    return find(looked(site), older_than_ms, int(time.time() * 1000) + 60_000, **options)


def age(site: Site, days: float) -> None:
    """Makes every file of the tables, and what is beside them, older."""
    for file in (site.directory / "lake").rglob("*"):
        if file.is_file() and "_delta_log" not in file.parts:
            os.utime(file, (time.time() - days * 86400,) * 2)


def test_files_of_dead_runners_go_and_what_the_tables_need_stays(site: Site) -> None:
    site.produce(120)
    assert run_until(site.pipeline(), "step:landed:2") == KILLED
    assert run_until(site.pipeline(), "step:landed:1") == KILLED
    site.run()
    assert orphans(site, 7 * 24 * HOUR_MS) == [], "they are too young"
    found = orphans(site, 0)
    assert len(found) >= 4, "rows and letters of two dead runners"
    assert {storage.parse_part(o.path).epoch for o in found} == {1, 2}  # type: ignore[union-attr]
    remove(found)
    site.check_exactly_once()
    assert orphans(site, 0) == []
    left = list((site.directory / "lake" / site.name).glob("*.parquet"))
    assert len(left) == len(site.table.file_uris())


def test_files_of_the_newest_runner_may_be_those_of_a_running_batch(site: Site) -> None:
    site.produce(40)
    assert run_until(site.pipeline(), "step:landed:1") == KILLED
    assert orphans(site, 0) == []
    assert len(orphans(site, 0, newest_runner_too=True)) == 2
    age(site, 2)
    assert len(orphans(site, 24 * HOUR_MS)) == 2, "no batch takes two days"


def test_staging_and_replays_that_came_to_their_end_leave_nothing(site: Site) -> None:
    site.produce(20)
    site.run()
    site.run()
    tables = looked(site)
    left = f"{storage.STAGING}/x-e1-b1/{part_prefix(1, 1, 0, site.name)}-0123456789ab-0.parquet"
    storage.write(tables.table.path, left, b"x")
    intent.write(tables.table, Intent(1, [], None))
    assert {o.path for o in orphans(site, 0)} == {left, intent.path_of(tables.table, 1)}


def test_files_that_a_compaction_replaced_stay_as_long_as_old_versions_may_be_read(site: Site) -> None:
    site.produce(100)
    site.run()
    before = site.table.version()
    site.table.optimize.compact()
    assert orphans(site, 7 * 24 * HOUR_MS) == []
    found = orphans(site, 0, newest_runner_too=True)
    assert len(found) == 2
    assert len(DeltaTable(site.table.table_uri, version=before).to_pyarrow_table()) == len(site.rows())


@pytest.mark.parametrize("none_runs", [False, True])
def test_what_others_write_into_the_table_stays_for_a_day(site: Site, none_runs: bool) -> None:
    site.produce(20)
    site.run()
    site.run()
    root = site.pipeline().table.path
    # Of a compaction in progress, and of another pipeline, whose epochs are lower than this one's.
    for name in ("part-00001-c0ffee-c000.snappy", f"{part_prefix(1, 1, 0, 'other')}-0123456789ab-0"):
        storage.write(root, f"{name}.parquet", b"x")
    assert orphans(site, 0, newest_runner_too=none_runs) == []
    age(site, 2)
    assert len([o for o in orphans(site, 0, newest_runner_too=none_runs) if o.size_bytes == 1]) == 2


def test_the_intent_of_a_replay_that_may_be_about_to_commit_stays(site: Site) -> None:
    site.produce(20)
    site.run()
    table = looked(site).table
    intent.write(table, Intent(table.epoch or 0, [], None))
    storage.write(table.path, f"{storage.OWN}/replay-{storage.writer_of('other')}-0.json", b"{}")
    assert orphans(site, 0) == []
    assert [o.path for o in orphans(site, 0, newest_runner_too=True)] == [intent.path_of(table, table.epoch or 0)]


def test_what_a_dead_replay_has_still_to_bring_to_the_dead_letters_stays(site: Site) -> None:
    site.produce(60)
    site.run()
    dates = site.pipeline(decode='format = "json"\nschema = "id DATE"')
    assert call(_dies_between_its_commits, dates) == KILLED
    age(site, 2)
    remove(orphans(site, 0, newest_runner_too=True))
    site.run(pipeline=dates)
    assert site.rows() == []
    assert {(r["topic"], r["partition"], r["offset"]) for r in site.dead()} == site.acknowledged.keys()


def _dies_between_its_commits(pipeline: Pipeline) -> None:
    """Its first commits take over both tables, the third is that of the table."""
    write, commits = PipelineTable._write, [0]

    def wrapped(self: PipelineTable, *arguments: Any) -> None:
        write(self, *arguments)
        commits[0] += 1
        if commits[0] == 3:
            os._exit(KILLED)

    PipelineTable._write = wrapped  # type: ignore[method-assign]
    Replay(pipeline, InProcess(), timeout_s=20).run(drop_most=True)


def test_a_table_inside_the_tables_directory_is_left_alone(site: Site) -> None:
    site.produce(20)
    site.run()
    inner = f"{site.pipeline().table.path}/inner"
    write_deltalake(inner, pa.table({"id": [1]}))
    age(site, 9)
    assert [o for o in orphans(site, 0, newest_runner_too=True) if "inner" in o.path] == []
    assert len(DeltaTable(inner).to_pyarrow_table()) == 1


def test_a_table_that_the_pipeline_never_wrote_to_is_refused(site: Site) -> None:
    write_deltalake(site.pipeline().table.path, pa.table({"id": [1]}))
    with pytest.raises(Foreign, match="never wrote to"):
        orphans(site, 0)
