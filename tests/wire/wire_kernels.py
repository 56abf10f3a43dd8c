"""Both faces of a kernel: the Python file as it stands, and a compiled copy of it.

The copy is built once per content of the sources and kept in the temporary directory; without Cython or a C compiler
there is none, and the tests of the compiled face are skipped.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest

import tidelog.wire

#: what the kernels share, as C and as Python
SHARED = Path(tidelog.wire.__file__).parent / "kernel_primitives.pxd"
FACES = ("pure", "compiled")


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def kernel_face(source: Path, face: str) -> ModuleType:
    if face == "pure":
        return _load("kernel_pure", source)
    return _load("kernel", _compiled(source))


def _compiled(source: Path) -> Path:
    if importlib.util.find_spec("Cython") is None or shutil.which("cc") is None:
        pytest.skip("no Cython or no C compiler")
    types = source.with_suffix(".pxd")
    content = b"".join(path.read_bytes() for path in (source, types, SHARED))
    digest = hashlib.sha256(content + sys.version.encode()).hexdigest()[:16]
    built = Path(tempfile.gettempdir()) / f"tidelog-kernel-{digest}"
    if not built.exists():
        workshop = Path(tempfile.mkdtemp(prefix="tidelog-kernel-"))
        shutil.copy(source, workshop)
        shutil.copy(types, workshop)
        command = [sys.executable, "-m", "Cython.Build.Cythonize", "-i", "-3", "kernel.py"]
        # What a kernel cimports is looked for where modules are.
        where = {**os.environ, "PYTHONPATH": str(SHARED.parents[2])}
        made = subprocess.run(command, cwd=workshop, env=where, capture_output=True, text=True)
        if made.returncode != 0:
            pytest.fail(f"the kernel does not compile:\n{made.stdout}\n{made.stderr}")
        try:
            os.rename(workshop, built)
        except OSError:
            shutil.rmtree(workshop)  # another process was faster
    return next(built.glob("kernel*.so"))
