"""Writing and reading through the client, against a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench.systems.process import BrokerProcess
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.client import Client, Message, reader
from tidelog.client.errors import ClientError, NotFound, OffsetOutOfRange, Refused, Unreachable
from tidelog.client.reader import Isolation, Span
from tidelog.wire.batch import iter_headers
from tidelog.wire.compression import CODEC_NAMES

pytestmark = pytest.mark.layouts


@pytest.mark.parametrize("compression", CODEC_NAMES)
@pytest.mark.parametrize("acks", ["all", "1"])
def test_what_is_produced_is_read_back(client: Client, topic: str, compression: str, acks: str) -> None:
    sent = [
        Message(b"plain"),
        Message(None, key=b"tombstone"),
        Message(b"", key=b""),
        Message(
            b"\xff\x00", key=b"\xfe", headers=[("h", b"1"), ("h", None), ("", b"")], timestamp_ms=1_700_000_000_000
        ),
    ]
    (delivered,) = client.produce(topic, sent, partition=0, compression=compression, acks=acks)
    assert (delivered.base_offset, delivered.record_count) == (0, 4)
    # What the leader alone has acknowledged can be read when the others have it as well.
    records = list(client.read(topic, 0, until_offset="latest" if acks == "all" else 4))
    assert client.offsets(topic)[0].offset == 4
    assert [(r.offset, r.key, r.value) for r in records] == [(i, m.key, m.value) for i, m in enumerate(sent)]
    assert records[3].headers == (("h", b"1"), ("h", None), ("", b""))
    assert records[3].timestamp == 1_700_000_000_000


def test_answers_that_somebody_still_looks_at_are_never_written_over(client: Client, topic: str) -> None:
    client.produce(topic, [b"%d" % number * 20_000 for number in range(40)], partition=0)
    sizes = (200_000, 70_000, 500_000)
    looked_at: list[tuple[memoryview, bytes]] = []
    for step in range(30):
        fetched = client.fetch(topic, 0, step, max_bytes=sizes[step % 3])
        looked_at.append((fetched.records, bytes(fetched.records)))
        if step % 2:
            looked_at.pop(step % len(looked_at))
        del fetched
        assert all(view == copy for view, copy in looked_at)


def test_answers_that_nobody_looks_at_leave_their_memory_to_the_next(client: Client, topic: str) -> None:
    client.produce(topic, [b"x" * 100_000 for _ in range(5)], partition=0)

    buffers = [client.fetch(topic, 0, offset, max_bytes=150_000).records.obj for offset in range(5)]
    assert all(buffer is buffers[0] for buffer in buffers)


def test_unacknowledged_records_arrive_too(client: Client, topic: str) -> None:
    (delivered,) = client.produce(topic, [b"a", b"b"], acks=0)
    assert delivered.base_offset == -1
    assert [record.value for record in client.read(topic, 0, until_offset=2)] == [b"a", b"b"]


def test_a_key_goes_to_the_partition_that_librdkafka_gives_it(
    client: Client, broker: BrokerProcess, new_topic: Callable[..., str]
) -> None:
    ours, theirs = new_topic(7), new_topic(7)
    keys = [b"%d" % number for number in range(60)] + [b"", b"abc", b"\xff" * 33]
    client.produce(ours, [Message(b"v", key=key) for key in keys])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2"})
    for key in keys:
        producer.produce(theirs, b"v", key)
    assert producer.flush(20) == 0

    def placed(topic: str) -> dict[bytes | None, int]:
        return {record.key: partition for partition in range(7) for record in client.read(topic, partition)}

    assert placed(ours) == placed(theirs)


def test_records_without_a_key_are_spread(client: Client, new_topic: Callable[..., str]) -> None:
    name = new_topic(3)
    client.produce(name, [b"x"] * 9, spread="round-robin")
    assert [at.offset for at in client.offsets(name).values()] == [3, 3, 3]


def test_a_stock_consumer_reads_what_we_wrote(client: Client, broker: BrokerProcess, topic: str) -> None:
    client.produce(topic, [Message(b"v", b"k", [("h", b"x")], 1_700_000_000_123)], compression="zstd")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    (message,) = consumer.consume(1, timeout=20)
    consumer.close()
    assert (message.key(), message.value(), message.headers()) == (b"k", b"v", [("h", b"x")])
    assert message.timestamp()[1] == 1_700_000_000_123


def test_reading_keeps_to_its_range(client: Client, topic: str) -> None:
    for start in range(0, 30, 10):
        client.produce(topic, [b"%d" % number for number in range(start, start + 10)])

    def values(first: int, until: int) -> list[int]:
        return [int(record.value or b"") for record in client.read(topic, 0, from_offset=first, until_offset=until)]

    for first, until in ((0, 30), (5, 25), (10, 20), (12, 13), (7, 7), (29, 30)):
        assert values(first, until) == list(range(first, until))


def test_reading_beyond_one_answer_goes_on(client: Client, topic: str) -> None:
    client.produce(topic, [b"%06d" % number + b"." * 500 for number in range(3000)], max_batch_bytes=20_000)
    read = client.read(topic, 0, partition_max_bytes=50_000)
    assert [int((record.value or b"")[:6]) for record in read] == list(range(3000))


def test_several_partitions_are_read_together(client: Client, new_topic: Callable[..., str]) -> None:
    name = new_topic(4)
    for partition in range(4):
        client.produce(name, [b"%d" % number for number in range(1000)], partition=partition)
    spans = client.spans(name, dict.fromkeys(range(4), ("earliest", "latest")))
    seen: dict[int, list[int]] = {}
    for span, record in client.reader(spans, partition_max_bytes=4000).records():
        seen.setdefault(span.partition, []).append(int(record.value or b""))
    assert seen == {partition: list(range(1000)) for partition in range(4)}


def test_a_fetch_gives_the_batches_as_they_lie_in_the_log(client: Client, topic: str) -> None:
    client.produce(topic, [b"a", b"b"], compression="gzip")
    client.produce(topic, [b"c"])
    fetched = client.fetch(topic, 0, 0)
    headers = [(header.base_offset, header.record_count, header.codec) for _, header in iter_headers(fetched.records)]
    assert headers == [(0, 2, 1), (2, 1, 0)]
    assert (fetched.high_watermark, fetched.log_start_offset) == (3, 0)
    assert len(client.fetch(topic, 0, 3, max_wait_ms=1).records) == 0


def test_a_reader_that_went_away_does_not_disturb_the_next(client: Client, topic: str) -> None:
    client.produce(topic, [b"%06d" % number for number in range(5000)], max_batch_bytes=2000)
    for _ in range(3):
        first = next(iter(client.read(topic, 0, partition_max_bytes=4000)))
        assert first.value == b"000000"
    assert sum(1 for _ in client.read(topic, 0)) == 5000


def test_an_offset_that_is_not_there_says_which_ones_are(client: Client, topic: str) -> None:
    client.produce(topic, [b"a", b"b", b"c"])
    client.admin.delete_records(topic, {0: 1})
    with pytest.raises(OffsetOutOfRange) as raised:
        list(client.read(topic, 0, from_offset=0))
    assert (raised.value.first, raised.value.end) == (1, 3)
    assert "it holds 1 to 2" in str(raised.value)


@pytest.mark.parametrize("asked", ["answered", "refused", "unreachable"])
def test_what_came_beside_an_error_is_handed_out_before_the_error_is_raised(
    client: Client, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """Also where the question for the offsets that are there fails, for good or until patience ends."""
    name = new_topic(2)
    for partition in range(2):
        client.produce(name, [b"a", b"b", b"c"], partition=partition)
    client.admin.delete_records(name, {1: 1})
    spans = [Span(name, 0, 0, 3), Span(name, 1, 0, 3)]
    errors: dict[str, type[ClientError]] = {
        "answered": OffsetOutOfRange,
        "refused": Refused,
        "unreachable": Unreachable,
    }

    def failing(*_: object) -> None:
        raise errors[asked]("nobody knows")

    if asked != "answered":
        monkeypatch.setattr(reader, "list_offsets", failing)
        monkeypatch.setattr(client.cluster, "timeout_s", 0)
    seen = []
    with pytest.raises(errors[asked]):
        for span, record in client.reader(spans).records():
            seen.append((span.partition, record.value))
    assert seen == [(0, b"a"), (0, b"b"), (0, b"c")]
    assert {span.partition: span.position for span in spans} == {0: 3, 1: 0}


def test_an_answer_that_is_asked_for_again_is_the_whole_answer(client: Client, new_topic: Callable[..., str]) -> None:
    name = new_topic(2)
    for partition in range(2):
        client.produce(name, [b"a", b"b", b"c"], partition=partition)
    client.admin.delete_records(name, {1: 1})
    spans = [Span(name, 0, 0, 3), Span(name, 1, 0, 3)]
    reading = client.reader(spans)
    with pytest.raises(OffsetOutOfRange):
        reading.once()
    assert {span.partition: span.position for span in spans} == {0: 0, 1: 0}


def test_offsets_are_found_by_word_and_time(client: Client, topic: str) -> None:
    stamps = [1_700_000_000_000, 1_700_000_005_000, 1_700_000_003_000]
    for stamp in stamps:
        client.produce(topic, [Message(b"x", timestamp_ms=stamp)])
    assert client.offsets(topic, when="earliest")[0].offset == 0
    assert client.offsets(topic, when="latest")[0].offset == 3
    assert client.offsets(topic, when="max-timestamp")[0][:2] == (1, 1_700_000_005_000)
    assert client.offsets(topic, when=1_700_000_000_001)[0][:2] == (1, 1_700_000_005_000)
    assert client.offsets(topic, when=1_700_000_005_001)[0].offset == -1


def test_read_committed_leaves_out_what_was_aborted_or_is_open(
    client: Client, broker: BrokerProcess, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"of-{topic}"})
    producer.init_transactions(20)
    for number in range(4):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, b"%d-%d" % (number, part), partition=0)
        producer.flush(20)
        if number % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(20)

    def values(isolation: Isolation) -> list[bytes | None]:
        return [record.value for record in client.read(topic, 0, isolation=isolation)]

    committed = [b"%d-%d" % (number, part) for number in (0, 2) for part in range(3)]
    assert values("read_committed") == committed
    assert values("read_uncommitted") == [b"%d-%d" % (n, p) for n in range(4) for p in range(3)] + [b"open"]
    assert client.offsets(topic, isolation="read_committed")[0].offset < client.offsets(topic)[0].offset
    producer.abort_transaction(20)
    assert values("read_committed") == committed


def test_what_does_not_exist_is_not_found(client: Client, topic: str) -> None:
    with pytest.raises(NotFound, match="no such topic"):
        client.topic("no-such-topic")
    with pytest.raises(NotFound, match="has no partition 7"):
        list(client.read(topic, 7))
    with pytest.raises(NotFound, match="has no partition 7"):
        client.produce(topic, [b"x"], partition=7)


def test_a_record_that_is_too_large_says_what_to_do(client: Client, new_topic: Callable[..., str]) -> None:
    name = new_topic(**{"max.message.bytes": "2000"})
    with pytest.raises(Refused) as raised:
        client.produce(name, [b"x" * 3000])
    assert raised.value.hint is not None and "max.message.bytes" in raised.value.hint


def test_a_batch_that_is_too_large_is_split_until_it_fits(client: Client, new_topic: Callable[..., str]) -> None:
    name = new_topic(**{"max.message.bytes": "2000"})
    client.produce(name, [b"%04d" % number + b"x" * 100 for number in range(200)])
    assert [int((record.value or b"")[:4]) for record in client.read(name, 0)] == list(range(200))


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.builds(
            Message,
            value=st.none() | st.binary(max_size=40),
            key=st.none() | st.binary(max_size=10),
            headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
            timestamp_ms=st.integers(0, 1_700_000_000_000),
        ),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from(CODEC_NAMES),
    st.integers(50, 2000),
)
def test_any_records_come_back_as_they_were(
    client: Client, new_topic: Callable[..., str], messages: list[Message], compression: str, batch_bytes: int
) -> None:
    name = new_topic()
    client.produce(name, messages, compression=compression, max_batch_bytes=batch_bytes)
    back = [Message(r.value, r.key, list(r.headers), r.timestamp) for r in client.read(name, 0)]
    assert back == messages
