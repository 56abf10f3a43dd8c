"""B15: produce spread over ten thousand partitions, one record or 16 KiB a request, in the shared layout and in the
partitioned one. B16 (`b16_shared_flush`) is the same with every append flushed.

Requests go through bare sockets, each to other partitions than the one before: with files of their own for each
partition, every write is one to another file. Some clients send a request for each batch (librdkafka), others one for
the batches of many partitions (the Java producer): both are measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from bench import clients, raw
from bench.measure import Benchmark, Sample, Scale
from bench.spread import SpreadLoad, brokers
from bench.systems.process import BrokerProcess

PARTITIONS = 10_000
MEASURED_S = 6.0
WARMUP_S = 4.0
CREATION_S = 300
#: (variant, values of a batch, partitions that a request goes to, unit, what a batch counts for)
VARIANTS = (
    ("one record", [b"x" * 100], 1, "k rec/s", 1 / 1e3),
    ("one record to each of 100", [b"x" * 100], 100, "k rec/s", 1 / 1e3),
    ("16 KiB", [b"x" * 1000] * 16, 1, "MB/s", 16_000 / 1e6),
)


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    yield from measure(broker, scale, directory, goal=2.0)


def measure(broker: BrokerProcess, scale: Scale, directory: Path, goal: float, **config: str) -> Iterator[Sample]:
    partitions = scale.of(PARTITIONS)
    for layouts, one in brokers(broker, directory):
        with one:
            topic = clients.new_topic(one.bootstrap, partitions, timeout_s=CREATION_S, **config)
            clients.wait_for_partitions(one.bootstrap, topic, partitions, CREATION_S)
            written = 0
            for name, values, each, unit, worth in VARIANTS:
                os.sync()
                load = SpreadLoad(one, topic, partitions, raw.record_batch(values, int(time.time() * 1000)), each)
                load.start()
                load.run_for(scale.seconds(WARMUP_S))
                rate = load.run_for(scale.seconds(MEASURED_S))
                load.drain()
                written += load.acknowledged * each * len(values)
                for layout in layouts:
                    wanted = goal if layout == "shared" else None
                    yield Sample(f"{name}, {layout}", rate * each * worth, unit, "higher", wanted)
            arrived = clients.end_offsets(one.bootstrap, topic, partitions)
            assert arrived == written, f"{written} records were acknowledged, the log holds {arrived}"


BENCHMARK = Benchmark("B15", "produce to 10,000 partitions", run, started=False)
