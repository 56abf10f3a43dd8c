"""Batch headers: parsing, iterating, CRC, patching; against kafka-python and aiokafka."""

from __future__ import annotations

import random
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords as AioMemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from tidelog.wire import batch as b
from tidelog.wire.batch import BatchHeader, InvalidBatch, iter_headers, patch_place, patch_timestamps, read_header
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import EndTxnMarker, build_batch, build_end_txn_marker


def one_batch(count: int = 3, **fields: Any) -> bytearray:
    return build_batch([(1000 + i, b"key-%d" % i, b"value", [("h", b"x")]) for i in range(count)], **fields)


int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
headers = st.builds(
    BatchHeader,
    base_offset=int64s,
    length=st.just(49),
    leader_epoch=int32s,
    magic=st.just(2),
    crc=st.just(0),
    attributes=st.integers(-(2**15), 2**15 - 1),
    last_offset_delta=int32s,
    base_timestamp=int64s,
    max_timestamp=int64s,
    producer_id=int64s,
    producer_epoch=st.integers(-(2**15), 2**15 - 1),
    base_sequence=int32s,
    record_count=int32s,
)


@given(header=headers)
@settings(max_examples=50, deadline=None)
def test_a_header_is_read_as_kafka_python_reads_it(header: BatchHeader) -> None:
    packed = bytes(b.pack_batch(header, b""))
    ours, theirs = read_header(packed), DefaultRecordBatch(packed)
    assert ours._replace(crc=0) == header
    assert theirs.validate_crc()
    assert ours.base_offset == theirs.base_offset
    assert ours.leader_epoch == theirs.leader_epoch
    assert ours.crc == theirs.crc
    assert ours.attributes == theirs.attributes
    assert ours.last_offset_delta == theirs.last_offset_delta
    assert ours.base_timestamp == theirs.first_timestamp
    assert ours.max_timestamp == theirs.max_timestamp
    assert ours.producer_id == theirs.producer_id
    assert ours.producer_epoch == theirs.producer_epoch
    assert ours.base_sequence == theirs.base_sequence
    assert ours.is_transactional == theirs.is_transactional
    assert ours.is_control == theirs.is_control_batch
    assert ours.size_bytes == len(packed)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("transactional", [False, True])
def test_a_built_batch_is_byte_for_byte_that_of_kafka_python(codec: int, transactional: bool) -> None:
    rng = random.Random(codec)
    records = [
        (
            1_700_000_000_000 + rng.randrange(-500, 500),
            rng.choice([None, b"", b"k%d" % i]),
            b"v" * i,
            [("h", b"%d" % i)],
        )
        for i in range(100)
    ]
    builder = DefaultRecordBatchBuilder(2, codec, transactional, 77, 3, 12, 1 << 20)
    for i, (stamp, key, value, record_headers) in enumerate(records):
        builder.append(i, stamp, key, value, record_headers)
    theirs = bytes(builder.build())
    ours = bytes(
        build_batch(
            records, codec=codec, transactional=transactional, producer_id=77, producer_epoch=3, base_sequence=12
        )
    )
    if codec == 0:
        # kafka-python leaves the leader epoch at 0; producers in Java write -1
        assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]
    else:
        mine, other = DefaultRecordBatch(ours), DefaultRecordBatch(theirs)
        assert mine.validate_crc()
        assert [tuple_of(r) for r in mine] == [tuple_of(r) for r in other]
        assert read_header(ours)[5:] == read_header(theirs)[5:]


def tuple_of(record: Any) -> tuple:
    return record.offset, record.timestamp, record.key, record.value, list(record.headers)


@pytest.mark.parametrize("codec", range(5))
def test_aiokafka_reads_a_message_set_of_ours(codec: int) -> None:
    batches = [one_batch(5, base_offset=at, codec=codec) for at in (10, 15, 20)]
    theirs = AioMemoryRecords(b"".join(batches))
    seen = []
    while theirs.has_next():
        batch = theirs.next_batch()
        assert batch.validate_crc()
        seen += [(r.offset, r.timestamp, bytes(r.key), bytes(r.value), list(r.headers)) for r in batch]
    assert seen == [(at + i, 1000 + i, b"key-%d" % i, b"value", [("h", b"x")]) for at in (10, 15, 20) for i in range(5)]


def test_a_message_set_is_walked_batch_by_batch_and_a_cut_one_ends_it() -> None:
    batches = [one_batch(n, base_offset=100 * n) for n in (1, 2, 3)]
    whole = memoryview(b"".join(batches))
    ends = [len(b"".join(batches[:n])) for n in range(4)]
    for cut in range(len(whole) + 1):
        found = [(pos, header.base_offset) for pos, header in iter_headers(whole[:cut])]
        assert found == [(ends[n], 100 * (n + 1)) for n in range(3) if ends[n + 1] <= cut]


