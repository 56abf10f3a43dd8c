"""B13: a topic into a table: our pipeline of raw records into Delta, beside Spark's own connector into Parquet.

The systems are the two ways, on the same Spark and the same broker. Ours also commits rows and offsets in one log
entry, and could be killed at any moment; what Spark's batch writer leaves when it is killed has to be thrown away.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.cases.b12_spark_read import SIZES, measured
from bench.measure import Benchmark, Sample, Scale
from bench.systems.kafka import ApacheKafka
from bench.systems.process import BrokerProcess
from bench.systems.tidelog import Tidelog

VARIANTS: tuple[tuple[type[BrokerProcess], int, int], ...] = (
    (Tidelog, 100, 8_000_000),
    (Tidelog, 1024, 1_500_000),
    (ApacheKafka, 100, 8_000_000),
)
GOAL = 4.0


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    for kind, size, records in VARIANTS[:1] if scale.quick else VARIANTS:
        rows_per_s = measured(broker.name, kind, size, scale.of(records), "table", directory)
        yield Sample(f"{SIZES[size]}, {kind.name} broker", rows_per_s / 1e6, "M rows/s", "higher", goal=GOAL)


BENCHMARK = Benchmark("B13", "Spark, topic to table", run, started=False)
