"""The stock clients as load: librdkafka through confluent-kafka, and Apache Kafka's Java client.

The Python loop must not be what is measured: it hands whole batches to librdkafka, asks for no delivery report per
record, and takes consumed records in lists of thousands. That every record arrived is checked afterwards, by the
end offsets of the topic.
"""

from __future__ import annotations

import random
import re
import time
import uuid
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from bench.systems.java import QUIET, run_tool
from bench.systems.kafka import COLLECTOR

PARTITIONS = 6
#: What kafka-producer-perf-test.sh and kafka-consumer-perf-test.sh start with.
JAVA_CLIENT = ("-Xmx512M", *COLLECTOR, *QUIET)
_WORDS = ("time", "topic", "offset", "leader", "commit", "fetch", "produce", "segment", "index", "record", "value")
_BATCH = 5_000


def payloads(size_bytes: int, count: int = 1_000) -> list[bytes]:
    """Records like log lines: text that compresses three- to fourfold, the same for every run and system."""
    chance = random.Random(size_bytes)
    made = []
    for n in range(count):
        line = f'{{"id":{n},"at":{1_700_000_000_000 + chance.randrange(10**9)},"text":"'
        while len(line) < size_bytes:
            line += f"{chance.choice(_WORDS)} {chance.randrange(1_000_000)} "
        made.append(line[:size_bytes].encode())
    return made


MADE_AT_ONCE = 5_000


def new_topic(
    bootstrap: str,
    partitions: int = PARTITIONS,
    replicas: int = 1,
    leader: int | None = None,
    timeout_s: float = 30,
    **config: str,
) -> str:
    """The name of a topic whose partitions have leaders, and all their replicas in sync.

    Kafka's controller makes no more than 10,000 things at once, so many partitions are made in portions.
    With a `leader` it leads all of them, and the other replicas are on the brokers that follow it in the ring.
    """
    name = f"bench-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    # A deleted topic should leave the disk at once, not after a minute, or the rounds fill it.
    settings = {"file.delete.delay.ms": "100", **config}
    if leader is None:
        wanted = NewTopic(name, min(partitions, MADE_AT_ONCE), replicas, config=settings)
    else:
        placed = [[(leader + n) % replicas for n in range(replicas)]] * partitions
        wanted = NewTopic(name, partitions, replica_assignment=placed, config=settings)
    admin.create_topics([wanted], request_timeout=timeout_s, operation_timeout=timeout_s)[name].result(timeout_s)
    for count in range(2 * MADE_AT_ONCE, partitions + MADE_AT_ONCE, MADE_AT_ONCE):
        more = NewPartitions(name, min(count, partitions))
        admin.create_partitions([more], request_timeout=timeout_s, operation_timeout=timeout_s)[name].result(timeout_s)
    deadline = time.monotonic() + timeout_s
    while True:
        known = admin.list_topics(timeout=timeout_s).topics.get(name)
        there = list(known.partitions.values()) if known is not None else []
        if len(there) == partitions and all(one.leader >= 0 and len(one.isrs) == replicas for one in there):
            return name
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} has no leaders")
        time.sleep(0.02)


def delete_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    admin.delete_topics([name])[name].result(30)


def end_offsets(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> int:
    """The number of records in a topic that nothing was deleted from."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    latest = OffsetSpec.latest()
    asked = admin.list_offsets(
        {TopicPartition(topic, partition): latest for partition in range(partitions)}, request_timeout=60
    )
    return sum(each.result(60).offset for each in asked.values())


def wait_for_partitions(bootstrap: str, topic: str, partitions: int, timeout_s: float) -> None:
    """Until each of thousands of partitions answers: their leaders are known before these have made them all."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            end_offsets(bootstrap, topic, partitions)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def librdkafka_produce(
    bootstrap: str,
    topic: str,
    values: list[bytes],
    count: int,
    acks: str,
    codec: str,
    idempotent: bool = False,
    **settings: str | int,
) -> float:
    """Seconds from the first record handed over to the last acknowledgement."""
    failures: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 524_288,
            "error_cb": failures.append,
            **settings,
        }
    )
    producer.list_topics(topic, timeout=30)
    batch = [{"value": values[n % len(values)]} for n in range(_BATCH)]
    began = time.perf_counter()
    left = count
    while left > 0:
        piece = batch if left >= _BATCH else batch[:left]
        queued = producer.produce_batch(topic, piece)
        if queued < len(piece):
            producer.poll(0.01)
            for message in piece:
                message.pop("_error", None)
        left -= queued
    assert producer.flush(120) == 0, "records were not acknowledged in time"
    taken = time.perf_counter() - began
    assert not failures, failures[0]
    return taken


def fill(bootstrap: str, topic: str, values: list[bytes], count: int, codec: str) -> None:
    """Writes records that are to be read, in full batches, which are then the same whatever broker keeps them.

    Left to itself the producer sends what it has when the last answer comes: the faster the broker, the smaller the
    batches, and the more work for whoever reads them.
    """
    full = {"linger.ms": 1_000, "batch.num.messages": 1_000, "batch.size": 4_000_000, "message.max.bytes": 4_000_000}
    librdkafka_produce(bootstrap, topic, values, count, "1", codec, **full)


def java_produce(
    bootstrap: str, topic: str, payload_file: Path, count: int, warmup: int, acks: str, codec: str
) -> tuple[float, float]:
    """Records a second and MB (10^6) a second after the warm-up, as ProducerPerformance reports them."""
    done = run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(count + warmup), "--warmup-records", str(warmup), "--payload-file", str(payload_file)),
        *("--command-property", f"acks={acks}", f"compression.type={codec}"),
        timeout=300,
        jvm_flags=JAVA_CLIENT,
    ).check()
    found = re.findall(r"steady state records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\)", done.out)
    records_per_s, mebibytes_per_s = map(float, found[-1])
    return records_per_s, mebibytes_per_s * 1.048576


def librdkafka_consume(bootstrap: str, topic: str, count: int, partitions: int = PARTITIONS) -> tuple[float, int]:
    """Seconds from the first records to the last, and the bytes of their values."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.list_topics(topic, timeout=30)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    seen = size_bytes = 0
    first = consumer.consume(1, 60)
    began = time.perf_counter()
    messages = first
    while True:
        seen += len(messages)
        size_bytes += sum(map(len, messages))
        if seen >= count:
            break
        # No more than is left: the call returns early only when it has as many as it was asked for.
        messages = consumer.consume(min(10_000, count - seen), 30)
        assert messages, f"only {seen} of {count} records came"
    taken = time.perf_counter() - began
    consumer.close()
    return taken, size_bytes


def java_consume(bootstrap: str, topic: str, count: int, partitions: int = PARTITIONS) -> tuple[float, float]:
    """Records a second and MB a second of the second of two passes: the first one warms the JVM up."""
    result = run_tool(
        "tidelog.judge.AssignedConsumerPerformance",
        *(bootstrap, topic, str(partitions), str(count), "2"),
        timeout=300,
        jvm_flags=JAVA_CLIENT,
    )
    measured = result.check().json()
    return measured["records_per_s"], measured["mb_per_s"]
