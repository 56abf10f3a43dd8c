"""Installing: with or without a C compiler, and what then is said about it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidelog.kernels import BROKER_KERNELS, COMPILED, PIPELINE_KERNELS, PURE, STALE, states
from tidelog.wire import stub

ROOT = Path(__file__).resolve().parents[1]


def tidelog(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidelog.cli.main", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=site, timeout=60)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `pip install .` of a fresh checkout put tidelog on a machine without a C compiler."""
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, checkout)
    shutil.copytree(ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    if (ROOT / "build" / "cython").exists():
        # C sources that were made of these very kernels need not be made again.
        shutil.copytree(ROOT / "build" / "cython", checkout / "build" / "cython")
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index"]
    done = subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", "--no-compile", "--target", str(target), "."],
        cwd=checkout,
        env={**os.environ, "CC": "/bin/false", "CXX": "/bin/false"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_without_a_c_compiler_it_is_installed_and_says_that_it_has_no_kernels(site: Path) -> None:
    assert not list(site.rglob("*.so"))
    found = json.loads(tidelog(site, "version", "-o", "json").stdout)["kernels"]
    assert found == dict.fromkeys((*BROKER_KERNELS, *PIPELINE_KERNELS), PURE)
    assert "kernels pure Python" in tidelog(site, "version").stdout
    assert re.search("note +kernels +pure Python", tidelog(site, "doctor", "-b", "127.0.0.1:1").stdout)


def test_what_is_installed_tells_type_checkers_of_the_messages(site: Path) -> None:
    assert (site / "tidelog" / "py.typed").exists()
    assert (site / "tidelog" / "wire" / "messages.pyi").read_text() == stub.text()


def test_a_broker_without_kernels_says_so_and_serves(site: Path) -> None:
    from tidelog.client import Client
    from tidelog.testing.broker import RunningBroker

    serve = ("env", f"PYTHONPATH={site}", sys.executable, "-m", "tidelog.cli.main", "serve")
    with RunningBroker(command=serve) as broker, Client(broker.bootstrap) as client:
        assert "runs without compiled kernels (wire, log)" in broker.stderr()
        client.produce("t", [b"x"])
        assert [record.value for record in client.read("t", 0)] == [b"x"]


def test_a_compiled_kernel_that_is_older_than_its_source_is_noticed_before_it_is_used(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "tidelog" / "log" / "kernel.py"
    compiled = source.with_name("kernel.abi3.so")
    for other in source.parent.glob("kernel.*.so"):
        other.unlink()
    compiled.touch()
    os.utime(compiled, (source.stat().st_mtime - 3600,) * 2)
    done = tidelog(tmp_path, "serve", "--port", "0")
    assert done.returncode == 1 and done.stdout == ""
    assert "the compiled kernel of log is older than its source" in done.stderr and "make setup" in done.stderr
    assert json.loads(tidelog(tmp_path, "version", "-o", "json").stdout)["kernels"]["log"] == STALE


def test_a_compiled_kernel_is_older_than_its_source_if_what_the_kernels_share_is_newer(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    newest = time.time() + 3600
    os.utime(tmp_path / "tidelog" / "wire" / "kernel_primitives.pxd", (newest, newest))
    for room in ("log", "pipeline/values/forms"):
        (tmp_path / "tidelog" / room / "kernel.abi3.so").touch()
    found = json.loads(tidelog(tmp_path, "version", "-o", "json").stdout)["kernels"]
    assert (found["log"], found["pipeline/values/forms"]) == (STALE, COMPILED)


def test_every_kernel_is_asked_about() -> None:
    kernels = {str(path.parent.relative_to(ROOT / "src" / "tidelog")) for path in (ROOT / "src").rglob("kernel.py")}
    assert set(states()) == kernels
    assert set(states().values()) <= {COMPILED, PURE}


def test_nothing_names_a_package_that_is_on_no_index() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py")]
    for page in pages:
        assert not re.search(r"pip install [^`\n]*\btidelog\b", page.read_text()), page
