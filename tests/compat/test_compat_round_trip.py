"""The oracle: what was acknowledged is there exactly once, in order, at dense offsets, whoever reads it."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from bench.systems.process import BrokerProcess
from confluent_kafka import Producer
from stock import CODECS, Message, Record
from stock_all import CLIENTS
from stock_python import ConfluentClient, KafkaPythonClient

WRITERS = 9
PARTITIONS = 4
PER_WRITER = 400


def check(records: list[Record], acknowledged: dict[tuple[int, int], tuple[int, int]]) -> None:
    """`acknowledged` maps (writer, sequence) to the (partition, offset) that its acknowledgement named."""
    offsets: dict[int, list[int]] = defaultdict(list)
    found: dict[tuple[int, int], tuple[int, int]] = {}
    last: dict[tuple[int, int], int] = {}
    for record in records:
        assert record.value is not None
        writer, sequence = map(int, record.value.split(b":"))
        assert (writer, sequence) not in found, f"{writer}:{sequence} came twice"
        found[writer, sequence] = (record.partition, record.offset)
        offsets[record.partition].append(record.offset)
        assert last.get((writer, record.partition), -1) < sequence, "a writer's order was lost within a partition"
        last[writer, record.partition] = sequence
    assert found == acknowledged
    assert {partition: sorted(given) for partition, given in offsets.items()} == {
        partition: list(range(len(given))) for partition, given in offsets.items()
    }
    assert all(given == sorted(given) for given in offsets.values())


@pytest.mark.replicated
def test_every_acknowledged_record_is_read_once_in_order_by_each_client(
    broker: BrokerProcess, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    acknowledged: dict[tuple[int, int], tuple[int, int]] = {}
    lock = threading.Lock()

    def write(writer: int) -> None:
        client = CLIENTS[writer % len(CLIENTS)](broker.bootstrap)
        for start in range(0, PER_WRITER, 100):
            sequences = range(start, start + 100)
            messages = [Message(b"%d:%d" % (writer, n), partition=(writer + n) % PARTITIONS) for n in sequences]
            placed = client.produce(
                topic, messages, codec=CODECS[writer % len(CODECS)], idempotent=writer % 2 == 0, linger_ms=writer
            )
            with lock:
                acknowledged.update({(writer, n): at for n, at in zip(sequences, placed, strict=True)})

    with ThreadPoolExecutor(WRITERS) as pool:
        for done in [pool.submit(write, writer) for writer in range(WRITERS)]:
            done.result()
    assert len(acknowledged) == WRITERS * PER_WRITER
    for make in CLIENTS:
        check(make(broker.bootstrap).read(topic, len(acknowledged), partitions=range(PARTITIONS)), acknowledged)


def test_reading_while_writing_sees_the_same_log(broker: BrokerProcess, topic: str) -> None:
    total = 4_000
    with ThreadPoolExecutor(3) as pool:
        readers = [
            pool.submit(make(broker.bootstrap).read, topic, total) for make in (ConfluentClient, KafkaPythonClient)
        ]

        def write() -> list[tuple[int, int]]:
            client = ConfluentClient(broker.bootstrap)
            placed = []
            for start in range(0, total, 500):
                placed += client.produce(topic, [Message(b"0:%d" % n) for n in range(start, start + 500)])
            return placed

        acknowledged = {(0, n): at for n, at in enumerate(pool.submit(write).result())}
        for reader in readers:
            check(reader.result(), acknowledged)


@pytest.mark.replicated
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_what_was_acknowledged_survives_the_brokers_end(
    start_broker: Callable[..., BrokerProcess], unique: Callable[[str], str], ending: str
) -> None:
    """A process that dies leaves its writes in the page cache; a new one must find every one of them."""
    broker = start_broker()
    topic = unique("topic")
    client = ConfluentClient(broker.bootstrap)
    acknowledged: dict[tuple[int, int], tuple[int, int]] = {}
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 2, "log_level": 0}
    )

    def record_ack(error: object, message: object) -> None:
        if error is None:
            _, sequence = map(int, message.value().split(b":"))
            acknowledged[0, sequence] = (message.partition(), message.offset())

    for n in range(20_000):
        producer.produce(topic, b"0:%d" % n, partition=0, on_delivery=record_ack)
        producer.poll(0)
        if len(acknowledged) > 5_000:
            break
    producer.poll(0.5)
    # The end comes in the midst of writing: what was not acknowledged may or may not be there afterwards.
    sent = n + 1
    getattr(broker, ending)()
    broker.start()
    assert producer.flush(60) == 0
    assert len(acknowledged) == sent
    check(client.read(topic, sent), acknowledged)
