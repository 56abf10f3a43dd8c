"""A compacted topic, as clients see it while the broker compacts under them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from bench.systems.process import BrokerProcess
from confluent_kafka import Producer
from stock import Message, Record, create_topic, eventually
from stock_python import ConfluentClient

#: rounds as often as the log gets a new segment, and a segment for nearly every batch
EAGER = {"log.cleaner.backoff.ms": "50"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "20",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
}


def everything(client: ConfluentClient, topic: str, marker: bytes) -> list[Record]:
    """All records of the topic: writes a last one, and reads up to it."""
    client.produce(topic, [Message(marker, key=b"marker")])
    found: list[Record] = []
    while not found or found[-1].value != marker:
        found += client.read(topic, 1, offset=found[-1].offset + 1 if found else 0)
    return found


def test_each_key_comes_down_to_its_newest_value_at_its_offset(
    start_broker: Callable[..., BrokerProcess], unique: Callable[[str], str]
) -> None:
    broker = start_broker(EAGER)
    topic = unique("topic")
    create_topic(broker.bootstrap, topic, 1, COMPACTED)
    client = ConfluentClient(broker.bootstrap)
    newest: dict[bytes, tuple[int, bytes]] = {}
    for turn in range(8):
        batch = [Message(b"%d-%d" % (turn, n), key=b"key%d" % (n % 7)) for n in range(20)]
        places = client.produce(topic, batch, codec=("none", "lz4", "zstd", "gzip")[turn % 4], idempotent=turn % 2 == 0)
        for message, (_, offset) in zip(batch, places, strict=True):
            assert message.key is not None and message.value is not None
            newest[message.key] = (offset, message.value)
    client.produce(topic, [Message(None, key=b"key3")])
    numbers = itertools.count()

    def compacted() -> bool:
        records = everything(client, topic, b"marker %d" % next(numbers))
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        found = [(r.key, r.offset, r.value) for r in records if r.key not in (b"marker", b"key3")]
        # Whoever reads the whole topic always ends with the newest values.
        assert {key: (offset, value) for key, offset, value in found} == {
            key: place for key, place in newest.items() if key != b"key3"
        }
        tombstoned = [record for record in records if record.key == b"key3"]
        assert not tombstoned or tombstoned[-1].value is None
        return len(found) == len(newest) - 1 and not tombstoned

    eventually(compacted, timeout_s=60)
    broker.kill()
    broker.start()
    records = everything(client, topic, b"after a crash")
    kept = {record.key: (record.offset, record.value) for record in records if record.key != b"marker"}
    assert kept == {key: place for key, place in newest.items() if key != b"key3"}


def test_an_aborted_transaction_supersedes_nothing(
    start_broker: Callable[..., BrokerProcess], unique: Callable[[str], str]
) -> None:
    broker = start_broker(EAGER)
    topic = unique("topic")
    create_topic(broker.bootstrap, topic, 1, COMPACTED)
    client = ConfluentClient(broker.bootstrap)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": unique("txn")})
    producer.init_transactions(30)
    for turn in range(6):
        producer.begin_transaction()
        for n in range(5):
            producer.produce(topic, key=b"key%d" % n, value=b"%d" % turn)
        producer.flush(30)
        if turn in (1, 3, 5):
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    numbers = itertools.count()

    def compacted() -> bool:
        records = everything(client, topic, b"marker %d" % next(numbers))
        values = [record.value for record in records if record.key != b"marker"]
        return values == [b"4"] * 5

    eventually(compacted, timeout_s=60)
