"""The value decoders' kernels, each as plain Python and compiled, for `monkeypatch` to put in place.

Compiled copies are built once per content of the sources and kept in the temporary directory; without Cython or a C
compiler there are none, and the tests of the compiled face are skipped.
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

import tidelog.pipeline.values

ROOM = Path(tidelog.pipeline.values.__file__).parent
FACES = ("pure", "compiled")


@functools.cache
def face_of(part: str, face: str) -> ModuleType:
    source = ROOM / part / "kernel.py"
    name, path = ("kernel_pure", source) if face == "pure" else ("kernel", _compiled(source))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def use_face(patch: pytest.MonkeyPatch, face: str) -> None:
    """Lets the decoders run on this face of the kernels."""
    from tidelog.pipeline.values import json, shredding

    shred, forms = face_of("shred", face), face_of("forms", face)
    patch.setattr(json, "kernel", shred)
    patch.setattr(shredding, "shred", shred)
    patch.setattr(shredding, "forms", forms)


def _compiled(source: Path) -> Path:
    if importlib.util.find_spec("Cython") is None or shutil.which("cc") is None:
        pytest.skip("no Cython or no C compiler")
    types = source.with_suffix(".pxd")
    digest = hashlib.sha256(source.read_bytes() + types.read_bytes() + sys.version.encode()).hexdigest()[:16]
    built = Path(tempfile.gettempdir()) / f"tidelog-kernel-{digest}"
    if not built.exists():
        workshop = Path(tempfile.mkdtemp(prefix="tidelog-kernel-"))
        shutil.copy(source, workshop)
        shutil.copy(types, workshop)
        command = [sys.executable, "-m", "Cython.Build.Cythonize", "-i", "-3", "kernel.py"]
        hurried = {**os.environ, "CFLAGS": "-O1"}
        made = subprocess.run(command, cwd=workshop, capture_output=True, text=True, env=hurried)
        if made.returncode != 0:
            pytest.fail(f"the kernel does not compile:\n{made.stdout}\n{made.stderr}")
        try:
            os.rename(workshop, built)
        except OSError:
            shutil.rmtree(workshop)  # another process was faster
    return next(built.glob("kernel*.so"))
