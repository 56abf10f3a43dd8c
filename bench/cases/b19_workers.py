"""B19: parallel workers beside a plain consumer loop, one partition, a thousand keys.

The two systems of this benchmark are the brokers, as everywhere; beside what each sustains, the ratio of the workers to
the plain loop on the same broker is given, which is what the workers are for. The plain loop polls, handles and commits
now and then, as most programs do.

With a handler that waits ten milliseconds (a call to a database, say) the loop handles a hundred records a second at
best, and 64 workers 6,400. With one that does nothing, what is left is the overhead per record of either.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from bench import clients
from bench.measure import Benchmark, Sample, Scale
from bench.systems.process import BrokerProcess
from tidelog.workers import Message, Workers

KEYS = 1_000
CONCURRENCY = 64
HANDLER_S = 0.01
#: records for the workers, and for the loop, which takes as long for a fraction of them
SLOW_RECORDS = 30_000
SLOW_RECORDS_LOOP = 500
EMPTY_RECORDS = 100_000
GOAL = 50.0


def filled(broker: BrokerProcess, count: int) -> str:
    topic = clients.new_topic(broker.bootstrap, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20})
    for number in range(count):
        producer.produce(topic, b"%d" % number, b"key-%d" % (number % KEYS))
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    return topic


def loop_seconds(broker: BrokerProcess, topic: str, count: int, handle: Callable[[Any], object]) -> float:
    """From the first record to the last, of a plain consumer loop that commits once a second."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"bench-{uuid.uuid4().hex[:12]}",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 1000,
        }
    )
    consumer.subscribe([topic])
    began = 0.0
    for _ in range(count):
        record = None
        while record is None:
            record = consumer.poll(1)
        assert record.error() is None, record.error()
        began = began or time.perf_counter()
        handle(record)
    taken = time.perf_counter() - began
    consumer.close()
    return taken


def workers_seconds(broker: BrokerProcess, topic: str, count: int, handle: Callable[[Message], object]) -> float:
    """From the first record to the last; every record once, and each key in order, or it does not count."""
    seen: dict[bytes | None, list[int]] = defaultdict(list)
    began = ended = 0.0

    def handled(message: Message) -> None:
        nonlocal began, ended
        began = began or time.perf_counter()
        handle(message)
        seen[message.key].append(message.offset)
        ended = time.perf_counter()

    group = f"bench-{uuid.uuid4().hex[:12]}"
    done = Workers(topic, group, handled, CONCURRENCY, bootstrap=broker.bootstrap).run(until_end=True)
    assert done.handled == count == sum(map(len, seen.values())), "not every record was handled once"
    assert all(offsets == sorted(offsets) for offsets in seen.values()), "the order of a key was broken"
    return ended - began


def nothing(_: Any) -> None:
    pass


def wait(_: Any) -> None:
    time.sleep(HANDLER_S)


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    slow, few = scale.of(SLOW_RECORDS), max(20, scale.of(SLOW_RECORDS_LOOP))
    topic = filled(broker, slow)
    alone = few / loop_seconds(broker, topic, few, wait)
    together = slow / workers_seconds(broker, topic, slow, wait)
    clients.delete_topic(broker.bootstrap, topic)
    yield Sample("handler of 10 ms, plain loop", alone, "records/s", "higher", goal=None)
    yield Sample("handler of 10 ms, 64 workers", together, "records/s", "higher", goal=None)
    yield Sample("handler of 10 ms, workers ÷ loop", together / alone, "times", "higher", goal=GOAL, goal_of="value")
    count = scale.of(EMPTY_RECORDS)
    topic = filled(broker, count)
    for name, seconds in (
        ("plain loop", loop_seconds(broker, topic, count, nothing)),
        ("64 workers", workers_seconds(broker, topic, count, nothing)),
    ):
        yield Sample(f"empty handler, {name}", seconds / count * 1e6, "µs/record", "lower", goal=None)
    clients.delete_topic(broker.bootstrap, topic)


BENCHMARK = Benchmark("B19", "workers", run)
