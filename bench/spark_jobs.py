"""The Spark side of B12 and B13, in a process of its own: `python -m bench.spark_jobs JOB CONTENDER …`.

Two contenders on the same Spark and the same broker: `kafka` is Spark's own connector, `tidelog` is ours. The first
pass over the topic warms up the JVM, the Python workers and the page cache; the passes after it are measured, and the
process says as JSON how long each took. That every row arrived is checked: for the noop sink, which does not count, in
the first pass only, since counting beside it would be measured.

    read    topic -> DataFrame -> Spark's noop sink, which takes every column of every row; or count()
    table   topic -> table: ours with a pipeline of raw records into Delta; Spark's own connector into Parquet, because
            Delta's connector for Spark does not exist for this version of Spark. Delta's log would only add to it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.systems.java import REPOSITORY
from bench.systems.spark import spark_session
from bench.systems.tidelog import EarlierTidelog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bench.systems.process import BrokerProcess

CONTENDERS = ("kafka", "tidelog")
MASTER = "local[2]"
_PIPELINE = """
name = "bench"
[source]
bootstrap = "{bootstrap}"
topics = ["{topic}"]
[decode]
format = "raw"
[table]
path = "{path}"
[trigger]
once = true
[limits]
max_records_per_batch = 100000000
"""


def seconds_of(
    job: str, contender: str, broker: BrokerProcess, topic: str, records: int, passes: int, directory: Path
) -> list[float]:
    """How long the measured passes of a job took, in a process of its own.

    The contender `before` is the `tidelog` of another checkout.
    """
    python, checkout = sys.executable, REPOSITORY
    if contender == EarlierTidelog.name:
        contender, checkout = "tidelog", EarlierTidelog.checkout
        python = EarlierTidelog.python_of(checkout)
    arguments = [job, contender, broker.bootstrap, topic, str(records), str(passes), str(directory)]
    # A checkout is measured as it stands, installed or not.
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    command = [python, "-m", "bench.spark_jobs", *arguments]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"bench.spark_jobs {' '.join(arguments)} failed:\n{done.stderr[-4000:]}")
    measured: list[float] = json.loads(done.stdout.splitlines()[-1])
    return measured


# --- in that process ----------------------------------------------------------------------------------


def topic_frame(spark: SparkSession, contender: str, bootstrap: str, topic: str, headers: bool = False) -> DataFrame:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": str(headers).lower()}
    return spark.read.format(contender).options(**options).load()


def read(spark: SparkSession, contender: str, bootstrap: str, topic: str, directory: Path) -> None:
    topic_frame(spark, contender, bootstrap, topic).write.format("noop").mode("overwrite").save()


def read_first(spark: SparkSession, contender: str, bootstrap: str, topic: str, directory: Path) -> int:
    """As `read`, with the rows counted on their way."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    frame = topic_frame(spark, contender, bootstrap, topic).observe(seen, f.count(f.lit(1)).alias("rows"))
    frame.write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"])


def count(spark: SparkSession, contender: str, bootstrap: str, topic: str, directory: Path) -> int:
    return topic_frame(spark, contender, bootstrap, topic).count()


def table(spark: SparkSession, contender: str, bootstrap: str, topic: str, directory: Path) -> int:
    """Into a new table; the rows that its files say they hold."""
    import pyarrow.dataset as ds

    path = directory / f"{contender}-{time.monotonic_ns()}"
    if contender == "kafka":
        # Raw records have their headers, with either.
        topic_frame(spark, contender, bootstrap, topic, headers=True).write.parquet(str(path))
        return int(ds.dataset(path, format="parquet").count_rows())
    from deltalake import DeltaTable

    from tidelog.pipeline.run.runner import Runner
    from tidelog.pipeline.spark.on_spark import OnSpark
    from tidelog.pipeline.spec import parse

    pipeline = parse(_PIPELINE.format(bootstrap=bootstrap, topic=topic, path=path), str(directory / "bench.toml"))
    Runner(pipeline, OnSpark(spark)).run()
    return int(DeltaTable(str(path)).to_pyarrow_dataset().count_rows())


#: the first pass and those that are measured; each gives the rows, where it knows them
JOBS: dict[str, tuple[Callable[..., int], Callable[..., int | None]]] = {
    "read": (read_first, read),
    "count": (count, count),
    "table": (table, table),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_jobs")
    parser.add_argument("job", choices=sorted(JOBS))
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("records", type=int)
    parser.add_argument("passes", type=int)
    parser.add_argument("directory", type=Path)
    options = parser.parse_args()
    spark = spark_session(MASTER, connector=options.contender == "kafka")
    if options.contender == "tidelog":
        from tidelog.pipeline.spark.source import register

        register(spark)
    taken = []
    first, measured = JOBS[options.job]
    for step in (first, *[measured] * options.passes):
        began = time.perf_counter()
        rows = step(spark, options.contender, options.bootstrap, options.topic, options.directory)
        taken.append(time.perf_counter() - began)
        assert rows in (None, options.records), f"{rows} rows came of {options.records} records"
    spark.stop()
    print(json.dumps(taken[1:]))


if __name__ == "__main__":
    main()
