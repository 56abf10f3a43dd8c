"""The loops over records, each claim on both faces: plain Python and compiled."""

from __future__ import annotations

import inspect
import re
from array import array
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from wire_kernels import FACES, SHARED, kernel_face

import tidelog.wire
from tidelog.wire import batch, kernel_primitives

SOURCE = Path(tidelog.wire.__file__).parent / "kernel.py"


@pytest.fixture(params=FACES)
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return kernel_face(SOURCE, request.param)


def both() -> tuple[ModuleType, ModuleType]:
    return kernel_face(SOURCE, "pure"), kernel_face(SOURCE, "compiled")


def zigzag(value: int) -> bytes:
    """An encoder of its own, by the definition: 2n for n >= 0, -2n-1 below, seven bits a byte, low first."""
    raw = 2 * value if value >= 0 else -2 * value - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def sized(content: bytes | None) -> bytes:
    return zigzag(-1) if content is None else zigzag(len(content)) + content


def encoded(offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: list | tuple = ()) -> bytes:
    body = b"\0" + zigzag(timestamp) + zigzag(offset) + sized(key) + sized(value) + zigzag(len(headers))
    for name, content in headers:
        body += sized(name.encode()) + sized(content)
    return zigzag(len(body)) + body


def walk(kernel: ModuleType, payload: bytes, count: int, dense: bool = True, out: array | None = None) -> tuple:
    return kernel.walk_records(payload, 0, len(payload), count, dense, out)[:5]


def index(kernel: ModuleType, payload: bytes, count: int, dense: bool = True) -> tuple[tuple, list[list[int]]]:
    out = array("q", bytes(8 * kernel.COLUMNS * count))
    result = walk(kernel, payload, count, dense, out)
    return result, [list(out[c * count : (c + 1) * count]) for c in range(kernel.COLUMNS)]


contents = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=60, max_size=200))
header_lists = st.lists(st.tuples(st.text(max_size=8), st.one_of(st.none(), st.binary(max_size=10))), max_size=4)
# The difference of any two fits into 64 bits.
timestamps = st.integers(min_value=-(2**62), max_value=2**62 - 1)
record_lists = st.lists(st.tuples(timestamps, contents, contents, header_lists), min_size=1, max_size=30)
EDGES = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("value", EDGES)
def test_a_number_is_written_as_the_definition_says_and_measured_so(kernel: ModuleType, value: int) -> None:
    out = bytearray()
    kernel.append_record(out, 0, value, None, None, None)
    assert bytes(out) == encoded(0, value, None, None)
    assert kernel_primitives.varint_size(value) == len(zigzag(value))


def test_compiled_kernels_know_the_layout_of_a_batch_as_python_does() -> None:
    layout = re.search(r"^cdef enum:\n((?:    .*\n)+)", SHARED.read_text(), re.MULTILINE)
    assert layout is not None
    compiled = {name: int(value, 0) for name, value in re.findall(r"(\w+) = (\w+)", layout[1])}
    assert compiled == {name: getattr(batch, name) for name in compiled}


def test_what_the_kernels_share_has_the_same_names_in_c_and_in_python() -> None:
    compiled = set(re.findall(r"^cdef (?:struct|inline [\w ]+?) (\w+)[(:]", SHARED.read_text(), re.MULTILINE))
    members = inspect.getmembers(kernel_primitives, lambda m: inspect.isfunction(m) or inspect.isclass(m))
    assert compiled == {name for name, member in members if member.__module__ == kernel_primitives.__name__}


def test_no_kernel_has_a_twin_of_what_the_kernels_share() -> None:
    defined = re.compile(r"^cdef (?:struct|inline [\w ]+?) (\w+)[(:]", re.MULTILINE)
    shared = set(defined.findall(SHARED.read_text()))
    others = [path for path in SHARED.parents[1].rglob("*.pxd") if path != SHARED]
    twins = {path.parent.name: shared & set(defined.findall(path.read_text())) for path in others}
    assert len(others) >= 6 and {kernel: names for kernel, names in twins.items() if names} == {}


