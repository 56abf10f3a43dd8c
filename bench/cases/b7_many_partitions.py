"""B7: a thousand and ten thousand partitions on one broker: to make them, to write to all of them, memory, and the
start after kill -9.

One topic has all of them. Each record of librdkafka goes to a partition by chance, so that a request has a few records
at most; the Java producer fills a batch of 16 KiB before it goes on to another partition. After the kill, a start is
over when a record was acknowledged by each of a hundred partitions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from bench import clients, raw
from bench.measure import Benchmark, Sample, Scale
from bench.systems.process import BrokerProcess

PARTITIONS = (1_000, 10_000)
RECORD_BYTES = 1024
SPREAD_RECORDS = 60_000
JAVA_RECORDS = 250_000
JAVA_WARMUP = 80_000
#: partitions that must take a record before a start is over
TRIED = 100
TIMEOUT_S = 300


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    for partitions in map(scale.of, PARTITIONS):
        yield from with_partitions(type(broker)(directory / f"broker-{partitions}"), partitions, scale, directory)


def with_partitions(broker: BrokerProcess, partitions: int, scale: Scale, directory: Path) -> Iterator[Sample]:
    called = f"{partitions:,}"
    with broker:
        began = time.perf_counter()
        topic = clients.new_topic(broker.bootstrap, partitions, timeout_s=TIMEOUT_S)
        yield Sample(f"{called}: make them", time.perf_counter() - began, "s", "lower")
        yield Sample(f"{called}: memory when made", broker.rss_bytes() / 1e6, "MB", "lower")
        rate, spread = produce_spread(broker, topic, scale)
        yield Sample(f"{called}: librdkafka, each record elsewhere", rate / 1e3, "k rec/s", "higher")
        rate, in_batches = produce_batches(broker, topic, scale, directory)
        yield Sample(f"{called}: java, 16 KiB batches", rate * RECORD_BYTES / 1e6, "MB/s", "higher")
        arrived = clients.end_offsets(broker.bootstrap, topic, partitions)
        assert arrived == spread + in_batches, f"{spread + in_batches} were acknowledged, the log holds {arrived}"
        yield Sample(f"{called}: memory after load", broker.rss_bytes() / 1e6, "MB", "lower")
        broker.kill()
        yield Sample(f"{called}: start after kill -9", seconds_to_start(broker, topic, partitions), "s", "lower")
        yield Sample(f"{called}: memory after the start", broker.rss_bytes() / 1e6, "MB", "lower")


def produce_spread(broker: BrokerProcess, topic: str, scale: Scale) -> tuple[float, int]:
    """Records a second, and how many were written, with the warm-up."""
    os.sync()
    values, count = clients.payloads(RECORD_BYTES), scale.of(SPREAD_RECORDS)
    settings: dict[str, str | int] = {"sticky.partitioning.linger.ms": 0}
    for _ in range(2):
        taken = clients.librdkafka_produce(broker.bootstrap, topic, values, count, "all", "none", **settings)
    return count / taken, 2 * count


def produce_batches(broker: BrokerProcess, topic: str, scale: Scale, directory: Path) -> tuple[float, int]:
    payload_file = directory / "payloads"
    payload_file.write_bytes(b"\n".join(clients.payloads(RECORD_BYTES)))
    count, warmup = scale.of(JAVA_RECORDS), scale.of(JAVA_WARMUP)
    os.sync()
    rate, _ = clients.java_produce(broker.bootstrap, topic, payload_file, count, warmup, "all", "none")
    return rate, count + warmup


def seconds_to_start(broker: BrokerProcess, topic: str, partitions: int) -> float:
    """From the process's start until the partitions that are tried have taken a record."""
    batch = raw.record_batch([b"after"], 1)

    def write() -> None:
        with raw.Connection(broker.host, broker.port) as connection:
            for partition in range(0, partitions, max(1, partitions // TRIED)):
                connection.produce_first(raw.produce_frame(topic, partition, batch), TIMEOUT_S)

    return broker.launch_until(write, TIMEOUT_S)


BENCHMARK = Benchmark("B7", "many partitions", run, started=False)
