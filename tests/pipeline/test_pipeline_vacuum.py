"""Vacuum removes what nobody needs, and nothing that a reader or a running batch does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.systems.process import BrokerProcess
from kill_points import KILLED, run_until
from pipeline_site import Site

from tidelog.pipeline import intent, places
from tidelog.pipeline.intent import Intent
from tidelog.pipeline.tables import Tables
from tidelog.pipeline.vacuum import HOUR_MS, Orphan, find, remove


@pytest.fixture
def site(broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]) -> Site:
    return Site(broker.bootstrap, tmp_path, unique("p"))


def orphans(site: Site, older_than_ms: int, **options: bool) -> list[Orphan]:
    tables = Tables.look(site.pipeline())
    assert tables is not None
    return find(tables, older_than_ms, int(time.time() * 1000) + 60_000, **options)


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
    assert {places.parse_part(o.path).epoch for o in found} == {1, 2}  # type: ignore[union-attr]
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
    root = site.pipeline().table.path
    places.write(root, f"{places.STAGING}/e1-b1/part-e1-b1-t0-0123456789ab-0.parquet", b"x")
    intent.write(root, Intent(1, [], None))
    assert {Path(o.path).name for o in orphans(site, 0)} == {"part-e1-b1-t0-0123456789ab-0.parquet", "replay-1.json"}


def test_files_that_a_compaction_replaced_stay_as_long_as_old_versions_may_be_read(site: Site) -> None:
    site.produce(100)
    site.run()
    before = site.table.version()
    site.table.optimize.compact()
    assert orphans(site, 7 * 24 * HOUR_MS) == []
    found = orphans(site, 0, newest_runner_too=True)
    assert len(found) == 2
    from deltalake import DeltaTable

    assert len(DeltaTable(site.table.table_uri, version=before).to_pyarrow_table()) == len(site.rows())
