"""Unsigned varints and tagged fields: the parts of the encoding that generated code calls instead of inlining.

An unsigned varint holds seven bits a byte, lowest first; the high bit says that another byte follows. Generated
decoders read the first byte themselves (most lengths and counts are below 128) and come here only for more.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from tidelog.wire.malformed import WireError

#: Lengths and counts are 32-bit signed in Kafka, whatever the varint could hold.
MAX_UVARINT: Final = 0x7FFFFFFF
#: A string's length is 16-bit signed in Kafka, in compact form too.
MAX_STRING_BYTES: Final = 0x7FFF

#: Kafka's messages have a handful of tagged fields; each is a step that somebody else waits for.
MAX_TAGS: Final = 1_000

#: The encodings of 0..127.
UVARINTS: Final = tuple(bytes((value,)) for value in range(128))
_TWO: Final = Struct("BB").pack
_THREE: Final = Struct("BBB").pack


def read_more(buf: Sequence[int], pos: int, first: int) -> tuple[int, int]:
    """Go on with a varint whose `first` byte, read already, was above 127; `pos` is behind that byte."""
    byte = buf[pos]
    value = first & 0x7F | (byte & 0x7F) << 7
    if byte < 0x80:
        return value, pos + 1
    byte = buf[pos + 1]
    value |= (byte & 0x7F) << 14
    if byte < 0x80:
        return value, pos + 2
    byte = buf[pos + 2]
    value |= (byte & 0x7F) << 21
    if byte < 0x80:
        return value, pos + 3
    byte = buf[pos + 3]
    value |= byte << 28
    if value > MAX_UVARINT:
        raise WireError("a varint beyond 31 bits")
    return value, pos + 4


def read_more_of_string(buf: Sequence[int], pos: int, first: int) -> tuple[int, int]:
    length_plus_one, pos = read_more(buf, pos, first)
    if length_plus_one > MAX_STRING_BYTES + 1:
        raise WireError(f"a string of {length_plus_one - 1} bytes; at most {MAX_STRING_BYTES} are allowed")
    return length_plus_one, pos


def read_uvarint(buf: Sequence[int], pos: int) -> tuple[int, int]:
    first = buf[pos]
    return (first, pos + 1) if first < 0x80 else read_more(buf, pos + 1, first)


def encode_uvarint(value: int) -> bytes:
    if value < 0x80:
        return UVARINTS[value]
    if value < 0x4000:
        return _TWO(value & 0x7F | 0x80, value >> 7)
    if value < 0x200000:
        return _THREE(value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14)
    if value > MAX_UVARINT:
        raise ValueError(f"{value} does not fit a 32-bit length")
    lowest = _THREE(value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80)
    return lowest + encode_uvarint(value >> 21)


def encode_string_length(length_plus_one: int) -> bytes:
    if length_plus_one > MAX_STRING_BYTES + 1:
        raise ValueError(f"a string of {length_plus_one - 1} bytes; at most {MAX_STRING_BYTES} are allowed")
    return encode_uvarint(length_plus_one)


def skip_tags(buf: Sequence[int], pos: int, count: int, end: int) -> int:
    """Step over tagged fields that nobody knows; `count` is the first byte of their number."""
    if count > 0x7F:
        count, pos = read_more(buf, pos, count)
    if count * 2 > end - pos or count > MAX_TAGS:
        raise WireError(f"{count} tagged fields in {end - pos} bytes")
    for _ in range(count):
        _tag, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
        if pos > end:
            raise WireError(f"a tagged field of {size} bytes beyond the end")
    return pos
