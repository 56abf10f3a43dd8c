"""A streaming query from topic to topic as a program of its own, to be killed: see `test_pipeline_writer_spark`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]


def main(bootstrap: str, source: str, target: str, directory: Path) -> None:
    import writer_chaos
    from bench.systems.spark import QUICK_TO_START, spark_session
    from pyspark import cloudpickle

    from tidelog.pipeline.source import register

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
            "maxOffsetsPerTrigger": "800",
            "minPartitions": "4",
        }
    )
    rows = reading.load().selectExpr("value", "key", f"'{target}' AS topic")
    writing = rows.writeStream.format("chaos").options(
        **{
            "kafka.bootstrap.servers": bootstrap,
            "checkpointLocation": str(directory / "checkpoint"),
            "plan": str(directory / "plan"),
        }
    )
    query = writing.trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
