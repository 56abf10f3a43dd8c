"""What Spark needs, told in words where it is missing; nothing here starts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.pipeline.errors import NotReady, TasksFailed
from tidelog.pipeline.spark import session
from tidelog.pipeline.spark.session import check_java, check_master, check_pyspark, expected_parallelism, spark_session
from tidelog.pipeline.spec import Spark

WORKER_SAID = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
    ^^^^^^^^^
OSError: [Errno 28] No space left on device: '/lake/part'

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:561)
Driver stacktrace:
	at org.apache.spark.scheduler.DAGScheduler.abortStage
"""


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path / "bin" / "java"


def says(java: Path, text: str, code: int = 0) -> None:
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {code}\n")
    java.chmod(0o755)


def test_no_java_is_told_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotReady, match="there is no java on the PATH") as error:
        spark_session(Spark(), "p")
    assert "install Java 17" in (error.value.hint or "") and 'master = "none"' in (error.value.hint or "")


def test_a_java_that_is_old_or_broken_is_told(java_home: Path) -> None:
    with pytest.raises(NotReady, match="cannot be run"):
        check_java()
    says(java_home, 'openjdk version "11.0.2" 2019-01-15')
    with pytest.raises(NotReady, match=r"needs Java 17, and .* is Java 11"):
        check_java()
    says(java_home, 'java version "1.8.0_202"')
    with pytest.raises(NotReady, match="is Java 8"):
        check_java()
    says(java_home, "segmentation fault", 139)
    with pytest.raises(NotReady, match="does not work: segmentation fault"):
        check_java()
    says(java_home, 'openjdk version "21.0.1" 2023-10-17')
    assert check_java() == str(java_home)


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pyspark" else object())
    with pytest.raises(NotReady, match="pyspark is not installed") as error:
        check_pyspark()
    assert error.value.hint == "`pip install '.[spark]'` in a checkout of tidelog"


def test_a_local_master_tries_failed_tasks_again() -> None:
    assert check_master("local") == "local[1,4]"
    assert check_master("local[3]") == "local[3,4]"
    assert check_master("local[*]") == "local[*,4]"
    assert check_master("local[2,9]") == "local[2,9]"
    assert (expected_parallelism("local[3]"), expected_parallelism("local"), expected_parallelism("none")) == (3, 1, 1)


@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("spark://127.0.0.1:1", "no Spark master listens at spark://127.0.0.1:1 (127.0.0.1:1: Connection refused)"),
        ("spark://host", "names no port"),
        ("lokal[*]", "is not a Spark master"),
        ("localhost:7077", "is not a Spark master"),
    ],
)
def test_a_wrong_master_is_told_at_once(master: str, said: str) -> None:
    with pytest.raises(NotReady) as error:
        check_master(master)
    assert said in error.value.message and "[spark]" in (error.value.hint or "")


def test_what_a_worker_said_is_found_between_the_lines_of_the_jvm() -> None:
    from tidelog.pipeline.spark.on_spark import explained

    told = explained(RuntimeError(WORKER_SAID))
    assert isinstance(told, TasksFailed)
    assert told.message == "tasks failed on Spark: OSError: [Errno 28] No space left on device: '/lake/part'"
    assert explained(ValueError("short")).message == "tasks failed on Spark: short"


def test_a_spark_that_does_not_start_is_told_in_a_line() -> None:
    told = session._explained(RuntimeError("first\nCaused by: java.lang.Exception: bad thing\nmore"), "local[1]")
    assert told.message == "Spark did not start on local[1]: Caused by: java.lang.Exception: bad thing"
