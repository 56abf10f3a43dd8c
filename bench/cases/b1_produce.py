"""B1: produce throughput, through librdkafka and the Java producer, by record size, acknowledgement and codec."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import clients
from bench.measure import Benchmark, Sample, Scale
from bench.systems.process import BrokerProcess

#: Records of one measured run, by size: one to two seconds' worth on two cores.
RECORDS = {100: 1_500_000, 1024: 250_000}
#: A JVM needs this many before its compiled code is what runs.
JAVA_WARMUP = {100: 400_000, 1024: 80_000}
#: Compression costs the client; fewer records keep a run at its length.
COMPRESSED_SHARE = {"none": 1.0, "gzip": 0.25, "snappy": 0.7, "lz4": 0.7, "zstd": 0.6}


@dataclass(frozen=True, slots=True)
class Variant:
    client: str
    size_bytes: int
    acks: str
    codec: str

    @property
    def name(self) -> str:
        size = "100 B" if self.size_bytes == 100 else "1 KiB"
        return f"{self.client}, {size}, acks={self.acks}, {self.codec}"


def variants(quick: bool) -> list[Variant]:
    """Every codec with acks=all, and acks=1 without a codec: a codec does not meet the acknowledgement again."""
    sizes = (100,) if quick else (100, 1024)
    codecs = ("none", "lz4") if quick else tuple(COMPRESSED_SHARE)
    made = []
    for client in ("librdkafka", "java"):
        for size in sizes:
            if not quick:
                made.append(Variant(client, size, "1", "none"))
            made += [Variant(client, size, "all", codec) for codec in codecs]
    return made


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    warm_up(broker, scale)
    for variant in variants(scale.quick):
        os.sync()
        topic = clients.new_topic(broker.bootstrap)
        records_per_s = measure(broker, variant, topic, scale, directory)
        clients.delete_topic(broker.bootstrap, topic)
        yield Sample(variant.name, records_per_s * variant.size_bytes / 1e6, "MB/s", "higher", goal=1.0)


def warm_up(broker: BrokerProcess, scale: Scale) -> None:
    """Both brokers get a load that is not measured: Kafka's compiled code is what the figures should show."""
    topic = clients.new_topic(broker.bootstrap)
    for size in (100, 1024):
        values = clients.payloads(size)
        clients.librdkafka_produce(broker.bootstrap, topic, values, scale.of(RECORDS[size]), "all", "none")
    clients.delete_topic(broker.bootstrap, topic)


def measure(broker: BrokerProcess, variant: Variant, topic: str, scale: Scale, directory: Path) -> float:
    size, codec = variant.size_bytes, variant.codec
    count = scale.of(int(RECORDS[size] * COMPRESSED_SHARE[codec]))
    values = clients.payloads(size)
    if variant.client == "librdkafka":
        taken = clients.librdkafka_produce(broker.bootstrap, topic, values, count, variant.acks, codec)
        rate, written = count / taken, count
    else:
        payload_file = directory / f"payloads-{size}"
        payload_file.write_bytes(b"\n".join(values))
        warmup = scale.of(JAVA_WARMUP[size])
        rate, _ = clients.java_produce(broker.bootstrap, topic, payload_file, count, warmup, variant.acks, codec)
        written = count + warmup
    arrived = clients.end_offsets(broker.bootstrap, topic)
    assert arrived == written, f"{variant.name}: {written} records were acknowledged, the log holds {arrived}"
    return rate


BENCHMARK = Benchmark("B1", "produce throughput", run, median_goal=1.3)
