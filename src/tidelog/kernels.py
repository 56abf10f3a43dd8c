"""Which kernels are compiled: the loops over bytes run several times faster if a C compiler was there to build them.

A kernel is a pure Python module that may have a compiled copy next to it, which Python then prefers. In a checkout the
compiled copy can be older than its source: it would do what the source did before, or lack a function. Nothing is
imported here to find out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

COMPILED: Final = "compiled"
PURE: Final = "pure Python"
STALE: Final = "older than its source"

#: what a broker runs on, and what only pipelines need
BROKER_KERNELS: Final = ("wire", "log")
PIPELINE_KERNELS: Final = ("pipeline/read", "pipeline/write", "pipeline/values/forms", "pipeline/values/shred")
#: how a kernel says that it is compiled with what the kernels share
_SHARED_BY_KERNELS: Final = "from tidelog.wire.kernel_primitives cimport"
#: an installer writes the two files in any order, one right after the other
_SLACK_S: Final = 60

HOW_TO_BUILD: Final = "install a C compiler, then `pip install --force-reinstall --no-deps .` in a checkout of tidelog"
HOW_TO_REBUILD: Final = "rebuild it with `make setup` or `python setup.py build_ext --inplace`, or delete it"


def states(kernels: tuple[str, ...] = (*BROKER_KERNELS, *PIPELINE_KERNELS)) -> dict[str, str]:
    """Kernel, as `wire` or `pipeline/read` -> COMPILED, PURE or STALE."""
    root = os.path.dirname(os.path.abspath(__file__))
    return {name: _state(root, f"{root}/{name}") for name in kernels}


def summary(found: dict[str, str]) -> str:
    """In a few words; which ones, where they differ."""
    kinds = set(found.values())
    if len(kinds) == 1:
        return kinds.pop()
    return "; ".join(f"{kind}: {', '.join(n for n, k in found.items() if k == kind)}" for kind in sorted(kinds))


def _state(root: str, directory: str) -> str:
    compiled = next(filter(os.path.exists, (f"{directory}/kernel{suffix}" for suffix in EXTENSION_SUFFIXES)), None)
    if compiled is None:
        return PURE
    built = os.path.getmtime(compiled)
    sources = filter(os.path.exists, _sources(root, directory))
    return STALE if any(os.path.getmtime(source) > built + _SLACK_S for source in sources) else COMPILED


def _sources(root: str, directory: str) -> Iterator[str]:
    yield f"{directory}/kernel.py"
    yield (types := f"{directory}/kernel.pxd")
    if os.path.exists(types):
        with open(types) as opened:
            if _SHARED_BY_KERNELS in opened.read():
                yield f"{root}/wire/kernel_primitives.pxd"
