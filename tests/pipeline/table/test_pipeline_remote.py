"""Tables on object storage and on HDFS: everything that a table in a directory has, with rival runners."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bench.systems.process import BrokerProcess, free_port
from pipeline_site import JSON, Site
from remote_stores import BUCKET, s3_environment, s3_server, small_hdfs

from tidelog.pipeline.errors import NotReady, Superseded
from tidelog.pipeline.land.executor import InProcess
from tidelog.pipeline.run.checking import Finding, findings
from tidelog.pipeline.run.runner import Runner
from tidelog.pipeline.run.table_replay import Replay
from tidelog.pipeline.spec import Pipeline
from tidelog.pipeline.table.pipeline_table import PipelineTable
from tidelog.pipeline.table.tables import Tables
from tidelog.pipeline.table.vacuum import find, remove

PARTITIONED = 'partition_by = ["_partition"]\nfsync = true'


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server(tmp_path_factory.mktemp("s3") / "moto.log") as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with small_hdfs(tmp_path_factory.mktemp("hdfs")) as address:
        yield address


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in s3_environment(s3_endpoint).items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}"


@pytest.fixture(params=["s3", "hdfs"])
def lake(request: pytest.FixtureRequest) -> str:
    root: str = request.getfixturevalue(request.param)
    return root


@pytest.fixture
def site(broker: BrokerProcess, lake: str, tmp_path: Path, unique: Callable[[str], str]) -> Site:
    return Site(broker.bootstrap, tmp_path, unique("remote"), lake=lake)


def table_of(pipeline: Pipeline) -> list[Finding]:
    return [finding for finding in findings(pipeline, 10) if finding.what == "table"]


def test_a_pipeline_lands_checks_replays_and_vacuums_a_remote_table(site: Site) -> None:
    site.produce(60)
    pipeline = site.pipeline(table=PARTITIONED)
    assert [found.ok for found in findings(pipeline, 10)] == [True] * 6
    assert site.run(pipeline=pipeline).rows > 0
    site.check_exactly_once()
    assert {file["partition_values"]["_partition"] for file in _adds(site)} == {0, 1}
    Replay(pipeline, InProcess()).run({(site.topic, 0): (10, 20)})
    site.check_exactly_once()
    assert table_of(pipeline)[0].message.startswith(f"{pipeline.table.path}: version ")
    tables, later_ms = Tables.look(pipeline), int(time.time() * 1000) + 60_000
    assert tables is not None
    orphans = find(tables, 0, later_ms, True)
    assert orphans
    remove(orphans)
    assert not find(tables, 0, later_ms, True)
    site.check_exactly_once()


def _adds(site: Site) -> list[dict[str, dict[str, object]]]:
    import pyarrow as pa

    found: list[dict[str, dict[str, object]]] = pa.table(site.table.get_add_actions()).to_pylist()
    return [{"partition_values": one["partition"]} for one in found]


def test_of_rivals_that_take_over_a_remote_table_at_once_each_has_an_epoch_of_its_own(site: Site) -> None:
    site.produce(1)
    pipeline = site.pipeline()
    site.run(pipeline=pipeline)

    def take_over(_: int) -> int:
        table = PipelineTable.open(pipeline.table.path, pipeline.name)
        assert table is not None
        return table.take_over()

    with ThreadPoolExecutor(4) as rivals:
        epochs = list(rivals.map(take_over, range(4)))
    assert sorted(epochs) == [2, 3, 4, 5]


def test_runners_that_fence_each_other_on_a_remote_table_write_each_record_once(site: Site) -> None:
    site.produce(60)
    pipeline = site.pipeline(limits="max_records_per_batch = 20")
    fenced: list[Superseded] = []

    def take_turns() -> None:
        for _ in range(2):
            try:
                Runner(pipeline, InProcess(), timeout_s=20).run()
            except Superseded as error:
                fenced.append(error)

    with ThreadPoolExecutor(2) as rivals:
        for done in [rivals.submit(take_turns) for _ in range(2)]:
            done.result()
    assert fenced
    site.run(pipeline=pipeline)
    site.check_exactly_once()


@pytest.mark.spark
@pytest.mark.slow
def test_a_transform_reads_and_writes_remote_rows_without_drivers_of_the_jvm(
    broker: BrokerProcess, s3: str, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    site = Site(broker.bootstrap, tmp_path, unique("remote"), lake=s3)
    site.produce(60)
    sql = '\n[transform]\nsql = "SELECT id * 2 AS twice FROM records WHERE id % 2 = 0"\n'
    file = tmp_path / "p.toml"
    file.write_text(site.text(JSON, None, "", "once = true", "", "local[2]") + sql)
    # A process of its own: Spark's workers have the environment that Spark was started with.
    subprocess.run([sys.executable, "-m", "tidelog.cli.main", "pipeline", "run", str(file), "-o", "quiet"], check=True)
    assert sorted(row["twice"] for row in site.rows()) == [2 * n for n in range(60) if n % 2 == 0 and n % 7 != 3]


# --- what check says of a place, and run as well ------------------------------------------------------


def refused(site: Site, pipeline: Pipeline) -> str:
    """What `check` says of the table; `run` says the same."""
    (found,) = table_of(pipeline)
    assert not found.ok and found.hint
    with pytest.raises(NotReady) as raised:
        site.run(pipeline=pipeline)
    assert raised.value.hint == found.hint
    assert str(raised.value).partition("(")[0] == found.message.partition("(")[0]
    return found.message


@pytest.fixture
def nowhere(broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]) -> Site:
    site = Site(broker.bootstrap, tmp_path, unique("nowhere"))
    site.produce(1)
    return site


def test_a_bucket_that_is_not_there_is_a_row_of_check(nowhere: Site, s3: str) -> None:
    nowhere.lake = "s3://nobody-made-this"
    assert "there is no such bucket" in refused(nowhere, nowhere.pipeline())


def test_missing_credentials_are_a_row_of_check(nowhere: Site, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where there are none, a machine of Amazon's would be asked for its own.
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    nowhere.lake = s3
    assert "there are no credentials" in refused(nowhere, nowhere.pipeline())


def test_an_s3_that_does_not_answer_is_a_row_of_check(nowhere: Site, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    nowhere.lake = s3
    assert "nobody answers there" in refused(nowhere, nowhere.pipeline())


@pytest.mark.parametrize(
    ("lake", "says"),
    [
        ("hdfs://there.is.no.such.host.invalid:8020", "there is no such host"),
        ("hdfs://127.0.0.1:1", "nobody answers there"),
        ("hdfs://nameservice", "no name node is known"),
    ],
)
def test_an_hdfs_that_is_not_there_is_a_row_of_check(nowhere: Site, lake: str, says: str) -> None:
    nowhere.lake = lake
    assert says in refused(nowhere, nowhere.pipeline())
