"""Transactions through librdkafka, kafka-python and aiokafka: what commits is seen once, what aborts is never seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiokafka
import kafka
import pytest
from bench.systems.process import BrokerProcess
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from members import member_settings
from stock import CODECS, Message, StockClient, eventually
from stock_python import ConfluentClient


@pytest.fixture
def transactional_id(unique: Callable[[str], str]) -> str:
    return unique("transaction")


def producer_of(broker: BrokerProcess, transactional_id: str, **extra: Any) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
    producer = Producer({**settings, **{name.replace("_", "."): value for name, value in extra.items()}})
    producer.init_transactions(30)
    return producer


def transact(producer: Producer, topic: str, values: list[bytes], commit: bool, partition: int = 0) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=partition)
    if commit:
        producer.commit_transaction(30)
    else:
        assert producer.flush(30) == 0
        producer.abort_transaction(30)


def seen(client: StockClient, topic: str, count: int, isolation: str, partition: int = 0) -> list[bytes | None]:
    records = client.read(topic, count, isolation=isolation, partitions=[partition])
    return [record.value for record in records]


@pytest.mark.parametrize("codec", CODECS)
def test_every_client_sees_committed_and_not_aborted_records(
    broker: BrokerProcess, client: StockClient, topic: str, transactional_id: str, codec: str
) -> None:
    producer = producer_of(broker, transactional_id, compression_type=codec)
    for n, commit in enumerate([True, False, True, False, False, True]):
        transact(producer, topic, [b"%d-%d" % (n, m) for m in range(20)], commit)
    committed = [b"%d-%d" % (n, m) for n in (0, 2, 5) for m in range(20)]
    everything = [b"%d-%d" % (n, m) for n in range(6) for m in range(20)]
    assert seen(client, topic, 60, "read_committed") == committed
    assert seen(client, topic, 120, "read_uncommitted") == everything
    # Each of the six transactions left a marker, which takes an offset.
    assert client.offsets(topic) == (0, 126)


def test_an_open_transaction_holds_back_what_comes_after_it(
    broker: BrokerProcess, admin: AdminClient, confluent: ConfluentClient, topic: str, unique: Callable[[str], str]
) -> None:
    slow, fast = producer_of(broker, unique("slow")), producer_of(broker, unique("fast"))
    slow.begin_transaction()
    slow.produce(topic, b"slow", partition=0)
    assert slow.flush(30) == 0
    transact(fast, topic, [b"fast"], commit=True)

    def end(isolation: IsolationLevel) -> int:
        at = TopicPartition(topic, 0)
        (future,) = admin.list_offsets({at: OffsetSpec.latest()}, isolation_level=isolation).values()
        return int(future.result(30).offset)

    assert end(IsolationLevel.READ_COMMITTED) == 0
    assert end(IsolationLevel.READ_UNCOMMITTED) == 3
    assert seen(confluent, topic, 2, "read_uncommitted") == [b"slow", b"fast"]
    consumer = confluent.consumer(isolation_level="read_committed")
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.consume(1, 1) == []
    slow.commit_transaction(30)
    assert [message.value() for message in consumer.consume(2, 15)] == [b"slow", b"fast"]
    consumer.close()
    eventually(lambda: end(IsolationLevel.READ_COMMITTED) == 4)


@pytest.mark.replicated
def test_a_transaction_spans_partitions_and_topics(
    broker: BrokerProcess, confluent: ConfluentClient, new_topic: Callable[..., str], transactional_id: str
) -> None:
    one, other = new_topic(partitions=4), new_topic(partitions=4)
    producer = producer_of(broker, transactional_id)
    for commit in (False, True):
        producer.begin_transaction()
        for topic in (one, other):
            for partition in range(4):
                producer.produce(topic, b"%d" % commit, partition=partition)
        if commit:
            producer.commit_transaction(30)
        else:
            assert producer.flush(30) == 0
            producer.abort_transaction(30)
    for topic in (one, other):
        records = confluent.read(topic, 4, isolation="read_committed", partitions=range(4))
        assert sorted((record.partition, record.offset, record.value) for record in records) == [
            (partition, 2, b"1") for partition in range(4)
        ]


def test_a_second_producer_with_the_same_id_fences_the_first(
    broker: BrokerProcess, confluent: ConfluentClient, topic: str, transactional_id: str
) -> None:
    zombie = producer_of(broker, transactional_id)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie", partition=0)
    assert zombie.flush(30) == 0
    successor = producer_of(broker, transactional_id)
    transact(successor, topic, [b"successor"], commit=True)
    with pytest.raises(KafkaException) as refused:
        zombie.produce(topic, b"late", partition=0)
        zombie.commit_transaction(30)
    assert refused.value.args[0].code() in (
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    )
    assert seen(confluent, topic, 1, "read_committed") == [b"successor"]


@pytest.mark.replicated
def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    broker: BrokerProcess, new_topic: Callable[..., str], unique: Callable[[str], str], transactional_id: str
) -> None:
    source, group = new_topic(partitions=2), unique("group")
    consumer = Consumer(member_settings(broker.bootstrap, group))
    producer = producer_of(broker, transactional_id)

    def committed() -> list[int]:
        places = [TopicPartition(source, partition) for partition in range(2)]
        return [at.offset for at in consumer.committed(places, 15)]

    for offset, commit in ((5, True), (9, False)):
        producer.begin_transaction()
        offsets = [TopicPartition(source, partition, offset) for partition in range(2)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        eventually(lambda: committed() == [5, 5])
    consumer.close()


def test_consume_transform_produce_is_exactly_once_through_restarts(
    broker: BrokerProcess, confluent: ConfluentClient, new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """The worker dies twice between writing and committing; the next one starts from the committed offsets."""
    source, target = new_topic(), new_topic()
    group, transactional_id = unique("group"), unique("copier")
    confluent.produce(source, [Message(b"%d" % n) for n in range(300)])
    done = 0
    for life in range(3):
        producer = producer_of(broker, transactional_id)
        consumer = Consumer(member_settings(broker.bootstrap, group, isolation_level="read_committed"))
        consumer.subscribe([source])
        while done < 300:
            messages = consumer.consume(50, 15)
            assert messages, "the source dried up"
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, b"copy of " + message.value(), partition=0)
            position = consumer.position([TopicPartition(source, 0)])
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 30)
            if life < 2 and position[0].offset > 100 * (life + 1):
                assert producer.flush(30) == 0
                break
            producer.commit_transaction(30)
            done = position[0].offset
        consumer.close()
    assert seen(confluent, target, 300, "read_committed") == [b"copy of %d" % n for n in range(300)]


def test_a_timeout_beyond_the_limit_is_refused(broker: BrokerProcess, transactional_id: str) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id}
    producer = Producer({**settings, "transaction.timeout.ms": 1_000_000})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(30)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_an_abandoned_transaction_is_aborted_by_the_broker(
    start_broker: Callable[..., BrokerProcess], unique: Callable[[str], str]
) -> None:
    broker = start_broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"})
    topic = unique("topic")
    confluent = ConfluentClient(broker.bootstrap)
    producer = producer_of(broker, unique("abandoned"), transaction_timeout_ms=1_000)
    producer.begin_transaction()
    producer.produce(topic, b"abandoned", partition=0)
    assert producer.flush(30) == 0
    transact(producer_of(broker, unique("steady")), topic, [b"steady"], commit=True)
    assert seen(confluent, topic, 1, "read_committed") == [b"steady"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)


def test_transactions_survive_the_brokers_end(
    start_broker: Callable[..., BrokerProcess], unique: Callable[[str], str]
) -> None:
    """An open transaction is still open after the restart, and a committed one still committed."""
    broker = start_broker()
    topic, transactional_id = unique("topic"), unique("transaction")
    confluent = ConfluentClient(broker.bootstrap)
    producer = producer_of(broker, transactional_id)
    transact(producer, topic, [b"before"], commit=True)
    transact(producer, topic, [b"gone"], commit=False)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(30) == 0
    broker.kill()
    broker.start()
    assert seen(confluent, topic, 1, "read_committed") == [b"before"]
    successor = producer_of(broker, transactional_id)
    transact(successor, topic, [b"after"], commit=True)
    assert seen(confluent, topic, 2, "read_committed") == [b"before", b"after"]


@pytest.mark.replicated
def test_kafka_python_transacts(
    broker: BrokerProcess, confluent: ConfluentClient, topic: str, transactional_id: str
) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=transactional_id)
    producer.init_transactions()
    for commit in (True, False, True):
        producer.begin_transaction()
        for n in range(10):
            producer.send(topic, b"%d-%d" % (commit, n), partition=0)
        if commit:
            producer.commit_transaction()
        else:
            producer.flush()
            producer.abort_transaction()
    producer.close()
    assert seen(confluent, topic, 20, "read_committed") == [b"1-%d" % n for n in range(10)] * 2


@pytest.mark.replicated
def test_aiokafka_transacts(
    broker: BrokerProcess, confluent: ConfluentClient, topic: str, transactional_id: str
) -> None:
    async def work() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id=transactional_id
        ) as producer:
            for commit in (True, False, True):
                await producer.begin_transaction()
                for n in range(10):
                    await producer.send_and_wait(topic, b"%d-%d" % (commit, n), partition=0)
                if commit:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()

    asyncio.run(asyncio.wait_for(work(), 60))
    assert seen(confluent, topic, 20, "read_committed") == [b"1-%d" % n for n in range(10)] * 2
