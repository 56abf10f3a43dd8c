"""Building a table again: all or nothing, from the log, with the offsets as they were."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bench.systems.process import BrokerProcess
from deltalake import DeltaTable
from kill_points import KILLED, call
from pipeline_site import JSON, Site

from tidelog.client import Client
from tidelog.pipeline.errors import DataLoss, NotReady, PipelineError, Superseded
from tidelog.pipeline.land.executor import InProcess
from tidelog.pipeline.land.progress_events import Event, Notice, Step, StepReached
from tidelog.pipeline.run.brokers import Brokers
from tidelog.pipeline.run.table_replay import Replay
from tidelog.pipeline.spec import Pipeline
from tidelog.pipeline.table import intent
from tidelog.pipeline.table.pipeline_table import PipelineTable, TableChange
from tidelog.pipeline.table.tables import Tables

DATED = 'format = "json"\nschema = "id DATE, name STRING"'


@pytest.fixture
def site(broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]) -> Site:
    return Site(broker.bootstrap, tmp_path, unique("p"))


def replay(pipeline: Pipeline, wanted: Any = None, **options: Any) -> Any:
    return Replay(pipeline, InProcess(), timeout_s=20).run(wanted, **options)


def state(site: Site) -> tuple[list[Any], list[Any]]:
    return sorted(map(str, site.rows())), sorted(map(str, site.dead()))


def test_a_table_is_built_again_with_other_types_and_the_pipeline_goes_on_behind_it(site: Site) -> None:
    site.produce(100)
    site.run()
    dated = site.pipeline(decode=DATED)
    site.produce(20)
    done = replay(dated, drop_most=True)
    assert (done.rows, done.dead_letters) == (0, 100), "whole numbers are no dates"
    assert site.rows() == [] and site.table.to_pyarrow_table().schema.field("id").type == pa.date32()
    replay(site.pipeline())
    assert len(site.rows()) + len(site.dead()) == 100, "what the runner had not read yet is the runner's"
    site.run()
    site.check_exactly_once()


@pytest.mark.parametrize("whole", [True, False])
def test_a_replay_that_would_make_most_rows_dead_letters_changes_nothing_unless_told(site: Site, whole: bool) -> None:
    site.produce(40)
    site.run()
    before = state(site)
    strict = site.pipeline(decode=JSON.replace("id BIGINT", "id BIGINT, must STRING NOT NULL"))
    wanted = None if whole else {(site.topic, partition): (0, 20) for partition in range(2)}
    with pytest.raises(PipelineError, match=f"leave 0 of the {len(site.rows())} rows") as error:
        replay(strict, wanted)
    assert "--drop-most-rows" in (error.value.hint or "") and state(site) == before
    replay(strict, wanted, drop_most=True)
    assert site.rows() == [] and len(site.dead()) == 40


def test_a_table_is_built_again_with_times_without_a_zone(site: Site) -> None:
    site.produce_values(site.topic, [b'{"at": "2026-01-01T12:00:00"}'])
    site.run(pipeline=site.pipeline(decode='format = "json"\nschema = "at STRING"'))
    local = site.pipeline(decode='format = "json"\nschema = "at TIMESTAMP_NTZ"')
    assert replay(local).rows == 1
    site.produce_values(site.topic, [b'{"at": "2026-01-02T12:00:00"}'])
    site.run(pipeline=local)
    assert sorted(r["at"] for r in site.rows()) == [datetime(2026, 1, 1, 12), datetime(2026, 1, 2, 12)]


def test_dead_letters_that_can_be_decoded_now_move_into_the_table(site: Site) -> None:
    site.produce_values(site.topic, [b'{"id": "2026-01-31"}', b'{"id": 2}', b"{", b'{"id": 4}'])
    site.run()
    assert len(site.rows()) == 2 and len(site.dead()) == 2
    replay(site.pipeline(decode='format = "json"\nschema = "id DATE"'))
    assert [r["id"] for r in site.rows()] == [date(2026, 1, 31)] and len(site.dead()) == 3


def test_a_range_is_replaced_row_by_row(site: Site) -> None:
    """Rows of the range are damaged by hand; afterwards they are as they were, and no others were read again."""
    site.produce(100)
    site.run()
    before = state(site)
    site.table.update({"id": "-1"}, predicate="_offset >= 10 AND _offset < 30")
    site.table.update({"id": "-2"}, predicate="_offset = 5")
    assert state(site) != before
    done = replay(site.pipeline(), {(site.topic, 0): (8, 40), (site.topic, 1): (8, 40)})
    assert done.rows + done.dead_letters == 64
    damaged = [r for r in site.rows() if r["id"] < 0]
    assert {(r["id"], r["_offset"]) for r in damaged} == {(-2, 5)}
    replay(site.pipeline(), {(site.topic, 0): (5, 6), (site.topic, 1): (5, 6)})
    assert state(site) == before
    site.produce(10)
    site.run()
    site.check_exactly_once()


def test_a_partitioned_table_is_replaced_in_part(site: Site) -> None:
    pipeline = site.pipeline(table='partition_by = ["_partition"]')
    site.produce(60)
    site.run(pipeline=pipeline)
    replay(pipeline, {(site.topic, 1): (3, 17)})
    site.check_exactly_once()


def test_readers_see_the_old_rows_or_the_new_ones(site: Site) -> None:
    site.produce(80)
    site.run()
    before = site.table.version()
    replay(site.pipeline(decode='format = "json"\nschema = "id DOUBLE"'))
    for version in range(before, site.table.version() + 1):
        rows = DeltaTable(site.table.table_uri, version=version).to_pyarrow_table()
        assert len(rows) == len([v for v in site.acknowledged.values() if v.endswith(b"}")])
        assert str(rows.schema.field("id").type) in ("int64", "double")


def test_records_that_the_log_lost_are_not_given_up_unless_told(site: Site) -> None:
    site.produce(100)
    site.run()
    with Client(site.bootstrap) as client:
        client.admin.delete_records(site.topic, {0: 20, 1: 50})
    before = state(site)
    for wanted in (None, {(site.topic, 0): (10, 30)}):
        with pytest.raises(DataLoss, match=r"records that the log no longer holds: .*20") as error:
            replay(site.pipeline(), wanted)
        assert "--allow-missing" in (error.value.hint or "")
    assert state(site) == before
    replay(site.pipeline(), {(site.topic, 0): (10, 30)}, allow_missing=True)
    assert state(site) == before, "a part keeps what cannot be read again"
    with pytest.raises(PipelineError, match="would drop 70 of the 100 rows and dead letters") as refused:
        replay(site.pipeline(), allow_missing=True)
    assert state(site) == before and "--drop-most-rows" in (refused.value.hint or "")
    replay(site.pipeline(), allow_missing=True, drop_most=True)
    site.acknowledged = {at: v for at, v in site.acknowledged.items() if at[1] == 0 and at[2] >= 20}
    site.check_exactly_once()
    replay(site.pipeline())
    site.check_exactly_once()


@pytest.mark.parametrize("kind", ["whole", "part", "allowed", "part, allowed"])
def test_records_that_go_while_a_replay_reads_are_told_and_never_given_up_unasked(site: Site, kind: str) -> None:
    tolerant = site.pipeline(
        source=f'topics = ["{site.topic}"]\nfail_on_data_loss = false', limits="max_records_per_batch = 20"
    )
    site.produce(80)
    site.run(pipeline=tolerant)
    before = state(site)
    told: list[str] = []

    def cut(event: Event) -> None:
        if isinstance(event, Notice):
            told.append(event.message)
            if "read 20 of" in event.message:
                with Client(site.bootstrap) as client:
                    client.admin.delete_records(site.topic, {0: 25})

    again = Replay(tolerant, InProcess(), [cut], timeout_s=20)
    wanted = {(site.topic, n): (0, 40) for n in range(2)} if "part" in kind else None
    if kind != "allowed":
        with pytest.raises(DataLoss, match=r"offsets 10 to \d+ are lost"):
            again.run(wanted, allow_missing="allowed" in kind)
        assert state(site) == before
        return
    again.run(allow_missing=True)
    assert [message for message in told if "are lost" in message]
    site.acknowledged = {at: v for at, v in site.acknowledged.items() if at[1] == 1 or at[2] < 10 or at[2] >= 25}
    site.check_exactly_once()


@pytest.mark.parametrize("count", [10, 60])
def test_a_table_of_a_topic_that_was_made_again_can_be_built_from_the_new_one(site: Site, count: int) -> None:
    site.produce(40)
    site.run()
    before = state(site)
    with Client(site.bootstrap) as client:
        client.admin.delete_topics([site.topic])
        client.admin.create_topic(site.topic, partitions=2)
    site.acknowledged.clear()
    site.produce(count)
    part = {(site.topic, 0): (2, 4)}
    for wanted in (None, part):
        with pytest.raises(DataLoss):
            replay(site.pipeline(), wanted)
    replay(site.pipeline(), part, allow_missing=True)
    assert state(site) == before, "a part keeps what cannot be read again"
    replay(site.pipeline(), allow_missing=True, drop_most=True)
    site.run()
    site.check_exactly_once()
    replay(site.pipeline())
    site.produce(10)
    site.run()
    site.check_exactly_once()


@pytest.mark.parametrize("kind", ["whole", "part"])
def test_a_replay_that_would_drop_most_rows_says_how_many_and_changes_nothing_unless_told(
    site: Site, kind: str
) -> None:
    """Rows of a transaction that was aborted since; the log begins and ends where it did."""
    pipeline = site.pipeline(source=f'topics = ["{site.topic}"]\nisolation = "read_uncommitted"')
    with Client(site.bootstrap) as client:
        client.produce(site.topic, [b'{"id": 0}'] * 30, partition=0)
        producer = client.transactional_producer(f"{site.topic}-aborted")
        producer.begin()
        for number in range(70):
            producer.send(site.topic, b'{"id": %d}' % number, partition=1)
        producer.flush()
        site.run(pipeline=pipeline)
        producer.abort()
    before = state(site)
    assert len(before[0]) == 100
    wanted = {(site.topic, n): (0, 60) for n in range(2)} if kind == "part" else None
    dropped = 60 if kind == "part" else 70
    with pytest.raises(PipelineError, match=f"would drop {dropped} of the 100 rows") as error:
        replay(site.pipeline(), wanted)
    assert "--drop-most-rows" in (error.value.hint or "") and state(site) == before
    replay(site.pipeline(), wanted, drop_most=True)
    assert len(site.rows()) == 100 - dropped


def test_a_log_that_lost_its_end_is_built_again_up_to_there_and_not_as_another_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.produce_values(site.topic, [b'{"id": 0}'] * 40)
    late = site.pipeline(source=f'topics = ["{site.topic}"]\nstarting_offsets = {{ "{site.topic}" = {{ "0" = 5 }} }}')
    site.run(pipeline=late)
    ends = Brokers.ends
    monkeypatch.setattr(Brokers, "ends", lambda *asked: {at: e._replace(end=15) for at, e in ends(*asked).items()})
    with pytest.raises(DataLoss, match=r"up to offset 20, and the log ends at 15, though it is the same topic") as lost:
        site.run(pipeline=late)
    assert "created again" not in str(lost.value)
    with pytest.raises(DataLoss, match=rf"no longer holds: {site.topic}-0 \[15, 20\)"):
        replay(late)
    replay(late, allow_missing=True)
    found = {at: [r["_offset"] for r in site.rows() if r["_partition"] == at] for at in range(2)}
    assert (min(found[0]), max(found[0]), len(found[1])) == (5, 14, 15), "what was before its start is not of the table"
    tables = Tables.look(late)
    assert tables is not None and tables.table.start((site.topic, 0)) == 5, "nor will it be with the next replay"


@pytest.mark.parametrize("how", ["deleted", "no longer named"])
def test_rows_of_topics_that_are_no_longer_read_are_not_given_up_unless_told(site: Site, how: str) -> None:
    more = f"{site.topic}-more"
    with Client(site.bootstrap) as client:
        client.admin.create_topic(more, partitions=2)
        site.produce(20)
        site.produce_values(more, [b'{"id": 1}', b"{", b'{"id": 3}'])
        pipeline = site.pipeline(source=f'topic_pattern = "{site.topic}.*"')
        site.run(pipeline=pipeline)
        before = state(site)
        if how == "deleted":
            client.admin.delete_topics([more])
        else:
            pipeline = site.pipeline()
    with pytest.raises(DataLoss, match=rf"{more}-0 \[0, 2\) \(2 offsets\); {more}-1 \[0, 1\)") as error:
        replay(pipeline)
    assert "--from" in (error.value.hint or "")
    replay(pipeline, {(site.topic, n): (0, 10) for n in range(2)})
    assert state(site) == before, "a part leaves them alone"
    replay(pipeline, allow_missing=True)
    site.acknowledged = {at: v for at, v in site.acknowledged.items() if at[0] == site.topic}
    site.check_exactly_once()
    replay(pipeline)
    site.produce(10)
    site.run(pipeline=pipeline)
    site.check_exactly_once()


def test_a_table_that_another_pipeline_was_let_into_is_not_built_again_as_a_whole_unless_told(site: Site) -> None:
    other = f"{site.topic}-other"
    with Client(site.bootstrap) as client:
        client.admin.create_topic(other, partitions=1)
    own = site.pipeline(decode='format = "raw"')
    adopting = replace(
        site.pipeline(decode='format = "raw"', source=f'topics = ["{other}"]', table="adopt = true"), name="other"
    )
    adopted = replace(adopting, table=replace(adopting.table, adopt=False))
    site.produce(20)
    site.run(pipeline=own)
    replay(own)
    site.produce_values(other, [b"x", b"y"], partitions=1)
    site.run(pipeline=adopting)
    for pipeline in (own, adopting, adopted):
        with pytest.raises(PipelineError, match="was adopted by other") as error:
            replay(pipeline)
        assert "--from" in (error.value.hint or "")
    replay(own, {(site.topic, n): (0, 10) for n in range(2)})
    replay(adopted, {(other, 0): (0, 1)})
    site.check_raw_exactly_once()
    replay(own, allow_missing=True)
    site.acknowledged = {at: v for at, v in site.acknowledged.items() if at[0] == site.topic}
    site.check_raw_exactly_once()


def test_rows_that_do_not_say_where_they_came_from_are_replaced_only_as_a_whole(site: Site) -> None:
    pipeline = site.pipeline(table="metadata = { offset = false }")
    site.produce(20)
    site.run(pipeline=pipeline)
    with pytest.raises(PipelineError, match="do not say which offsets"):
        replay(pipeline, {(site.topic, 0): (0, 5)})
    assert replay(pipeline).rows == len(site.rows())


def test_a_pipeline_that_never_ran_has_nothing_to_replay(site: Site) -> None:
    with pytest.raises(NotReady, match="has no table yet"):
        replay(site.pipeline())


def test_a_table_that_no_runner_began_with_is_built_again_and_begins_where_the_file_says(site: Site) -> None:
    pipeline = site.pipeline(source=f'topics = ["{site.topic}"]\nstarting_offsets = "latest"')
    PipelineTable.create(pipeline.table.path, pipeline.name, pa.schema([("id", pa.string())]), ())
    site.produce(20)
    site.acknowledged.clear()
    with pytest.raises(PipelineError, match="column id"):
        site.run(pipeline=pipeline)
    assert replay(pipeline).rows == 0
    site.produce(10)
    site.run(pipeline=pipeline)
    site.check_exactly_once()


def test_a_part_is_decoded_with_what_a_runner_pinned_until_it_was_fenced(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.produce_values(site.topic, [b'{"id": 1, "old": 1}'], partitions=1)
    site.run()
    tables_open = Tables.open

    def late(*arguments: Any) -> Tables:
        monkeypatch.undo()
        for value in (b'{"id": 2, "new": 1}', b'{"id": 3, "new": "text"}'):
            site.produce_values(site.topic, [value], partitions=1)
            site.run()
        return tables_open(*arguments)

    monkeypatch.setattr(Tables, "open", late)
    replay(site.pipeline(), {(site.topic, 0): (2, 3)})
    assert {(r["id"], r["old"], r["new"]) for r in site.rows()} == {(1, 1, None), (2, None, 1)}
    assert [r["value"] for r in site.dead()] == [b'{"id": 3, "new": "text"}']


def test_a_part_that_dies_at_its_commit_has_kept_the_wider_schema(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was landed may have added columns: whoever comes next must know their types."""
    narrow, wide = site.pipeline(decode=JSON + "\nevolve = false"), site.pipeline()
    site.produce_values(site.topic, [b'{"id": 1, "new": 1}'], partitions=1)
    site.run(pipeline=narrow)
    commit = PipelineTable.commit

    def dies(table: PipelineTable, epoch: int, batch: TableChange) -> None:
        if batch.files:
            raise KeyboardInterrupt
        commit(table, epoch, batch)

    monkeypatch.setattr(PipelineTable, "commit", dies)
    with pytest.raises(KeyboardInterrupt):
        replay(wide, {(site.topic, 0): (0, 1)})
    monkeypatch.undo()
    site.produce_values(site.topic, [b'{"id": 2, "new": "text"}'], partitions=1)
    site.run(pipeline=wide)
    assert [(r["id"], r["new"]) for r in site.rows()] == [(1, None)]
    assert [r["value"] for r in site.dead()] == [b'{"id": 2, "new": "text"}']


