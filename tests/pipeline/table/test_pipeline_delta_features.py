"""Features of Delta that others give a table: each is honoured or refused by name, as the table in the docs says.

A table with the feature is tried at every door. Supported is what leaves the right rows; refused is what names the
feature and has written nothing.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bench.systems.process import BrokerProcess
from delta_log import alter, commit, entries, hide_row, protocol
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pipeline_site import JSON, Site

from tidelog.pipeline.errors import PipelineError, Unsupported
from tidelog.pipeline.land.executor import InProcess
from tidelog.pipeline.load.files import _arrow_schema, _read_fragments, list_delta
from tidelog.pipeline.run.table_replay import Replay
from tidelog.pipeline.table.changes import Keyed
from tidelog.pipeline.table.delta_features import FEATURES, Door
from tidelog.pipeline.table.parquet_files import SinkSettings, write_rows
from tidelog.pipeline.table.query_table import QueryTable
from tidelog.pipeline.table.tables import Tables
from tidelog.pipeline.table.vacuum import find, remove

DOCS = Path(__file__).resolve().parents[3] / "docs" / "delta-tables.md"
YES, NO = "yes", "refused"
DOORS = list(Door)
#: what the table has at first; one more record waits in the topic
IDS = [0, 1, 2, 3]


def set_property(name: str, value: str, *features: str) -> Callable[[str], None]:
    return lambda path: alter(path, lambda properties, _: properties.update({name: value}), protocol(*features))


def describe_column(key: str, value: Any, *features: str) -> Callable[[str], None]:
    return lambda path: alter(path, lambda _, fields: fields[0]["metadata"].update({key: value}), protocol(*features))


def only_protocol(*features: str) -> Callable[[str], None]:
    return lambda path: commit(path, "UPGRADE PROTOCOL", protocol(*features))


def map_columns(path: str) -> None:
    def change(properties: dict[str, str], fields: list[dict[str, Any]]) -> None:
        properties["delta.columnMapping.mode"] = "name"
        for number, field in enumerate(fields, 1):
            field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}

    alter(path, change, {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}})


def add_variant(path: str) -> None:
    column = {"name": "v", "type": "variant", "nullable": True, "metadata": {}}
    alter(path, lambda _, fields: fields.append(column), protocol("variantType"))


def add_zoneless(path: str) -> None:
    column = {"name": "local", "type": "timestamp_ntz", "nullable": True, "metadata": {}}
    alter(path, lambda _, fields: fields.append(column), protocol("timestampNtz"))


def require_values(path: str) -> None:
    alter(path, lambda _, fields: fields[0].update(nullable=False))


def track_rows(path: str) -> None:
    alter(
        path,
        lambda properties, _: properties.update({"delta.enableRowTracking": "true"}),
        protocol("rowTracking", "domainMetadata"),
    )


#: the features by their titles, and how a table gets them
TABLES: dict[str, Callable[[str], Any]] = {
    "deletion vectors (deletionVectors)": lambda path: hide_row(path, 1),
    "column mapping (columnMapping)": map_columns,
    "NOT NULL columns": require_values,
    "NOT NULL columns that are NOT NULL in `[decode]` too": require_values,
    "CHECK constraints (checkConstraints)": set_property("delta.constraints.few", "id < 9", "checkConstraints"),
    "column invariants (invariants)": describe_column("delta.invariants", '{"expression":{"expression":"id < 9"}}'),
    "generated columns (generatedColumns)": describe_column("delta.generationExpression", "1", "generatedColumns"),
    "identity columns (identityColumns)": describe_column("delta.identity.start", 1, "identityColumns"),
    "append only (delta.appendOnly)": set_property("delta.appendOnly", "true"),
    "change data feed (delta.enableChangeDataFeed)": set_property(
        "delta.enableChangeDataFeed", "true", "changeDataFeed"
    ),
    "row tracking (rowTracking)": track_rows,
    "in-commit timestamps (inCommitTimestamp)": set_property(
        "delta.enableInCommitTimestamps", "true", "inCommitTimestamp"
    ),
    "liquid clustering (clustering)": only_protocol("clustering", "domainMetadata"),
    "domain metadata (domainMetadata)": only_protocol("domainMetadata"),
    "column defaults (allowColumnDefaults)": describe_column("CURRENT_DEFAULT", "1", "allowColumnDefaults"),
    "type widening (typeWidening)": set_property("delta.enableTypeWidening", "true", "typeWidening"),
    "vacuum protocol check (vacuumProtocolCheck)": only_protocol("vacuumProtocolCheck"),
    "Iceberg compatibility (icebergCompatV1)": only_protocol("icebergCompatV2"),
    "variant columns (variantType)": add_variant,
    "checkpoints of the second form (v2Checkpoint)": set_property("delta.checkpointPolicy", "v2", "v2Checkpoint"),
    "timestamps without a zone (timestampNtz)": add_zoneless,
    "an end to transaction entries (delta.setTransactionRetentionDuration)": set_property(
        "delta.setTransactionRetentionDuration", "interval 30 days"
    ),
    "any other feature that writers must know": only_protocol("checkpointProtection"),
    "any other feature that readers must know": only_protocol("variantShredding-preview"),
}


class SpoilableTable:
    """A pipeline with a table of two files, and copies of it that a test may spoil."""

    def __init__(self, site: Site) -> None:
        self.site = site
        for first in (0, 2):
            self.produce(first, first + 1)
            site.run()
        self.produce(4)
        self._kept = site.directory / "kept"
        self._lake = site.directory / "lake"
        shutil.copytree(self._lake, self._kept)
        self.path = str(self._lake / site.name)

    def produce(self, *numbers: int) -> None:
        self.site.produce_values(self.site.topic, [b'{"id": %d}' % number for number in numbers])

    def renew(self) -> None:
        shutil.rmtree(self._lake)
        shutil.copytree(self._kept, self._lake)

    def ids(self) -> list[int]:
        query = QueryBuilder().register("t", DeltaTable(self.path)).execute("SELECT id FROM t ORDER BY id")
        return list(pa.table(query).column("id").to_pylist())

    def content(self) -> set[str]:
        return {str(file.relative_to(self._lake)) for file in self._lake.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def base(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> SpoilableTable:
    name = f"features-{os.getpid()}"
    return SpoilableTable(Site(broker.bootstrap, tmp_path_factory.mktemp("features"), name, partitions=1))


def rows_of(base: SpoilableTable, *ids: int) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("_offset", pa.int64())])
    return pa.table({"id": list(ids), "_offset": [-1] * len(ids)}, schema)


def written(base: SpoilableTable, *ids: int) -> Any:
    settings = SinkSettings(root=base.path, prefix="part-q", target_bytes=1 << 20, max_bytes=1 << 20)
    return write_rows(settings, rows_of(base, *ids).to_batches())


def sink(base: SpoilableTable, door: Door) -> QueryTable:
    return QueryTable.open(base.path, rows_of(base).schema, (), door)


def vacuum(base: SpoilableTable) -> None:
    for file in Path(base.path).rglob("*"):
        if file.is_file() and "_delta_log" not in file.parts:
            os.utime(file, (time.time() - 9 * 86400,) * 2)
    tables = Tables.look(base.site.pipeline())
    assert tables is not None
    remove(find(tables, 0, int(time.time() * 1000), newest_runner_too=True))


def compact(base: SpoilableTable) -> None:
    tables = Tables.look(base.site.pipeline())
    assert tables is not None
    assert tables.table.compact(1 << 30) == (1, 2)


def loaded(base: SpoilableTable) -> list[int]:
    found = list_delta(base.path, None)
    schema = _arrow_schema(base.path, found.version)
    batches = _read_fragments(base.path, found.version, {file.path for file in found.files}, schema)
    return sorted(number for batch in batches for number in batch.column("id").to_pylist())


def go_through(base: SpoilableTable, door: Door, before: list[int], decode: str) -> None:
    """Does what the door is for, and looks at the rows."""
    pipeline = base.site.pipeline(decode=decode)
    expected = before
    match door:
        case Door.RUN:
            base.site.run(pipeline=pipeline)
            expected = [*before, 4]
        case Door.REPLAY:
            Replay(pipeline, InProcess(), timeout_s=20).run()
            expected = IDS
        case Door.REPLAY_PART:
            Replay(pipeline, InProcess(), timeout_s=20).run({(base.site.topic, 0): (1, 3)})
        case Door.VACUUM:
            vacuum(base)
            assert all(Path(file).exists() for file in DeltaTable(base.path).file_uris())
            assert not [a for a in entries(base.path) if "add" in a and "deletionVector" in a["add"]] or list(
                Path(base.path).glob("deletion_vector_*")
            )
            return
        case Door.COMPACT:
            compact(base)
        case Door.LOAD:
            assert loaded(base) == before
            return
        case Door.APPEND:
            sink(base, door).append("q", 0, written(base, 100))
            expected = [*before, 100]
        case Door.COMPLETE:
            sink(base, door).replace("q", 0, written(base, 100))
            expected = [100]
        case Door.UPSERT:
            sink(base, door).merge("q", 0, rows_of(base, 2, 100), Keyed(("id",)))
            expected = [*before, 100]
    assert base.ids() == expected


def outcome(base: SpoilableTable, title: str, door: Door) -> str:
    base.renew()
    TABLES[title](base.path)
    before = [0, 2, 3] if title.startswith("deletion vectors") else IDS
    decode = JSON.replace("BIGINT", "BIGINT NOT NULL") if title.endswith("too") else JSON
    content = base.content()
    try:
        go_through(base, door, before, decode)
    except PipelineError as error:
        assert base.content() == content, "it is refused after something was written"
        known = title.startswith("any other") or "NOT NULL" in title
        assert known or (isinstance(error, Unsupported) and title in error.message)
        assert error.hint
        return NO
    return YES


def documented() -> dict[str, list[str]]:
    """The table in the docs: features, and a word for each door."""
    rows = (line.strip("|").split("|") for line in DOCS.read_text().splitlines() if line.startswith("|"))
    cells = [[cell.strip() for cell in row] for row in rows if len(row) == 1 + len(DOORS)]
    return {row[0]: row[1:] for row in cells}


def test_every_known_feature_is_tried_and_documented() -> None:
    titles = {feature.title for feature in FEATURES}
    assert titles <= TABLES.keys()
    table = documented()
    assert table.pop("") == [str(door) for door in DOORS]
    assert {title for title in table if not title.startswith("---")} == TABLES.keys()


@pytest.mark.parametrize("title", TABLES)
def test_a_feature_is_honoured_or_refused_as_the_docs_say(base: SpoilableTable, title: str) -> None:
    found = [outcome(base, title, door) for door in DOORS]
    assert dict(zip(DOORS, documented()[title], strict=True)) == dict(zip(DOORS, found, strict=True))


@pytest.mark.parametrize(
    ("door", "changes"),
    [
        (Door.RUN, [("insert", 4)]),
        (Door.REPLAY, [*(("delete", n) for n in IDS), *(("insert", n) for n in IDS)]),
        (Door.COMPACT, []),
        (Door.APPEND, [("insert", 100)]),
        (Door.COMPLETE, [*(("delete", n) for n in IDS), ("insert", 100)]),
        (Door.UPSERT, [("insert", 100), ("update_postimage", 2), ("update_preimage", 2)]),
    ],
)
def test_the_change_data_feed_tells_what_was_done(
    base: SpoilableTable, door: Door, changes: list[tuple[str, int]]
) -> None:
    base.renew()
    TABLES["change data feed (delta.enableChangeDataFeed)"](base.path)
    before = DeltaTable(base.path).version()
    go_through(base, door, IDS, JSON)
    found = pa.table(DeltaTable(base.path).load_cdf(before + 1)).to_pylist()
    assert sorted((change["_change_type"], change["id"]) for change in found) == changes


def test_a_protocol_that_allows_what_the_table_does_not_use_refuses_nothing(base: SpoilableTable) -> None:
    base.renew()
    allowed = (
        "checkConstraints",
        "generatedColumns",
        "changeDataFeed",
        "columnMapping",
        "deletionVectors",
        "variantType",
    )
    commit(base.path, "UPGRADE PROTOCOL", protocol(*allowed))
    for door in (Door.RUN, Door.REPLAY_PART, Door.COMPACT, Door.APPEND):
        base.renew()
        commit(base.path, "UPGRADE PROTOCOL", protocol(*allowed))
        go_through(base, door, IDS, JSON)


def test_a_feature_that_comes_while_a_batch_is_read_stops_it_before_the_commit(base: SpoilableTable) -> None:
    base.renew()
    content = base.content()

    class Overtaken(InProcess):
        def land(self, *arguments: Any) -> Any:
            landed = super().land(*arguments)
            map_columns(base.path)
            return landed

    with pytest.raises(Unsupported, match="column mapping"):
        base.site.run(executor=Overtaken())
    assert base.ids() == IDS
    assert [file for file in base.content() - content if file.endswith(".parquet")], "it was read"
    files = DeltaTable(base.path).file_uris()
    assert len(files) == 2


def test_a_type_that_changes_between_the_rows_of_a_sink_and_their_commit_is_told(base: SpoilableTable) -> None:
    base.renew()
    table = sink(base, Door.APPEND)
    files = written(base, 100)
    rows = pa.table({"id": ["a"], "_offset": [0]})
    write_deltalake(base.path, rows, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(PipelineError, match=r"column id of .* is string, and the rows have it as int64"):
        table.append("q", 0, files)
    assert base.ids() == ["a"]


def test_rows_that_are_hidden_in_one_of_many_partitions_are_not_loaded(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    for name in ("a b", "50%", "x=y/z", None):
        rows = pa.table({"id": [1, 2, 3], "name": pa.array([name] * 3, pa.string())})
        write_deltalake(path, rows, partition_by=["name"], mode="append")
    hide_row(path, 1)
    found = list_delta(path, None)
    batches = _read_fragments(path, found.version, {f.path for f in found.files}, _arrow_schema(path, found.version))
    loaded = sorted((str(row["name"]), row["id"]) for batch in batches for row in batch.to_pylist())
    whole = [(str(name), number) for name in ("50%", "a b", "x=y/z", None) for number in (1, 2, 3)]
    assert loaded == sorted(row for row in whole if row != ("a b", 2))


def test_a_constraint_that_comes_between_two_commits_of_a_sink_is_not_overlooked(base: SpoilableTable) -> None:
    base.renew()
    table = sink(base, Door.APPEND)
    table.append("q", 0, written(base, 100))
    set_property("delta.constraints.few", "id < 9", "checkConstraints")(base.path)
    with pytest.raises(Unsupported, match="CHECK constraints"):
        table.append("q", 1, written(base, 101))
    assert base.ids() == [*IDS, 100]
