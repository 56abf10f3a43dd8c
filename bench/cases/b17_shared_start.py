"""B17: ten thousand partitions with 5 GB: the first acknowledgement after kill -9, file descriptors, memory, and what
reading costs: at the end of a partition, and one partition after the other from its start.

In the shared layout the batches of a partition lie scattered among those of all others: the catch-up figure is its
price.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from bench import clients, raw
from bench.cases.b15_shared_layout import CREATION_S, PARTITIONS
from bench.measure import Benchmark, Sample, Scale, percentile
from bench.spread import SpreadLoad, brokers
from bench.systems.process import BrokerProcess

SIZE_BYTES = 5_000_000_000
#: with --quick: it shows that the benchmark works
QUICK_BYTES = 200_000_000
VALUES = [b"x" * 1000] * 16
READ_PARTITIONS = 500
TAIL_RECORDS = 2_000
FETCH_BYTES = 1 << 20
TIMEOUT_S = 600


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    partitions = scale.of(PARTITIONS)
    size_bytes = SIZE_BYTES if not scale.quick else scale.of(QUICK_BYTES)
    for layouts, one in brokers(broker, directory):
        for name, value, unit, better, goal in measured(one, partitions, size_bytes, scale):
            for layout in layouts:
                yield Sample(f"{name}, {layout}", value, unit, better, goal if layout == "shared" else None)


def measured(
    broker: BrokerProcess, partitions: int, size_bytes: int, scale: Scale
) -> Iterator[tuple[str, float, str, str, float | None]]:
    with broker:
        topic = clients.new_topic(broker.bootstrap, partitions, timeout_s=CREATION_S)
        clients.wait_for_partitions(broker.bootstrap, topic, partitions, CREATION_S)
        batch = raw.record_batch(VALUES, int(time.time() * 1000))
        load = SpreadLoad(broker, topic, partitions, batch)
        load.start()
        load.run_until(size_bytes // len(batch))
        load.drain()
        yield "file descriptors", float(len(os.listdir(f"/proc/{broker.pid}/fd"))), "", "lower", None
        yield "memory", broker.rss_bytes() / 1e6, "MB", "lower", 0.5
        yield "tail: produce and fetch, p50", tail_ms(broker, topic, scale), "ms", "lower", None
        read = min(partitions, scale.of(READ_PARTITIONS))
        yield "catch-up, partition by partition", catch_up(broker, topic, read), "MB/s", "higher", None
        broker.kill()
        yield "first acknowledgement after kill -9", seconds_to_start(broker, topic), "s", "lower", 0.1


def tail_ms(broker: BrokerProcess, topic: str, scale: Scale) -> float:
    """How long it takes to write a record and to read it again, at the end of a partition that has others around it."""
    batch = raw.record_batch([b"x" * 100], int(time.time() * 1000))
    taken = []
    with raw.Connection(broker.host, broker.port) as connection:
        for _ in range(scale.of(TAIL_RECORDS)):
            began = time.perf_counter()
            produced = connection.produce(raw.produce_frame(topic, 0, batch))
            assert produced.error_code == 0, f"Produce answered error {produced.error_code}"
            answer = connection.ask(raw.fetch_frame(topic, 0, produced.base_offset, FETCH_BYTES))
            assert len(answer) > len(batch), "nothing was read"
            taken.append(time.perf_counter() - began)
    return percentile(sorted(taken), 0.5) * 1e3


def catch_up(broker: BrokerProcess, topic: str, partitions: int) -> float:
    """MB a second of fetches from the start of one partition after the other."""
    read = 0
    began = time.perf_counter()
    with raw.Connection(broker.host, broker.port) as connection:
        for partition in range(partitions):
            # More than a partition holds at 5 GB: one answer brings all of it.
            read += len(connection.ask(raw.fetch_frame(topic, partition, 0, FETCH_BYTES)))
    return read / (time.perf_counter() - began) / 1e6


def seconds_to_start(broker: BrokerProcess, topic: str) -> float:
    """From the process's start until a record was acknowledged."""
    request = raw.produce_frame(topic, 0, raw.record_batch([b"after"], 1))

    def write() -> None:
        with raw.Connection(broker.host, broker.port) as connection:
            connection.produce_first(request, TIMEOUT_S)

    return broker.launch_until(write, TIMEOUT_S)


BENCHMARK = Benchmark("B17", "10,000 partitions with 5 GB", run, started=False)
