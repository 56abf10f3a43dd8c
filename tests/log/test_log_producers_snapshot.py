"""The producer snapshot: Kafka's bytes, and damage that is noticed."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.util import calc_crc32c as crc32c

from tidelog.log.producer_snapshot import CorruptSnapshot, ProducerSnapshotEntry, decode_snapshot, encode_snapshot
from tidelog.log.producers import Producers
from tidelog.wire.batch import TRANSACTIONAL_FLAG, BatchHeader

int16s, int32s, int64s = (st.integers(-(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (16, 32, 64))
entries = st.builds(ProducerSnapshotEntry, int64s, int16s, int32s, int64s, int32s, int64s, int32s, int64s)


@given(listed=st.lists(entries, max_size=8))
@settings(max_examples=60, deadline=None)
def test_entries_survive_the_file(listed: list[ProducerSnapshotEntry]) -> None:
    assert decode_snapshot(encode_snapshot(listed)) == listed


def test_the_bytes_are_those_of_the_format() -> None:
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 77, 5, 9, 1009, 4, 1_700_000_000_000, 3, 1000)
    expected = struct.pack(">hI", 1, crc32c(body)) + body
    assert encode_snapshot([ProducerSnapshotEntry(77, 5, 9, 1009, 4, 1_700_000_000_000, 3, 1000)]) == expected


def test_an_empty_snapshot_is_a_snapshot() -> None:
    assert decode_snapshot(encode_snapshot([])) == []


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    good = encode_snapshot(
        [ProducerSnapshotEntry(1, 2, 3, 4, 5, 6, 7, 8), ProducerSnapshotEntry(9, 0, 0, 0, 0, 0, 0, -1)]
    )
    for at in range(len(good)):
        for bit in range(8):
            bad = bytearray(good)
            bad[at] ^= 1 << bit
            with pytest.raises(CorruptSnapshot):
                decode_snapshot(bytes(bad))
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(good[:at])
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(good + b"\0")


@pytest.mark.parametrize("count", [-1, 0, 2, 2**31 - 1])
def test_a_count_that_does_not_fit_the_size_is_noticed(count: int) -> None:
    body = struct.pack(">i", count) + bytes(46)
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(struct.pack(">hI", 1, crc32c(body)) + body)


def test_a_corrupt_snapshot_leaves_the_producers_as_they_were() -> None:
    producers = Producers()
    producers.append(BatchHeader(0, 49, 0, 2, 0, TRANSACTIONAL_FLAG, 0, 5, 5, 7, 0, 0, 1), None, 0)
    before = producers.snapshot()
    with pytest.raises(CorruptSnapshot):
        producers.load(before[:-1], 100, 0)
    assert producers.snapshot() == before
    assert (producers.end_offset, producers.first_unstable_offset()) == (1, 0)


def test_open_transactions_are_in_order_again_after_loading() -> None:
    producers = Producers()
    producers.load(
        encode_snapshot(
            [ProducerSnapshotEntry(p, 0, 0, at + 5, 5, 0, 0, at) for p, at in ((1, 300), (2, 100), (3, -1), (4, 200))]
        ),
        1000,
        0,
    )
    assert producers.first_unstable_offset() == 100
    assert producers.end_offset == 1000


def test_a_loaded_batch_has_the_sequence_range_it_was_written_with() -> None:
    producers = Producers()
    producers.load(encode_snapshot([ProducerSnapshotEntry(1, 0, 2, 109, 4, 55, -1, -1)]), 110, 0)
    producer = producers.get(1)
    assert producer is not None
    (batch,) = producer.batches
    assert batch == (2**31 - 2, 2, 105, 109, 55)
