"""B3: end-to-end latency at 1,000 records a second: from the producer's call to the consumer's return.

One process writes and reads, so that both stamps are of one clock. The producer does not linger and asks for all
acknowledgements; the consumer's fetch waits at the broker until a record is there. Before that the broker gets a
burst of small requests and a paced pass that do not count: a JVM is slow at first, and a backlog would be measured.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from bench import clients
from bench.cases.b4_small_requests import BURST_S, warm_up
from bench.measure import Benchmark, Sample, Scale, percentile
from bench.systems.process import BrokerProcess

RATE_PER_S = 1_000
WARMUP_S = 2
MEASURED_S = 12
_STAMP = struct.Struct(">q")
_FILL = b"x" * 92


def produce_paced(bootstrap: str, topic: str, count: int, failed: list[object]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    producer.list_topics(topic, timeout=30)
    due = time.perf_counter()
    for n in range(count):
        due += 1 / RATE_PER_S
        while (wait := due - time.perf_counter()) > 0:
            time.sleep(wait)
        producer.produce(topic, _STAMP.pack(time.perf_counter_ns()) + _FILL, partition=n % clients.PARTITIONS)
        producer.poll(0)
    if producer.flush(30) != 0:
        failed.append("records were not acknowledged in time")


def latencies_ms(broker: BrokerProcess, count: int) -> list[float]:
    topic = clients.new_topic(broker.bootstrap)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.list_topics(topic, timeout=30)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(clients.PARTITIONS)])
    consumer.poll(0.5)
    failed: list[object] = []
    writer = threading.Thread(target=produce_paced, args=(broker.bootstrap, topic, count, failed))
    writer.start()
    taken: list[float] = []
    while len(taken) < count:
        message = consumer.poll(30)
        now = time.perf_counter_ns()
        assert message is not None, f"only {len(taken)} of {count} records came"
        assert message.error() is None, message.error()
        (sent,) = _STAMP.unpack_from(message.value())
        taken.append((now - sent) / 1e6)
    writer.join()
    consumer.close()
    clients.delete_topic(broker.bootstrap, topic)
    assert not failed, failed[0]
    return taken


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    warm_up(broker, scale.seconds(BURST_S))
    latencies_ms(broker, scale.of(WARMUP_S * RATE_PER_S))
    skipped = scale.of(RATE_PER_S)
    measured = sorted(latencies_ms(broker, skipped + scale.of(MEASURED_S * RATE_PER_S))[skipped:])
    for label, share, goal in (("p50", 0.5, 0.7), ("p99", 0.99, 0.5), ("p99.9", 0.999, None)):
        yield Sample(label, percentile(measured, share), "ms", "lower", goal=goal)


BENCHMARK = Benchmark("B3", "end-to-end latency at 1,000 records/s", run)
