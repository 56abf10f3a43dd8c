"""Builds the compiled kernels if a C compiler is available; otherwise the pure-Python modules are used.

Most of the time of an install is spent in the compiler. So the kernels share what Cython needs for memoryviews in one
module instead of each compiling it again, they are compiled in parallel, and without debugging symbols. Either all of
them are built or none, because none works without the shared module.

A .pth file is installed next to the packages, for which setuptools has no setting (docs/adr/0012 says what it does).
"""

import os
import sys
import zipfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

KERNELS = sorted(Path("src").glob("tidelog/**/kernel.py"))
SHARED = "tidelog._memoryviews"
CORES = os.cpu_count() or 1
STARTUP = Path("src/tidelog_pyspark.pth")


def extensions() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    # Cython makes the source of the shared module itself.
    sources = {SHARED: []} | {".".join(p.relative_to("src").with_suffix("").parts): [str(p)] for p in KERNELS}
    modules = [Extension(name, files, extra_compile_args=["-O3", "-g0"]) for name, files in sources.items()]
    return cythonize(
        modules,
        language_level=3,
        include_path=["src"],  # where the shared types and inline functions are found
        build_dir="build/cython",
        nthreads=CORES,
        shared_utility_qualified_name=SHARED,
    )


class BuildKernels(build_ext):
    """`optional` extensions, but all of them together."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or CORES

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            # Whatever keeps a compiler from working; `tidelog version` says what is in use.
            print(f"warning: the kernels could not be compiled, pure Python will serve: {error}", file=sys.stderr)
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []


class BuildWithStartup(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self.copy_file(str(STARTUP), str(Path(self.build_lib) / STARTUP.name))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), str(Path(self.build_lib) / STARTUP.name)]

    def get_source_files(self) -> list[str]:
        return [*super().get_source_files(), str(STARTUP)]


class EditableWithStartup(editable_wheel):
    def run(self) -> None:
        super().run()
        for wheel in Path(self.dist_dir).glob("*editable*.whl"):
            with zipfile.ZipFile(wheel, "a") as archive:
                archive.write(STARTUP, STARTUP.name)


COMMANDS = {"build_ext": BuildKernels, "build_py": BuildWithStartup, "editable_wheel": EditableWithStartup}

setup(ext_modules=extensions(), cmdclass=COMMANDS)
