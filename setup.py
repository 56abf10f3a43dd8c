"""Builds the compiled kernels where a C compiler is at hand; without one the pure-Python modules serve."""

from pathlib import Path

from setuptools import Extension, setup

KERNELS = list(Path("src").glob("tidelog/**/kernel.py"))


def extensions() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules = [
        Extension(
            ".".join(path.relative_to("src").with_suffix("").parts),
            [str(path)],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for path in KERNELS
    ]
    return cythonize(modules, language_level=3, build_dir="build/cython") if modules else []


setup(ext_modules=extensions())
