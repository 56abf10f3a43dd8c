"""PySpark finds the source by itself, and nobody pays for it who does not use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = """
{before}
from pyspark.sql import SparkSession
settings = {{"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
{after}
topics = spark.read.format("tidelog").option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "t")
print(topics.load().columns)
"""


def run(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    names: list[str] = json.loads(done.stdout)
    return names


def test_the_package_that_pyspark_looks_for_offers_the_source() -> None:
    from pyspark.sql.datasource import DataSource

    import pyspark_tidelog

    assert issubclass(pyspark_tidelog.DefaultSource, DataSource)
    assert pyspark_tidelog.DefaultSource.name() == "tidelog"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [("import pyspark_tidelog", ""), ("", "from tidelog.pipeline.source import register; register(spark)")],
)
def test_a_job_finds_the_source_in_an_environment_that_is_not_activated(
    tmp_path: Path, before: str, after: str
) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB.format(before=before, after=after))
    ours = os.path.dirname(sys.executable)
    path = [entry for entry in os.environ["PATH"].split(os.pathsep) if entry != ours]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment["PATH"] = os.pathsep.join(path)
    done = subprocess.run([sys.executable, str(job)], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert "['key', 'value', 'topic'" in done.stdout, done.stderr


def test_finding_the_source_imports_nothing_but_the_source() -> None:
    loaded = run(
        "import json, sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_tidelog;"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    assert [name for name in loaded if not name.startswith("pyspark.")] == [
        "pyspark_tidelog",
        "tidelog",
        "tidelog.pipeline",
        "tidelog.pipeline.source",
        "tidelog.pipeline.this_python",
    ]


def test_where_the_source_cannot_be_imported_pyspark_finds_others_undisturbed() -> None:
    loaded = run(
        "import json, sys; sys.modules['pyspark'] = None; import pyspark_tidelog;"
        "print(json.dumps([n for n in dir(pyspark_tidelog) if not n.startswith('_')]))"
    )
    assert loaded == ["contextlib"]


def test_the_pipeline_room_can_be_entered_without_spark_or_arrow() -> None:
    loaded = run(
        "import json, sys; import tidelog.pipeline, tidelog.pipeline.ranges, tidelog.pipeline.options,"
        "tidelog.pipeline.planning; print(json.dumps(sorted(sys.modules)))"
    )
    assert not {"pyspark", "pyarrow", "pandas"} & set(loaded)