@pytest.mark.parametrize("value", EDGES)
def test_a_number_is_read_and_written_in_place_and_nowhere_beyond(value: int) -> None:
    content = zigzag(value)
    out = bytearray(12)
    end = kernel_primitives.write_varint(out, 1, value)
    assert bytes(out) == b"\0" + content + bytes(11 - len(content))
    assert kernel_primitives.read_varint64(out, 1, end) == (value, end)
    assert kernel_primitives.read_varint64(out, 1, end - 1).end == -1
    fits = -(2**31) <= value < 2**31
    assert kernel_primitives.read_varint32(out, 1, end) == ((value, end) if fits else (0, -1))


@pytest.mark.parametrize("value", EDGES)
def test_a_timestamp_of_any_64_bits_is_read_back(kernel: ModuleType, value: int) -> None:
    payload = encoded(0, value, b"k", b"v")
    assert walk(kernel, payload, 1) == (kernel.OK, 1, value, value, 0)


@given(records=record_lists)
@example(records=[(0, None, None, [])])
@settings(max_examples=60, deadline=None)
def test_records_are_written_as_an_independent_encoder_writes_them(records: list) -> None:
    expected = b"".join(
        encoded(i, stamp - records[0][0], key, value, headers) for i, (stamp, key, value, headers) in enumerate(records)
    )
    for kernel in both():
        out = bytearray(b"prefix")
        latest = kernel.append_records(out, records, records[0][0])
        assert bytes(out) == b"prefix" + expected
        assert latest == max(-1, *(stamp for stamp, *_ in records))


@given(records=record_lists)
@settings(max_examples=40, deadline=None)
def test_the_walk_and_the_index_say_what_was_written(records: list) -> None:
    payload = b"".join(encoded(i, *record) for i, record in enumerate(records))
    deltas = [record[0] for record in records]
    nulls = sum(record[1] is None for record in records)
    for kernel in both():
        assert walk(kernel, payload, len(records)) == (kernel.OK, len(records), min(deltas), max(deltas), nulls)
        _, (offsets, stamps, key_at, key_len, value_at, value_len, headers_at, ends) = index(
            kernel, payload, len(records)
        )
        assert offsets == list(range(len(records)))
        assert stamps == deltas
        for i, (_, key, value, headers) in enumerate(records):
            assert (None if key_len[i] < 0 else payload[key_at[i] : key_at[i] + key_len[i]]) == key
            assert (None if value_len[i] < 0 else payload[value_at[i] : value_at[i] + value_len[i]]) == value
            spans = kernel.header_spans(payload, headers_at[i], ends[i])
            found = [
                (payload[n : n + nl].decode(), None if vl < 0 else payload[v : v + vl])
                for n, nl, v, vl in zip(*[iter(spans)] * 4, strict=True)
            ]
            assert found == headers


def test_the_walk_reads_what_kafka_python_writes(kernel: ModuleType) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for i in range(300):
        builder.append(i, 1_700_000_000_000 + i * 7, b"key" if i % 2 else None, b"v" * i, [("h", b"x")] * (i % 3))
    payload = bytes(builder.build())[61:]
    assert walk(kernel, payload, 300) == (kernel.OK, 300, 0, 299 * 7, 150)


def test_gaps_in_the_offsets_are_taken_only_where_the_batch_may_have_been_compacted(kernel: ModuleType) -> None:
    payload = encoded(2, 0, b"a", b"") + encoded(5, 0, b"b", b"")
    assert walk(kernel, payload, 2, dense=False)[0] == kernel.OK
    assert walk(kernel, payload, 2, dense=True)[:2] == (kernel.BAD_OFFSET_DELTA, 0)


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (-1,), (0, 2**31 - 1, -5)])
def test_offsets_that_do_not_grow_are_refused_everywhere(kernel: ModuleType, deltas: tuple[int, ...]) -> None:
    payload = b"".join(encoded(delta, 0, b"", b"") for delta in deltas)
    assert walk(kernel, payload, len(deltas), dense=False)[0] == kernel.BAD_OFFSET_DELTA


