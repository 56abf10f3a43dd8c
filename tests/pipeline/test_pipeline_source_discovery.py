"""PySpark finds the source by itself, and nobody pays for it who does not use it."""

from __future__ import annotations

import json
import subprocess
import sys


def run(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    names: list[str] = json.loads(done.stdout)
    return names


def test_the_package_that_pyspark_looks_for_offers_the_source() -> None:
    from pyspark.sql.datasource import DataSource

    import pyspark_tidelog

    assert issubclass(pyspark_tidelog.DefaultSource, DataSource)
    assert pyspark_tidelog.DefaultSource.name() == "tidelog"


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
