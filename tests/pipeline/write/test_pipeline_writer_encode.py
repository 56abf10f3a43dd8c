"""From Arrow to record batches: what is encoded decodes to what went in, on both faces of the kernel."""

from __future__ import annotations

import importlib.util
from array import array
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from bench.systems.process import BrokerProcess
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.client import Client
from tidelog.client.cluster import TopicInfo
from tidelog.client.partitioner import STICKY_BYTES, murmur2, partition_of_key
from tidelog.client.producer import Encoded
from tidelog.client.transactional import TransactionalProducer
from tidelog.pipeline.write import encode
from tidelog.pipeline.write.encode import ArrowEncoder, RowRefused
from tidelog.wire.batch import HEADER_SIZE
from tidelog.wire.compression import CODEC_NAMES
from tidelog.wire.records import Record, read_records

KERNEL = Path(encode.__file__).parent / "kernel.py"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def _faces() -> tuple[tuple[str, ...], Any]:
    path = Path(__file__).parents[2] / "wire" / "wire_kernels.py"
    spec = importlib.util.spec_from_file_location("wire_kernels_of_encoding", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FACES, module.kernel_face


FACES, kernel_face = _faces()


@pytest.fixture(params=FACES, autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    face: ModuleType = kernel_face(KERNEL, request.param)
    monkeypatch.setattr(encode, "kernel", face)
    return face


class Given:
    """Takes the batches of an encoder, as a producer would."""

    def __init__(self, partitions: int = 3, available: list[int] | None = None) -> None:
        self.partitions = partitions
        self.available = list(range(partitions)) if available is None else available
        self.batches: dict[tuple[str, int], list[Encoded]] = defaultdict(list)
        self.order: list[tuple[str, int]] = []

    def topic(self, name: str) -> tuple[TopicInfo, list[int]]:
        return TopicInfo(name, b"", False, dict.fromkeys(range(self.partitions))), self.available  # type: ignore[arg-type]

    def take(self, topic: str, partition: int, encoded: Encoded) -> None:
        self.batches[topic, partition].append(encoded)

    def records(self) -> dict[tuple[str, int], list[Record]]:
        return {where: [r for each in sent for r in _read(each)] for where, sent in self.batches.items()}


def _read(encoded: Encoded) -> list[Record]:
    packed = encoded.packed(7, 1, 2, transactional=True)
    records = list(read_records(packed))
    assert [record.offset for record in records] == list(range(encoded.record_count))
    assert encoded.max_timestamp == max(record.timestamp for record in records)
    assert len(packed) == HEADER_SIZE + len(encoded.payload)
    return records


def encoded(batches: list[pa.RecordBatch], given: Given, **how: Any) -> Given:
    encoder = ArrowEncoder(given.topic, given.take, **how)
    for batch in batches:
        encoder.write(batch)
    encoder.close()
    return given


sizes = st.one_of(st.integers(0, 20), st.sampled_from([63, 64, 127, 128, 8191, 8192, 20_000]))
blobs = st.one_of(st.none(), st.binary(max_size=12), sizes.map(lambda size: b"x" * size))
headers = st.one_of(
    st.none(), st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=70))), max_size=3)
)
stamps = st.one_of(st.none(), st.integers(0, 1 << 45), st.integers(1_700_000_000_000, 1_700_000_100_000))
rows = st.tuples(blobs, blobs, headers, st.sampled_from(["a", "b", "c"]), st.sampled_from([None, 0, 1, 2]), stamps)