LONG_KEY = b"\0\0\0" + zigzag(9) + b"k" + zigzag(-1) + zigzag(0)
OVERLONG = b"\xff\xff\xff\xff\xff\x01"
TOO_WIDE = b"\xff\xff\xff\xff\x1f"


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (LONG_KEY, "BAD_KEY"),
        (b"\0\0\0" + zigzag(-2) + zigzag(-1) + zigzag(0), "BAD_KEY"),
        (b"\0\0\0" + OVERLONG + zigzag(-1) + zigzag(0), "BAD_KEY"),
        (b"\0\0\0" + TOO_WIDE + zigzag(-1) + zigzag(0), "BAD_KEY"),
        (b"\0\0\0" + zigzag(-1) + zigzag(9) + b"v" + zigzag(0), "BAD_VALUE"),
        (b"\0\0\0" + zigzag(-1) + zigzag(-2) + zigzag(0), "BAD_VALUE"),
        (b"\0\0\0" + zigzag(-1) + zigzag(-1) + zigzag(-1), "BAD_HEADERS"),
        (b"\0\0\0" + zigzag(-1) + zigzag(-1) + zigzag(2**31 - 1), "BAD_HEADERS"),
        (b"\0\0\0" + zigzag(-1) + zigzag(-1) + zigzag(1) + zigzag(-1) + zigzag(-1), "BAD_HEADERS"),
        (b"\0\0\0" + zigzag(-1) + zigzag(-1) + zigzag(1) + zigzag(9) + b"h", "BAD_HEADERS"),
        (b"\0\0\0" + zigzag(-1) + zigzag(-1) + zigzag(1) + zigzag(1) + b"h" + zigzag(9), "BAD_HEADERS"),
        (b"\0\0\0" + zigzag(-1) + zigzag(-1) + zigzag(1) + zigzag(1) + b"h" + zigzag(-2), "BAD_HEADERS"),
        (b"\0\0\0" + zigzag(-1) + zigzag(-1) + zigzag(0) + b"more", "BYTES_LEFT_IN_RECORD"),
        (b"\0" + b"\xff" * 10 + b"\0" * 5, "BAD_TIMESTAMP"),
        (b"\0" + b"\xff" * 9 + b"\x02" + b"\0" * 5, "BAD_TIMESTAMP"),
        (b"\0" + b"\xff" * 8, "BAD_TIMESTAMP"),
        (b"\0\0" + OVERLONG + b"\0\0\0", "BAD_OFFSET_DELTA"),
        (b"\0\0\0\0\0", "BAD_LENGTH"),
    ],
)
def test_a_malformed_record_is_named_with_its_index_and_fault(kernel: ModuleType, body: bytes, outcome: str) -> None:
    good = b"".join(encoded(i, i, b"k", b"v") for i in range(3))
    # A fourth record whose offset delta is its place, where the body opens with the three common bytes.
    body = body[:2] + zigzag(3) + body[3:] if body[:3] == b"\0\0\0" else body
    result = walk(kernel, good + zigzag(len(body)) + body, 4)
    assert kernel.REASONS[result[0]] == kernel.REASONS[getattr(kernel, outcome)]
    assert result[1] == 3


@pytest.mark.parametrize("length", [-1, -(2**31), 5, 100, 2**31 - 1])
def test_a_record_length_that_does_not_fit_is_refused(kernel: ModuleType, length: int) -> None:
    assert walk(kernel, zigzag(length) + encoded(0, 0, b"k", b"v"), 1)[:2] == (kernel.BAD_LENGTH, 0)


def test_fewer_or_more_records_than_declared_are_refused(kernel: ModuleType) -> None:
    payload = b"".join(encoded(i, 0, b"k", b"v") for i in range(3))
    assert walk(kernel, payload, 4)[:2] == (kernel.BAD_COUNT, 3)
    assert walk(kernel, payload, 2)[:2] == (kernel.BYTES_LEFT_IN_BATCH, 2)
    assert walk(kernel, b"", 0)[0] == kernel.OK
    assert walk(kernel, b"x", 0)[0] == kernel.BYTES_LEFT_IN_BATCH


def test_records_cut_at_any_byte_are_refused(kernel: ModuleType) -> None:
    payload = encoded(0, 2**40, b"key", b"value" * 30, [("a", b"1"), ("b", None)]) + encoded(1, 0, None, None)
    for cut in range(len(payload)):
        assert walk(kernel, payload[:cut], 2)[0] != kernel.OK
        assert kernel.locate_timestamp(payload[:cut], 0, cut, 2, 2**63 - 1) == (-1, -1, -1)


