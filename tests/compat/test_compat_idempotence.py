"""Idempotent producers, and requests that go wrong, as clients see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiokafka
import kafka
import pytest
from bench.systems.process import BrokerProcess
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from stock import CODECS, Message, ProduceFailed, StockClient, eventually
from stock_python import ConfluentClient

pytestmark = pytest.mark.layouts


@pytest.mark.replicated
@pytest.mark.parametrize("codec", CODECS)
def test_an_idempotent_producer_writes_to_many_partitions(
    client: StockClient, new_topic: Callable[..., str], codec: str
) -> None:
    topic = new_topic(partitions=5)
    messages = [Message(b"%d" % n, key=b"k", partition=n % 5) for n in range(1_000)]
    placed = client.produce(topic, messages, idempotent=True, codec=codec, linger_ms=0)
    assert placed == [(n % 5, n // 5) for n in range(1_000)]
    records = client.read(topic, 1_000, partitions=range(5))
    assert sorted((r.partition, r.offset, r.value) for r in records) == sorted(
        (n % 5, n // 5, b"%d" % n) for n in range(1_000)
    )


def test_producers_get_different_ids_and_share_a_partition(broker: BrokerProcess, topic: str) -> None:
    producers = [Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True}) for _ in range(5)]
    for n in range(200):
        producers[n % 5].produce(topic, b"%d" % n, partition=0)
        if n % 20 == 19:
            for producer in producers:
                assert producer.flush(30) == 0
    values = [record.value for record in ConfluentClient(broker.bootstrap).read(topic, 200)]
    assert sorted(int(value) for value in values) == list(range(200))


def test_a_producer_goes_on_with_a_topic_made_anew(broker: BrokerProcess, topic: str) -> None:
    """The old topic's sequence numbers mean nothing to the new one."""
    client = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap, enable_idempotence=False, metadata_max_age_ms=500
    )
    assert producer.send(topic, b"old", partition=0).get(30).offset == 0
    client.delete_topics([topic])
    eventually(lambda: topic not in client.list_topics())
    wanted = {topic: {"num_partitions": 1, "replication_factor": -1}}
    (made,) = client.create_topics(wanted, raise_errors=False)["topics"]
    # The producer still asks for the topic, and that makes it as well.
    assert made["error_code"] in (KafkaError.NO_ERROR, KafkaError.TOPIC_ALREADY_EXISTS)
    client.wait_for_topics([topic])
    client.close()
    assert producer.send(topic, b"new", partition=0).get(30).offset == 0
    producer.close()


def test_an_unknown_topic_is_unknown_and_stays_so(confluent: ConfluentClient, unique: Callable[[str], str]) -> None:
    """A consumer asks without allowing its creation, which a producer would."""
    name = unique("missing")
    consumer = confluent.consumer()
    for _ in range(2):
        assert consumer.list_topics(name, timeout=15).topics[name].error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert name not in consumer.list_topics(timeout=15).topics
    consumer.close()


def test_an_unknown_partition_has_no_offsets(confluent: ConfluentClient, topic: str) -> None:
    consumer = confluent.consumer()
    with pytest.raises(KafkaException) as refused:
        consumer.get_watermark_offsets(TopicPartition(topic, 7), timeout=15)
    consumer.close()
    assert refused.value.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)


@pytest.mark.parametrize("name", ["white space", "sla/sh", "x" * 250, "."])
def test_an_invalid_topic_name_is_refused_in_metadata(confluent: ConfluentClient, name: str) -> None:
    consumer = confluent.consumer()
    described = consumer.list_topics(name, timeout=15).topics[name]
    consumer.close()
    assert described.error.code() == KafkaError.TOPIC_EXCEPTION


def test_an_old_fetch_of_nothing_is_empty_not_null(broker: BrokerProcess, topic: str) -> None:
    """aiokafka fetches with an old version and stumbles over a null record set."""

    async def work() -> dict[object, object]:
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, fetch_max_wait_ms=50) as consumer:
            at = aiokafka.TopicPartition(topic, 0)
            consumer.assign([at])
            consumer.seek(at, 0)
            return await consumer.getmany(timeout_ms=300)

    assert asyncio.run(work()) == {}


def test_a_client_that_asks_for_the_last_record_gets_it(client: StockClient, topic: str) -> None:
    client.produce(topic, [Message(b"%d" % n) for n in range(77)])
    (record,) = client.read(topic, 1, offset=76)
    assert (record.offset, record.value) == (76, b"76")


@pytest.mark.parametrize("acks", ["1", "all"])
def test_a_minimum_above_the_number_of_replicas_means_all_of_them(
    client: StockClient, new_topic: Callable[..., str], acks: str
) -> None:
    topic = new_topic(**{"min.insync.replicas": "2"})
    assert client.produce(topic, [Message(b"v")], acks=acks) == [(0, 0)]


def test_a_producer_with_an_unknown_partition_fails_by_itself(confluent: ConfluentClient, topic: str) -> None:
    with pytest.raises((ProduceFailed, KafkaException)):
        confluent.produce(topic, [Message(b"v", partition=3)])


def test_a_read_committed_consumer_reads_plain_records(client: StockClient, topic: str) -> None:
    client.produce(topic, [Message(b"%d" % n) for n in range(10)], idempotent=True)
    assert [r.offset for r in client.read(topic, 10, isolation="read_committed")] == list(range(10))


def test_consumers_check_the_checksums_they_receive(
    broker: BrokerProcess, confluent: ConfluentClient, topic: str
) -> None:
    confluent.produce(topic, [Message(b"%d" % n) for n in range(100)], codec="snappy")
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "check.crcs": True}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(100, 15)
    consumer.close()
    assert [message.offset() for message in messages if message.error() is None] == list(range(100))
