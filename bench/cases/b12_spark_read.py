"""B12: a topic as a DataFrame: `format("tidelog")` beside Spark's own connector, on the same Spark and the same broker.

The two systems of this benchmark are the connectors. Each reads from a Tidelog broker, and the small records from an
Apache Kafka broker as well: whoever keeps their Kafka has the connector's share of the gain alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from bench import clients, spark_jobs
from bench.measure import Benchmark, Sample, Scale
from bench.systems.kafka import ApacheKafka
from bench.systems.process import BrokerProcess
from bench.systems.tidelog import Tidelog

#: (broker, bytes of a value, records, job)
VARIANTS: tuple[tuple[type[BrokerProcess], int, int, str], ...] = (
    (Tidelog, 100, 8_000_000, "read"),
    (Tidelog, 100, 8_000_000, "count"),
    (Tidelog, 1024, 1_500_000, "read"),
    (ApacheKafka, 100, 8_000_000, "read"),
)
NAMES = {"read": "noop sink", "count": "count()"}
SIZES = {100: "100 B", 1024: "1 KiB"}
PASSES = 2
GOAL = 2.5


def measured(contender: str, kind: type[BrokerProcess], size: int, count: int, job: str, directory: Path) -> float:
    """Rows a second."""
    with kind(directory / f"{kind.name}-{size}-{job}") as broker:
        topic = clients.new_topic(broker.bootstrap)
        clients.librdkafka_produce(broker.bootstrap, topic, clients.payloads(size), count, "1", "none")
        return count / statistics.median(spark_jobs.seconds_of(job, contender, broker, topic, count, PASSES, directory))


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    for kind, size, records, job in VARIANTS[:1] if scale.quick else VARIANTS:
        rows_per_s = measured(broker.name, kind, size, scale.of(records), job, directory)
        variant = f"{SIZES[size]}, {NAMES[job]}, {kind.name} broker"
        yield Sample(variant, rows_per_s / 1e6, "M rows/s", "higher", goal=GOAL)


BENCHMARK = Benchmark("B12", "Spark, topic to DataFrame", run, started=False)
