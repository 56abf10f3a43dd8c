"""B18: delayed messages: how late they are at 10,000 a second, how fast they are delivered when all are due at once,
and what a million that wait cost in memory and at the next start. Apache Kafka has none, so the goals are values.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from bench import clients
from bench.measure import Benchmark, Sample, Scale, percentile
from bench.systems.kafka import ApacheKafka
from bench.systems.process import BrokerProcess

PARTITIONS = 6
PER_SECOND = 10_000
STEADY_S = 20
DELAY_MS = 2_000
AT_ONCE = 200_000
WAITING = 1_000_000
YEAR_MS = 365 * 86_400_000
VALUE = b"x" * 100


class DelayTopic:
    def __init__(self, broker: BrokerProcess) -> None:
        self._bootstrap = broker.bootstrap
        self.target = clients.new_topic(broker.bootstrap, PARTITIONS)
        self.source = clients.new_topic(broker.bootstrap, PARTITIONS, **{"tidelog.delay.target": self.target})

    def send(self, count: int, due_ms: Callable[[], int], per_second: int | None = None) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 5, "acks": "all"})
        began = time.monotonic()
        for number in range(count):
            headers = [("tidelog-deliver-at", b"%d" % due_ms())]
            while True:
                try:
                    producer.produce(self.source, VALUE, partition=number % PARTITIONS, headers=headers)
                    break
                except BufferError:
                    producer.poll(0.05)
            if per_second and number % 100 == 0:
                producer.poll(0)
                time.sleep(max(0.0, number / per_second - (time.monotonic() - began)))
        assert producer.flush(120) == 0

    def receive(self, count: int) -> list[float]:
        """How late each was, in milliseconds, when a consumer had it."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "b18", "fetch.wait.max.ms": 100})
        consumer.assign([TopicPartition(self.target, partition, 0) for partition in range(PARTITIONS)])
        late: list[float] = []
        deadline = time.monotonic() + 300
        while len(late) < count:
            assert time.monotonic() < deadline, f"{len(late)} of {count} have arrived"
            # It waits until it has so many, or for so long: that must not be taken for lateness.
            for message in consumer.consume(1_000, timeout=0.01):
                late.append(time.time() * 1000 - int(dict(message.headers())["tidelog-deliver-at"]))
        consumer.close()
        return late


def now_ms() -> int:
    return round(time.time() * 1000)


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    if isinstance(broker, ApacheKafka):
        return
    yield from _steady(broker, scale)
    yield from _at_once(broker, scale)
    yield from _waiting(broker, scale)


def _steady(broker: BrokerProcess, scale: Scale) -> Iterator[Sample]:
    topic, count = DelayTopic(broker), scale.of(PER_SECOND * STEADY_S)
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(topic.receive, count)
        topic.send(count, lambda: now_ms() + DELAY_MS, PER_SECOND)
        late = sorted(received.result())
    yield Sample("late at 10,000/s, p50", percentile(late, 0.5), "ms", "lower", goal=50, goal_of="value")
    yield Sample("late at 10,000/s, p99", percentile(late, 0.99), "ms", "lower", goal=1000, goal_of="value")


def _at_once(broker: BrokerProcess, scale: Scale) -> Iterator[Sample]:
    topic, count = DelayTopic(broker), scale.of(AT_ONCE)
    due_ms = now_ms() + round(scale.seconds(20) * 1000)
    topic.send(count, lambda: due_ms)
    late = max(topic.receive(count)) / 1000
    yield Sample("all due at once", count / late, "records/s", "higher", goal=PER_SECOND, goal_of="value")


def _waiting(broker: BrokerProcess, scale: Scale) -> Iterator[Sample]:
    topic, count = DelayTopic(broker), scale.of(WAITING)
    chance = random.Random(1)
    before = broker.rss_bytes()
    topic.send(count, lambda: now_ms() + 3_600_000 + chance.randrange(YEAR_MS))
    time.sleep(3)
    grown = (broker.rss_bytes() - before) / 1e6
    yield Sample("memory for a million that wait", grown / scale.work, "MB", "lower", goal=200, goal_of="value")
    broker.kill()
    began = time.monotonic()
    broker.start()
    topic.send(PARTITIONS, now_ms)
    topic.receive(PARTITIONS)
    yield Sample("start with a million that wait", time.monotonic() - began, "s", "lower", goal=30, goal_of="value")


BENCHMARK = Benchmark("B18", "delayed messages", run)
