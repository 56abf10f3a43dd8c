"""What C and Python say differently: the primitives of `kernel.py` where it runs as Python.

Compiled, it takes them from `kernel.pxd`, as inline C of the same names.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

#: stands in for Cython's module of that name, where that is not installed
cython: Any = SimpleNamespace(compiled=False)


def double_of(data: Any, start: int, end: int) -> float:
    """The double that is nearest to a JSON number; infinite where that is too large."""
    return float(bytes(data[start:end]))