def test_a_running_runner_is_fenced_by_a_replay(site: Site) -> None:
    site.produce(120)

    def replay_now(event: Event) -> None:
        if isinstance(event, StepReached) and (event.batch, event.step) == (2, Step.LANDED):
            replay(site.pipeline())

    with pytest.raises(Superseded):
        site.run(listeners=[replay_now])
    site.run()
    site.check_exactly_once()


def test_a_runner_that_starts_during_a_replay_fences_it_and_the_table_stays(site: Site) -> None:
    site.produce(120)
    site.run()
    site.produce(20)

    def run_now(event: Event) -> None:
        if isinstance(event, Notice) and "read 50" in event.message:
            site.run()

    with pytest.raises(Superseded):
        Replay(site.pipeline(), InProcess(), [run_now]).run()
    site.check_exactly_once()


def _killed_replay(pipeline: Pipeline, commit: int, after: bool) -> None:
    """Ends before, or right after, a commit to any table."""
    write, counted = PipelineTable._write, [0]

    def wrapped(self: PipelineTable, *arguments: Any) -> None:
        counted[0] += 1
        if counted[0] == commit and not after:
            os._exit(KILLED)
        write(self, *arguments)
        if counted[0] == commit:
            os._exit(KILLED)

    PipelineTable._write = wrapped  # type: ignore[method-assign]
    replay(pipeline, drop_most=True)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("commit", [1, 2, 3, 4])
def test_a_replay_that_dies_leaves_the_old_tables_or_the_new_ones(site: Site, commit: int, after: bool) -> None:
    """Its commits: taking over both tables, the table, the dead letters. The table's decides for both."""
    site.produce(60)
    site.run()
    dates = site.pipeline(decode='format = "json"\nschema = "id DATE"')
    assert call(_killed_replay, dates, commit, after) == KILLED
    done = commit > 3 or (commit == 3 and after)
    site.produce(10)
    site.run(pipeline=dates if done else site.pipeline())
    if done:
        assert site.rows() == [] and len(site.dead()) == 70
        assert {(r["topic"], r["partition"], r["offset"]) for r in site.dead()} == site.acknowledged.keys()
    else:
        site.check_exactly_once()
    marks = [
        DeltaTable(t.table_uri).transaction_version(f"{site.name}/{intent.MARK}") for t in (site.table, site.letters)
    ]
    assert marks[0] == marks[1]
