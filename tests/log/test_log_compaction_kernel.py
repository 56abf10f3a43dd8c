"""The sieve against a dict, on both faces of the kernel, and the two faces against each other."""

from __future__ import annotations

import struct
from array import array
from random import Random
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
import pytest
from compaction_kit import FACES, KERNEL, kernel_face
from hypothesis import given, settings

from tidelog.log.compaction.compaction_round import crc_tables
from tidelog.wire.batch import HEADER_SIZE, iter_headers, read_header
from tidelog.wire.records import Record, build_batch, read_records, retain
from tidelog.wire.records import RecordIndex as Index

SECRETS = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
NEVER = 1 << 60

keys = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"cc"]), st.binary(max_size=40))
values = st.one_of(st.none(), st.binary(max_size=20))
stamps = st.one_of(st.integers(0, 1 << 40), st.integers(-1, 10))
batches = st.lists(st.lists(st.tuples(stamps, keys, values), min_size=1, max_size=8), min_size=1, max_size=8)


@pytest.fixture(params=FACES)
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return kernel_face(KERNEL, request.param)


def faces() -> list[ModuleType]:
    return [kernel_face(KERNEL, face) for face in FACES]


def new_sieve(kernel: ModuleType, slots: int = 256, limit: int = 200, start_offset: int = 0) -> tuple[Any, array[int]]:
    table = array("Q", bytes(16 * slots))
    sieve = kernel.Sieve()
    sieve.use_map(table, limit, *SECRETS, crc_tables(), start_offset)
    return sieve, table


def ready(sieve: Any, keep_ends: list[int], now_ms: int = 0, horizon_ms: int = NEVER, room: int = 1 << 16) -> bytearray:
    out = bytearray(room)
    sieve.use_output(out, array("q", bytes(8 * 4096)))
    sieve.use_rules(array("q", keep_ends), now_ms, horizon_ms)
    sieve.use_bounds(0, NEVER)
    return out


def log_of(batches: list[Any], **fields: Any) -> bytes:
    """Batches one after another, their offsets counting on."""
    log, offset = b"", 0
    for records in batches:
        log += build_batch([(stamp, k, v, None) for stamp, k, v in records], base_offset=offset, **fields)
        offset += len(records)
    return log


def records_of(log: bytes | bytearray | memoryview) -> list[Record]:
    view = memoryview(log)
    return [r for at, header in iter_headers(view) for r in read_records(view[at : at + header.size_bytes])]


def sip128(key: bytes) -> tuple[int, int]:
    """SipHash-1-3 with 128 bits of output, by the book."""
    mask = (1 << 64) - 1
    v = [0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573]
    v = [word ^ SECRETS[i % 2] for i, word in enumerate(v)]
    v[1] ^= 0xEE

    def rotate(word: int, by: int) -> int:
        return (word << by | word >> 64 - by) & mask

    def turn() -> None:
        for a, b, c, d in ((0, 1, 2, 3), (2, 1, 0, 3)):
            x, y = (13, 16) if a == 0 else (17, 21)
            v[a] = (v[a] + v[b]) & mask
            v[b] = rotate(v[b], x) ^ v[a]
            v[a] = rotate(v[a], 32)
            v[c] = (v[c] + v[d]) & mask
            v[d] = rotate(v[d], y) ^ v[c]

    padded = key + bytes(7 - len(key) % 8) + bytes([len(key) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        turn()
        v[0] ^= word
    v[2] ^= 0xEE
    for _ in range(3):
        turn()
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for _ in range(3):
        turn()
    return first, v[0] ^ v[1] ^ v[2] ^ v[3]


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 15, 16, 17, 63, 300])
def test_a_key_is_known_by_its_siphash(kernel: ModuleType, length: int) -> None:
    key = Random(length).randbytes(length)
    sieve, table = new_sieve(kernel, slots=64, limit=60)
    log = log_of([[(0, key, b"v")]])
    assert sieve.fill(log, 0, len(log)) == len(log)
    first, second = sip128(key)
    (slot,) = [at for at in range(64) if table[2 * at + 1]]
    assert slot == (second >> 32) * 64 >> 32
    assert table[2 * slot] == first
    assert table[2 * slot + 1] >> 40 == second & 0xFFFFFF


