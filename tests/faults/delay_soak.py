"""Delayed messages through kills of the broker and of the sender: `python -m tests.faults.delay_soak --records 100000`.

A sender writes records that are due at random times into a delay topic, brokers and the sender are killed at random,
and in the end what lies in the delay topic is compared with what lies in its target, read by a stock consumer:

    each once       every record of the delay topic is in the target, in the same partition, and only once
    none early      no record was delivered before its due time
    in order        records that were in the log before they were due are in the target in order of (due time, offset)
    as it was       key, value and headers are those of the original

The delay topic stamps append time, so its own log says which records were there in time.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tidelog.client import Client
from tidelog.testing.broker import RunningBroker
from tidelog.testing.cluster import RunningCluster

SOURCE, TARGET = "later", "orders"
PATIENCE_S = 180.0


class Plan(NamedTuple):
    records: int
    kills: int
    partitions: int = 4
    most_delay_ms: int = 20_000
    per_second: int = 4_000
    seed: int = 1
    brokers: int = 1


class Verdict(NamedTuple):
    sent: int
    in_time: int
    late_p99_ms: int
    late_most_ms: int


def send(bootstrap: str, count: int, partitions: int, most_delay_ms: int, per_second: int, seed: int) -> None:
    """What the sender's process does: idempotent, as fast as it may."""
    chance = random.Random(seed)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    begun = time.monotonic()
    for number in range(count):
        due_ms = round(time.time() * 1000) + chance.randrange(-200, most_delay_ms)
        headers = [("number", b"%d" % number), ("tidelog-deliver-at", b"%d" % due_ms)]
        while True:
            try:
                producer.produce(
                    SOURCE, b"%d" % number, b"key-%d" % (number % 97), number % partitions, headers=headers
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
        ahead_s = number / per_second - (time.monotonic() - begun)
        if ahead_s > 0.05:
            time.sleep(ahead_s)
    producer.flush(PATIENCE_S)


class Work(NamedTuple):
    """What is soaked: how its topics are made, how its sender is run, how one waits for its end and judges it."""

    create_topics: Callable[[str, Plan], None]
    sender: str
    await_end: Callable[[str, Plan], None]
    judge: Callable[[str, Plan, int], Verdict]


def senders(plan: Plan, bootstrap: str, module: str) -> Iterator[subprocess.Popen[bytes]]:
    """Sender after sender; each goes on from about where the one before was killed."""
    sent = 0
    for life in range(1_000):
        count = plan.records - sent
        if count <= 0:
            return
        values = (bootstrap, count, plan.partitions, plan.most_delay_ms, plan.per_second, plan.seed * 1000 + life)
        begun = time.monotonic()
        yield subprocess.Popen([sys.executable, "-m", module, "--send", *map(str, values)])
        sent += min(count, round((time.monotonic() - begun) * plan.per_second))


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[int, list[Message]]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "judge", "enable.partition.eof": False}
    consumer = Consumer({**settings, "isolation.level": "read_uncommitted", "enable.auto.commit": False})
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in range(partitions)}
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    found: dict[int, list[Message]] = {p: [] for p in range(partitions)}
    while any(position.offset < ends[position.partition] for position in _positions(consumer, topic, partitions)):
        for message in consumer.consume(10_000, timeout=1):
            if message.error():
                raise KafkaException(message.error())
            found[message.partition()].append(message)
    consumer.close()
    return found


def _positions(consumer: Consumer, topic: str, partitions: int) -> list[TopicPartition]:
    positions: list[TopicPartition] = consumer.position([TopicPartition(topic, p) for p in range(partitions)])
    return positions


