"""What C and Python say differently: the primitives of `kernel.py` where it runs as Python.

Compiled, it takes them from `kernel.pxd`, as inline C of the same names.
"""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

#: stands in for Cython's module of that name, where that is not installed
cython: Any = SimpleNamespace(compiled=False, nogil=nullcontext())


def load_int32(data: Any, pos: int) -> int:
    return int.from_bytes(data[pos : pos + 4], "big", signed=True)


def load_int64(data: Any, pos: int) -> int:
    return int.from_bytes(data[pos : pos + 8], "big", signed=True)


def load_word(data: Any, pos: int, size: int) -> int:
    """Up to eight bytes of a key, as a number without a sign."""
    return int.from_bytes(data[pos : pos + size], "little")


def store_int32(data: Any, pos: int, value: int) -> None:
    data[pos : pos + 4] = (value & 0xFFFFFFFF).to_bytes(4, "big")


def store_int64(data: Any, pos: int, value: int) -> None:
    data[pos : pos + 8] = value.to_bytes(8, "big", signed=True)


def copy_bytes(data: Any, pos: int, out: Any, at: int, size: int) -> None:
    out[at : at + size] = data[pos : pos + size]


def number_size(value: int) -> int:
    """Bytes that a zigzag varint of `value` takes."""
    half = value if value >= 0 else -1 - value
    return 1 + half.bit_length() // 7


def prefetch(words: Any, at: int) -> None:
    """Word `at` will soon be asked for. Python has no way to say so, and no need."""


def wrap(value: int) -> int:
    """A sum of two signed numbers of 64 bits, as C has it: beyond the largest comes the smallest."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
