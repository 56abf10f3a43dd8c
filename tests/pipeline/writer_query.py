"""Streaming queries from a topic to others as a program of its own, to be killed: see `test_pipeline_writer_spark`.

Each target has a query; all of them run in this one driver, and share its Python workers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]


def main(bootstrap: str, source: str, targets: list[str], directory: Path, per_batch: int) -> None:
    import writer_chaos
    from bench.systems.spark import QUICK_TO_START, spark_session
    from pyspark import cloudpickle

    from tidelog.pipeline.spark.source import register

    # Tasks that fail are run again, which a local master does only if it is told to.
    spark = spark_session("local[2,4]", conf={"spark.driver.extraJavaOptions": QUICK_TO_START})
    cloudpickle.register_pickle_by_value(writer_chaos)
    register(spark)
    spark.dataSource.register(writer_chaos.Chaos)
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    for path in (directory / "plan").glob("driver-*"):
        path.write_text(f"{jvm} {os.getpid()}")
    reading = spark.readStream.format("tidelog").options(
        **{
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(per_batch),
            "minPartitions": "4",
        }
    )
    queries = []
    for target in targets:
        rows = reading.load().selectExpr("value", "key", f"'{target}' AS topic")
        writing = rows.writeStream.format("chaos").options(
            **{
                "kafka.bootstrap.servers": bootstrap,
                "checkpointLocation": str(directory / "checkpoint" / target),
                "plan": str(directory / "plan"),
            }
        )
        queries.append(writing.trigger(availableNow=True).start())
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3].split(","), Path(sys.argv[4]), int(sys.argv[5]))
