"""Options and collection rules that must be known before any test is collected."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# bench.systems starts the brokers for the compatibility tests as well; it is not part of the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# A busy machine is no fault of the code.
settings.register_profile("tidelog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidelog")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=("tidelog", "kafka"),
        default="tidelog",
        help="which broker the compatibility tests judge; kafka proves the tests themselves right",
    )
    parser.addoption(
        "--record",
        action="store_true",
        help="with --broker=kafka: keep what Apache Kafka answers as what the differential tests expect",
    )


def pytest_configure(config: pytest.Config) -> None:
    """A compiled kernel that is older than its source fails in strange ways later; say it now."""
    package = Path(__file__).resolve().parents[1] / "src" / "tidelog"
    for source in package.glob("**/kernel.py"):
        for compiled in source.parent.glob("kernel.*.so"):
            sources = [source, types := source.with_suffix(".pxd")]
            if "from tidelog.wire.kernel_primitives cimport" in types.read_text():
                sources.append(package / "wire" / "kernel_primitives.pxd")
            if compiled.stat().st_mtime < max(path.stat().st_mtime for path in sources):
                raise pytest.UsageError(f"{compiled} is older than its source: run `make setup`")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "java" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.java)
