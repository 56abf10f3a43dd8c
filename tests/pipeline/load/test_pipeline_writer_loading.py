"""Files into topics by real Spark jobs: the right records, each file once, and what is new the next time."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.systems.process import BrokerProcess
from click.testing import CliRunner, Result
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from stable_topics import await_stable

from tidelog.client import Client
from tidelog.pipeline.errors import NotReady, PipelineError
from tidelog.pipeline.load.files import Gone, SourceFile, escaped, format_of
from tidelog.pipeline.load.load_job import Load, LoadDone, Memory, plan, remembered, run
from tidelog.pipeline.write.ledger import LedgerEntry
from tidelog.wire.records import Record

PARTITIONS = 2


class Loading:
    """A topic, and loads into it."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.topic = topic
        with Client(bootstrap) as client:
            client.admin.create_topic(topic, PARTITIONS, configs={"retention.ms": "-1"})  # their times are old

    def load(self, *paths: Path | str, job: str | None = None, **how: Any) -> LoadDone:
        wanted = Load(
            job=job or self.topic, bootstrap=self.bootstrap, topic=self.topic, paths=[*map(str, paths)], **how
        )
        todo = plan(self.spark, wanted)
        return run(self.spark, wanted, todo) if todo.file_count else LoadDone(0, 0)

    def records(self) -> list[Record]:
        with Client(self.bootstrap) as client:
            await_stable(client, self.topic)
            return [
                record
                for partition in range(PARTITIONS)
                for record in client.read(self.topic, partition, isolation="read_committed")
            ]

    def documents(self) -> list[Any]:
        return sorted((json.loads(record.value or b"null") for record in self.records()), key=lambda d: str(d["id"]))


@pytest.fixture
def loading(spark: SparkSession, broker: BrokerProcess, unique: Callable[[str], str]) -> Loading:
    return Loading(spark, broker.bootstrap, unique("loaded"))


@pytest.mark.spark
def test_rows_of_every_format_become_records(loading: Loading, tmp_path: Path) -> None:
    rows = [{"id": 1, "name": "ä", "at": 1_700_000_000_000}, {"id": 2, "name": None, "at": 1_700_000_000_001}]
    for day in ("2026-01-01", "2026-01-02"):
        folder = tmp_path / "parquet" / f"day={day}"
        folder.mkdir(parents=True)
        pq.write_table(
            pa.Table.from_pylist([{**row, "id": f"{day}/{row['id']}"} for row in rows]), folder / "a.parquet"
        )
        (folder / "_SUCCESS").touch()
    done = loading.load(
        tmp_path / "parquet",
        key="concat('k-', id)",
        headers={"name": "name", "it's": "struct(at)"},
        timestamp="timestamp_millis(at)",
        partition="at % 2",
        where="id <> '2026-01-01/2'",
    )
    assert done == LoadDone(2, 3)
    found = sorted(loading.records(), key=lambda record: (record.timestamp, record.key))
    assert [json.loads(record.value or b"") for record in found] == [
        {"id": f"{day}/{number}", "name": name, "at": at, "day": day}
        for at, number, name in ((1_700_000_000_000, 1, "ä"), (1_700_000_000_001, 2, None))
        for day in ("2026-01-01", "2026-01-02")
        if (day, number) != ("2026-01-01", 2)
    ]
    assert {record.key for record in found} == {b"k-2026-01-01/1", b"k-2026-01-02/1", b"k-2026-01-02/2"}
    assert found[0].headers == (("name", "ä".encode()), ("it's", b'{"at":1700000000000}'))
    assert found[-1].headers == (("name", None), ("it's", b'{"at":1700000000001}'))
    assert [record.timestamp for record in found] == [1_700_000_000_000] * 2 + [1_700_000_000_001]

    (tmp_path / "a[1].csv").write_text("id,name\n3,three\n")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"id": "4", "deep": {"x": [1, null]}}\n{"id": "5"}\n'))
    (tmp_path / "c.txt").write_text("one line\nanother\n")
    assert loading.load(tmp_path / "a[1].csv") == LoadDone(1, 1)
    assert loading.load(tmp_path / "b.*.gz", schema="id string, deep struct<x: array<int>>") == LoadDone(1, 2)
    assert loading.load(tmp_path / "c.txt", value="value", key="length(value)") == LoadDone(1, 2)
    values = [record.value for record in loading.records()]
    for value in (
        b'{"id":"3","name":"three"}',
        b'{"id":"4","deep":{"x":[1,null]}}',
        b'{"id":"5","deep":null}',
        b"another",
    ):
        assert values.count(value) == 1


@pytest.mark.spark
def test_a_job_loads_each_file_once_and_what_is_new_the_next_time(loading: Loading, tmp_path: Path) -> None:
    def write(name: str, *numbers: int) -> None:
        (tmp_path / name).write_text("".join(f'{{"id":{number}}}\n' for number in numbers))

    write("a.json", 1, 2)
    write("b.json", 3)
    assert loading.load(tmp_path) == LoadDone(2, 3)
    assert loading.load(tmp_path) == LoadDone(0, 0)
    assert loading.load(tmp_path / "*.json", tmp_path / "a.json") == LoadDone(0, 0)
    write("c.json", 4, 5)
    # It fails at a row of the new file, after others were written.
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        loading.load(tmp_path, value="struct(id, 1 / (id - 5) AS x)", write_options={"kafka.batch.size": "1"})
    assert loading.load(tmp_path) == LoadDone(1, 2)
    assert [row["id"] for row in loading.documents()] == [1, 2, 3, 4, 5]
    write("b.json", 3, 33)
    assert loading.load(tmp_path) == LoadDone(1, 2)
    assert [row["id"] for row in loading.documents()] == [1, 2, 3, 3, 33, 4, 5]
    assert loading.load(tmp_path, job=f"{loading.topic}-again").rows == 6


