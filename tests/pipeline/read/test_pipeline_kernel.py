"""Damaged bytes: an error that says where, never a crash, and the same from the compiled kernel as from the plain."""

from __future__ import annotations

import struct
from array import array
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pipeline_logs import FACES, KERNEL, PARTITION, TOPIC, Log, build_log, kernel_face, logs

from tidelog.client.errors import ClientError
from tidelog.client.reader import Chunk, Fetched, Span
from tidelog.pipeline.read import arrow
from tidelog.pipeline.read.arrow import COLUMNS, ArrowDecoder
from tidelog.wire.batch import HEADER_SIZE

NOW = 1_700_000_000_000


def outcome(face: str, data: bytes, columns: tuple[str, ...], max_bytes: int, check_crcs: bool) -> Any:
    """The rows as far as they came, and the error's words where one came."""
    chunk = Chunk(Span(TOPIC, PARTITION, 0, None), 0, Fetched(memoryview(data), 0, 0, 0, []))
    rows: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "kernel", kernel_face(KERNEL, face))
        try:
            for batch in ArrowDecoder(columns, max_rows=9, max_bytes=max_bytes, check_crcs=check_crcs).decode(chunk):
                batch.validate(full=True)
                names = [name for name in columns if name != "timestamp"]
                rows += batch.select(names).to_pylist()
        except ClientError as error:
            assert f"{TOPIC}-{PARTITION}" in str(error)
            return rows, str(error)
    return rows, None


def both(data: bytes, columns: tuple[str, ...] = COLUMNS, max_bytes: int = 64, check_crcs: bool = False) -> Any:
    plain, compiled = (outcome(face, data, columns, max_bytes, check_crcs) for face in FACES)
    assert plain == compiled
    return plain


mutations = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), st.integers(0, 2000), st.integers(1, 255)),
        st.tuples(st.just("set"), st.integers(0, 2000), st.sampled_from([0, 1, 0x7F, 0x80, 0xFE, 0xFF])),
        st.tuples(st.just("cut"), st.integers(0, 2000), st.integers(1, 40)),
        st.tuples(st.just("insert"), st.integers(0, 2000), st.integers(0, 255)),
    ),
    min_size=1,
    max_size=5,
)


def mutated(data: bytes, changes: list[tuple[str, int, int]]) -> bytes:
    changed = bytearray(data)
    for kind, at, number in changes:
        at %= len(changed) or 1
        if kind == "cut":
            del changed[at : at + number]
        elif kind == "insert":
            changed[at:at] = bytes([number] * 3)
        elif changed:
            changed[at] = changed[at] ^ number if kind == "flip" else number
    return bytes(changed)


@settings(max_examples=200, deadline=None)
@given(log=logs(), changes=mutations, columns=st.sampled_from([COLUMNS, ("value", "offset"), ("key",), ("offset",)]))
def test_mutated_batches_have_the_same_outcome_on_both_faces(
    log: Log, changes: list[tuple[str, int, int]], columns: tuple[str, ...]
) -> None:
    both(mutated(b"".join(batch.data for batch in log.batches), changes), columns)


@settings(max_examples=300, deadline=None)
@given(payload=st.binary(max_size=120), count=st.integers(-1, 20), last_delta=st.integers(-1, 20))
@example(payload=b"\x0c\x00\x00\x00\x01\x01\xff\xff\xff\xff\x0f", count=1, last_delta=0)
@example(payload=b"\x18\x00\x00\x00\x01\x01\x02\x80\x80\x80\x80\x08\x00", count=1, last_delta=0)
def test_any_bytes_in_place_of_records_have_the_same_outcome_on_both_faces(
    payload: bytes, count: int, last_delta: int
) -> None:
    fields = (0, len(payload) + HEADER_SIZE - 12, -1, 2, 0, 0, last_delta, NOW, NOW, -1, -1, -1, count)
    both(struct.pack(">qiibIhiqqqhii", *fields) + payload)


def test_a_batch_of_impossible_offsets_is_an_error() -> None:
    data = bytearray(build_log([("write", [(NOW, None, b"v", [])], 0, None, None, 0, set())]).batches[0].data)
    for base_offset in (-5, 2**63 - 1):
        struct.pack_into(">q", data, 0, base_offset)
        rows, error = both(bytes(data), ("value", "offset"))
        # Offsets below zero are before every start: nothing of them is seen.
        assert rows == [] and (error is None) == (base_offset < 0)


def test_bytes_that_are_no_batch_are_an_error_and_a_cut_batch_is_not() -> None:
    data = build_log([("write", [(NOW, None, b"v", [])], 0, None, None, 0, set())]).batches[0].data
    assert both(data + data[:40], ("value",)) == ([{"value": b"v"}], None)
    rows, error = both(data + data[:16] + b"\x07" + data[17:], ("value",))
    assert rows == [] and "magic 7 is unknown" in error


@pytest.mark.parametrize("face", FACES)
def test_columns_without_room_are_refused(face: str) -> None:
    kernel = kernel_face(KERNEL, face)
    room = array("q", bytes(8 * 4))
    small = kernel.BytesColumn()
    small.use(array("i", bytes(4 * 3)), bytearray(10), bytearray(b"\xff"))
    filler = kernel.Filler()
    with pytest.raises(ValueError, match="no room"):
        filler.use_columns(5, 10, room, None, None, None)
    with pytest.raises(ValueError, match="no room"):
        filler.use_columns(2, 11, None, None, small, None)
    with pytest.raises(ValueError, match="no room"):
        filler.use_columns(3, 10, None, None, None, small)
    with pytest.raises(ValueError, match="no room"):
        filler.use_columns(2, 2**31, None, room, None, None)
    with pytest.raises(ValueError, match="no room"):
        kernel.BytesColumn().use(array("i", bytes(4 * 10)), bytearray(1), bytearray(1))
    filler.use_columns(2, 10, room, room, small, None)
    with pytest.raises(ValueError, match="no room"):
        filler.use_headers(2, array("i", bytes(8)), bytearray(1), small, small)


@pytest.mark.parametrize("face", FACES)
def test_nothing_is_filled_after_a_faulty_record(face: str) -> None:
    kernel = kernel_face(KERNEL, face)
    data = build_log([("write", [(NOW, b"k", b"v" * 9, [("h", b"x")])] * 3, 0, None, None, 0, set())]).batches[0].data
    data = data[:-2] + b"\x7f" + data[-1:]
    batches, filler, offsets = kernel.Batches(), kernel.Filler(), array("q", bytes(80))
    batches.use(data)
    assert batches.next()
    filler.use_bounds(0, 100)
    filler.use_batch(batches, None)
    filler.use_columns(10, 1000, offsets, None, None, None)
    starts, validity = array("i", bytes(44)), bytearray(b"\xff\xff")
    names, contents = kernel.BytesColumn(), kernel.BytesColumn()
    for column in (names, contents):
        column.use(array("i", bytes(44)), bytearray(1000), bytearray(b"\xff\xff"))
    filler.use_headers(10, starts, validity, names, contents)
    assert kernel.REASONS[filler.fill()] == "the headers do not fit into the record"
    assert (filler.row, filler.index) == (2, 2)
    assert filler.fill() != kernel.DONE
    assert filler.row == 2
