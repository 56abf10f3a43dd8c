"""The buffers of columns that grow."""

from __future__ import annotations

from typing import Any


def numbers(old: Any, count: int, width: int, letter: Any) -> Any:
    """The old numbers, and zeros behind them, in a buffer that can be indexed as an array of them.

    Each takes `width` bytes; `letter` is their format, as in `array.array`.
    """
    held = bytearray(count * width)
    if len(old) > 0:
        held[: len(old) * width] = memoryview(old).cast("B")
    return memoryview(held).cast(letter)
