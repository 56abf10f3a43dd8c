"""Reading, building and rebuilding what is inside a batch; on both faces of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from wire_kernels import FACES, kernel_face

import tidelog.wire
from tidelog.wire import records as r
from tidelog.wire.batch import InvalidBatch, crc_matches, pack_batch, patch_place, read_header
from tidelog.wire.records import (
    ABORT,
    COMMIT,
    EndTxnMarker,
    Record,
    RecordIndex,
    build_batch,
    build_end_txn_marker,
    iter_records,
    locate_timestamp,
    read_end_txn_marker,
    read_records,
    retain,
)

SOURCE = Path(tidelog.wire.__file__).parent / "kernel.py"


@pytest.fixture(params=FACES, autouse=True, scope="module")
def face(request: pytest.FixtureRequest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(r, "kernel", kernel_face(SOURCE, request.param))
        yield


contents = st.one_of(st.none(), st.binary(max_size=30))
header_lists = st.lists(st.tuples(st.text(max_size=6), contents), max_size=3)
new_records = st.lists(
    st.tuples(st.integers(-1, 2**45), contents, contents, st.one_of(st.none(), header_lists)), min_size=1, max_size=12
)
codecs = st.sampled_from(range(5))


def as_records(given_records: list, base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + i, stamp, key, value, tuple(headers or ()))
        for i, (stamp, key, value, headers) in enumerate(given_records)
    ]


@given(records=new_records, codec=codecs, base_offset=st.integers(0, 2**50))
@settings(max_examples=50, deadline=None)
def test_what_is_built_is_read_back_by_us_and_by_kafka_python(records: list, codec: int, base_offset: int) -> None:
    batch = build_batch(records, codec=codec, base_offset=base_offset)
    assert list(read_records(batch)) == as_records(records, base_offset)
    theirs = DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    assert [Record(x.offset, x.timestamp, x.key, x.value, tuple(x.headers)) for x in theirs] == as_records(
        records, base_offset
    )
    assert read_header(batch).max_timestamp == max(stamp for stamp, *_ in records)


@pytest.mark.parametrize("codec", range(5))
def test_what_kafka_python_builds_is_read(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for i in range(50):
        builder.append(i, 1000 - i, None if i % 5 == 0 else b"k%d" % i, b"x" * i, [("a", None), ("b", b"\0")])
    assert list(read_records(bytes(builder.build()))) == [
        Record(i, 1000 - i, None if i % 5 == 0 else b"k%d" % i, b"x" * i, (("a", None), ("b", b"\0")))
        for i in range(50)
    ]


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="must have records"):
        build_batch([])


def test_records_may_come_from_an_iterator_and_be_of_any_bytes_like_type() -> None:
    batch = build_batch((stamp, memoryview(b"k"), bytearray(b"v"), None) for stamp in (1, 2))
    assert [(x.key, x.value) for x in read_records(batch)] == [(b"k", b"v")] * 2


def test_append_time_is_the_time_of_every_record() -> None:
    batch = build_batch([(5, b"a", b"", None), (9, b"b", b"", None)], log_append_time_ms=777)
    assert [x.timestamp for x in read_records(batch)] == [777, 777]
    assert locate_timestamp(batch, 777) == (0, 777)
    assert locate_timestamp(batch, 778) is None


def test_a_message_set_is_read_without_its_control_batches() -> None:
    whole = (
        build_batch([(1, b"a", b"1", None)], base_offset=0, codec=3)
        + build_end_txn_marker(EndTxnMarker(COMMIT, 1), 5, 0, 1, base_offset=1)
        + build_batch([(2, b"b", b"2", None), (3, b"c", None, None)], base_offset=2)
    )
    assert [(x.offset, x.key) for x in iter_records(whole)] == [(0, b"a"), (2, b"b"), (3, b"c")]
    assert [x.offset for x in iter_records(whole[:-1])] == [0]


@given(
    stamps=st.lists(st.integers(0, 60), min_size=1, max_size=20),
    target=st.integers(-5, 70),
    least=st.integers(95, 125),
    codec=codecs,
)
@settings(max_examples=60, deadline=None)
def test_a_time_is_located_inside_a_batch(stamps: list[int], target: int, least: int, codec: int) -> None:
    batch = build_batch([(stamp, b"k", b"v", None) for stamp in stamps], base_offset=100, codec=codec)
    expected = next(((100 + i, at) for i, at in enumerate(stamps) if at >= target and 100 + i >= least), None)
    assert locate_timestamp(batch, target, least) == expected


def test_a_time_beyond_64_bits_of_the_base_is_still_compared_rightly() -> None:
    batch = build_batch([(2**62, b"k", b"v", None)])
    assert locate_timestamp(batch, -(2**63)) == (0, 2**62)
    assert locate_timestamp(batch, 2**63 - 1) is None


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_a_marker_reads_back_and_has_the_bytes_of_kafkas(kind: int) -> None:
    batch = build_end_txn_marker(EndTxnMarker(kind, 0x01020304), 5, 1, 1000)
    assert read_end_txn_marker(batch) == EndTxnMarker(kind, 0x01020304)
    (record,) = DefaultRecordBatch(bytes(batch))
    assert record.key == bytes([0, 0, 0, kind])
    assert record.value == b"\0\0\x01\x02\x03\x04"


def test_control_records_that_end_no_transaction_are_told_apart() -> None:
    assert read_end_txn_marker(build_batch([(1, b"\0\0\0\x02", b"\0\0", None)], control=True)) is None
    emptied = retain(RecordIndex(build_end_txn_marker(EndTxnMarker(ABORT, 1), 5, 1, 1000)), [])
    assert read_end_txn_marker(emptied) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"\0\0\0", b"\0\0\0\0\0\0"),
        (b"\xff\xff\0\0", b"\0" * 6),
        (b"\0\0\0\0", None),
        (b"\0\0\0\x01", b"\0" * 5),
        (b"\0\0\0\x01", b"\xff\xff\0\0\0\0"),
    ],
)
def test_a_malformed_marker_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidBatch):
        read_end_txn_marker(build_batch([(1, key, value, None)], control=True))


@given(
    records=new_records,
    codec=codecs,
    chosen=st.sets(st.integers(0, 11)),
    horizon=st.one_of(st.none(), st.integers(0, 2**45)),
    stamped=st.one_of(st.none(), st.integers(0, 2**45)),
)
@settings(max_examples=80, deadline=None)
def test_compaction_keeps_offsets_times_and_the_producers_sequence(
    records: list, codec: int, chosen: set[int], horizon: int | None, stamped: int | None
) -> None:
    batch = build_batch(
        records,
        codec=codec,
        base_offset=40,
        leader_epoch=4,
        producer_id=3,
        producer_epoch=2,
        base_sequence=9,
        transactional=True,
        log_append_time_ms=stamped,
    )
    keep = sorted(i for i in chosen if i < len(records))
    reduced = retain(RecordIndex(batch), keep, delete_horizon_ms=horizon)
    before, after = read_header(batch), read_header(reduced)
    assert crc_matches(memoryview(reduced), 0, after)
    original = list(read_records(batch))
    assert list(read_records(reduced)) == [original[i] for i in keep]
    assert after.record_count == len(keep)
    assert (after.base_offset, after.last_offset, after.base_sequence, after.last_sequence) == (
        before.base_offset,
        before.last_offset,
        before.base_sequence,
        before.last_sequence,
    )
    assert (after.producer_id, after.producer_epoch, after.leader_epoch) == (3, 2, 4)
    assert after.is_transactional
    if keep:
        assert after.codec == codec
        assert after.delete_horizon_ms == horizon
        expected = stamped if stamped is not None else max(records[i][0] for i in keep)
        assert after.max_timestamp == expected
    else:
        assert (after.base_timestamp, after.max_timestamp, after.size_bytes) == (-1, before.max_timestamp, 61)


def test_a_delete_horizon_once_set_stays() -> None:
    batch = build_batch([(10, b"a", None, None), (20, b"b", b"1", None), (30, b"c", b"1", None)], codec=2)
    once = retain(RecordIndex(batch), [0, 2], delete_horizon_ms=1000)
    twice = retain(RecordIndex(once), [0], delete_horizon_ms=2000)
    assert read_header(twice).delete_horizon_ms == 1000
    assert list(read_records(twice)) == [Record(0, 10, b"a", None, ())]


def test_a_batch_whose_records_do_not_fit_its_header_is_refused() -> None:
    good = build_batch([(1, b"k", b"v", None)])
    for count in (-1, 2, 2**31 - 1):
        bad = pack_batch(read_header(good)._replace(record_count=count), good[61:])
        with pytest.raises(InvalidBatch):
            list(read_records(bad))


def test_offsets_assigned_by_the_broker_show_in_the_records() -> None:
    batch = build_batch([(1, b"k", b"v", None)] * 3)
    patch_place(batch, 0, 500, read_header(batch).length, 1)
    assert [x.offset for x in read_records(batch)] == [500, 501, 502]