@given(
    records=st.lists(st.tuples(st.integers(-5, 5), contents, contents, header_lists), min_size=1, max_size=4),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    count=st.integers(0, 5),
    dense=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_both_faces_judge_damaged_records_alike(records: list, edits: list, count: int, dense: bool) -> None:
    payload = bytearray(b"".join(encoded(i, *record) for i, record in enumerate(records)))
    for place, byte in edits:
        payload[place % len(payload)] = byte
    pure, compiled = both()
    assert index(pure, bytes(payload), count, dense) == index(compiled, bytes(payload), count, dense)
    for target in (-3, 0, 4, 2**63 - 1, -(2**63)):
        assert pure.locate_timestamp(payload, 0, len(payload), count, target) == compiled.locate_timestamp(
            payload, 0, len(payload), count, target
        )


@given(junk=st.binary(max_size=60), count=st.integers(0, 9))
@settings(max_examples=150, deadline=None)
def test_both_faces_judge_junk_alike(junk: bytes, count: int) -> None:
    pure, compiled = both()
    assert index(pure, junk, count) == index(compiled, junk, count)


@given(stamps=st.lists(st.integers(-100, 100), min_size=1, max_size=40), target=st.integers(-110, 110))
@settings(max_examples=60, deadline=None)
def test_locating_a_time_finds_the_first_record_at_or_after_it(stamps: list[int], target: int) -> None:
    payload = b"".join(encoded(2 * i, stamp, b"k", b"v") for i, stamp in enumerate(stamps))
    first = next(((i, 2 * i, stamp) for i, stamp in enumerate(stamps) if stamp >= target), (-1, -1, -1))
    for kernel in both():
        assert kernel.locate_timestamp(payload, 0, len(payload), len(stamps), target) == first


def test_what_lies_outside_the_buffer_is_never_read(kernel: ModuleType) -> None:
    payload = encoded(0, 0, b"k", b"v")
    for pos, end in ((-1, 4), (0, len(payload) + 1), (5, 4)):
        with pytest.raises(ValueError, match="within the buffer"):
            kernel.walk_records(payload, pos, end, 1, True, None)
        with pytest.raises(ValueError, match="within the buffer"):
            kernel.locate_timestamp(payload, pos, end, 1, 0)
    with pytest.raises(ValueError, match="no room"):
        kernel.walk_records(payload, 0, len(payload), 1, True, array("q", bytes(56)))


@pytest.mark.parametrize("headers", [zigzag(2) + b"\xff" * 6, zigzag(1) + zigzag(-1) + b"\0", zigzag(1) + b"\0\x07"])
def test_headers_that_were_never_walked_do_not_lead_astray(kernel: ModuleType, headers: bytes) -> None:
    with pytest.raises(ValueError, match="beyond its record"):
        kernel.header_spans(headers, 0, len(headers))


def test_records_in_the_middle_of_a_larger_buffer_are_read_in_place(kernel: ModuleType) -> None:
    payload = encoded(0, 3, b"k", b"v") + encoded(1, 9, b"k", b"v")
    around = memoryview(b"\xff" * 10 + payload + b"\xff" * 10)
    end = 10 + len(payload)
    assert kernel.walk_records(around, 10, end, 2, True, None) == (kernel.OK, 2, 3, 9, 0, end)
    assert kernel.locate_timestamp(around, 10, 10 + len(payload), 2, 4) == (1, 1, 9)


def test_records_are_walked_in_parts(kernel: ModuleType) -> None:
    records = [encoded(i, 7 * i, None, b"v") for i in range(5)]
    payload = b"".join(records)
    at = len(b"".join(records[:3]))
    first = kernel.walk_records(payload, 0, len(payload), 3, True, None)
    assert first == (kernel.BYTES_LEFT_IN_BATCH, 3, 0, 14, 3, at)
    assert kernel.walk_records(payload, at, len(payload), 2, True, None, 3) == (kernel.OK, 2, 21, 28, 2, len(payload))
    assert kernel.walk_records(payload, at, len(payload), 2, True, None)[0] == kernel.BAD_OFFSET_DELTA


def test_header_names_that_are_not_utf8_survive_a_round_trip(kernel: ModuleType) -> None:
    out = bytearray()
    kernel.append_record(out, 0, 0, None, None, [(b"\xff\xfe", b"1"), ("\udcff\udcfe", b"1")])
    assert bytes(out).count(b"\xff\xfe") == 2
    assert walk(kernel, bytes(out), 1)[0] == kernel.OK
