"""A data directory that Apache Kafka wrote is served as it stands, and what we add to it Kafka's own tools read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from bench.systems.java import run_tool
from bench.systems.kafka import ApacheKafka
from bench.systems.tidelog import Tidelog
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

pytestmark = [pytest.mark.java, pytest.mark.slow]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUP = "readers"
PER_CODEC = 20
#: what a coordinator says that has just been found
STARTING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)
CONFIG = {"cleanup.policy": "compact", "retention.ms": "123456789", "segment.bytes": "2097152"}


def topic_of(codec: str) -> str:
    return f"as-{codec}"


def produce(bootstrap: str, codec: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
    for number in range(first, first + PER_CODEC):
        producer.produce(
            topic_of(codec), key=f"k{number}", value=f"{codec} {number} " + "x" * 200, partition=number % 2
        )
    assert producer.flush(30) == 0


def read(bootstrap: str, codec: str) -> set[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic_of(codec), index, OFFSET_BEGINNING) for index in (0, 1)])
    found, ends = set(), 0
    while ends < 2:
        for message in consumer.consume(100, 0.5):
            if message.error():
                ends += 1
            else:
                found.add(message.key().decode())
    consumer.close()
    return found


def commit(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    places = [TopicPartition(topic_of(codec), 1, 3 + at) for at, codec in enumerate(CODECS)]
    deadline = time.monotonic() + 60
    while True:
        try:
            consumer.commit(offsets=places, asynchronous=False)
            break
        except KafkaException as error:
            if error.args[0].code() not in STARTING or time.monotonic() > deadline:
                raise
            time.sleep(0.5)
    consumer.close()


def committed(admin: AdminClient) -> dict[str, int]:
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]).values()
    return {place.topic: place.offset for place in future.result(30).topic_partitions}


def topic_ids(admin: AdminClient) -> dict[str, str]:
    futures = admin.describe_topics(TopicCollection([topic_of(codec) for codec in CODECS]))
    return {name: str(future.result(30).topic_id) for name, future in futures.items()}


def config_of(admin: AdminClient, topic: str) -> dict[str, str]:
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in future.result(30).items() if name in CONFIG}


def dumped_records(data: Path, topics: list[str]) -> int:
    """How many records Kafka's dump tool finds in these topics, having checked every batch."""
    logs = [str(log) for topic in topics for log in sorted(data.glob(f"{topic}-*/*.log"))]
    dump = ("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", ",".join(logs))
    out = run_tool(*dump, timeout=120).check()
    assert "isvalid: false" not in out.out
    return sum("| offset:" in line for line in out.lines)


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a kill"])
def test_a_directory_of_apache_kafka_is_served_as_it_stands(tmp_path: Path, clean: bool) -> None:
    with ApacheKafka(tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        topics = [NewTopic(topic_of(codec), 2, 1, config=CONFIG if codec == "none" else {}) for codec in CODECS]
        for future in admin.create_topics(topics).values():
            future.result(30)
        for codec in CODECS:
            produce(kafka.bootstrap, codec, 0)
        commit(kafka.bootstrap)
        ids, cluster_id = topic_ids(admin), admin.list_topics(timeout=30).cluster_id
        if clean:
            kafka.stop()

    with Tidelog(tmp_path) as ours:
        admin = AdminClient({"bootstrap.servers": ours.bootstrap})
        listed = admin.list_topics(timeout=30)
        assert listed.cluster_id == cluster_id
        assert {name for name in listed.topics if not name.startswith("__")} == {topic_of(codec) for codec in CODECS}
        assert "__cluster_metadata" not in listed.topics
        assert topic_ids(admin) == ids
        assert config_of(admin, topic_of("none")) == CONFIG
        assert committed(admin) == {topic_of(codec): 3 + at for at, codec in enumerate(CODECS)}
        for codec in CODECS:
            assert read(ours.bootstrap, codec) == {f"k{number}" for number in range(PER_CODEC)}
            produce(ours.bootstrap, codec, PER_CODEC)
            assert read(ours.bootstrap, codec) == {f"k{number}" for number in range(2 * PER_CODEC)}
        ours.stop()

    assert dumped_records(tmp_path / "data", [topic_of(codec) for codec in CODECS]) == 2 * PER_CODEC * len(CODECS)
