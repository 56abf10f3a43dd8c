"""What C and Python say differently: the primitive of `kernel.py` when it runs as Python.

Compiled, it takes it from `kernel.pxd`, as inline C of the same name.
"""

from __future__ import annotations

from typing import Any


def double_of(data: Any, start: int, end: int) -> float:
    """The double that is nearest to a JSON number; infinite where that is too large."""
    return float(bytes(data[start:end]))