def arrow(made: list[tuple[Any, ...]], kinds: tuple[pa.DataType, pa.DataType], extra: int) -> pa.RecordBatch:
    """The rows as a batch, cut out of a longer one so that nothing begins at 0."""
    made = [(b"cut", b"off", [("z", b"z")], "a", 0, 0)] * extra + made
    keys, values, heads, topics, partitions, times = zip(*made, strict=True) if made else ((),) * 6
    whole = pa.record_batch(
        {
            "ignored": pa.array(range(len(made))),
            "key": pa.array(keys, pa.binary()).cast(kinds[0]),
            "value": pa.array(values, pa.binary()).cast(kinds[1]),
            "headers": pa.array(
                [None if h is None else [{"key": k, "value": v} for k, v in h] for h in heads], HEADERS
            ),
            "topic": pa.array(topics, pa.string()),
            "partition": pa.array(partitions, pa.int32()),
            "time": pa.array([None if t is None else t * 1000 + 999 for t in times], pa.timestamp("us", "UTC")).cast(
                pa.timestamp("us", "Asia/Kolkata")
            ),
        }
    )
    return whole.slice(extra)


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.lists(rows, max_size=25), max_size=5),
    extra=st.integers(0, 11),
    kinds=st.sampled_from([(pa.binary(), pa.binary()), (pa.large_binary(), pa.binary())]),
    codec=st.sampled_from(CODEC_NAMES),
    batch_bytes=st.sampled_from([1, 200, 9000, 1 << 19]),
    drafted=st.sampled_from([1, 1 << 25]),
    columns=st.sets(st.sampled_from(["key", "headers", "partition", "time"])),
)
def test_what_is_encoded_decodes_to_what_went_in(
    batches: list[list[tuple[Any, ...]]],
    extra: int,
    kinds: tuple[pa.DataType, pa.DataType],
    codec: str,
    batch_bytes: int,
    drafted: int,
    columns: set[str],
) -> None:
    kept = [c for c in ("ignored", "key", "value", "headers", "topic", "partition", "time") if c in columns]
    kept += ["value", "topic"]
    made = [arrow(each, kinds, extra).select(kept) for each in batches]
    given = encoded(
        made,
        Given(),
        timestamp="time" if "time" in columns else None,
        compression=codec,
        batch_bytes=batch_bytes,
        max_drafted_bytes=drafted,
    )
    # Which partition a row without a key went to is the encoder's choice: there it must keep the order.
    expected: dict[tuple[str, int], list[Any]] = defaultdict(list)
    free: dict[str, list[Any]] = defaultdict(list)
    for key, value, heads, topic, partition, stamp in (row for each in batches for row in each):
        key = key if "key" in columns else None
        stamp = stamp if "time" in columns else None
        seen = (key, value, tuple(heads or ()) if "headers" in columns else (), stamp)
        if "partition" in columns and partition is not None:
            expected[topic, partition].append(seen)
        elif key is not None:
            expected[topic, partition_of_key(key, 3)].append(seen)
        else:
            free[topic].append(seen)
    for where, records in given.records().items():
        for record in records:
            bound, loose = expected[where], free[where[0]]
            # Rows that name their time first: a row without one may have any.
            timed = [[row for row in rows if row[3] is not None] for rows in (bound[:1], loose)]
            for rows, candidates in zip((bound, loose) * 2, (*timed, bound[:1], loose), strict=True):
                match = next((row for row in candidates if _same(row, record)), None)
                if match is not None:
                    rows.remove(match)
                    break
            else:
                pytest.fail(f"{where}: {record} was not to be written there")
    assert not any(expected.values()) and not any(free.values())


def _same(row: tuple[Any, ...], record: Record) -> bool:
    key, value, heads, stamp = row
    same_time = record.timestamp > 1_700_000_000_000 if stamp is None else record.timestamp == stamp
    return same_time and (key, value, heads) == (record.key, record.value, record.headers)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40), st.integers(0, 5))
def test_keys_hash_as_those_of_the_java_client(data: bytes, before: int) -> None:
    made: Any = encode.kernel
    assert made.murmur2(bytes(before) + data + b"behind", before, len(data)) == murmur2(data)


def test_rows_without_a_key_stick_to_a_partition_and_fill_those_that_have_a_leader() -> None:
    batch = pa.record_batch({"value": pa.array([bytes([i % 251]) * 1000 for i in range(400)])})
    given = encoded([batch], Given(partitions=5, available=[0, 2, 3]), topic="t")
    sizes = {where[1]: len(records) for where, records in given.records().items()}
    assert set(sizes) == {0, 2, 3} and sum(sizes.values()) == 400
    runs = STICKY_BYTES // 1012
    assert max(sizes.values()) - min(sizes.values()) <= runs


def test_batches_are_as_large_as_was_asked_for_and_no_larger() -> None:
    batch = pa.record_batch({"value": pa.array([b"v" * 90] * 1000)})
    given = encoded([batch, batch], Given(partitions=1), topic="t", batch_bytes=5000)
    sizes = [len(each.payload) for each in given.batches["t", 0]]
    assert all(4900 < size <= 5000 for size in sizes[:-1]) and sizes[-1] <= 5000
    assert sum(each.record_count for each in given.batches["t", 0]) == 2000


