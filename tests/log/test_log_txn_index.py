"""The transaction index: its bytes, its lookups against a plain search, truncation and damage."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.log.txn_index import AbortedTxn, CorruptIndex, TxnIndex


class MemoryFile:
    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)

    def append(self, data: bytes) -> None:
        self.data += data

    def read_all(self) -> bytes:
        return bytes(self.data)

    def truncate(self, size_bytes: int) -> None:
        del self.data[size_bytes:]


def filled(txns: list[AbortedTxn], start: int = 0) -> tuple[TxnIndex, MemoryFile]:
    file = MemoryFile()
    index = TxnIndex(file, start)
    for txn in txns:
        index.append(txn)
    return index, file


SOME = [AbortedTxn(1, 0, 9, 5), AbortedTxn(2, 5, 14, 15), AbortedTxn(1, 20, 25, 18), AbortedTxn(3, 18, 40, 41)]


@st.composite
def txn_lists(draw: st.DrawFn) -> list[AbortedTxn]:
    """Transactions as a log makes them: markers in order, stable offsets that hold what they promise."""
    txns, end = [], 0
    for _ in range(draw(st.integers(0, 12))):
        first = draw(st.integers(0, end + 3))
        last = max(end, first) + draw(st.integers(1, 5))
        txns.append((draw(st.integers(0, 3)), first, last))
        end = last + 1
    return [
        AbortedTxn(producer, first, last, min([f for _, f, later in txns[i + 1 :] if later > last] + [last + 1]))
        for i, (producer, first, last) in enumerate(txns)
    ]


def test_the_bytes_are_those_of_the_format() -> None:
    _, file = filled(SOME[:2])
    assert file.data == struct.pack(">hqqqqhqqqq", 0, 1, 0, 9, 5, 0, 2, 5, 14, 15)


def test_entries_survive_reopening() -> None:
    _, file = filled(SOME)
    again = TxnIndex(file, 0)
    assert again.entries() == SOME
    again.append(AbortedTxn(7, 50, 60, 61))
    assert TxnIndex(file, 0).entries() == [*SOME, AbortedTxn(7, 50, 60, 61)]


def test_a_file_that_does_not_exist_is_an_empty_index_and_stays_so() -> None:
    index, file = filled([])
    assert index.entries() == []
    assert index.collect(0, 100) == ([], False)
    index.truncate_to(0)
    assert file.data == b""


def test_markers_must_come_in_order() -> None:
    index, file = filled(SOME)
    size = len(file.data)
    for last in (39, 40):
        with pytest.raises(ValueError, match="does not follow"):
            index.append(AbortedTxn(1, 0, last, 50))
    assert len(file.data) == size


@given(txns=txn_lists(), fetch=st.integers(0, 70), length=st.integers(1, 70))
@settings(max_examples=200, deadline=None)
def test_a_fetch_learns_of_every_aborted_transaction_it_overlaps(txns: list, fetch: int, length: int) -> None:
    index, _ = filled(txns)
    upper = fetch + length
    found, complete = index.collect(fetch, upper)
    overlapping = [txn for txn in txns if txn.last_offset >= fetch and txn.first_offset < upper]
    assert found == overlapping
    assert complete == any(txn.last_stable_offset >= upper for txn in txns if txn.last_offset >= fetch)


def test_the_search_stops_where_the_stable_offset_says_so() -> None:
    index, _ = filled(SOME)
    assert index.collect(0, 15) == (SOME[:2], True)
    assert index.collect(0, 16) == (SOME[:2], True)
    assert index.collect(26, 30) == (SOME[3:], True)
    assert index.collect(41, 100) == ([], False)


@given(txns=txn_lists(), offset=st.integers(0, 70))
@settings(max_examples=100, deadline=None)
def test_truncation_keeps_exactly_the_markers_below(txns: list, offset: int) -> None:
    index, file = filled(txns)
    index.truncate_to(offset)
    kept = [txn for txn in txns if txn.last_offset < offset]
    assert index.entries() == kept
    assert TxnIndex(file, 0).entries() == kept
    index.append(AbortedTxn(9, 0, 100, 101))
    assert TxnIndex(file, 0).entries() == [*kept, AbortedTxn(9, 0, 100, 101)]


def test_a_torn_entry_is_cut_away_and_the_next_one_written_in_its_place() -> None:
    _, file = filled(SOME)
    for cut in range(1, 34):
        torn = MemoryFile(bytes(file.data)[:-cut])
        index = TxnIndex(torn, 0)
        assert index.entries() == SOME[:3]
        index.append(SOME[3])
        assert torn.data == file.data


@pytest.mark.parametrize(
    ("data", "start"),
    [
        (struct.pack(">hqqqq", 1, 1, 0, 9, 5), 0),
        (struct.pack(">hqqqq", -1, 1, 0, 9, 5), 0),
        (struct.pack(">hqqqq", 0, 1, 0, 9, 5), 10),
        (struct.pack(">hqqqqhqqqq", 0, 1, 0, 9, 5, 0, 1, 0, 9, 5), 0),
        (b"\xff" * 34, 0),
        (bytes(68), 0),
    ],
)
def test_an_index_that_cannot_belong_to_its_segment_is_called_corrupt(data: bytes, start: int) -> None:
    index = TxnIndex(MemoryFile(data), start)
    with pytest.raises(CorruptIndex):
        index.check()
    with pytest.raises(CorruptIndex):
        index.collect(0, 100)
    index.reset()
    index.check()
    assert index.entries() == []


def test_a_good_index_passes_the_check() -> None:
    index, _ = filled(SOME, start=9)
    index.check()
    assert index.entries() == SOME


def test_an_entry_of_zeros_that_a_loss_of_power_left_is_no_transaction() -> None:
    index = TxnIndex(MemoryFile(bytes(34)), 0, 34)
    with pytest.raises(CorruptIndex):
        index.collect(0, 10)
