"""PySpark finds the source by itself, and nobody pays for it who does not use it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
JOB = """
from pyspark.sql import SparkSession
settings = {{"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
{after}
topics = spark.read.format("tidelog").option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "t")
print(topics.load().columns)
spark.range(1).write.format("tidelog-delta").mode("append").save("made")
if not {after!r}:
    from pyspark.sql.functions import udf
    print("workers:", spark.range(1).select(udf(lambda _: __import__("sys").prefix)("id")).first()[0])
"""


@pytest.fixture(scope="module")
def unpacked_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel brings, but for the compiled kernels: they take a minute, and no part in this."""
    directory = tmp_path_factory.mktemp("wheel")
    build = ["setup.py", "--quiet", "egg_info", "--egg-base", str(directory), "build_py", "--build-lib"]
    command = [sys.executable, *build, str(directory / "packages")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return directory / "packages"


@pytest.fixture
def fresh_environment(tmp_path: Path, unpacked_wheel: Path) -> Path:
    """An environment with tidelog in it; what tidelog needs is borrowed from the environment that runs the tests."""
    directory = tmp_path / "environment"
    venv.create(directory, symlinks=True)
    packages = find_site_packages(directory)
    shutil.copytree(unpacked_wheel, packages, dirs_exist_ok=True)
    (packages / "borrowed.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    return directory


def find_site_packages(environment: Path) -> Path:
    return Path(sysconfig.get_path("platlib", vars={"base": str(environment), "platbase": str(environment)}))


def run_not_activated(environment: Path, *arguments: str, **chosen: str) -> subprocess.CompletedProcess[str]:
    ours = {os.path.dirname(sys.executable), str(environment / "bin")}
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHONPATH"))}
    variables["PATH"] = os.pathsep.join(e for e in os.environ["PATH"].split(os.pathsep) if e not in ours)
    command = [str(environment / "bin" / "python"), *arguments]
    return subprocess.run(command, env=variables | chosen, cwd=environment, capture_output=True, text=True, timeout=280)


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
@pytest.mark.parametrize("after", ["", "from tidelog.pipeline.spark.source import register; register(spark)"])
def test_a_job_finds_the_source_in_an_environment_that_is_not_activated(
    fresh_environment: Path, tmp_path: Path, after: str
) -> None:
    if after:
        (find_site_packages(fresh_environment) / "tidelog_pyspark.pth").unlink()
    job = tmp_path / "job.py"
    job.write_text(JOB.format(after=after))
    done = run_not_activated(fresh_environment, str(job))
    assert "['key', 'value', 'topic'" in done.stdout, done.stderr
    assert (fresh_environment / "made" / "_delta_log").is_dir(), done.stderr
    if not after:
        assert f"workers: {fresh_environment}" in done.stdout


@pytest.mark.parametrize(
    ("statement", "chosen", "expected"),
    [
        ("import pyspark", {}, "ours"),
        ("import json", {}, "of the PATH"),
        ("import pyspark", {"PYSPARK_PYTHON": "/usr/bin/python3"}, "of the PATH"),
        ("import pyspark", {"PYSPARK_DRIVER_PYTHON": "/usr/bin/python3"}, "of the PATH"),
    ],
)
def test_only_who_imports_pyspark_and_chose_no_python_gets_that_of_the_environment(
    fresh_environment: Path, statement: str, chosen: dict[str, str], expected: str
) -> None:
    program = f"{statement}; import shutil; print(shutil.which('python3'))"
    done = run_not_activated(fresh_environment, "-c", program, **chosen)
    ours = str(fresh_environment / "bin" / "python3")
    assert ("ours" if done.stdout.strip() == ours else "of the PATH") == expected, done.stderr


def test_an_environment_with_tidelog_starts_without_a_single_import_more(fresh_environment: Path) -> None:
    program = "import json, sys; print(json.dumps(sorted(sys.modules)))"
    with_ours = json.loads(run_not_activated(fresh_environment, "-c", program).stdout)
    (find_site_packages(fresh_environment) / "tidelog_pyspark.pth").unlink()
    assert json.loads(run_not_activated(fresh_environment, "-c", program).stdout) == with_ours


def test_finding_the_source_imports_nothing_but_the_source() -> None:
    loaded = run(
        "import json, sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_tidelog;"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    assert [name for name in loaded if not name.startswith("pyspark.")] == [
        "pyspark_tidelog",
        "tidelog",
        "tidelog.pipeline",
        "tidelog.pipeline.spark",
        "tidelog.pipeline.spark.source",
    ]


def test_where_the_source_cannot_be_imported_pyspark_finds_others_undisturbed() -> None:
    loaded = run(
        "import json, sys; sys.modules['pyspark'] = None; import pyspark_tidelog;"
        "print(json.dumps([n for n in dir(pyspark_tidelog) if not n.startswith('_')]))"
    )
    assert loaded == ["contextlib"]


def test_the_pipeline_room_can_be_entered_without_spark_or_arrow() -> None:
    loaded = run(
        "import json, sys; import tidelog.pipeline, tidelog.pipeline.read.ranges;"
        "import tidelog.pipeline.options.source_options, tidelog.pipeline.read.query_plan;"
        "print(json.dumps(sorted(sys.modules)))"
    )
    assert not {"pyspark", "pyarrow", "pandas"} & set(loaded)
