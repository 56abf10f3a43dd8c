"""B2: fetch throughput from a log in page cache, through librdkafka and the Java consumer, without a group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench import clients
from bench.measure import Benchmark, Sample, Scale
from bench.systems.process import BrokerProcess

RECORDS = {100: 3_000_000, 1024: 500_000}


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    for size, label in ((100, "100 B"), (1024, "1 KiB")):
        count = scale.of(RECORDS[size])
        for codec in ("none",) if scale.quick else ("none", "lz4"):
            topic = clients.new_topic(broker.bootstrap)
            values = clients.payloads(size)
            clients.fill(broker.bootstrap, topic, values, count, codec)
            # The first pass brings the broker's own code and the page cache into the state that is measured.
            clients.librdkafka_consume(broker.bootstrap, topic, count)
            taken, size_bytes = clients.librdkafka_consume(broker.bootstrap, topic, count)
            yield Sample(f"librdkafka, {label}, {codec}", size_bytes / taken / 1e6, "MB/s", "higher")
            _, mb_per_s = clients.java_consume(broker.bootstrap, topic, count)
            yield Sample(f"java, {label}, {codec}", mb_per_s, "MB/s", "higher")
            clients.delete_topic(broker.bootstrap, topic)


BENCHMARK = Benchmark("B2", "fetch throughput", run, median_goal=1.3)