@pytest.mark.spark
def test_a_delta_table_is_loaded_as_it_grows_and_refused_where_it_changes(loading: Loading, tmp_path: Path) -> None:
    path = str(tmp_path / "table")

    def append(*numbers: int, **how: Any) -> None:
        rows = [{"id": number, "part": f"p/{number % 2}"} for number in numbers]
        write_deltalake(path, pa.Table.from_pylist(rows), mode="append", partition_by=["part"], **how)

    append(1, 2)
    append(3)
    assert loading.load(path) == LoadDone(3, 3)
    assert loading.load(path) == LoadDone(0, 0)
    append(4, 5)
    DeltaTable(path).optimize.compact()
    assert loading.load(path).rows == 2
    assert loading.documents() == [{"id": number, "part": f"p/{number % 2}"} for number in range(1, 6)]
    DeltaTable(path).delete("id = 1")
    with pytest.raises(Gone, match="removes or changes rows") as raised:
        loading.load(path)
    assert "another name" in (raised.value.hint or "")
    assert loading.load(path, job=f"{loading.topic}-whole").rows == 4
    with pytest.raises(PipelineError, match="loads the table"):
        loading.load(tmp_path / "other", format="delta")


@pytest.mark.spark
def test_the_command_tells_what_it_did_and_what_went_wrong(
    loading: Loading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.cli.main import tidelog
    from tidelog.pipeline.spark import session

    class Kept:
        """The session of all tests, which no command may stop."""

        def __getattr__(self, name: str) -> Any:
            return getattr(loading.spark, name)

        def stop(self) -> None:
            pass

    monkeypatch.setattr(session, "spark_session", lambda spark, name: Kept())
    (tmp_path / "a.csv").write_text("id,name\n1,one\n2,two\n")

    def load(*args: str) -> Result:
        return CliRunner().invoke(tidelog, ["pipeline", "load", loading.topic, *args, "-b", loading.bootstrap])

    files = str(tmp_path / "*.csv")
    dry = load(files, "--dry-run", "-k", "id")
    assert dry.exit_code == 0 and "would load 1 csv file (20 B) as records of value, key" in dry.output
    done = load(files, "-k", "id", "-z", "lz4", "-H", "from='csv'")
    assert done.exit_code == 0 and "2 records from 1 file written to" in done.output
    again = load(files)
    assert again.exit_code == 0 and "there is nothing new" in again.output
    as_json = load(files, "-o", "json")
    assert json.loads(as_json.stdout) == {"job": loading.topic, "topic": loading.topic, "files": 0, "records": 0}
    assert {(record.key, record.headers) for record in loading.records()} == {
        (b"1", (("from", b"csv"),)),
        (b"2", (("from", b"csv"),)),
    }
    for args, told in (
        ((str(tmp_path / "none.csv"),), "there is no file"),
        ((files, "--job", "j1", "-k", "idd"), "idd"),
        ((files, "--job", "a/b"), "has a slash"),
        ((files, "--job", "j2", "--partition", "99"), "Invalid partition given with record: 99"),
        ((files, "--job", "j3", "--write-option", "tidelog.nonsense=1"), "there is no option tidelog.nonsense"),
    ):
        wrong = load(*args)
        assert wrong.exit_code == 1 and told in wrong.output, wrong.output
        assert "Traceback" not in wrong.output and len(wrong.output) < 1000
    assert load(files, "-H", "nonsense").exit_code == 2


def test_what_came_to_nothing_is_not_remembered_and_what_was_before_it_is() -> None:
    assert remembered(None) == Memory(0)
    files = json.dumps({"files": {"before": ["a"], "new": ["b", "c"]}})
    assert remembered(LedgerEntry(3, True, (), files)) == Memory(4, frozenset("abc"))
    assert remembered(LedgerEntry(3, False, (), files)) == Memory(3, frozenset("a"))
    table = json.dumps({"delta": {"table": "t", "before": None, "new": 7}})
    assert remembered(LedgerEntry(0, True, (), table)) == Memory(1, frozenset(), "t", 7)
    assert remembered(LedgerEntry(0, False, (), table)) == Memory(0, frozenset(), "t", None)


def test_names_tell_formats_and_are_not_taken_for_patterns() -> None:
    def files(*names: str) -> list[SourceFile]:
        return [SourceFile(f"file:/data/{name}", 1, 1) for name in names]

    assert format_of(files("a.parquet", "b.snappy.parquet")) == "parquet"
    assert format_of(files("A.CSV.GZ")) == "csv"
    assert format_of(files("a.json", "b.jsonl", "c.ndjson.zst")) == "json"
    with pytest.raises(NotReady, match="several formats"):
        format_of(files("a.csv", "b.txt"))
    with pytest.raises(NotReady, match="not told by its name") as raised:
        format_of(files("a.csv", "readme"))
    assert "--format" in (raised.value.hint or "")
    assert escaped("file:/a[1]*{x}?") == r"file:/a\[1\]\*\{x\}\?"
    one, other = SourceFile("a", 1, 2), SourceFile("a", 1, 3)
    assert one.fingerprint != other.fingerprint and one.fingerprint == SourceFile("a", 1, 2).fingerprint
