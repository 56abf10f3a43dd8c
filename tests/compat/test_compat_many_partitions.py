"""Topics with thousands of partitions, and consumers that hold fetch sessions over them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable

import kafka
from bench.systems.process import BrokerProcess
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from stock import Message
from stock_python import AiokafkaClient, ConfluentClient, KafkaPythonClient

PARTITIONS = 1_500


def test_a_topic_of_many_partitions_is_written_and_read_whole(
    broker: BrokerProcess, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    described = admin.list_topics(topic, timeout=30).topics[topic]
    assert sorted(described.partitions) == list(range(PARTITIONS))
    assert all(one.leader >= 0 and one.error is None for one in described.partitions.values())

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20})
    failures: list[object] = []
    for partition in range(PARTITIONS):
        for n in range(2):
            producer.produce(
                topic, b"%d/%d" % (partition, n), partition=partition, on_delivery=lambda e, _: e and failures.append(e)
            )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failures == []

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    seen: dict[int, list[bytes]] = defaultdict(list)
    while sum(map(len, seen.values())) < 2 * PARTITIONS:
        messages = consumer.consume(1_000, 30)
        assert messages, f"only {sum(map(len, seen.values()))} records came"
        for message in messages:
            assert message.error() is None
            seen[message.partition()].append(message.value())
    consumer.close()
    assert seen == {partition: [b"%d/%d" % (partition, n) for n in range(2)] for partition in range(PARTITIONS)}


def test_a_fetch_session_delivers_each_record_once_as_partitions_come_and_go(
    broker: BrokerProcess, new_topic: Callable[..., str]
) -> None:
    """kafka-python keeps one incremental session while assignments change and partitions are paused."""
    count = 60
    topic = new_topic(partitions=count)
    writer = ConfluentClient(broker.bootstrap)
    chance = random.Random(7)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap, enable_auto_commit=False, auto_offset_reset="earliest", fetch_max_wait_ms=50
    )
    every = [kafka.TopicPartition(topic, partition) for partition in range(count)]
    written: dict[int, int] = defaultdict(int)
    seen: dict[int, list[int]] = defaultdict(list)
    positions = dict.fromkeys(every, 0)

    def poll_until(complete: Callable[[], bool]) -> None:
        for _ in range(200):
            for at, records in consumer.poll(timeout_ms=100).items():
                seen[at.partition] += [record.offset for record in records]
                positions[at] = records[-1].offset + 1
            if complete():
                return
        raise AssertionError(f"written {dict(written)}, seen { {p: len(o) for p, o in seen.items()} }")

    for _ in range(6):
        assigned = chance.sample(every, count // 2)
        consumer.assign(assigned)
        for at in assigned:
            consumer.seek(at, positions[at])
        targets = [chance.randrange(count) for _ in range(40)]
        writer.produce(topic, [Message(b"v", partition=partition) for partition in targets])
        for partition in targets:
            written[partition] += 1
        poll_until(lambda held=assigned: all(len(seen[at.partition]) == written[at.partition] for at in held))
        paused = assigned[: count // 6]
        consumer.pause(*paused)
        consumer.poll(timeout_ms=100)
        consumer.resume(*paused)
    consumer.assign(every)
    for at in every:
        consumer.seek(at, positions[at])
    poll_until(lambda: all(len(seen[partition]) == written[partition] for partition in range(count)))
    consumer.close()
    assert dict(seen) == {partition: list(range(written[partition])) for partition in range(count) if partition in seen}


def test_a_fetch_over_many_full_partitions_stays_within_its_limit(
    broker: BrokerProcess, new_topic: Callable[..., str]
) -> None:
    """Far more data than one fetch may carry: every partition gets its turn, nothing is left out."""
    count = 50
    topic = new_topic(partitions=count)
    ConfluentClient(broker.bootstrap).produce(
        topic, [Message(b"x" * 10_000, partition=partition) for partition in range(count) for _ in range(20)]
    )
    for make in (ConfluentClient, KafkaPythonClient, AiokafkaClient):
        records = make(broker.bootstrap).read(topic, count * 20, partitions=range(count), max_partition_bytes=20_000)
        offsets: dict[int, list[int]] = defaultdict(list)
        for record in records:
            offsets[record.partition].append(record.offset)
        assert offsets == {partition: list(range(20)) for partition in range(count)}
