"""A cluster at work: three brokers with three replicas of each partition, and a leader that is killed under load.

One producer writes numbered payments with acks=all and idempotence, and a consumer reads them in the same process. In
the middle of it the broker that leads most partitions is killed (-9), and later started again. Every payment must come
back, once and in order; the gap is how long no acknowledgement came.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from rich.console import Console

from tidelog.client import Client
from tidelog.testing.cluster import RunningCluster
from tidelog.testing.leash import leash

TOPIC = "transfers"
PARTITIONS = 6
SECONDS_BEFORE = 2.0
SECONDS_AFTER = 4.0
RECORDS_PER_TURN = 100
TURN_S = 0.02
SETTLED_WITHIN_S = 60.0


@dataclass
class Load:
    """What was written, acknowledged and read, by partition."""

    sent: int = 0
    #: number -> when it was acknowledged
    acknowledged: dict[int, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged[int(message.value() or b"")] = time.perf_counter()

    def longest_gap_ms(self) -> float:
        times = sorted(self.acknowledged.values())
        return max((b - a for a, b in pairwise(times)), default=0.0) * 1000


def produce(bootstrap: str, load: Load, stopping: threading.Event) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            # A leader is killed, and librdkafka would tell.
            "log_level": 0,
            "on_delivery": load.note,
        }
    )
    while not stopping.is_set():
        for _ in range(RECORDS_PER_TURN):
            producer.produce(TOPIC, b"%d" % load.sent, partition=load.sent % PARTITIONS)
            load.sent += 1
        producer.poll(TURN_S)
    producer.flush(SETTLED_WITHIN_S)


def read_back(bootstrap: str, count: int) -> None:
    """Every partition must give its numbers in order, each once."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "audit", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    expected = list(range(PARTITIONS))
    seen = 0
    last_came = time.monotonic()
    while seen < count:
        batch = consumer.consume(2_000, timeout=0.2)
        if batch:
            last_came = time.monotonic()
        elif time.monotonic() - last_came > SETTLED_WITHIN_S:
            raise SystemExit(f"nothing more came after {seen} of {count} transfers")
        for message in batch:
            partition, number = message.partition() or 0, int(message.value() or b"-1")
            if number != expected[partition]:
                raise SystemExit(f"partition {partition}: expected transfer {expected[partition]}, got {number}")
            expected[partition] += PARTITIONS
        seen += len(batch)
    consumer.close()


def busiest(client: Client) -> int:
    """The broker that leads most partitions."""
    leaders = [p.leader for p in client.describe([TOPIC]).topics[TOPIC].partitions.values()]
    return max(set(leaders), key=leaders.count)


def await_in_sync(client: Client, brokers: int) -> None:
    deadline = time.monotonic() + SETTLED_WITHIN_S
    while any(len(p.isr) < brokers for p in client.describe([TOPIC]).topics[TOPIC].partitions.values()):
        if time.monotonic() > deadline:
            raise SystemExit("the replicas did not get in sync again")
        time.sleep(0.1)


def show(console: Console) -> None:
    started = time.perf_counter()
    # Whoever ends the demonstration early, by whatever signal, ends its processes as well.
    running = RunningCluster(3, {"min.insync.replicas": "2"}, runner=leash())
    with running as cluster, Client(cluster.bootstrap) as client:
        console.print(
            f"\nA cluster of three brokers is ready on [bold]{cluster.bootstrap}[/bold] "
            f"after {time.perf_counter() - started:.1f} s."
        )
        client.admin.create_topic(TOPIC, PARTITIONS, 3)
        load, stopping = Load(), threading.Event()
        writer = threading.Thread(target=produce, args=(cluster.bootstrap, load, stopping))
        writer.start()
        try:
            time.sleep(SECONDS_BEFORE)
            victim = busiest(client)
            cluster.brokers[victim].kill()
            console.print(f"Broker {victim}, which led most partitions, was killed under load.")
            time.sleep(SECONDS_AFTER)
            cluster.brokers[victim].start()
        finally:
            stopping.set()
            writer.join()
        if load.failed or len(load.acknowledged) != load.sent:
            raise SystemExit(f"{load.sent - len(load.acknowledged)} transfers failed: {load.failed[:1]}")
        gap_ms = load.longest_gap_ms()
        console.print(f"The producer saw no error; the longest time without an acknowledgement was {gap_ms:.0f} ms.")
        await_in_sync(client, 3)
        console.print(f"Broker {victim} is back, and all three replicas of each partition are in sync again.")
        read_back(cluster.bootstrap, load.sent)
        console.print(f"All [bold]{load.sent:,}[/bold] transfers were read back: once, and in order.")


if __name__ == "__main__":
    show(Console())