def test_drafts_are_given_away_when_there_are_too_many() -> None:
    keys = pa.array([b"%d" % i for i in range(3000)])
    batch = pa.record_batch({"key": keys, "value": keys})
    given = Given(partitions=500)
    encoder = ArrowEncoder(given.topic, given.take, topic="t", max_drafted_bytes=1 << 20)
    encoder.write(batch)
    assert sum(each.record_count for sent in given.batches.values() for each in sent) == 3000


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"topic": pa.array([None], pa.string())}, "null topic present in the data"),
        ({"partition": pa.array([3], pa.int32())}, "Invalid partition given with record: 3 .* topic a, 0 to 2"),
        ({"partition": pa.array([-1], pa.int32())}, "Invalid partition given with record: -1"),
        ({"headers": pa.array([[{"key": None, "value": b"1"}]], HEADERS)}, "header without a key"),
        ({"headers": pa.array([[None]], HEADERS)}, "header without a key"),
        ({"time": pa.array([-1], pa.timestamp("us"))}, "timestamp before 1970"),
        ({"value": pa.array([bytes(2000)])}, "20[0-9][0-9] bytes when serialized.*larger than 2000.*max.request.size"),
    ],
)
def test_a_row_that_cannot_be_written_is_refused_with_its_reason(row: dict[str, pa.Array], message: str) -> None:
    plain = {"value": pa.array([b"v"]), "topic": pa.array(["a"]), "time": pa.array([None], pa.timestamp("us"))}
    batch = pa.record_batch({**plain, **row})
    with pytest.raises(RowRefused, match=message):
        encoded([batch], Given(), timestamp="time", max_request_bytes=2000)


def test_the_topic_option_stands_in_for_the_column() -> None:
    batch = pa.record_batch({"value": pa.array(["ü", None]), "topic": pa.array([None, "b"])})
    given = encoded([batch], Given(partitions=1), topic="t")
    assert [record.value for record in given.records()["t", 0]] == ["ü".encode(), None]
    with pytest.raises(RowRefused, match="Required attribute 'value'"):
        encoded([pa.record_batch({"key": pa.array([b"k"])})], Given(), topic="t")


def test_a_stock_client_reads_what_was_encoded(broker: BrokerProcess, unique: Callable[[str], str]) -> None:
    """Through a broker, in every codec, in transactions and without."""
    from confluent_kafka import Consumer, TopicPartition

    made = [
        (
            b"k%d" % (n % 7) if n % 3 else None,
            None if n % 11 == 0 else b"v%d" % n,
            [("h", b"%d" % n)] if n % 2 else None,
        )
        for n in range(300)
    ]
    batch = pa.record_batch(
        {
            "key": pa.array([key for key, _, _ in made], pa.binary()),
            "value": pa.array([value for _, value, _ in made], pa.binary()),
            "headers": pa.array(
                [None if h is None else [{"key": k, "value": v} for k, v in h] for _, _, h in made], HEADERS
            ),
        }
    )
    topic = unique("encoded")
    with Client(broker.bootstrap) as client:
        client.admin.create_topic(topic, 3)
        for codec in CODEC_NAMES:
            for producer in (client.producer(), client.transactional_producer(unique("id"))):
                if isinstance(producer, TransactionalProducer):
                    producer.begin()
                encoder = ArrowEncoder(producer.topic, producer.send_encoded, topic=topic, compression=codec)
                encoder.write(batch)
                encoder.close()
                producer.commit() if isinstance(producer, TransactionalProducer) else producer.flush()
        ends = {partition: at.offset for partition, at in client.offsets(topic).items()}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": unique("group"), "check.crcs": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    seen: list[Any] = []
    while len(seen) < 2 * len(CODEC_NAMES) * len(made):
        for message in consumer.consume(1000, timeout=10):
            assert message.error() is None
            seen.append((message.key(), message.value(), message.headers()))
            if message.key() is not None:
                assert message.partition() == partition_of_key(message.key(), 3)
    consumer.close()
    assert sorted(map(repr, seen)) == sorted(map(repr, made * (2 * len(CODEC_NAMES))))


def test_columns_that_lie_about_their_length_are_refused(kernel: Any) -> None:
    column = kernel.InputColumn()
    for offsets in ([0, 5], [2, 1], [-1, 3], [0]):
        with pytest.raises(ValueError):
            column.use(1, array("i", offsets), b"abcd", None, 0)
    with pytest.raises(ValueError):
        column.use(9, array("i", range(10)), bytes(20), b"\xff", 0)
    with pytest.raises(ValueError):
        kernel.sort(array("i", [3]), 1, array("i", bytes(16)), array("i", [0]))
