"""Damaged and hostile bytes: a decoder gives a message or raises WireError, and allocates no more than it was sent."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_values import all_codecs, by_schema, label, random_message

from tidelog.wire import messages
from tidelog.wire.codec import Codec, request_codec
from tidelog.wire.frame import decode_request_header, decode_response_header
from tidelog.wire.malformed import WireError
from tidelog.wire.stored import decode_versioned

CODECS = list(all_codecs())
SCHEMAS = by_schema(CODECS)
#: What a length or count can be replaced with: the largest and the most negative, fixed and as varints.
HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\xff\x01")


def outcome(decode: Callable[..., tuple[Any, int]], data: Any, pos: int) -> tuple[Any, int] | None:
    """The message and how many bytes it took, or None for WireError; anything else escapes and fails the test."""
    try:
        message, end = decode(data, pos)
    except WireError:
        return None
    assert pos <= end <= len(data)
    return message, end - pos


def check_survives(codec: Codec, data: bytes) -> Any:
    """Decode at the start and at an offset of a view: the same must come out of both."""
    result = outcome(codec.decode, data, 0)
    shifted = outcome(codec.decode, memoryview(bytearray(b"\xc1\xc2\xc3" + data)), 3)
    assert (result is None) == (shifted is None)
    if result is not None and shifted is not None:
        assert result[1] == shifted[1]
        # By bytes, not by value: a NaN is not equal to itself.
        assert codec.encode(result[0]) == codec.encode(shifted[0])
    return result


def sample(codec: Codec, random: Random) -> bytes:
    return codec.encode(random_message(codec, random))[:2000]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_message_cut_short_is_malformed(name: str) -> None:
    for codec in SCHEMAS[name]:
        random = Random(label(codec))
        whole = codec.encode(random_message(codec, random))
        cuts = range(len(whole)) if len(whole) < 60 else sorted(random.sample(range(len(whole)), 60))
        for cut in cuts:
            assert check_survives(codec, whole[:cut]) is None, cut


@pytest.mark.parametrize("name", SCHEMAS)
def test_damaged_bytes_give_a_message_or_wire_error(name: str) -> None:
    for codec in SCHEMAS[name]:
        random = Random(label(codec))
        for _ in range(20):
            data = bytearray(sample(codec, random))
            for _ in range(random.choice((1, 1, 2, 8))):
                if data:
                    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            check_survives(codec, bytes(data))
            check_survives(codec, random.randbytes(random.choice((0, 1, 4, 30, 200))))


@pytest.mark.parametrize("name", SCHEMAS)
def test_huge_lengths_and_counts_allocate_no_more_than_was_sent(name: str) -> None:
    for codec in SCHEMAS[name]:
        random = Random(label(codec))
        codec.decode(codec.encode(codec.message_class()))  # compiles, which is not to be counted below
        for _ in range(12):
            data = sample(codec, random)
            at = random.randrange(len(data) + 1)
            huge = random.choice(HUGE)
            attack = data[:at] + huge + data[at + random.choice((0, 1, len(huge))) :]
            # The densest array is one of structs of two bytes each, every one an object of a hundred or two.
            assert peak_bytes(lambda: outcome(codec.decode, attack, 0)) < 65536 + 200 * len(attack)  # noqa: B023


def peak_bytes(work: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_count_is_held_against_the_bytes_that_remain() -> None:
    compact = request_codec(3, 9)  # Metadata: an array of topics first
    plain = request_codec(3, 1)
    for codec, count in ((compact, b"\xff\xff\xff\xff\x07"), (plain, b"\x7f\xff\xff\xff")):
        with pytest.raises(WireError, match="topics"):
            codec.decode(count + bytes(1000))
        assert peak_bytes(lambda: outcome(codec.decode, count + bytes(1000), 0)) < 16384  # noqa: B023


@settings(deadline=None, max_examples=300)
@given(codec=st.sampled_from(CODECS), data=st.binary(max_size=300))
def test_any_bytes_give_a_message_or_wire_error(codec: Codec, data: bytes) -> None:
    result = check_survives(codec, data)
    if result is not None:
        again = codec.encode(result[0])
        message, end = codec.decode(again)
        assert end == len(again)
        assert codec.encode(message) == again


@settings(deadline=None, max_examples=500)
@given(data=st.binary(max_size=64))
def test_any_bytes_give_a_header_or_wire_error(data: bytes) -> None:
    for frame in (data, b"\0\x03\0\x0c\0\0\0\x01" + data):
        for form in (frame, memoryview(bytearray(frame))):
            try:
                header = decode_request_header(form)
            except WireError:
                continue
            assert header.body_at <= len(frame)
    for version in (0, 12):
        try:
            _, body_at = decode_response_header(3, version, data)
        except WireError:
            continue
        assert body_at <= len(data)


@settings(deadline=None, max_examples=500)
@given(data=st.binary(max_size=64), version=st.integers(0, 4))
def test_any_bytes_give_a_stored_record_or_wire_error(data: bytes, version: int) -> None:
    for read in (
        lambda: decode_versioned(messages.GroupMetadataValue, data),
        lambda: decode_versioned(messages.GroupMetadataValue, bytes((0, version)) + data),
        lambda: decode_versioned(messages.ConsumerProtocolSubscription, data),
    ):
        try:
            read()
        except WireError:
            continue