def judge(bootstrap: str, plan: Plan, margin_ms: int) -> Verdict:
    """`margin_ms`: so long before its due time a record must have been written to have been there in time."""
    sources, targets = (read_all(bootstrap, topic, plan.partitions) for topic in (SOURCE, TARGET))
    sent = in_time = 0
    late: list[int] = []
    for partition in range(plan.partitions):
        originals = {message.offset(): message for message in sources[partition]}
        sent += len(originals)
        seen: set[int] = set()
        before = (-1, -1)
        for message in targets[partition]:
            headers = dict(message.headers())
            offset, due_ms = int(headers["tidelog-origin-offset"]), int(headers["tidelog-deliver-at"])
            where = f"{SOURCE}-{partition}@{offset}"
            assert offset not in seen, f"{where} was delivered twice"
            seen.add(offset)
            original = originals[offset]
            assert message.value() == original.value() and message.key() == original.key(), f"{where} was changed"
            assert message.headers()[: len(original.headers())] == original.headers(), f"{where} lost headers"
            assert int(headers["tidelog-origin-timestamp"]) == original.timestamp()[1], where
            delivered_ms, appended_ms = message.timestamp()[1], original.timestamp()[1]
            assert delivered_ms >= due_ms, f"{where} came {due_ms - delivered_ms} ms early"
            late.append(delivered_ms - max(due_ms, appended_ms))
            if appended_ms + margin_ms < due_ms:
                in_time += 1
                assert (due_ms, offset) > before, f"{where} came after one that was due later"
                before = due_ms, offset
        assert seen == originals.keys(), f"{len(originals.keys() - seen)} of {SOURCE}-{partition} were not delivered"
    late.sort()
    return Verdict(sent, in_time, late[len(late) * 99 // 100], late[-1])


def create_topics(bootstrap: str, plan: Plan) -> None:
    factor = min(3, plan.brokers)
    with Client(bootstrap) as client:
        client.admin.create_topic(TARGET, partitions=plan.partitions, replication_factor=factor)
        configs = {"tidelog.delay.target": TARGET, "message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}
        client.admin.create_topic(SOURCE, partitions=plan.partitions, replication_factor=factor, configs=configs)


def run(
    work: Work, plan: Plan, bootstrap: str, kill_a_broker: Callable[[random.Random], None], margin_ms: int
) -> Verdict:
    chance = random.Random(plan.seed)
    work.create_topics(bootstrap, plan)
    span_s = plan.records / plan.per_second + plan.most_delay_ms / 1000
    lives = senders(plan, bootstrap, work.sender)
    sender: subprocess.Popen[bytes] | None = next(lives)
    try:
        for kill in range(plan.kills):
            time.sleep(span_s / plan.kills * chance.uniform(0.3, 1))
            if sender is not None and kill % 4 == 3:
                sender.kill()
                sender.wait()
                sender = next(lives, None)
            kill_a_broker(chance)
        while sender is not None:
            sender.wait(PATIENCE_S + plan.records / plan.per_second)
            sender = next(lives, None)
        work.await_end(bootstrap, plan)
    finally:
        if sender is not None:
            sender.kill()
            sender.wait()
    return work.judge(bootstrap, plan, margin_ms)


def await_empty(bootstrap: str, plan: Plan) -> None:
    deadline = time.monotonic() + PATIENCE_S + plan.most_delay_ms / 1000
    with Client(bootstrap) as client:
        while True:
            found = client.delays.describe(SOURCE, max_records=1)
            if not any(partition.waiting or partition.records for partition in found):
                return
            assert time.monotonic() < deadline, f"still waiting: {found}"
            time.sleep(0.2)


DELAYS = Work(create_topics, "tests.faults.delay_soak", await_empty, judge)


def run_alone(plan: Plan, work: Work = DELAYS) -> Verdict:
    with RunningBroker({}) as broker:

        def kill(_: random.Random) -> None:
            broker.kill()
            broker.restart()

        return run(work, plan, broker.bootstrap, kill, margin_ms=50)


def run_cluster(plan: Plan, work: Work = DELAYS) -> Verdict:
    with RunningCluster(plan.brokers, {}) as cluster:

        def kill(chance: random.Random) -> None:
            broker = chance.choice(list(cluster.brokers.values()))
            broker.kill()
            time.sleep(chance.uniform(0, 3))
            broker.restart()

        return run(work, plan, cluster.bootstrap, kill, margin_ms=plan.most_delay_ms // 2)


def main(work: Work, send: Callable[[str, int, int, int, int, int], None], description: str | None) -> int:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-second", type=int, default=4_000)
    parser.add_argument("--most-delay-ms", type=int, default=20_000)
    parser.add_argument("--send", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.send is not None:
        count, partitions, most_delay_ms, per_second, seed = map(int, options.send[1:])
        send(options.send[0], count, partitions, most_delay_ms, per_second, seed)
        return 0
    plan = Plan(
        options.records,
        options.kills,
        most_delay_ms=options.most_delay_ms,
        per_second=options.per_second,
        seed=options.seed,
        brokers=options.brokers,
    )
    verdict = run_cluster(plan, work) if plan.brokers > 1 else run_alone(plan, work)
    print(
        f"{verdict.sent} records through {plan.kills} kills: each once, none early, {verdict.in_time} in order; "
        f"late by {verdict.late_p99_ms} ms (p99), {verdict.late_most_ms} ms (most)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(DELAYS, send, __doc__))
