"""B10: groups: how long a hundred members need to share a hundred partitions, and synchronous commits a second.

The members are librdkafka consumers in one process, which start together and are polled in turn; the group is stable
when each partition is held by exactly one member and each member holds one. Both brokers keep their default times: a
new classic group waits three seconds for more members, and members of the broker-side protocol beat every five.

A commit is one partition's offset, sent by the only member of a group, which waits for each; it counts when it was
acknowledged, and the last one must be what the broker tells afterwards.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from bench import clients
from bench.measure import Benchmark, Sample, Scale
from bench.systems.process import BrokerProcess

MEMBERS = 100
FEWEST_MEMBERS = 4
WARMUP_MEMBERS = 10
STABLE_TIMEOUT_S = 120
#: groups that commit beside each other
COMMITTERS = (1, 10)
COMMIT_S = 5.0
COMMIT_WARMUP_S = 3.0


class Members:
    """Consumers of one group, with what each of them holds."""

    def __init__(self, broker: BrokerProcess, topic: str, count: int, protocol: str) -> None:
        self.held: list[set[int]] = [set() for _ in range(count)]
        self._topic = topic
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"bench-{uuid.uuid4().hex[:12]}",
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        self.consumers = [Consumer(settings) for _ in range(count)]

    def subscribe(self) -> None:
        for consumer, held in zip(self.consumers, self.held, strict=True):
            consumer.subscribe(
                [self._topic],
                on_assign=lambda _, given, held=held: held.update(at.partition for at in given),
                on_revoke=lambda _, gone, held=held: held.difference_update(at.partition for at in gone),
            )

    def until_stable(self, partitions: int) -> float:
        """Seconds from the first subscription until every member holds its share."""
        began = time.perf_counter()
        self.subscribe()
        wanted = Counter(range(partitions))
        share = partitions // len(self.consumers)
        while any(len(held) != share for held in self.held) or Counter(p for h in self.held for p in h) != wanted:
            assert time.perf_counter() - began < STABLE_TIMEOUT_S, f"not stable: {Counter(map(len, self.held))}"
            for consumer in self.consumers:
                message = consumer.poll(0)
                assert message is None or message.error() is None, message.error()
            time.sleep(0.02)
        return time.perf_counter() - began

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.close()


def know_the_topic(broker: BrokerProcess, topic: str, partitions: int) -> None:
    """Returns when the coordinator has given the whole topic to somebody.

    It may learn of a topic after its leaders did, and a first member that is given nothing for want of the topic has
    nothing to give back to the others: that would be another measurement.
    """
    lone = Members(broker, topic, 1, "consumer")
    lone.until_stable(partitions)
    lone.close()


def seconds_to_stable(broker: BrokerProcess, count: int, protocol: str) -> float:
    topic = clients.new_topic(broker.bootstrap, count)
    know_the_topic(broker, topic, count)
    members = Members(broker, topic, count, protocol)
    taken = members.until_stable(count)
    members.close()
    clients.delete_topic(broker.bootstrap, topic)
    return taken


def commit_for(consumer: Consumer, topic: str, partition: int, seconds: float, done: list[int]) -> None:
    """Commits one offset after the other for some time, and checks that the last one is kept."""
    deadline = time.perf_counter() + seconds
    number = 0
    while time.perf_counter() < deadline:
        number += 1
        consumer.commit(offsets=[TopicPartition(topic, partition, number)], asynchronous=False)
    (kept,) = consumer.committed([TopicPartition(topic, partition)], timeout=30)
    assert kept.offset == number, f"{number} was acknowledged, {kept.offset} is kept"
    done.append(number)


def commits_per_s(committers: list[Members], topic: str, seconds: float) -> float:
    done: list[int] = []
    threads = [
        threading.Thread(target=commit_for, args=(group.consumers[0], topic, 0, seconds, done)) for group in committers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == len(threads), "a commit failed"
    return sum(done) / seconds


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    count = max(FEWEST_MEMBERS, scale.of(MEMBERS))
    for protocol, name in (("classic", "classic"), ("consumer", "KIP-848")):
        if not scale.quick:
            seconds_to_stable(broker, WARMUP_MEMBERS, protocol)
        taken = seconds_to_stable(broker, count, protocol)
        yield Sample(f"{count} members to stable, {name}", taken, "s", "lower")
    topic = clients.new_topic(broker.bootstrap, 1)
    for number in COMMITTERS:
        # A group each: a lone member of the consumer protocol starts at once.
        committers = [Members(broker, topic, 1, "consumer") for _ in range(number)]
        for group in committers:
            group.until_stable(1)
        commits_per_s(committers, topic, scale.seconds(COMMIT_WARMUP_S))
        rate = commits_per_s(committers, topic, scale.seconds(COMMIT_S))
        for group in committers:
            group.close()
        yield Sample(f"synchronous commits, {number} at a time", rate, "commits/s", "higher")
    clients.delete_topic(broker.bootstrap, topic)


BENCHMARK = Benchmark("B10", "groups", run)
