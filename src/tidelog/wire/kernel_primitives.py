"""What the kernels share, where they run as Python: zigzag varints, integers and bytes in buffers.

Compiled kernels take the same names from `kernel_primitives.pxd`, as inline C. It also has the layout of a batch, which
Python takes from `tidelog.wire.batch`.
"""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

#: stands in for the module of that name where Cython is not installed
cython: Any = SimpleNamespace(compiled=False, nogil=nullcontext())


class Varint(NamedTuple):
    """A number and where it ends; `end` is -1 where the bytes are not a well-formed number."""

    value: int
    end: int


_MALFORMED = Varint(0, -1)
#: as `Varint(…)`, without the detour through its own constructor
_new = tuple.__new__


def read_varint32(data: Any, pos: int, end: int) -> Varint:
    """The zigzag varint of at most 32 bits at `pos`; it must end before `end`."""
    if pos < end and (raw := data[pos]) < 0x80:
        return _new(Varint, ((raw >> 1) ^ -(raw & 1), pos + 1))
    return _read_varint(data, pos, end, 27, 15)


def read_varint64(data: Any, pos: int, end: int) -> Varint:
    """The zigzag varint of at most 64 bits at `pos`; it must end before `end`."""
    if pos < end and (raw := data[pos]) < 0x80:
        return _new(Varint, ((raw >> 1) ^ -(raw & 1), pos + 1))
    return _read_varint(data, pos, end, 62, 1)


def _read_varint(data: Any, pos: int, end: int, last_shift: int, last_byte: int) -> Varint:
    """The last byte that is allowed holds the bits from `last_shift` on, and must not be larger than `last_byte`."""
    if pos >= end:
        return _MALFORMED
    byte: int = data[pos]
    pos += 1
    negative = byte & 1
    half = (byte & 0x7F) >> 1
    shift = 6
    while byte >= 0x80:
        if pos >= end or shift > last_shift:
            return _MALFORMED
        byte = data[pos]
        pos += 1
        if shift == last_shift and byte > last_byte:
            return _MALFORMED
        half |= (byte & 0x7F) << shift
        shift += 7
    return _new(Varint, (-1 - half if negative else half, pos))


def varint_size(value: int) -> int:
    """The number of bytes that `value` takes as a zigzag varint."""
    half = value if value >= 0 else -1 - value
    return 1 + half.bit_length() // 7


def write_varint(out: Any, at: int, value: int) -> int:
    """Writes `value` to `out[at:]` as a zigzag varint; returns where it ends."""
    half = value if value >= 0 else -1 - value
    byte = (half & 0x3F) << 1 | (value < 0)
    half >>= 6
    while half > 0:
        out[at] = 0x80 | byte
        at += 1
        byte = half & 0x7F
        half >>= 7
    out[at] = byte
    return at + 1


def load_int32(data: Any, pos: int) -> int:
    return int.from_bytes(data[pos : pos + 4], "big", signed=True)


def load_int64(data: Any, pos: int) -> int:
    return int.from_bytes(data[pos : pos + 8], "big", signed=True)


def load_word(data: Any, pos: int, size: int) -> int:
    """Up to eight bytes of a key as an unsigned number."""
    return int.from_bytes(data[pos : pos + size], "little")


def store_int32(data: Any, pos: int, value: int) -> None:
    data[pos : pos + 4] = (value & 0xFFFFFFFF).to_bytes(4, "big")


def store_int64(data: Any, pos: int, value: int) -> None:
    data[pos : pos + 8] = value.to_bytes(8, "big", signed=True)


def copy_bytes(data: Any, pos: int, out: Any, at: int, size: int) -> None:
    out[at : at + size] = data[pos : pos + size]


def wrap(value: int) -> int:
    """A sum of two signed 64-bit numbers, as C computes it: the smallest number follows the largest."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def prefetch(words: Any, at: int) -> None:
    """Word `at` will be needed soon. Python cannot say so to the processor, and need not."""


def has_high_bits(data: Any, pos: int, size: int) -> bool:
    """Whether some byte is not ASCII."""
    return any(byte >= 0x80 for byte in data[pos : pos + size])
