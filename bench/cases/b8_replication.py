"""B8: three brokers, three replicas, acks=all: throughput of 1 KiB records, and what it costs the brokers.

The brokers share the machine with the client: on few cores the throughput is what the brokers' processor time allows,
and that time is shown beside it. A record counts when all three replicas have it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bench import clients
from bench.measure import Benchmark, Sample, Scale
from bench.systems.clusters import Cluster, cluster_of
from bench.systems.process import BrokerProcess

REPLICAS = 3
RECORD_BYTES = 1024
RECORDS = 250_000
JAVA_WARMUP = 80_000
CLIENTS = ("librdkafka", "java")


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    with cluster_of(broker.name, directory / "cluster") as cluster:
        for client in CLIENTS:
            produce(cluster, client, scale, directory)
            cluster_s = cluster.cpu_seconds()
            megabytes_per_s, megabytes = produce(cluster, client, scale, directory)
            cluster_s = cluster.cpu_seconds() - cluster_s
            yield Sample(f"{client}, 1 KiB, acks=all", megabytes_per_s, "MB/s", "higher")
            yield Sample(f"{client}, processor time", cluster_s / megabytes * 1000, "s/GB", "lower")


def produce(cluster: Cluster, client: str, scale: Scale, directory: Path) -> tuple[float, float]:
    """MB/s, and how many MB were written."""
    os.sync()
    topic = clients.new_topic(cluster.bootstrap, replicas=REPLICAS)
    values = clients.payloads(RECORD_BYTES)
    count, warmup = scale.of(RECORDS), 0
    if client == "librdkafka":
        rate = count / clients.librdkafka_produce(cluster.bootstrap, topic, values, count, "all", "none")
    else:
        payload_file = directory / "payloads"
        payload_file.write_bytes(b"\n".join(values))
        warmup = scale.of(JAVA_WARMUP)
        rate, _ = clients.java_produce(cluster.bootstrap, topic, payload_file, count, warmup, "all", "none")
    arrived = clients.end_offsets(cluster.bootstrap, topic)
    assert arrived == count + warmup, f"{count + warmup} records were acknowledged, the log holds {arrived}"
    clients.delete_topic(cluster.bootstrap, topic)
    return rate * RECORD_BYTES / 1e6, (count + warmup) * RECORD_BYTES / 1e6


BENCHMARK = Benchmark("B8", "replication", run, started=False)
