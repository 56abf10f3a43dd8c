"""Records of `__transaction_state`, against bytes that Apache Kafka 4.3.0 wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.txn.config import TxnConfig
from tidelog.txn.records import decode, tombstone, transaction_key, transaction_record
from tidelog.txn.state import TransactionState
from tidelog.txn.transaction import Transaction
from tidelog.txn.transactions import Transactions
from tidelog.wire.malformed import WireError
from tidelog.wire.partitions import TopicPartition

S = TransactionState
START, UPDATE = 1_700_000_000_001, 1_700_000_000_002
T3 = frozenset({TopicPartition("t", 3)})

EMPTY = Transaction("x", 7, 0, 60_000, S.EMPTY, 1_700_000_000_000, 7)
ONGOING = Transaction("x", 7, 5, 60_000, S.ONGOING, UPDATE, 7, -1, T3, START)
COMPLETE = Transaction("x", 7, 5, 60_000, S.COMPLETE_COMMIT, UPDATE, 7, -1, frozenset(), START)
PREPARED = Transaction("x", 7, 32767, 60_000, S.PREPARE_COMMIT, UPDATE, 7, 8, T3, START, 2)
ROTATED = Transaction("x", 8, 0, 60_000, S.COMPLETE_COMMIT, UPDATE + 1, 7, -1, frozenset(), START, 2)

GOLDEN = [
    (EMPTY, 0, "0000000000000000000700000000ea6000ffffffff0000018bcfe56800ffffffffffffffff"),
    (
        ONGOING,
        0,
        "0000000000000000000700050000ea60010000000100017400000001000000030000018bcfe568020000018bcfe56801",
    ),
    (COMPLETE, 0, "0000000000000000000700050000ea6004000000000000018bcfe568020000018bcfe56801"),
    (EMPTY, 1, "0001000000000000000700000000ea6000000000018bcfe56800ffffffffffffffff0100080000000000000007"),
    (
        ONGOING,
        2,
        "0001000000000000000700050000ea60010202740200000003000000018bcfe568020000018bcfe568010100080000000000000007",
    ),
    (COMPLETE, 2, "0001000000000000000700050000ea6004010000018bcfe568020000018bcfe568010100080000000000000007"),
    (
        PREPARED,
        2,
        "000100000000000000077fff0000ea60020202740200000003000000018bcfe568020000018bcfe56801"
        "03000800000000000000070108000000000000000802020002",
    ),
    (
        ROTATED,
        2,
        "0001000000000000000800000000ea6004010000018bcfe568030000018bcfe56801020008000000000000000702020002",
    ),
]


@pytest.mark.parametrize(("transaction", "level", "stored"), GOLDEN)
def test_values_are_the_bytes_that_kafka_writes(transaction, level, stored):
    assert transaction_record(transaction, level).value.hex() == stored


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("tx", "000000027478"),
        ("orders-é", "000000096f72646572732dc3a9"),
        ("\N{MUSICAL SYMBOL G CLEF} clef", "00000009f09d849e20636c6566"),
    ],
)
def test_keys_are_the_bytes_that_kafka_writes(name, stored):
    assert transaction_key(name).hex() == stored


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("", 0),
        ("tx", 16),
        ("orders-é", 33),
        ("\N{MUSICAL SYMBOL G CLEF} clef", 2),
        # Its hash in Java is -2^31, which has no absolute value there.
        ("polygenelubricants", 0),
        ("my-transactional-id", 46),
    ],
)
def test_an_id_belongs_to_the_partition_that_kafka_puts_it_in(name, partition):
    assert Transactions(TxnConfig(), lambda: None, lambda _: str.isalpha).partition_for(name) == partition


transactions = st.builds(
    Transaction,
    transactional_id=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from([s for s in S if s is not S.EMPTY]),
    last_update_ms=st.integers(0, 2**62),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    partitions=st.frozensets(
        st.builds(TopicPartition, st.text("ab._-", min_size=1, max_size=3), st.integers(0, 2**31 - 1)), max_size=6
    ),
    start_ms=st.integers(-1, 2**62),
    client_version=st.sampled_from([0, 2]),
)


@given(transactions)
def test_what_is_stored_is_read_back(transaction):
    record = transaction_record(transaction, 2)
    assert decode(record.key, record.value) == (transaction.transactional_id, transaction) == record.meaning


@pytest.mark.parametrize("transaction", [EMPTY, ONGOING, PREPARED, ROTATED])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_what_a_record_is_replayed_from_is_what_is_read_back(transaction, level):
    record = transaction_record(transaction, level)
    assert record.meaning in (None, decode(record.key, record.value))


def test_a_tombstone_forgets_the_id():
    record = tombstone("x")
    assert record.value is None
    assert decode(record.key, record.value) == ("x", None)


def test_before_level_1_a_change_of_the_producer_id_is_stored_all_the_same():
    # Version 0 has no field for it, and without it a repeated request would not be recognised after a restart.
    for transaction in (PREPARED, ROTATED, EMPTY.rotated(9, 60_000, UPDATE)):
        record = transaction_record(transaction, 0)
        assert decode(record.key, record.value) == ("x", transaction)


def test_records_of_a_newer_broker_are_read_past():
    record = transaction_record(ONGOING, 2)
    assert decode(b"\x00\x01" + record.key[2:], record.value) is None
    assert decode(record.key, b"\x00\x02" + record.value[2:]) is None


@pytest.mark.parametrize("value", ["", "00", "0001", "0000000000000000000700000000ea6009ffffffff" + "00" * 16])
def test_a_damaged_value_is_not_taken_for_a_state(value):
    with pytest.raises(WireError):
        decode(transaction_key("x"), bytes.fromhex(value))


def test_the_same_state_is_always_the_same_bytes():
    places = [TopicPartition(topic, index) for topic in "cab" for index in (2, 0, 1)]
    once = transaction_record(EMPTY.adding(places, 2, UPDATE), 2)
    again = transaction_record(EMPTY.adding(places[:4], 2, UPDATE).adding(places[::-1], 2, UPDATE), 2)
    read_back = decode(once.key, once.value)
    assert read_back is not None and read_back[1] is not None
    assert once.value == again.value == transaction_record(read_back[1], 2).value
