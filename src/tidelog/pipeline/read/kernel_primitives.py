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


def copy_bytes(data: Any, pos: int, out: Any, at: int, size: int) -> None:
    out[at : at + size] = data[pos : pos + size]


def has_high_bits(data: Any, pos: int, size: int) -> bool:
    """Whether some byte is not ASCII."""
    return any(byte >= 0x80 for byte in data[pos : pos + size])
