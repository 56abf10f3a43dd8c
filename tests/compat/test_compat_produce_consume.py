"""What every client writes, every client reads: keys, values, headers, times, codecs, acknowledgements."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from bench.systems.process import BrokerProcess
from stock import CODECS, Message, ProduceFailed, Record, StockClient
from stock_all import CLIENTS
from stock_python import ConfluentClient

NOW_MS = int(time.time() * 1000)
#: One of each thing that a record can be.
ASSORTMENT = [
    Message(b"plain"),
    Message(b"keyed", key=b"k"),
    Message(None, key=b"tombstone"),
    Message(b"", key=b""),
    Message(b"headed", headers=(("a", b"1"), ("a", b"2"), ("empty", b""))),
    Message("ünïcødé ✓".encode(), key="ключ".encode(), headers=(("имя", "значение".encode()),)),
    Message(b"x" * 20_000, timestamp_ms=NOW_MS - 5_000),
    Message(bytes(range(256)), timestamp_ms=NOW_MS - 1),
]


def essence(records: list[Record]) -> list[tuple[object, ...]]:
    """What the producer determined of each record."""
    return [(r.offset, r.key, r.value, r.headers) for r in records]


def expected(messages: list[Message], first_offset: int = 0) -> list[tuple[object, ...]]:
    return [(first_offset + at, m.key, m.value, m.headers) for at, m in enumerate(messages)]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_and_acknowledgement_round_trips(
    client: StockClient, confluent: ConfluentClient, topic: str, codec: str, acks: str
) -> None:
    messages = [Message(f"value {n} {'.' * (n % 97)}".encode(), key=f"{n % 7}".encode()) for n in range(300)]
    placed = client.produce(topic, messages, acks=acks, codec=codec)
    if acks != "0":
        assert placed == [(0, n) for n in range(300)]
    assert essence(confluent.read(topic, 300)) == expected(messages)
    if client.name != confluent.name:
        assert essence(client.read(topic, 300)) == expected(messages)


@pytest.mark.replicated
@pytest.mark.parametrize("codec", CODECS)
def test_each_client_reads_what_each_other_wrote(broker: BrokerProcess, topic: str, codec: str) -> None:
    written: list[Message] = []
    for make in CLIENTS:
        make(broker.bootstrap).produce(topic, ASSORTMENT, codec=codec)
        written += ASSORTMENT
    for make in CLIENTS:
        assert essence(make(broker.bootstrap).read(topic, len(written))) == expected(written)


def test_a_header_without_value_stays_without(client: StockClient, confluent: ConfluentClient, topic: str) -> None:
    # The other two clients cannot send one, but they read it.
    message = Message(b"v", headers=(("none", None), ("empty", b"")))
    confluent.produce(topic, [message])
    assert essence(client.read(topic, 1)) == expected([message])


def test_create_time_is_what_the_producer_said(client: StockClient, topic: str) -> None:
    stamps = [NOW_MS - 86_400_000, NOW_MS, NOW_MS - 10, NOW_MS + 1]
    client.produce(topic, [Message(b"v", timestamp_ms=stamp) for stamp in stamps])
    records = client.read(topic, 4)
    assert [(r.timestamp_type, r.timestamp_ms) for r in records] == [(0, stamp) for stamp in stamps]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_log_append_time_is_the_brokers(client: StockClient, new_topic: Callable[..., str], codec: str) -> None:
    topic = new_topic(**{"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    client.produce(topic, [Message(b"v", timestamp_ms=1_000_000 + n) for n in range(10)], codec=codec)
    after_ms = int(time.time() * 1000)
    records = client.read(topic, 10)
    assert {r.timestamp_type for r in records} == {1}
    assert all(before_ms <= r.timestamp_ms <= after_ms for r in records)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_the_topics_codec_replaces_the_producers(
    client: StockClient, confluent: ConfluentClient, new_topic: Callable[..., str], codec: str
) -> None:
    topic = new_topic(**{"compression.type": codec})
    messages = [Message(f"recompressed {n}".encode() * 20) for n in range(100)]
    placed = client.produce(topic, messages, codec="gzip" if codec != "gzip" else "none")
    assert placed == [(0, n) for n in range(100)]
    assert essence(client.read(topic, 100)) == expected(messages)
    assert essence(confluent.read(topic, 100)) == expected(messages)


@pytest.mark.parametrize("idempotent", [False, True])
def test_offsets_are_dense_across_many_batches(client: StockClient, topic: str, idempotent: bool) -> None:
    messages = [Message(b"%d" % n * 50) for n in range(3_000)]
    placed = client.produce(topic, messages, idempotent=idempotent, linger_ms=0)
    assert placed == [(0, n) for n in range(3_000)]
    assert essence(client.read(topic, 3_000)) == expected(messages)


def test_a_message_over_the_limit_is_refused_with_its_code(client: StockClient, topic: str) -> None:
    with pytest.raises(ProduceFailed) as refused:
        client.produce(topic, [Message(b"x" * 1_100_000)], max_request_bytes=10_000_000)
    assert refused.value.code == 10  # MESSAGE_TOO_LARGE
    assert client.offsets(topic) == (0, 0)


def test_a_message_just_within_the_default_limit_is_taken(client: StockClient, topic: str) -> None:
    message = Message(b"x" * (1_048_588 - 200))
    assert client.produce(topic, [message], max_request_bytes=10_000_000) == [(0, 0)]
    (record,) = client.read(topic, 1)
    assert record.value == message.value


def test_ten_megabytes_pass_where_the_topic_allows_them(client: StockClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"max.message.bytes": "12000000"})
    message = Message(b"0123456789abcdef" * 655_360, headers=(("big", b"yes"),))
    small = Message(b"after")
    client.produce(topic, [message], max_request_bytes=15_000_000)
    client.produce(topic, [small])
    # The default fetch size is far below the first batch: it must come all the same.
    records = client.read(topic, 2)
    assert essence(records) == expected([message, small])


def test_a_compacted_topic_refuses_a_record_without_key(client: StockClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"cleanup.policy": "compact"})
    with pytest.raises(ProduceFailed) as refused:
        client.produce(topic, [Message(b"keyless")])
    # INVALID_RECORD; aiokafka 0.14 has no name for it and reports an unknown error.
    assert refused.value.code == (-1 if client.name == "aiokafka" else 87)
    assert client.produce(topic, [Message(b"keyed", key=b"k")]) == [(0, 0)]


def test_a_timestamp_out_of_bounds_is_refused(client: StockClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"message.timestamp.after.max.ms": "1000", "message.timestamp.before.max.ms": "60000"})
    for stamp in (NOW_MS + 3_600_000, NOW_MS - 3_600_000):
        with pytest.raises(ProduceFailed) as refused:
            client.produce(topic, [Message(b"v", timestamp_ms=stamp)])
        assert refused.value.code == 32  # INVALID_TIMESTAMP
    assert client.produce(topic, [Message(b"v", timestamp_ms=int(time.time() * 1000))]) == [(0, 0)]
