"""B6: resident memory of the broker's process, idle and after a load like that of B1."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from bench import clients
from bench.measure import Benchmark, Sample, Scale
from bench.systems.process import BrokerProcess

RECORDS = {100: 3_000_000, 1024: 600_000}
SETTLE_S = 3


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    time.sleep(scale.seconds(SETTLE_S))
    yield Sample("idle", broker.rss_bytes() / 1e6, "MB", "lower", goal=0.2)
    for size, count in RECORDS.items():
        topic = clients.new_topic(broker.bootstrap)
        values = clients.payloads(size)
        for acks in ("1", "all"):
            clients.librdkafka_produce(broker.bootstrap, topic, values, scale.of(count), acks, "none")
        clients.librdkafka_consume(broker.bootstrap, topic, 2 * scale.of(count))
        clients.delete_topic(broker.bootstrap, topic)
    time.sleep(scale.seconds(SETTLE_S))
    yield Sample("after load", broker.rss_bytes() / 1e6, "MB", "lower", goal=0.5)


BENCHMARK = Benchmark("B6", "memory", run)
