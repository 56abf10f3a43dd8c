"""B4: small requests: one record each, no linger, 20 in flight per connection, on 1 to 100 connections.

The bytes of a request are made once, and sent again and again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from bench import clients, raw
from bench.measure import Benchmark, Sample, Scale
from bench.pipelined import PipelinedLoad
from bench.systems.process import BrokerProcess

IN_FLIGHT = 20
FIRST_S = 30
PATIENCE_S = 5
CONNECTIONS = (1, 4, 32, 100)
MEASURED_S = 3.0
WARMUP_S = 1.0
BURST_S = 4.0


class Load(PipelinedLoad):
    """Requests of one record; a connection has a partition of its own, as long as there are some."""

    def __init__(self, broker: BrokerProcess, topic: str, connections: int) -> None:
        batch = raw.record_batch([b"x" * 100], int(time.time() * 1000))
        frames = [raw.produce_frame(topic, n % clients.PARTITIONS, batch) for n in range(connections)]
        self._requests = [(memoryview(frame * IN_FLIGHT), len(frame)) for frame in frames]
        super().__init__(broker, connections, IN_FLIGHT, FIRST_S, PATIENCE_S)

    def requests(self, connection: int, count: int) -> memoryview:
        requests, size = self._requests[connection]
        return requests[: count * size]


def warm_up(broker: BrokerProcess, seconds: float) -> None:
    """A burst that is not measured: a JVM is slow until it has compiled what runs most."""
    topic = clients.new_topic(broker.bootstrap)
    load = Load(broker, topic, 4)
    load.start()
    load.run_for(seconds)
    load.drain()
    clients.delete_topic(broker.bootstrap, topic)


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    warm_up(broker, scale.seconds(BURST_S))
    for connections in CONNECTIONS:
        topic = clients.new_topic(broker.bootstrap)
        load = Load(broker, topic, connections)
        load.start()
        load.run_for(scale.seconds(WARMUP_S))
        requests_per_s = load.run_for(scale.seconds(MEASURED_S))
        load.drain()
        arrived = clients.end_offsets(broker.bootstrap, topic)
        assert arrived == load.acknowledged, f"{load.acknowledged} acknowledged, the log holds {arrived}"
        clients.delete_topic(broker.bootstrap, topic)
        noun = "connection" if connections == 1 else "connections"
        yield Sample(f"{connections} {noun}", requests_per_s / 1000, "thousand/s", "higher")


BENCHMARK = Benchmark("B4", "small requests", run)
