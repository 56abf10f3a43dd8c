"""What a leader refuses, with which code, and what it puts right; on both faces of the kernel."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch
from wire_kernels import FACES, kernel_face

import tidelog.wire
from tidelog.wire import batch as b
from tidelog.wire import check
from tidelog.wire.batch import InvalidBatch, pack_batch, read_header
from tidelog.wire.check import (
    PACKING,
    PART_RECORDS,
    SHORT_BYTES,
    AppendRules,
    TakesLong,
    check_produced,
    check_replicated,
)
from tidelog.wire.compression import GZIP, NONE, compress
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import EndTxnMarker, build_batch, build_end_txn_marker, read_records

NOW = 1_700_000_000_000
HOUR = 3_600_000
RULES = AppendRules()


@pytest.fixture(params=FACES, autouse=True)
def face(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(tidelog.wire.__file__).parent / "kernel.py"
    monkeypatch.setattr(check, "kernel", kernel_face(source, request.param))


def made(count: int = 3, codec: int = NONE, **fields: Any) -> bytearray:
    return build_batch([(NOW + i, b"k%d" % i, b"v" * 20, None) for i in range(count)], codec=codec, **fields)


def resealed(batch: bytes | bytearray, **fields: int) -> bytes:
    """The batch with other header fields and a CRC that fits them: what a wrong client would send."""
    return bytes(pack_batch(read_header(batch)._replace(**fields), bytes(batch[61:])))


def refused(records: bytes | bytearray, rules: AppendRules = RULES, **how: Any) -> tuple[int, tuple]:
    with pytest.raises(InvalidBatch) as e:
        check_produced(memoryview(records), rules, NOW, **how)
    return e.value.code, e.value.record_errors


@pytest.mark.parametrize("codec", range(5))
def test_a_good_batch_is_kept_as_it_came(codec: int) -> None:
    sent = made(codec=codec, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    view = memoryview(bytearray(sent))
    checked = check_produced(view, RULES, NOW)
    assert checked.batch == sent
    assert checked.batch.obj is view.obj
    assert checked.header == read_header(sent)


def test_a_read_only_batch_is_copied_so_that_it_can_be_patched() -> None:
    checked = check_produced(memoryview(bytes(made())), RULES, NOW)
    assert not checked.batch.readonly


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"base_offset": 1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 0}, ErrorCode.INVALID_RECORD),
        ({"record_count": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 2}, ErrorCode.INVALID_RECORD),
        ({"record_count": 4}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 5}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 2**31 - 1}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 1, "record_count": 2}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 3, "record_count": 4}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 2**31 - 2, "record_count": 2**31 - 1}, ErrorCode.INVALID_RECORD),
        ({"attributes": b.CONTROL_FLAG}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 7, "producer_epoch": 0, "base_sequence": -1}, ErrorCode.INVALID_RECORD),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 7}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 1}, ErrorCode.INVALID_RECORD),
        ({"attributes": 2}, ErrorCode.INVALID_RECORD),
        ({"attributes": 3}, ErrorCode.INVALID_RECORD),
        ({"attributes": 4}, ErrorCode.INVALID_RECORD),
        ({"base_timestamp": 2**63 - 2}, ErrorCode.INVALID_RECORD),
    ],
)
def test_a_client_batch_with_a_wrong_header_is_refused(fields: dict[str, int], code: int) -> None:
    assert refused(resealed(made(), **fields))[0] == code


def test_a_message_set_must_hold_exactly_one_batch() -> None:
    assert refused(b"")[0] == ErrorCode.INVALID_RECORD
    assert refused(bytes(made())[:-1])[0] == ErrorCode.INVALID_RECORD
    assert refused(made() + made())[0] == ErrorCode.INVALID_RECORD


def test_a_cut_batch_after_the_first_is_not_part_of_the_set() -> None:
    sent = made()
    for cut in (1, 11, 12, 17, len(sent) - 1):
        assert check_produced(memoryview(sent + sent[:cut]), RULES, NOW).batch == sent


def test_old_message_formats_are_refused() -> None:
    for magic in (0, 1):
        message = struct.pack(">qiIbb", 0, 22, 0, magic, 0) + bytes(16)
        assert refused(message)[0] == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", range(5))
def test_a_flipped_bit_is_refused_wherever_it_is(codec: int) -> None:
    sent = made(2, codec)
    for at in range(b.CRC_AT, len(sent)):
        bad = bytearray(sent)
        bad[at] ^= 1 << (at % 8)
        assert refused(bad)[0] == ErrorCode.CORRUPT_MESSAGE


def test_a_batch_larger_than_the_topic_allows_is_refused_unless_the_broker_wrote_it() -> None:
    sent = made()
    assert refused(sent, AppendRules(max_message_bytes=len(sent) - 1))[0] == ErrorCode.MESSAGE_TOO_LARGE
    check_produced(memoryview(sent), AppendRules(max_message_bytes=len(sent)), NOW)
    check_produced(memoryview(sent), AppendRules(max_message_bytes=1), NOW, ignore_size=True)


def test_a_batch_that_outgrows_the_topics_limit_by_recompression_is_refused() -> None:
    sent = build_batch([(NOW, b"k", b"v" * 5000, None)], codec=4)
    assert refused(sent, AppendRules(max_message_bytes=1000, codec=NONE))[0] == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", (1, 2, 3, 4))
def test_records_that_unpack_beyond_the_limit_are_refused(codec: int) -> None:
    sent = build_batch([(NOW, b"k", bytes(100_000), None)], codec=codec)
    assert refused(sent, AppendRules(max_unpacked_bytes=50_000))[0] == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", range(5))
@given(edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_damaged_records_under_a_good_crc_never_escape_as_another_error(codec: int, edits: list) -> None:
    """What passes must at least be readable: a client with a broken encoder can spoil only its own records."""
    good = made(5)
    payload = bytearray(good[61:])
    for place, byte in edits:
        payload[place % len(payload)] = byte
    header = read_header(good)._replace(attributes=codec)
    sent = pack_batch(header, compress(codec, bytes(payload)))
    try:
        checked = check_produced(memoryview(sent), AppendRules(timestamp_after_max_ms=2**63 - 1), NOW)
    except InvalidBatch as e:
        assert e.code == ErrorCode.INVALID_RECORD
    else:
        assert [r.offset for r in read_records(checked.batch)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("codec", range(5))
def test_offset_deltas_must_count_up_from_zero(codec: int) -> None:
    payload = bytearray()
    for delta in (0, 2, 1):
        check.kernel.append_record(payload, delta, 0, b"k", b"v", None)
    header = read_header(made(3))._replace(attributes=codec)
    assert refused(pack_batch(header, compress(codec, bytes(payload))))[0] == ErrorCode.INVALID_RECORD


def test_a_compacted_topic_names_every_record_without_a_key() -> None:
    sent = build_batch(
        [(NOW, b"k", b"v", None), (NOW, None, b"v", None), (NOW, b"", b"v", None), (NOW, None, None, None)]
    )
    code, errors = refused(sent, AppendRules(compacted=True))
    assert code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in errors] == [1, 3]
    check_produced(memoryview(sent), RULES, NOW)


TIMES = [
    # before ms, after ms, timestamps relative to now, indexes refused
    (2**63 - 1, HOUR, (-NOW, 0, HOUR), ()),
    (2**63 - 1, HOUR, (0, HOUR + 1, 5, 2 * HOUR), (1, 3)),
    (HOUR, HOUR, (-HOUR, 0, HOUR), ()),
    (HOUR, HOUR, (-HOUR - 1, 0, HOUR + 1), (0, 2)),
    (0, 0, (0, 0), ()),
    (0, 0, (-1, 0, 1), (0, 2)),
    (HOUR, HOUR, (-1 - NOW, 0), ()),  # no timestamp at all is never out of bounds
]


@pytest.mark.parametrize(("before", "after", "times", "wrong"), TIMES)
def test_timestamps_out_of_bounds_are_named(before: int, after: int, times: tuple, wrong: tuple) -> None:
    sent = build_batch([(NOW + at, b"k", b"v", None) for at in times])
    rules = AppendRules(timestamp_before_max_ms=before, timestamp_after_max_ms=after)
    if wrong:
        code, errors = refused(sent, rules)
        assert code == ErrorCode.INVALID_TIMESTAMP
        assert tuple(index for index, _ in errors) == wrong
    else:
        check_produced(memoryview(sent), rules, NOW)
    # Where the broker stamps the batch the client's times do not matter.
    stamping = AppendRules(timestamp_before_max_ms=before, timestamp_after_max_ms=after, log_append_time=True)
    assert check_produced(memoryview(sent), stamping, NOW).header.max_timestamp == NOW


def test_a_wrong_time_weighs_more_than_a_missing_key() -> None:
    sent = build_batch([(NOW, None, b"v", None), (NOW + 2 * HOUR, b"k", b"v", None)])
    code, errors = refused(sent, AppendRules(compacted=True))
    assert code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in errors] == [0, 1]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("said", [-1, NOW, NOW + 10**9])
def test_a_wrong_max_timestamp_is_put_right(codec: int, said: int) -> None:
    sent = build_batch([(NOW + at, b"k", b"v", None) for at in (5, 99, 7)], codec=codec)
    checked = check_produced(memoryview(bytearray(resealed(sent, max_timestamp=said))), RULES, NOW)
    assert checked.header.max_timestamp == NOW + 99
    assert checked.batch == sent


@pytest.mark.parametrize("codec", range(5))
def test_append_time_is_stamped_in_place(codec: int) -> None:
    sent = memoryview(made(3, codec))
    checked = check_produced(sent, AppendRules(log_append_time=True), NOW + 500)
    assert checked.batch.obj is sent.obj
    assert checked.header == read_header(checked.batch)
    theirs = DefaultRecordBatch(bytes(checked.batch))
    assert theirs.validate_crc()
    assert [(r.timestamp, r.timestamp_type) for r in theirs] == [(NOW + 500, 1)] * 3


def test_a_client_that_stamps_append_time_itself_is_refused_where_the_broker_stamps() -> None:
    sent = resealed(made(), attributes=b.LOG_APPEND_TIME_FLAG)
    code, errors = refused(sent, AppendRules(log_append_time=True))
    assert code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in errors] == [0, 1, 2]


def test_a_claim_of_append_time_is_struck_out_where_records_keep_their_own() -> None:
    plain = made()
    sent = resealed(plain, attributes=b.LOG_APPEND_TIME_FLAG, max_timestamp=NOW + 1000)
    assert check_produced(memoryview(sent), RULES, NOW).batch == plain
    late = build_batch([(NOW + 2 * HOUR, b"k", b"v", None)])
    hidden = resealed(late, attributes=b.LOG_APPEND_TIME_FLAG, max_timestamp=NOW)
    assert refused(hidden)[0] == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("source", range(5))
@pytest.mark.parametrize("target", range(5))
@pytest.mark.parametrize("stamping", [False, True])
def test_the_topics_codec_replaces_the_producers(source: int, target: int, stamping: bool) -> None:
    sent = made(40, source, producer_id=9, producer_epoch=1, base_sequence=100, transactional=True)
    rules = AppendRules(codec=target, log_append_time=stamping)
    checked = check_produced(memoryview(bytearray(sent)), rules, NOW + 50)
    before, after = read_header(sent), checked.header
    assert after == read_header(checked.batch)
    assert after.codec == target
    assert after[6:8] + after[9:] == before[6:8] + before[9:]
    theirs = DefaultRecordBatch(bytes(checked.batch))
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value) for r in theirs] == [
        (i, NOW + 50 if stamping else NOW + i, b"k%d" % i, b"v" * 20) for i in range(40)
    ]


def test_the_broker_may_write_control_batches_and_they_are_never_compressed() -> None:
    marker = build_end_txn_marker(EndTxnMarker(1, 3), 9, 0, NOW)
    assert refused(marker)[0] == ErrorCode.INVALID_RECORD
    rules = AppendRules(codec=4, compacted=True)
    assert check_produced(memoryview(marker), rules, NOW, from_client=False).batch == marker


def test_a_follower_takes_batches_whose_crc_fits_and_whose_offsets_grow() -> None:
    batches = [made(n, base_offset=at) for at, n in ((10, 3), (13, 1), (20, 2))]
    whole = memoryview(b"".join(batches))
    size, headers = check_replicated(whole)
    assert size == len(whole)
    assert [header.base_offset for _, header in headers] == [10, 13, 20]
    size, headers = check_replicated(whole[:-1])
    assert size == len(batches[0]) + len(batches[1])
    assert len(headers) == 2


def test_a_follower_refuses_damage_and_offsets_that_go_back() -> None:
    with pytest.raises(InvalidBatch):
        check_replicated(memoryview(made(3, base_offset=10) + made(1, base_offset=12)))
    with pytest.raises(InvalidBatch):
        check_replicated(memoryview(resealed(made(3), last_offset_delta=-1)))
    bad = made(3, base_offset=10)
    bad[-1] ^= 1
    with pytest.raises(InvalidBatch) as e:
        check_replicated(memoryview(bad))
    assert e.value.code == ErrorCode.CORRUPT_MESSAGE


def test_what_takes_long_to_unpack_or_pack_is_left_to_others() -> None:
    large = build_batch([(NOW, b"k", bytes(SHORT_BYTES), None)], codec=GZIP)
    with pytest.raises(TakesLong):
        check_produced(memoryview(large), RULES, NOW, most_bytes=SHORT_BYTES)
    assert check_produced(memoryview(large), RULES, NOW).header.record_count == 1
    other_codec = AppendRules(codec=GZIP)
    plain = build_batch([(NOW, b"k", bytes(SHORT_BYTES // PACKING), None)])
    with pytest.raises(TakesLong):
        check_produced(memoryview(plain), other_codec, NOW, most_bytes=SHORT_BYTES)
    small = build_batch([(NOW, b"k", b"v", None)])
    assert check_produced(memoryview(small), other_codec, NOW, most_bytes=SHORT_BYTES).header.attributes & 7 == GZIP


def test_a_long_batch_is_walked_in_parts_and_its_faults_are_where_they_are() -> None:
    count = 2 * PART_RECORDS + 10
    records = [(NOW + at % 7, b"k" if at != PART_RECORDS + 3 else None, b"", None) for at in range(count)]
    whole = build_batch(records, codec=GZIP)
    assert check_produced(memoryview(bytearray(whole)), RULES, NOW).header.max_timestamp == NOW + 6
    with pytest.raises(b.InvalidBatch) as refused:
        check_produced(memoryview(bytearray(whole)), AppendRules(compacted=True), NOW)
    assert [index for index, _ in refused.value.record_errors] == [PART_RECORDS + 3]
