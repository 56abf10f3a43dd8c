"""What C and Python say differently: the primitives of `kernel.py` where it runs as Python.

Compiled, it takes them from `kernel.pxd`, as inline C of the same names.
"""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

#: stands in for Cython's module of that name, where that is not installed
cython: Any = SimpleNamespace(compiled=False, nogil=nullcontext())


def copy_bytes(data: Any, pos: int, out: Any, at: int, size: int) -> None:
    out[at : at + size] = data[pos : pos + size]


def number_size(value: int) -> int:
    """Bytes that a zigzag varint of `value` takes."""
    half = value if value >= 0 else -1 - value
    return 1 + half.bit_length() // 7
