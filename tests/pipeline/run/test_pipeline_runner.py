"""What a runner does around its batches: where it begins, what it finds, what it refuses, and how it stops."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bench.systems.process import BrokerProcess
from deltalake import DeltaTable, write_deltalake
from pipeline_site import JSON, Site
from stable_topics import await_stable

from tidelog.client import Client, Message
from tidelog.client.errors import ClientError, NotFound, Unreachable
from tidelog.pipeline.errors import BadRecord, DataLoss, Foreign, NotReady, PipelineError
from tidelog.pipeline.land.executor import InProcess
from tidelog.pipeline.land.progress_events import Event, Notice, RunProgress, RunState, Step, StepReached
from tidelog.pipeline.run.brokers import Brokers
from tidelog.pipeline.run.checking import findings
from tidelog.pipeline.run.incumbent import sample
from tidelog.pipeline.run.runner import Runner
from tidelog.pipeline.run.status import next_plan, status
from tidelog.pipeline.table.pipeline_table import PipelineTable
from tidelog.pipeline.table.tables import Tables

RAW = 'format = "raw"'


@pytest.fixture
def site(broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]) -> Site:
    return Site(broker.bootstrap, tmp_path, unique("p"))


def notices(events: list[Event]) -> str:
    return "\n".join(event.message for event in events if isinstance(event, Notice))


# --- where it begins ----------------------------------------------------------------------------------


def test_a_new_pipeline_that_begins_at_the_latest_offset_remembers_it_before_it_read_anything(site: Site) -> None:
    site.produce(20)
    latest = site.pipeline(source=f'topics = ["{site.topic}"]\nstarting_offsets = "latest"')
    assert site.run(pipeline=latest).rows == 0
    site.acknowledged.clear()
    site.produce(10)
    site.run(pipeline=latest)
    site.check_exactly_once()


def test_a_pipeline_begins_at_the_offsets_that_its_file_names(site: Site) -> None:
    site.produce(40)
    offsets = f"{{ {site.topic} = {{ 0 = 15, 1 = -1 }} }}"
    site.run(pipeline=site.pipeline(source=f'topics = ["{site.topic}"]\nstarting_offsets = {offsets}'))
    site.acknowledged = {at: v for at, v in site.acknowledged.items() if at[1] == 0 and at[2] >= 15}
    site.check_exactly_once()


def test_topics_that_match_the_pattern_are_found_while_it_runs_and_read_from_their_beginning(site: Site) -> None:
    pipeline = site.pipeline(
        source=f'topic_pattern = "{site.topic}(-more)?"\nstarting_offsets = "latest"', trigger='interval = "30ms"'
    )
    site.produce(10)
    site.acknowledged.clear()
    more = f"{site.topic}-more"
    caught_up = 0

    def grow(event: Event) -> None:
        nonlocal caught_up
        if not isinstance(event, RunProgress) or event.state != RunState.CAUGHT_UP:
            return
        caught_up += 1
        with Client(site.bootstrap) as client:
            if caught_up == 1:
                client.admin.create_topic(more, partitions=1)
                client.admin.create_topic(f"{site.topic}-else", partitions=1)
                site.produce_values(more, [b'{"id": 1}', b'{"id": 2}'], partitions=1)
            elif event.rows == 2:
                client.admin.create_partitions(more, 2)
                site.produce_values(more, [b'{"id": 3}', b'{"id": 4}'], partitions=2)
            elif event.rows == 4:
                runner.stop()

    runner = Runner(pipeline, InProcess(), [grow])
    assert runner.run().stopped
    site.check_exactly_once()


def test_a_schema_is_inferred_from_the_first_records_once_and_pinned(site: Site) -> None:
    inferred = site.pipeline(decode='format = "json"\ninfer = true\nevolve = false')
    assert site.run(pipeline=inferred).batches == 0, "there is nothing to infer from yet"
    site.produce_values(site.topic, [b'{"id": 1, "name": "a"}', b'{"id": 2, "name": null}'])
    site.run(pipeline=inferred)
    # A later record has another type; the pinned schema decides.
    site.produce_values(site.topic, [b'{"id": "x", "name": "b"}', b'{"id": 4, "name": "c", "more": 1}'])
    site.run(pipeline=inferred)
    assert sorted((r["id"], r["name"]) for r in site.rows()) == [(1, "a"), (2, None), (4, "c")]
    assert len(site.dead()) == 1 and "more" not in site.table.schema().to_arrow().names


INFER = 'format = "json"\ninfer = true'


def test_a_schema_is_inferred_from_values_behind_a_gap(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from confluent_kafka import Producer

    monkeypatch.setattr("tidelog.pipeline.run.incumbent.SAMPLE", 4)
    producer = Producer({"bootstrap.servers": site.bootstrap, "transactional.id": site.name})
    producer.init_transactions()
    for commit in (False, True):
        producer.begin_transaction()
        for n in range(20):
            producer.produce(site.topic, b'{"id": %d}' % n, partition=0)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()
    with Client(site.bootstrap) as client:
        await_stable(client, site.topic)
    site.run(pipeline=site.pipeline(decode=INFER))
    assert sorted(row["id"] for row in site.rows()) == list(range(20))


def test_a_schema_is_inferred_from_so_many_values_and_bytes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.produce_values(site.topic, [b'{"id": 1}'] * 100 + [b'{"id": "%s"}' % (b"x" * 100)] * 2)
    pipeline = site.pipeline(decode=INFER)
    with Brokers(pipeline.source, 20) as brokers:
        ends = brokers.ends(brokers.partitions())
    assert len(sample(pipeline, ends, 20)) == 102
    monkeypatch.setattr("tidelog.pipeline.run.incumbent.SAMPLE", 60)
    assert len(sample(pipeline, ends, 20)) == 60
    monkeypatch.setattr("tidelog.pipeline.run.incumbent.SAMPLE_BYTES", 100)
    assert len(sample(pipeline, ends, 20)) == 12


def test_the_latest_offset_is_that_of_the_start_however_long_a_schema_is_waited_for(site: Site) -> None:
    pipeline = site.pipeline(
        decode=INFER, source=f'topics = ["{site.topic}"]\nstarting_offsets = "latest"', trigger='interval = "20ms"'
    )

    def grow(event: Event) -> None:
        if isinstance(event, Notice):
            site.produce_values(site.topic, [b'{"id": 1}', b'{"id": 2}', b'{"id": 3}'])
        elif isinstance(event, RunProgress) and event.state == RunState.CAUGHT_UP:
            runner.stop()

    runner = Runner(pipeline, InProcess(), [grow], timeout_s=20)
    runner.run()
    site.check_exactly_once()


def test_records_without_a_value_to_infer_from_are_told(site: Site) -> None:
    with Client(site.bootstrap) as client:
        client.produce(site.topic, [Message(None, b"k")], partition=0)
    with pytest.raises(NotReady, match="no record has a value to infer the schema from"):
        site.run(pipeline=site.pipeline(decode=INFER))


# --- schemas ------------------------------------------------------------------------------------------


def test_a_new_field_becomes_a_column_and_a_changed_type_a_dead_letter_with_its_reason(site: Site) -> None:
    site.produce_values(site.topic, [b'{"id": 1}', b'{"id": 2}'])
    site.run()
    site.produce_values(
        site.topic, [b'{"id": 3, "new": {"a": 1}}', b'{"id": "four"}', b'{"id": 5, "new": {"b": [1.5]}}']
    )
    told: list[Event] = []
    site.run(listeners=[told.append])
    assert "new columns: new" in notices(told)
    found = sorted(((r["id"], r["new"]) for r in site.rows()), key=lambda r: r[0])
    assert found == [(1, None), (2, None), (3, {"a": 1, "b": None}), (5, {"a": None, "b": [1.5]})]
    (letter,) = site.dead()
    assert letter["value"] == b'{"id": "four"}' and "id" in letter["reason"]


def test_stopping_at_a_bad_value_commits_nothing_of_its_batch_and_says_where_it_is(site: Site) -> None:
    site.produce_values(site.topic, [b'{"id": 1}', b'{"id": 2}', b"{oops", b'{"id": 4}'])
    with pytest.raises(BadRecord, match=rf"{site.topic}-0 offset 1: ") as error:
        site.run(pipeline=site.pipeline(decode=JSON + '\non_error = "stop"'))
    assert "dead_letter" in (error.value.hint or "")
    assert site.rows() == [] and site.dead() == []
    site.run()
    assert len(site.rows()) == 3 and len(site.dead()) == 1


def test_an_edited_schema_counts_again_and_a_changed_type_is_refused_with_what_to_do(site: Site) -> None:
    site.produce_values(site.topic, [b'{"id": 1, "seen": true}', b'{"id": 2}'])
    site.run()
    site.produce_values(site.topic, [b'{"id": 3, "seen": false, "name": "x"}'])
    site.run(pipeline=site.pipeline(decode='format = "json"\nschema = "id BIGINT, name STRING"'))
    assert {(r["id"], r["seen"], r["name"]) for r in site.rows()} == {(1, True, None), (2, None, None), (3, False, "x")}
    with pytest.raises(PipelineError, match=r"column id .* is int64, and the rows have it as string") as error:
        site.run(pipeline=site.pipeline(decode='format = "json"\nschema = "id STRING"'))
    assert "replay" in (error.value.hint or "")


def test_raw_records_have_the_columns_of_sparks_connector_and_no_dead_letters(site: Site) -> None:
    site.produce(30)
    site.run(pipeline=site.pipeline(decode=RAW))
    site.check_raw_exactly_once()
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert site.table.schema().to_arrow().names == names
    assert not Path(f"{site.pipeline().dead_letters.path}").exists()


def test_rows_are_partitioned_by_columns_of_theirs(site: Site) -> None:
    site.produce(60)
    site.run(pipeline=site.pipeline(table='partition_by = ["_partition"]'))
    site.check_exactly_once()
    assert {uri.split("/")[-2] for uri in site.table.file_uris()} == {"_partition=0", "_partition=1"}
    with pytest.raises(PipelineError, match="partitioned by _partition, and the file says nothing"):
        site.run()
    with pytest.raises(PipelineError, match="no column nothing"):
        site.run(pipeline=site.pipeline(table='partition_by = ["nothing"]'))
    with pytest.raises(PipelineError, match="column _key is binary"):
        site.run(pipeline=site.pipeline(table='partition_by = ["_key"]'))


def test_a_runner_that_takes_over_keeps_what_the_one_before_it_pinned_meanwhile(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.produce_values(site.topic, [b'{"id": 1, "old": 1}'])
    site.run()
    tables_open = Tables.open

    def late(*arguments: Any) -> Tables:
        monkeypatch.undo()
        site.produce_values(site.topic, [b'{"id": 2, "new": 1}'])
        site.run()
        site.produce_values(site.topic, [b'{"id": 3, "new": "text"}'])
        return tables_open(*arguments)

    monkeypatch.setattr(Tables, "open", late)
    site.run()
    assert {(r["id"], r["old"], r["new"]) for r in site.rows()} == {(1, 1, None), (2, None, 1)}
    assert [r["value"] for r in site.dead()] == [b'{"id": 3, "new": "text"}']


def test_an_inferred_schema_is_pinned_from_the_first_moment_of_the_table(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.produce_values(site.topic, [b'{"id": 1}'])
    inferred = site.pipeline(decode='format = "json"\ninfer = true')

    def dies(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(Tables, "take_over", dies)
    with pytest.raises(RuntimeError):
        site.run(pipeline=inferred)
    monkeypatch.undo()
    table = PipelineTable.open(inferred.table.path, inferred.name)
    assert table is not None and table.epoch == 0 and "long" in (table.pin or "")


@pytest.mark.parametrize("what", ["starting offsets", "dead letters"])
def test_a_first_start_that_fails_leaves_no_table(site: Site, what: str) -> None:
    pipeline = site.pipeline()
    if what == "dead letters":
        write_deltalake(pipeline.dead_letters.path, pa.table({"id": [7]}))
    else:
        pipeline = site.pipeline(
            source=f'topics = ["{site.topic}"]\nstarting_offsets = {{ {site.topic} = {{ 0 = 9 }} }}'
        )
    with pytest.raises(PipelineError):
        site.run(pipeline=pipeline)
    assert not Path(pipeline.table.path).exists()


# --- whose table --------------------------------------------------------------------------------------


def test_a_table_that_somebody_else_wrote_is_refused_until_it_is_adopted(site: Site) -> None:
    path = str(site.directory / "lake" / site.name)
    write_deltalake(path, pa.table({"id": [7], "own": ["x"]}))
    site.produce_values(site.topic, [b'{"id": 1}'])
    with pytest.raises(Foreign, match="never wrote to: somebody else wrote it") as error:
        site.run()
    assert "adopt = true" in (error.value.hint or "")
    site.run(pipeline=site.pipeline(table="adopt = true"))
    assert {(r["id"], r["own"]) for r in site.rows()} == {(7, "x"), (1, None)}


def test_a_renamed_pipeline_is_told_its_old_name(site: Site) -> None:
    site.produce(5)
    site.run()
    with pytest.raises(Foreign, match=f"pipeline {site.name} wrote it"):
        site.run(pipeline=replace(site.pipeline(), name="new-name"))


# --- what is missing ----------------------------------------------------------------------------------


def test_a_topic_that_does_not_exist_is_told(site: Site) -> None:
    with pytest.raises(NotFound, match="nowhere: there is no such topic"):
        site.run(pipeline=site.pipeline(source='topics = ["nowhere"]'))


def test_a_broker_that_never_answered_is_not_waited_for(site: Site) -> None:
    pipeline = site.pipeline(trigger='interval = "1s"')
    with pytest.raises(Unreachable):
        site.run(pipeline=replace(pipeline, source=replace(pipeline.source, bootstrap="127.0.0.1:1")))


def test_records_that_retention_removed_stop_the_pipeline_with_numbers_or_are_reported_and_passed(site: Site) -> None:
    site.produce(40)
    site.run()
    site.produce(40)
    with Client(site.bootstrap) as client:
        client.admin.delete_records(site.topic, {0: 30})
    with pytest.raises(DataLoss, match=f"{site.topic}-0: offset 20 is due, and the log begins at 30; 10 offsets"):
        site.run()
    told: list[Event] = []
    tolerant = site.pipeline(source=f'topics = ["{site.topic}"]\nfail_on_data_loss = false')
    site.run(pipeline=tolerant, listeners=[told.append])
    assert notices(told).count("records are lost") == 1 and "10 offsets are gone" in notices(told)
    for offset in range(20, 30):
        del site.acknowledged[site.topic, 0, offset]
    site.check_exactly_once()


@pytest.mark.parametrize("fail", [True, False])
def test_records_that_go_between_the_plan_and_the_reading_are_treated_alike(site: Site, fail: bool) -> None:
    site.produce(40)
    told: list[Event] = []

    def cut(event: Event) -> None:
        told.append(event)
        if isinstance(event, StepReached) and (event.batch, event.step) == (1, Step.PLANNED):
            with Client(site.bootstrap) as client:
                client.admin.delete_records(site.topic, {0: 6})

    pipeline = site.pipeline(source=f'topics = ["{site.topic}"]\nfail_on_data_loss = {str(fail).lower()}')
    if fail:
        with pytest.raises(DataLoss, match="offsets 0 to 5 are lost"):
            site.run(pipeline=pipeline, listeners=[cut])
        assert site.rows() == []
    else:
        site.run(pipeline=pipeline, listeners=[cut])
        assert notices(told).count("offsets 0 to 5 are lost") == 1
        site.acknowledged = {at: v for at, v in site.acknowledged.items() if at[1] == 1 or at[2] >= 6}
        site.check_exactly_once()


def make_again(site: Site) -> None:
    with Client(site.bootstrap) as client:
        client.admin.delete_topics([site.topic])
        client.admin.create_topic(site.topic, partitions=2)


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("count", [0, 60])
def test_a_topic_that_was_made_again_is_refused_however_far_it_has_grown(site: Site, count: int, fail: bool) -> None:
    pipeline = site.pipeline(source=f'topics = ["{site.topic}"]\nfail_on_data_loss = {str(fail).lower()}')
    site.produce(40)
    site.run(pipeline=pipeline)
    before = site.rows()
    make_again(site)
    site.produce(count)
    for refused in (lambda: site.run(pipeline=pipeline), lambda: next_plan(pipeline, 20)):
        with pytest.raises(DataLoss, match=f"created again .*: {site.topic};") as error:
            refused()
        assert "--allow-missing" in (error.value.hint or "")
    found = status(pipeline, 20)
    assert (found.problem, found.hint) == (error.value.message, error.value.hint)
    (checked,) = [row for row in findings(pipeline, 20) if row.what == "table"]
    assert (checked.ok, checked.message, checked.hint) == (False, error.value.message, error.value.hint)
    assert site.rows() == before


def test_a_topic_that_is_made_again_while_the_pipeline_runs_is_refused(site: Site) -> None:
    site.produce(40)

    def again(event: Event) -> None:
        if isinstance(event, StepReached) and event.step == Step.GROUP_COMMITTED:
            make_again(site)
            site.produce(60)

    with pytest.raises(DataLoss, match="created again"):
        site.run(listeners=[again])
    assert len(site.rows()) + len(site.dead()) == 40


def test_a_table_that_does_not_know_which_topic_it_was_read_from_learns_it_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = Brokers.partitions

    def without_ids(brokers: Brokers) -> Any:
        found = partitions(brokers)
        brokers.topic_ids = {}
        return found

    monkeypatch.setattr(Brokers, "partitions", without_ids)
    site.produce(20)
    site.run()
    monkeypatch.undo()
    site.produce(20)
    site.run()
    site.check_exactly_once()
    make_again(site)
    site.produce(60)
    with pytest.raises(DataLoss, match="created again"):
        site.run()


def test_a_log_that_lost_its_end_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.produce(40)
    site.run()
    ends = Brokers.ends
    monkeypatch.setattr(Brokers, "ends", lambda *asked: {at: e._replace(end=0) for at, e in ends(*asked).items()})
    with pytest.raises(DataLoss, match="up to offset 20, and the log ends at 0"):
        site.run()


def test_transforming_without_spark_is_refused(site: Site) -> None:
    with pytest.raises(NotReady, match='master = "none"'):
        site.run(pipeline=site.pipeline(more='[transform]\nsql = "SELECT * FROM records"\n'))


# --- the group ----------------------------------------------------------------------------------------


def test_the_group_shows_what_the_table_has_and_never_decides(site: Site) -> None:
    site.produce(40)
    site.run()
    with Client(site.bootstrap) as client:
        committed = {at: c.offset for at, c in client.groups.offsets(site.name).items()}
        assert committed == {(site.topic, 0): 20, (site.topic, 1): 20}
        client.groups.commit(site.name, {(site.topic, 0): 3})
        site.run()
        assert client.groups.offsets(site.name)[site.topic, 0].offset == 20
    site.check_exactly_once()


def test_a_group_that_refuses_the_offsets_is_only_warned_about(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ClientError("no")

    monkeypatch.setattr("tidelog.client.groups.Groups.commit", refuse)
    site.produce(120)
    told: list[Event] = []
    site.run(listeners=[told.append])
    assert notices(told).count("does not show them: no") == 1
    site.check_exactly_once()


# --- running ------------------------------------------------------------------------------------------


def test_a_continuous_runner_goes_on_until_it_is_stopped_and_finishes_its_batch(site: Site) -> None:
    site.produce(60)
    reached = threading.Event()
    runner = Runner(
        site.pipeline(trigger='interval = "20ms"'),
        InProcess(),
        [lambda event: reached.set() if isinstance(event, StepReached) and event.batch == 2 else None],
    )
    thread = threading.Thread(target=runner.run)
    thread.start()
    site.produce(60)
    assert reached.wait(30)
    runner.stop()
    thread.join(30)
    assert not thread.is_alive()
    site.run()
    site.check_exactly_once()


def test_small_files_are_joined_and_every_record_stays(site: Site) -> None:
    pipeline = site.pipeline(table="compact_every = 3", limits="max_records_per_batch = 20")
    for _ in range(3):
        site.produce(60)
        site.run(pipeline=pipeline)
    site.check_exactly_once()
    assert len(site.table.file_uris()) < 9 and len(site.letters.file_uris()) < 9


def test_progress_tells_where_every_partition_stands(site: Site) -> None:
    site.produce(100)
    told: list[Event] = []
    site.run(listeners=[told.append])
    seen = [event for event in told if isinstance(event, RunProgress)]
    for progress in seen:
        assert all(p.committed <= p.read <= p.end for p in progress.partitions)
    assert [(p.committed, p.read, p.end, p.lag) for p in seen[-1].partitions] == [(50, 50, 50, 0)] * 2
    assert (seen[-1].rows, seen[-1].dead_letters, seen[-1].state) == (86, 14, RunState.CAUGHT_UP)
    assert any(p.read > p.committed for progress in seen for p in progress.partitions)
    assert json.dumps(seen[-1].as_dict())


def test_aborted_transactions_and_their_markers_leave_no_row(site: Site) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": site.bootstrap, "transactional.id": site.name})
    producer.init_transactions()
    for commit in (True, False, True):
        producer.begin_transaction()
        for n in range(10):
            producer.produce(site.topic, b"%d %d" % (commit, n), partition=0)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()
    with Client(site.bootstrap) as client:
        await_stable(client, site.topic)
    site.run(pipeline=site.pipeline(decode=RAW))
    assert sorted(r["offset"] for r in site.rows()) == [*range(10), *range(22, 32)]
    assert {r["value"][:1] for r in site.rows()} == {b"1"}
    assert DeltaTable(site.table.table_uri).transaction_version(f"{site.name}/{site.topic}/0") == 33


def test_records_of_all_kinds_are_landed_as_they_are(site: Site) -> None:
    with Client(site.bootstrap) as client:
        client.produce(
            site.topic,
            [Message(b"v", b"k", [("h", b"1"), ("h", None)], timestamp_ms=1_700_000_000_123), Message(None, b"k")],
            partition=1,
        )
    site.run(pipeline=site.pipeline(decode=RAW))
    one, other = sorted(site.rows(), key=lambda r: r["offset"])
    assert (one["key"], one["value"], one["headers"]) == (
        b"k",
        b"v",
        [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    )
    assert one["timestamp"].timestamp() == 1_700_000_000.123 and other["value"] is None and not other["headers"]