def test_iterating_can_begin_and_end_inside_a_larger_buffer() -> None:
    batch = one_batch(2, base_offset=7)
    around = b"\xff" * 5 + bytes(batch) + b"\xff" * 90
    assert [(pos, h.base_offset) for pos, h in iter_headers(around, 5, 5 + len(batch))] == [(5, 7)]


@pytest.mark.parametrize(
    ("length", "magic", "code"),
    [
        (-1, 2, ErrorCode.CORRUPT_MESSAGE),
        (0, 2, ErrorCode.CORRUPT_MESSAGE),
        (13, 2, ErrorCode.CORRUPT_MESSAGE),
        (14, 2, ErrorCode.CORRUPT_MESSAGE),
        (48, 2, ErrorCode.CORRUPT_MESSAGE),
        (-(2**31), 2, ErrorCode.CORRUPT_MESSAGE),
        (49, 3, ErrorCode.CORRUPT_MESSAGE),
        (49, 0xFF, ErrorCode.CORRUPT_MESSAGE),
        (49, 0, ErrorCode.INVALID_RECORD),
        (49, 1, ErrorCode.INVALID_RECORD),
        (22, 1, ErrorCode.INVALID_RECORD),
    ],
)
def test_what_cannot_be_a_batch_is_refused_with_kafkas_code(length: int, magic: int, code: int) -> None:
    batch = one_batch(1)
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    batch[16] = magic
    with pytest.raises(InvalidBatch) as refused:
        list(iter_headers(memoryview(batch)))
    assert refused.value.code == code


@given(junk=st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_junk_is_never_walked_past_its_end(junk: bytes) -> None:
    try:
        for pos, header in iter_headers(junk):
            assert pos + header.size_bytes <= len(junk)
    except InvalidBatch:
        pass


def test_a_flipped_bit_under_the_crc_is_always_caught() -> None:
    good = one_batch(2)
    header = read_header(good)
    assert b.crc_matches(memoryview(good), 0, header)
    for at in range(b.CRC_AT, len(good)):
        for bit in range(8):
            bad = bytearray(good)
            bad[at] ^= 1 << bit
            assert not b.crc_matches(memoryview(bad), 0, read_header(bad)), (at, bit)


def test_giving_a_batch_its_place_leaves_crc_and_records_alone() -> None:
    batch = one_batch(3)
    before = read_header(batch)
    patch_place(batch, 0, 2**40, before.length, 9)
    after = read_header(batch)
    assert after == before._replace(base_offset=2**40, leader_epoch=9)
    assert DefaultRecordBatch(bytes(batch)).validate_crc()
    assert [r.offset for r in DefaultRecordBatch(bytes(batch))] == [2**40, 2**40 + 1, 2**40 + 2]


def test_stamping_a_batch_with_append_time_renews_the_crc() -> None:
    around = bytearray(b"before") + one_batch(3) + b"after"
    header = read_header(around, 6)
    patch_timestamps(memoryview(around), 6, header, header.attributes | b.LOG_APPEND_TIME_FLAG, 5555)
    assert around[:6] == b"before"
    assert around[-5:] == b"after"
    theirs = DefaultRecordBatch(bytes(around[6:-5]))
    assert theirs.validate_crc()
    assert [(r.timestamp, r.timestamp_type) for r in theirs] == [(5555, 1)] * 3


@pytest.mark.parametrize(
    ("sequence", "steps", "then"),
    [
        (0, 0, 0),
        (0, 9, 9),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31 - 1, 1, 0),
        (2**31 - 2, 5, 3),
        (2**31 - 1, 2**31 - 1, 2**31 - 2),
    ],
)
def test_sequence_numbers_wrap_to_zero(sequence: int, steps: int, then: int) -> None:
    assert b.advance_sequence(sequence, steps) == then


def test_a_batch_without_a_sequence_has_none_at_its_end() -> None:
    assert read_header(one_batch(4)).last_sequence == b.NO_SEQUENCE
    assert read_header(one_batch(4, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)).last_sequence == 1


def test_a_marker_is_a_transactional_control_batch_without_sequence() -> None:
    header = read_header(build_end_txn_marker(EndTxnMarker(1, 5), 44, 2, 1000, base_offset=8, leader_epoch=3))
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch, header.base_offset, header.leader_epoch) == (44, 2, 8, 3)
