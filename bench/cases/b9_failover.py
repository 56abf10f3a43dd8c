"""B9: kill -9 of a broker under load: the longest time in which the producer gets no acknowledgement.

librdkafka with its default settings, idempotence and acks=all sends a thousand records a second to one partition with
three replicas. The broker that is killed leads the partition, or is the active controller and follows: with acks=all,
nothing is acknowledged before somebody has noticed that a follower is gone, either. Every record must be there once in
the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from bench import clients
from bench.measure import Benchmark, Sample, Scale
from bench.systems.clusters import Cluster, cluster_of
from bench.systems.process import BrokerProcess

REPLICAS = 3
RECORD_BYTES = 1024
RATE_PER_S = 1000
BEFORE_S = 4.0
#: how long acknowledgements have to come again before the pause is over for good
AFTER_S = 6.0
GIVE_UP_S = 120.0
GOAL = 0.2


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    with cluster_of(broker.name, directory / "cluster") as cluster:
        for victim in ("leader", "controller"):
            controller = cluster.controller()
            leader = (controller + 1) % REPLICAS
            killed = leader if victim == "leader" else controller
            yield Sample(f"kill -9 the {victim}", longest_pause(cluster, leader, killed, scale), "s", "lower", GOAL)
            cluster.nodes[killed].start(GIVE_UP_S)


def longest_pause(cluster: Cluster, leader: int, killed: int, scale: Scale) -> float:
    """Seconds between two acknowledgements, of which the second came after the kill."""
    topic = clients.new_topic(cluster.bootstrap, 1, REPLICAS, leader, timeout_s=GIVE_UP_S)
    acknowledged: list[float] = []
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append(time.perf_counter())
        else:
            failures.append(error)

    settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0}
    producer = Producer(settings)
    (value,) = clients.payloads(RECORD_BYTES, 1)
    sent = 0
    began = time.perf_counter()
    killed_at: float | None = None
    back_at: float | None = None
    while back_at is None or time.perf_counter() < back_at + scale.seconds(AFTER_S):
        now = time.perf_counter()
        assert killed_at is None or now < killed_at + GIVE_UP_S, "no acknowledgement came any more"
        while sent < (now - began) * RATE_PER_S:
            producer.produce(topic, value, on_delivery=delivered)
            sent += 1
        producer.poll(0.001)
        if killed_at is None and acknowledged and now > began + scale.seconds(BEFORE_S):
            killed_at = time.perf_counter()
            cluster.nodes[killed].kill()
        elif killed_at is not None and back_at is None and acknowledged[-1] > killed_at + 0.2:
            back_at = acknowledged[-1]
    assert producer.flush(GIVE_UP_S) == 0, "records were not acknowledged"
    assert not failures, failures[0]
    arrived = clients.end_offsets(cluster.bootstrap, topic, 1)
    assert arrived == sent, f"{sent} records were acknowledged, the log holds {arrived}"
    assert killed_at is not None
    return max(later - earlier for earlier, later in pairwise(acknowledged) if later > killed_at)


BENCHMARK = Benchmark("B9", "failover", run, started=False)
