"""Half messages through kills of the broker and of the sender: `python -m tests.faults.half_soak --records 100000`.

A sender prepares messages and ends most of them a little later: seven in ten are committed, two rolled back, and one is
forgotten, as are all that it had under way when it was killed. Somebody answers the broker's questions about those, by
the number in their ids. In the end the half topic and its target are compared: each committed message is there once, in
the order of the commits, and no other.
"""

from __future__ import annotations

import random
import sys
import time
from collections import deque

from confluent_kafka import Producer
from tests.faults.delay_soak import PATIENCE_S, TARGET, Plan, Verdict, Work, main, read_all

from tidelog.client import Client
from tidelog.client.half_sender import HalfSender

SOURCE, QUESTIONS = "halves", "questions"
#: how many are prepared before the first of them is ended
UNDER_WAY = 200


def outcome_of(half_id: str) -> bool:
    """What whoever is asked says."""
    return int(half_id.split("-")[-1]) % 2 == 0


def send(bootstrap: str, count: int, partitions: int, most_delay_ms: int, per_second: int, seed: int) -> None:
    chance = random.Random(seed)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    under_way: deque[tuple[int, bytes]] = deque()
    begun = time.monotonic()

    def put(value: bytes | None, partition: int, headers: list[tuple[str, bytes]]) -> None:
        while True:
            try:
                producer.produce(SOURCE, value, b"key", partition, headers=headers)
                return
            except BufferError:
                producer.poll(0.1)

    def end_oldest() -> None:
        partition, half_id = under_way.popleft()
        if chance.random() < 0.9:
            end = b"commit" if chance.random() < 7 / 9 else b"rollback"
            put(None, partition, [("tidelog-half-id", half_id), ("tidelog-half-end", end)])

    for number in range(count):
        half_id = b"%d-%d" % (seed, number)
        put(half_id, number % partitions, [("tidelog-half-id", half_id)])
        under_way.append((number % partitions, half_id))
        if len(under_way) > UNDER_WAY:
            end_oldest()
        producer.poll(0)
        ahead_s = number / per_second - (time.monotonic() - begun)
        if ahead_s > 0.05:
            time.sleep(ahead_s)
    while under_way:
        end_oldest()
    producer.flush(PATIENCE_S)


def create_topics(bootstrap: str, plan: Plan) -> None:
    factor = min(3, plan.brokers)
    configs = {
        "tidelog.half.target": TARGET,
        "tidelog.half.check.topic": QUESTIONS,
        "tidelog.half.check.ms": "1000",
        "tidelog.half.check.max": "1000000",
        "retention.ms": "-1",
    }
    with Client(bootstrap) as client:
        for topic in (TARGET, QUESTIONS):
            client.admin.create_topic(topic, partitions=plan.partitions, replication_factor=factor)
        client.admin.create_topic(SOURCE, partitions=plan.partitions, replication_factor=factor, configs=configs)


def await_end(bootstrap: str, plan: Plan) -> None:
    """Answers questions until there are none."""
    deadline = time.monotonic() + PATIENCE_S + plan.records / 500
    with Client(bootstrap) as client:
        sender = HalfSender(client, SOURCE, outcome_of)
        while any(each.waiting or each.records for each in client.delays.describe(SOURCE, max_records=1)):
            assert time.monotonic() < deadline, "some are still prepared"
            sender.answer_checks()
            time.sleep(0.2)


def judge(bootstrap: str, plan: Plan, margin_ms: int) -> Verdict:
    sources, targets = (read_all(bootstrap, topic, plan.partitions) for topic in (SOURCE, TARGET))
    sent = 0
    for partition in range(plan.partitions):
        prepared: dict[bytes, bytes] = {}
        committed: list[bytes] = []
        for message in sources[partition]:
            headers = dict(message.headers())
            half_id, end = headers["tidelog-half-id"], headers.get("tidelog-half-end")
            if end is None:
                prepared[half_id] = message.value()
                sent += 1
            elif half_id in prepared:
                value = prepared.pop(half_id)
                if end == b"commit":
                    committed.append(value)
        assert not prepared, f"{len(prepared)} of {SOURCE}-{partition} have no end"
        delivered = [message.value() for message in targets[partition]]
        assert delivered == committed, f"{TARGET}-{partition} has {len(delivered)} of {len(committed)}"
    return Verdict(sent, sum(map(len, targets.values())), 0, 0)


HALVES = Work(create_topics, "tests.faults.half_soak", await_end, judge)


if __name__ == "__main__":
    sys.exit(main(HALVES, send, __doc__))
