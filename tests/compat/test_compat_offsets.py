"""Where a consumer may stand: beginnings, ends, times, rewinds, out of range, and waiting for what comes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_END, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from stock import CODECS, Message, StockClient
from stock_python import ConfluentClient

FIRST_MS = 1_700_000_000_000


def test_an_empty_partition_begins_and_ends_at_zero(client: StockClient, topic: str) -> None:
    assert client.offsets(topic) == (0, 0)
    assert client.offset_for_time(topic, 0) is None


@pytest.mark.parametrize("codec", CODECS)
def test_a_time_finds_the_first_record_at_or_after_it(client: StockClient, topic: str, codec: str) -> None:
    # Two batches, so that the answer lies inside a batch, at the start of one, and past the last.
    for start in (0, 50):
        stamps = [FIRST_MS + 10 * n for n in range(start, start + 50)]
        client.produce(topic, [Message(b"v", timestamp_ms=stamp) for stamp in stamps], codec=codec)
    looked_up = {0: 0, FIRST_MS: 0, FIRST_MS + 1: 1, FIRST_MS + 10: 1, FIRST_MS + 495: 50, FIRST_MS + 990: 99}
    for timestamp_ms, offset in looked_up.items():
        assert client.offset_for_time(topic, timestamp_ms) == offset
    assert client.offset_for_time(topic, FIRST_MS + 991) is None


def test_a_time_finds_the_earliest_offset_where_stamps_run_backwards(client: StockClient, topic: str) -> None:
    for stamp in (500, 100, 400, 300, 600):
        client.produce(topic, [Message(b"v", timestamp_ms=FIRST_MS + stamp)])
    assert client.offset_for_time(topic, FIRST_MS + 450) == 0
    assert client.offset_for_time(topic, FIRST_MS + 501) == 4


@pytest.mark.parametrize("start", [0, 1, 57, 299])
def test_a_fetch_may_start_inside_a_batch(client: StockClient, topic: str, start: int) -> None:
    client.produce(topic, [Message(b"%d" % n) for n in range(300)], codec="lz4", linger_ms=50)
    records = client.read(topic, 300 - start, offset=start)
    assert [r.offset for r in records] == list(range(start, 300))


def test_a_consumer_rewinds_and_skips(confluent: ConfluentClient, topic: str) -> None:
    confluent.produce(topic, [Message(b"%d" % n) for n in range(1_000)])
    consumer = confluent.consumer()
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen = [consumer.consume(1, 10)[0].offset()]
    for offset in (900, 5, 999, 0, 500):
        consumer.seek(TopicPartition(topic, 0, offset))
        (message,) = consumer.consume(1, 10)
        assert int(message.value()) == message.offset()
        seen.append(message.offset())
    consumer.close()
    assert seen == [0, 900, 5, 999, 0, 500]


def test_offsets_move_with_deleted_records(client: StockClient, admin: AdminClient, topic: str) -> None:
    client.produce(topic, [Message(b"%d" % n) for n in range(100)])
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 40)]).values()
    assert deleted.result(10).low_watermark == 40
    assert client.offsets(topic) == (40, 100)
    assert [r.offset for r in client.read(topic, 60)] == list(range(40, 100))
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, OFFSET_END)]).values()
    assert deleted.result(10).low_watermark == 100
    assert client.offsets(topic) == (100, 100)


@pytest.mark.parametrize("offset", [3, 101])
def test_an_offset_out_of_range_is_told(
    confluent: ConfluentClient, admin: AdminClient, topic: str, offset: int
) -> None:
    confluent.produce(topic, [Message(b"%d" % n) for n in range(100)])
    next(iter(admin.delete_records([TopicPartition(topic, 0, 10)]).values())).result(10)
    consumer = confluent.consumer()
    consumer.assign([TopicPartition(topic, 0, offset)])
    message = consumer.poll(10)
    consumer.close()
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
    assert "OFFSET_OUT_OF_RANGE" in str(message.error()) or "out of range" in str(message.error())


def test_the_end_offset_is_a_valid_place_to_wait(confluent: ConfluentClient, topic: str) -> None:
    confluent.produce(topic, [Message(b"old")] * 10)
    consumer = confluent.consumer(fetch_wait_max_ms=5_000)
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    assert consumer.poll(1) is None
    confluent.produce(topic, [Message(b"new")])
    message = consumer.poll(10)
    consumer.close()
    assert (message.offset(), message.value()) == (10, b"new")


def test_a_long_poll_is_answered_when_a_record_comes(
    client: StockClient, confluent: ConfluentClient, topic: str
) -> None:
    """The fetch would wait a minute; the record that comes a second later ends the wait."""
    consumer = confluent.consumer(fetch_wait_max_ms=60_000, fetch_min_bytes=1, socket_timeout_ms=90_000)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(0.3) is None
    late = threading.Timer(1, lambda: client.produce(topic, [Message(b"late")]))
    late.start()
    message = consumer.poll(20)
    late.join()
    consumer.close()
    assert message is not None
    assert message.value() == b"late"


def test_a_fetch_waits_for_min_bytes(confluent: ConfluentClient, topic: str) -> None:
    consumer = confluent.consumer(fetch_wait_max_ms=60_000, fetch_min_bytes=50_000, socket_timeout_ms=90_000)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(0.3) is None
    confluent.produce(topic, [Message(b"x" * 1_000)])
    assert consumer.poll(1.5) is None
    confluent.produce(topic, [Message(b"y" * 60_000)])
    records = consumer.consume(2, 20)
    consumer.close()
    assert [len(r.value()) for r in records] == [1_000, 60_000]


def test_an_expired_wait_returns_nothing_and_goes_on(confluent: ConfluentClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    consumer = confluent.consumer(fetch_wait_max_ms=100)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
    assert consumer.consume(1, 1) == []
    confluent.produce(topic, [Message(b"v", partition=2)])
    (message,) = consumer.consume(1, 10)
    consumer.close()
    assert (message.partition(), message.offset()) == (2, 0)
