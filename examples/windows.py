"""Counts orders in windows of event time and writes them to a Delta table, each order exactly once.

    python -m examples.windows --bootstrap localhost:9092 --from orders --table lake/orders_by_window

Structured Streaming keeps the open windows and reads the topic through `format("tidelog")`. A window is written when it
is complete, that is, when the watermark (the latest event time seen minus --late) has passed its end.
`format("tidelog-delta")` commits the windows of a batch together with the number of the batch. If the program dies at
any point, even between that commit and Spark's own checkpoint, the next start skips what is already in the table.

Values are JSON such as {"at": "2026-01-31T12:00:00Z", "customer": "c-17", "amount": 12.5}.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SCHEMA = "at TIMESTAMP, customer STRING, amount DOUBLE"


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("windows")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def orders(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    topic = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", options.bootstrap)
    topic = topic.option("subscribe", options.source).option("startingOffsets", "earliest")
    topic = topic.option("maxOffsetsPerTrigger", options.batch)
    return topic.load().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("order")).select("order.*")


def windows(found: DataFrame, options: argparse.Namespace) -> DataFrame:
    counted = found.withWatermark("at", options.late).groupBy(F.window("at", options.window), "customer")
    counted = counted.agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))
    return counted.select(F.col("window.start").alias("start"), "customer", "orders", "amount")


def run(options: argparse.Namespace) -> None:
    spark = session()
    writer = windows(orders(spark, options), options).writeStream.format("tidelog-delta").outputMode("append")
    writer = writer.option("checkpointLocation", options.checkpoint or f"{options.table}_checkpoint")
    writer = writer.trigger(availableNow=True) if options.once else writer.trigger(processingTime="1 second")
    query = writer.start(options.table)
    print(f"counting {options.source} into {options.table}; Ctrl-C stops", flush=True)
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    print(f"stopped; {options.table} holds the windows that are complete")
    spark.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="localhost:9092", help="default: %(default)s")
    parser.add_argument("--from", dest="source", required=True, metavar="TOPIC")
    parser.add_argument(
        "--table", required=True, metavar="DIRECTORY", help="the Delta table, created if it does not exist"
    )
    parser.add_argument(
        "--checkpoint", metavar="DIRECTORY", help="Spark checkpoint; default: the table with the suffix _checkpoint"
    )
    parser.add_argument("--window", default="10 seconds", help="default: %(default)s")
    parser.add_argument("--late", default="30 seconds", help="how late an order may arrive; default: %(default)s")
    parser.add_argument(
        "--batch",
        type=int,
        default=100_000,
        metavar="RECORDS",
        help="maximum number of records per batch; default: %(default)s",
    )
    parser.add_argument("--once", action="store_true", help="read the existing records, then end")
    run(parser.parse_args())
    return 0


if __name__ == "__main__":
    sys.exit(main())
