"""Topics with everything in them that a source must get right, written by a stock client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka import Producer

from tidelog.client import Client

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: a Tuesday in 2023, long out of any retention time
EPOCH_MS = 1_700_000_000_000
FOR_EVER = {"retention.ms": "-1"}
PARTITIONS = 3
RECORDS = 60
Fields = dict[str, Any]


def every_kind_of_record() -> Iterator[Fields]:
    """Keys and values that are there, empty and null; headers of all kinds; times that go back and forth."""
    for number in range(RECORDS):
        yield {
            "key": (None, b"", b"key-%d" % number)[number % 3],
            "value": (b"value-%d" % number, None, b"", b"\x00\xff" * 40)[number % 4],
            "headers": (
                [],
                [("only", b"one")],
                [("twice", b"1"), ("twice", b"2"), ("null", None), ("empty", b"")],
                [("ünïcode", "wörld".encode())],
            )[number // 4 % 4],
            "timestamp": EPOCH_MS + 1000 * (number ^ 1),
        }


def fill_mixed(bootstrap: str, topic: str) -> None:
    """Three partitions with the same records in each, in batches of every codec."""
    with Client(bootstrap) as client:
        client.admin.create_topic(topic, partitions=PARTITIONS, configs=FOR_EVER)
    for turn, codec in enumerate(CODECS):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": "50"})
        for number, record in enumerate(every_kind_of_record()):
            if number * len(CODECS) // RECORDS == turn:
                for partition in range(PARTITIONS):
                    producer.produce(topic, partition=partition, **record)
        producer.flush()


def fill_appended(bootstrap: str, topic: str) -> None:
    """Records with the time at which the broker got them."""
    with Client(bootstrap) as client:
        client.admin.create_topic(topic, partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": bootstrap})
    for record in every_kind_of_record():
        producer.produce(topic, **record)
    producer.flush()


def fill_transactional(bootstrap: str, topic: str) -> Producer:
    """GroupOffset and aborted transactions after each other; the producer given back has one open that began last."""
    with Client(bootstrap) as client:
        client.admin.create_topic(topic, partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "transaction.timeout.ms": 600_000})
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        for record in range(5):
            producer.produce(topic, b"%d-%d" % (number, record), partition=record % 2)
        if number % 3 == 1:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush()
    return producer