@pytest.mark.parametrize("face", FACES)
@given(batches=batches, start_offset=st.integers(0, 10))
@settings(max_examples=150, deadline=None)
def test_the_newest_record_of_each_key_stays(face: str, batches: list[Any], start_offset: int) -> None:
    kernel = kernel_face(KERNEL, face)
    log = log_of(batches)
    sieve, _ = new_sieve(kernel, start_offset=start_offset)
    assert sieve.fill(log, 0, len(log)) == len(log)
    assert sieve.stop == kernel.Stop.CUT
    written = records_of(log)
    newest = {r.key: r.offset for r in written if r.key is not None and r.offset >= start_offset}
    assert sieve.entries == len(newest)
    out = ready(sieve, [NEVER])
    assert sieve.sift(log, 0, len(log)) == len(log)
    latest = sieve.latest_offset
    assert latest == (written[-1].offset if written[-1].offset >= start_offset else -1)
    expected = [
        r for r in written if r.offset > latest or (r.key is not None and r.offset >= newest.get(r.key, r.offset))
    ]
    assert records_of(out[: sieve.out_at]) == expected
    assert (sieve.records_read, sieve.records_kept) == (len(written), len(expected))


@pytest.mark.parametrize("face", FACES)
@given(batches=batches, limit=st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_a_full_map_speaks_of_what_came_before(face: str, batches: list[Any], limit: int) -> None:
    kernel = kernel_face(KERNEL, face)
    log = log_of(batches)
    sieve, _ = new_sieve(kernel, slots=16, limit=limit)
    sieve.fill(log, 0, len(log))
    seen: set[bytes] = set()
    end = -1
    for record in records_of(log):
        if record.key is not None and record.key not in seen:
            if len(seen) == limit:
                assert sieve.stop == kernel.Stop.FULL
                break
            seen.add(record.key)
        end = record.offset
    else:
        assert sieve.stop == kernel.Stop.CUT
    # Records without a key say nothing: whether they are counted is the same.
    keyed = [r.offset for r in records_of(log) if r.key is not None and r.offset <= end]
    assert (keyed[-1] if keyed else -1) <= sieve.latest_offset <= end
    assert sieve.entries == len(seen)


@given(batches=batches, marked=st.booleans(), now_ms=st.sampled_from([0, 50]), keep=st.booleans(), seed=st.integers())
@settings(max_examples=150, deadline=None)
def test_both_faces_write_the_same_bytes(batches: list[Any], marked: bool, now_ms: int, keep: bool, seed: int) -> None:
    log = log_of(batches, log_append_time_ms=7 if seed % 2 else None)
    if marked:
        log = b"".join(
            retain(Index(log[at : at + h.size_bytes]), range(h.record_count), delete_horizon_ms=20)
            for at, h in iter_headers(log)
        )
    ends = [header.last_offset for _, header in iter_headers(log)] if keep else [NEVER]
    written = []
    for kernel in faces():
        sieve, table = new_sieve(kernel)
        sieve.fill(log, 0, len(log))
        out = ready(sieve, ends, now_ms, 1000)
        sieve.sift(log, 0, len(log))
        written.append((bytes(out[: sieve.out_at]), list(table), sieve.changed, sieve.latest_offset))
    assert written[0] == written[1]


@given(seed=st.integers(0, 1 << 32), batches=batches)
@settings(max_examples=150, deadline=None)
def test_damage_is_seen_by_both_faces_alike(seed: int, batches: list[Any]) -> None:
    """Whatever is in the buffer, even under a right CRC: nothing is read or written out of bounds."""
    random = Random(seed)
    log = bytearray(log_of(batches))
    for _ in range(random.randint(1, 4)):
        log[random.randrange(len(log))] ^= 1 << random.randrange(8)
    if random.random() < 0.7:
        mend(log)
    outcomes = []
    for kernel in faces():
        sieve, _ = new_sieve(kernel, slots=32, limit=20)
        filled = sieve.fill(log, 0, len(log)), sieve.stop, sieve.entries
        out = ready(sieve, [3], 0, 1000, room=1 << 15)
        sifted = sieve.sift(log, 0, len(log)), sieve.stop, bytes(out[: sieve.out_at])
        outcomes.append((filled, sifted))
    assert outcomes[0] == outcomes[1]


def mend(log: bytearray) -> None:
    """Gives every batch that can still be found the CRC of what it now is."""
    from tidelog.wire.batch import crc32c

    at = 0
    while len(log) - at >= HEADER_SIZE:
        size = 12 + read_header(log, at).length
        if size < HEADER_SIZE or size > len(log) - at:
            return
        struct.pack_into(">I", log, at + 17, crc32c(bytes(log[at + 21 : at + size])))
        at += size


def test_a_batch_that_fails_its_crc_stops_both_loops(kernel: ModuleType) -> None:
    log = bytearray(log_of([[(0, b"a", b"1")], [(0, b"b", b"2")]]))
    second = [at for at, _ in iter_headers(log)][1]
    log[-1] ^= 1
    sieve, _ = new_sieve(kernel)
    assert (sieve.fill(log, 0, len(log)), sieve.stop) == (second, kernel.Stop.BAD_CRC)
    ready(sieve, [NEVER])
    assert (sieve.sift(log, 0, len(log)), sieve.stop) == (second, kernel.Stop.BAD_CRC)


def test_a_base_offset_that_goes_back_or_beyond_its_segment_stops_both_loops(kernel: ModuleType) -> None:
    log = log_of([[(0, b"a", b"1"), (0, b"b", b"1")], [(0, b"c", b"2")]])
    second = [at for at, _ in iter_headers(log)][1]
    back = bytearray(build_batch([(0, b"a", b"1", None)], base_offset=7) + log[second:])
    for content, end_offset, stopped_at in ((back, NEVER, len(back) - len(log) + second), (log, 2, second)):
        sieve, _ = new_sieve(kernel)
        ready(sieve, [NEVER])
        for call in (sieve.fill, sieve.sift):
            sieve.use_bounds(0, end_offset)
            assert (call(content, 0, len(content)), sieve.stop) == (stopped_at, kernel.Stop.BAD_BATCH)


def test_a_batch_that_loses_nothing_is_copied_byte_by_byte(kernel: ModuleType) -> None:
    log = log_of([[(5, b"a", b"1"), (3, b"b", b"2")], [(9, b"c", b"3")]], producer_id=5, producer_epoch=1)
    sieve, _ = new_sieve(kernel)
    sieve.fill(log, 0, len(log))
    out = ready(sieve, [NEVER])
    sieve.sift(log, 0, len(log))
    assert out[: sieve.out_at] == log
    assert not sieve.changed


def test_a_batch_that_loses_records_keeps_what_its_producer_needs(kernel: ModuleType) -> None:
    fields = {"producer_id": 5, "producer_epoch": 1, "leader_epoch": 3}
    log = log_of([[(5, b"a", b"1"), (30, b"b", b"2"), (7, b"c", b"3")], [(9, b"b", b"4")]], base_sequence=40, **fields)
    sieve, _ = new_sieve(kernel)
    sieve.fill(log, 0, len(log))
    out = ready(sieve, [NEVER])
    sieve.sift(log, 0, len(log))
    before, after = read_header(log), read_header(out)
    unchanged = {"length": 0, "crc": 0, "record_count": 0, "max_timestamp": 0}
    assert before._replace(**unchanged) == after._replace(**unchanged)
    assert (after.record_count, after.max_timestamp) == (2, 7)
    assert [r[:4] for r in records_of(out[: after.size_bytes])] == [(0, 5, b"a", b"1"), (2, 7, b"c", b"3")]


def test_a_batch_that_loses_all_is_kept_as_a_header_where_it_must_be(kernel: ModuleType) -> None:
    log = log_of([[(5, b"a", b"1"), (6, b"a", b"2")], [(7, b"a", b"3")]], producer_id=5, base_sequence=9)
    sieve, _ = new_sieve(kernel)
    sieve.fill(log, 0, len(log))
    out = ready(sieve, [1])
    sieve.sift(log, 0, len(log))
    header = read_header(out)
    assert (header.base_offset, header.last_offset, header.base_sequence) == (0, 1, 9)
    assert (header.record_count, header.size_bytes, header.max_timestamp) == (0, HEADER_SIZE, 6)
    assert [r.offset for r in records_of(out[: sieve.out_at])] == [2]


def test_a_tombstone_gets_a_horizon_and_keeps_its_time(kernel: ModuleType) -> None:
    log = log_of([[(500, b"a", None), (700, b"b", b"2"), (-1, b"c", b"3")]])
    sieve, _ = new_sieve(kernel)
    sieve.fill(log, 0, len(log))
    out = ready(sieve, [NEVER], now_ms=10_000, horizon_ms=99_000)
    sieve.sift(log, 0, len(log))
    once = bytes(out[: sieve.out_at])
    assert read_header(once).delete_horizon_ms == 99_000
    assert records_of(once) == records_of(log)
    # The next round leaves the horizon as it is, until it is over.
    for now_ms, left in ((98_999, [0, 1, 2]), (99_000, [1, 2])):
        sieve, _ = new_sieve(kernel)
        sieve.fill(once, 0, len(once))
        out = ready(sieve, [NEVER], now_ms=now_ms, horizon_ms=500_000)
        sieve.sift(once, 0, len(once))
        assert [r.offset for r in records_of(out[: sieve.out_at])] == left
        assert read_header(out).delete_horizon_ms == 99_000
        assert [r.timestamp for r in records_of(out[: sieve.out_at])] == [[500, 700, -1][at] for at in left]


def test_offsets_too_far_from_the_first_fill_the_map(kernel: ModuleType) -> None:
    near = build_batch([(0, b"a", b"1", None)], base_offset=1 << 50)
    far = build_batch([(0, b"b", b"1", None)], base_offset=(1 << 50) + (1 << 40))
    log = bytes(near + far)
    sieve, _ = new_sieve(kernel)
    assert sieve.fill(log, 0, len(log)) == len(near)
    assert sieve.stop == kernel.Stop.FULL
    assert (sieve.latest_offset, sieve.entries) == (1 << 50, 1)


def test_the_output_is_never_overrun(kernel: ModuleType) -> None:
    log = log_of([[(NEVER - 5, b"key%d" % i, None)] for i in range(20)])
    sieve, _ = new_sieve(kernel)
    sieve.fill(log, 0, len(log))
    out = ready(sieve, [NEVER], now_ms=0, horizon_ms=1, room=400)
    at, kept = 0, b""
    while at < len(log):
        at = sieve.sift(log, at, len(log))
        kept += bytes(out[: sieve.out_at])
        if sieve.stop == kernel.Stop.NO_ROOM:
            assert sieve.out_at > 0
        sieve.out_at = 0
    assert records_of(kept) == records_of(log)


def test_places_outside_of_the_buffer_are_refused(kernel: ModuleType) -> None:
    log = log_of([[(0, b"a", b"1")]])
    sieve, _ = new_sieve(kernel)
    ready(sieve, [NEVER])
    for call in (sieve.fill, sieve.sift, sieve.fill_one):
        for pos, end in ((-1, 5), (0, len(log) + 1), (7, 5)):
            with pytest.raises(ValueError, match="within the buffer"):
                call(log, pos, end)
    with pytest.raises(ValueError, match="room for one key more"):
        new_sieve(kernel, slots=4, limit=4)
