"""The offset map: what is finished beyond the committed offset, as text."""

from __future__ import annotations

import base64

from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.workers.offset_map import DEFAULT_LIMIT, MARK, MOST_UNFINISHED, OffsetMap, decode, encode

bases = st.integers(0, 1 << 62)


@st.composite
def holdings(draw: st.DrawFn) -> tuple[int, list[int], int]:
    """(base, unfinished, end), as a tracker has them."""
    base = draw(bases)
    steps = draw(st.lists(st.integers(1, 1 << 20) | st.just(1), max_size=300))
    unfinished = [base]
    for step in steps:
        unfinished.append(unfinished[-1] + step)
    return base, unfinished, unfinished[-1] + draw(st.integers(1, 1 << 40))


def finished(found: OffsetMap | None, offset: int) -> bool:
    return found is not None and offset < found.end and offset not in found.unfinished


@given(holdings())
def test_what_is_written_is_read(holding: tuple[int, list[int], int]) -> None:
    base, unfinished, end = holding
    text, is_whole = encode(base, unfinished, end)
    assert is_whole and len(text) <= DEFAULT_LIMIT
    found = decode(base, text)
    if end == unfinished[-1] + 1:
        # Nothing is finished behind the last of them: it need not be told.
        told = found or OffsetMap((base,), base)
        assert all(offset in told.unfinished or offset >= told.end for offset in unfinished)
    else:
        assert found == OffsetMap(tuple(unfinished), end)


@given(holdings(), st.integers(0, 200))
def test_whatever_does_not_fit_an_unfinished_offset_is_never_told_to_be_finished(
    holding: tuple[int, list[int], int], limit: int
) -> None:
    base, unfinished, end = holding
    text, is_whole = encode(base, unfinished, end, limit)
    assert len(text) <= limit
    found = decode(base, text)
    assert not any(finished(found, offset) for offset in unfinished)
    assert is_whole or found is None or found.end < end


def test_a_million_finished_records_behind_one_that_is_stuck_take_a_few_bytes() -> None:
    text, is_whole = encode(7, [7], 1_000_008)
    assert is_whole and len(text) <= 20
    assert decode(7, text) == OffsetMap((7,), 1_000_008)


def test_the_default_limit_holds_what_the_workers_hold_by_default() -> None:
    every_other = list(range(100, 100 + 2 * 1024, 2))
    assert encode(100, every_other, 5_000)[1]


@given(bases, st.none() | st.text() | st.text(alphabet="ABCDabcd0123+/=").map(MARK.__add__) | st.just(MARK))
def test_what_somebody_else_wrote_is_no_map(base: int, text: str | None) -> None:
    assert decode(base, text) is None


@given(holdings(), bases)
def test_a_map_is_read_only_for_the_offset_that_it_was_made_for(
    holding: tuple[int, list[int], int], other: int
) -> None:
    base, unfinished, end = holding
    text, _ = encode(base, unfinished, end)
    assert other == base or decode(other, text) is None


@given(holdings(), st.integers(0, 10_000), st.integers(1, 255))
@example((0, [0], 3), 2, 1)
def test_a_damaged_map_is_no_map(holding: tuple[int, list[int], int], at: int, by: int) -> None:
    base, unfinished, end = holding
    text, _ = encode(base, unfinished, end)
    if not text:
        return
    raw = bytearray(base64.b64decode(text[len(MARK) :] + "=="))
    raw[at % len(raw)] ^= by
    assert decode(base, MARK + base64.b64encode(raw).decode().rstrip("=")) is None


def test_a_map_made_to_fill_the_memory_is_no_map() -> None:
    for missing in (MOST_UNFINISHED + 1, 1 << 60):
        text, is_whole = _forged(5, [missing, 1])
        assert is_whole and decode(5, text) is None
    assert decode(5, _forged(5, [1, 1 << 63])[0]) is None
    assert decode(5, _forged(5, [1, 0])[0]) is None
    assert decode(5, _forged(5, [1])[0]) is None


def _forged(base: int, lengths: list[int]) -> tuple[str, bool]:
    """A map with a right checksum, of somebody who means harm."""
    from tidelog.workers import offset_map

    runs = b"".join(map(offset_map._varint, lengths))
    return MARK + base64.b64encode(offset_map._crc(base, runs) + runs).decode().rstrip("="), True


def test_the_nul_that_librdkafka_sends_behind_the_metadata_is_not_part_of_them() -> None:
    text, _ = encode(3, [3, 5], 9)
    assert decode(3, text + "\0") == decode(3, text) is not None
