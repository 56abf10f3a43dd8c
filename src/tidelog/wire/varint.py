"""Unsigned varints and tagged fields: the parts of the encoding that generated code calls instead of inlining.

An unsigned varint holds seven bits a byte, lowest first; the high bit says that another byte follows. Generated
decoders read the first byte themselves (most lengths and counts are below 128) and come here only for more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.wire.malformed import WireError

#: Lengths and counts are 32-bit signed in Kafka, whatever the varint could hold.
MAX_UVARINT: Final = 0x7FFFFFFF
#: A string's length is 16-bit signed in Kafka, in compact form too.
MAX_STRING_BYTES: Final = 0x7FFF

#: The encodings of 0..127.
UVARINTS: Final = tuple(bytes((value,)) for value in range(128))


def read_more(buf: Sequence[int], pos: int, first: int) -> tuple[int, int]:
    """Go on with a varint whose `first` byte, read already, was above 127; `pos` is behind that byte."""
    value = first & 0x7F
    shift = 7
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise WireError("a varint of more than five bytes")
    if value > MAX_UVARINT:
        raise WireError(f"a varint of {value}, beyond 32 bits")
    return value, pos


def read_uvarint(buf: Sequence[int], pos: int) -> tuple[int, int]:
    first = buf[pos]
    return (first, pos + 1) if first < 0x80 else read_more(buf, pos + 1, first)


def encode_uvarint(value: int) -> bytes:
    if value < 0x80:
        return UVARINTS[value]
    if value > MAX_UVARINT:
        raise ValueError(f"{value} does not fit a 32-bit length")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_string_length(length_plus_one: int) -> bytes:
    if length_plus_one > MAX_STRING_BYTES + 1:
        raise ValueError(f"a string of {length_plus_one - 1} bytes; at most {MAX_STRING_BYTES} are allowed")
    return encode_uvarint(length_plus_one)


def skip_tags(buf: Sequence[int], pos: int, count: int, end: int) -> int:
    """Step over tagged fields that nobody knows; `count` is the first byte of their number."""
    if count > 0x7F:
        count, pos = read_more(buf, pos, count)
    if count * 2 > end - pos:
        raise WireError(f"{count} tagged fields in {end - pos} bytes")
    for _ in range(count):
        _tag, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
        if pos > end:
            raise WireError(f"a tagged field of {size} bytes beyond the end")
    return pos
