"""Options and collection rules that must be known before any test is collected."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from seeds import keep
from tidelog.config.definitions import BROKER_KEYS
from tidelog.metadata.zookeeper_server import ZooKeeperServer
from tidelog.testing.broker import DEFAULTS

# bench.systems starts the brokers for the compatibility tests as well; it is not part of the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# A shell that runs the tests in the background has them ignore it, and with them all processes that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no fault of the code.
settings.register_profile("tidelog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidelog")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=("tidelog", "cluster", "kafka"),
        default="tidelog",
        help="what the compatibility tests judge: one broker, three that replicate, or Apache Kafka, which proves the "
        "tests themselves right",
    )
    parser.addoption(
        "--layout",
        choices=("partitioned", "shared"),
        default="partitioned",
        help="how the logs of the tests, and of the brokers that they start, are stored",
    )
    parser.addoption(
        "--record",
        action="store_true",
        help="with --broker=kafka: keep what Apache Kafka answers as what the differential tests expect",
    )


def pytest_configure(config: pytest.Config) -> None:
    """A compiled kernel that is older than its source fails in strange ways later; say it now."""
    # Many tests write records of long ago, which a broker that has run for half a minute would rightly delete.
    DEFAULTS["log.initial.task.delay.ms"] = "86400000"
    layout = config.getoption("--layout")
    BROKER_KEYS["log.layout"].default = layout
    if layout != "partitioned":
        DEFAULTS["log.layout"] = layout
    package = Path(__file__).resolve().parents[1] / "src" / "tidelog"
    for source in package.glob("**/kernel.py"):
        for compiled in source.parent.glob("kernel.*.so"):
            sources = [source, types := source.with_suffix(".pxd")]
            if "from tidelog.wire.kernel_primitives cimport" in types.read_text():
                sources.append(package / "wire" / "kernel_primitives.pxd")
            if compiled.stat().st_mtime < max(path.stat().st_mtime for path in sources):
                raise pytest.UsageError(f"{compiled} is older than its source: run `make setup`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    in_shared_layout = config.getoption("--layout") == "shared"
    for item in items:
        if in_shared_layout and item.get_closest_marker("files") is not None:
            item.add_marker(pytest.mark.skip(reason="speaks of files of a segment, or of what is not put off"))
        for name in ("java", "zookeeper"):
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A test that fails with a fresh seed says which it was, and will be run with it again."""
    report = yield
    if report.when == "call" and report.failed and isinstance(item, pytest.Function):
        kept = keep(item)
        if kept is not None:
            report.sections.append(("seed", kept))
    return report


_chroots = itertools.count()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper server for all tests of a worker: each works under a chroot of its own, and leaves it running."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), tick_ms=200) as server:
        yield server


@pytest.fixture
def zookeeper_connect(zookeeper: ZooKeeperServer) -> str:
    """What a test gives as `zookeeper.connect`: its own chroot, which is not there yet."""
    return f"{zookeeper.connect}/test-{os.getpid()}-{next(_chroots)}"
