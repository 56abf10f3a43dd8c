"""Delayed messages with stock clients on both ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from stock import Message, StockClient
from stock_python import ConfluentClient


@pytest.fixture(autouse=True)
def only_here(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--broker") == "kafka":
        pytest.skip("Apache Kafka has no delay topics")


@pytest.mark.replicated
def test_any_client_sends_delayed_records_and_gets_them_in_order_of_due_time(
    client: StockClient, new_topic: Callable[..., str]
) -> None:
    target = new_topic(partitions=2)
    source = new_topic(partitions=2, **{"tidelog.delay.target": target})

    def delayed(value: bytes, delay_ms: int) -> Message:
        return Message(value, key=b"k", headers=(("a", b"1"), ("tidelog-delay", b"%d" % delay_ms)), partition=1)

    sent = [delayed(b"c", 700), delayed(b"a", 300), delayed(b"b", 500)]
    placed = client.produce(source, sent)
    records = client.read(target, 3, partitions=(1,))
    assert [(record.key, record.value) for record in records] == [(b"k", b"a"), (b"k", b"b"), (b"k", b"c")]
    headers = dict(records[-1].headers)
    assert records[-1].headers[:2] == sent[0].headers
    assert headers["tidelog-origin-topic"] == source.encode()
    assert (headers["tidelog-origin-partition"], headers["tidelog-origin-offset"]) == (b"1", b"%d" % placed[0][1])
    originals = client.read(source, 3, partitions=(1,))
    assert [record.value for record in originals] == [b"c", b"a", b"b"], "control records of the delivery are skipped"
    origin_ms = int(headers["tidelog-origin-timestamp"] or b"")
    assert origin_ms == originals[0].timestamp_ms
    assert records[-1].timestamp_ms >= origin_ms + 700


def test_a_delay_topic_takes_idempotent_and_compressed_batches(
    confluent: ConfluentClient, new_topic: Callable[..., str]
) -> None:
    target = new_topic(**{"compression.type": "zstd"})
    source = new_topic(**{"tidelog.delay.target": target, "tidelog.delay.ms": "200"})
    values = [b"%d" % number for number in range(2_000)]
    confluent.produce(source, [Message(value) for value in values], codec="lz4", idempotent=True)
    assert [record.value for record in confluent.read(target, len(values))] == values


@pytest.mark.replicated
def test_any_client_prepares_and_ends_half_messages(client: StockClient, new_topic: Callable[..., str]) -> None:
    target, questions = new_topic(), new_topic()
    settings = {"half.target": target, "half.check.topic": questions, "half.check.ms": "300"}
    source = new_topic(**{f"tidelog.{name}": value for name, value in settings.items()})

    def half(half_id: bytes, value: bytes | None, end: bytes | None = None) -> Message:
        ended = () if end is None else (("tidelog-half-end", end),)
        return Message(value, key=b"k", headers=(("tidelog-half-id", half_id), *ended))

    client.produce(source, [half(b"1", b"one"), half(b"2", b"two"), half(b"3", b"three")])
    client.produce(source, [half(b"3", None, b"commit"), half(b"2", None, b"rollback")])
    asked = client.read(questions, 1)[0]
    assert (asked.key, asked.value) == (b"1", b"one")
    client.produce(source, [half(b"1", None, b"commit")])
    records = client.read(target, 2)
    assert [(record.key, record.value) for record in records] == [(b"k", b"three"), (b"k", b"one")]
