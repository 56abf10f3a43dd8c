"""B5: from the start of a cold process to the first acknowledged record.

Nothing is counted that is done once in a broker's life: Kafka's directory is formatted beforehand. The record goes
through a bare socket that tries again every two milliseconds, so that no client's back-off is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench import clients, raw
from bench.measure import Benchmark, Sample, Scale
from bench.systems.kafka import ApacheKafka
from bench.systems.process import BrokerProcess

EXISTING_RECORDS = 200_000


def first_acknowledgement(broker: BrokerProcess, topic: str, timeout_s: float = 60) -> float:
    """Seconds from the process's start."""
    return broker.launch_until(lambda: raw.make_topic(broker.host, broker.port, topic), timeout_s)


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    if isinstance(broker, ApacheKafka):
        broker.format()
    yield Sample("empty", first_acknowledgement(broker, "first"), "s", "lower", goal=0.1)
    topic = clients.new_topic(broker.bootstrap)
    values = clients.payloads(1024)
    clients.librdkafka_produce(broker.bootstrap, topic, values, scale.of(EXISTING_RECORDS), "all", "none")
    broker.kill()
    yield Sample("after kill -9, with a log", first_acknowledgement(broker, "second"), "s", "lower", goal=0.1)
    broker.kill()


BENCHMARK = Benchmark("B5", "start to the first acknowledged record", run, started=False)
