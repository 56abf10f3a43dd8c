"""What a broker that works alone imports before it is ready: modules are most of the time and memory of a start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-X", "importtime", "-m", "tidelog.cli.main")
#: more than there are by a few: a feature that comes with many is imported when it is first used
MOST_MODULES = 260
#: what a broker that has just started, alone and in the partitioned layout, has no use for yet
FOR_LATER = (
    # messages that wait
    "tidelog.deliver",
    "tidelog.coordinator.delay_log",
    "tidelog.coordinator.parcel_delivery",
    "tidelog.coordinator.waiting_partition",
    # compaction
    "tidelog.log.compaction",
    "tidelog.log.kernel",
    # the shared layout, and the conversion between both
    "tidelog.log.conversion",
    "tidelog.log.directories.queue_recovery",
    "tidelog.log.shared.commit_log",
    "tidelog.log.shared.queue",
    "tidelog.log.shared.queue_segment",
    "tidelog.log.shared.upkeep",
    # other brokers
    "kazoo",
    "tidelog.config.zookeeper_settings",
    "tidelog.metadata.zookeeper",
    "tidelog.net.link",
    "tidelog.net.requester",
    "tidelog.net.socket_channel",
    "tidelog.node.liveness",
    "tidelog.node.rejoining",
    "tidelog.node.voice",
    "tidelog.replica.fetcher",
    # what few requests need
    "tidelog.api.produce",
    "tidelog.group.regex",
    # what is not for brokers
    "tidelog.client",
    "tidelog.metrics",
    "tidelog.pipeline",
    "tidelog.sim",
    # of the standard library and others, what is easily drawn in
    "asyncio",
    "encodings.idna",
    "logging",
    "prometheus_client",
    "rich",
    "shlex",
)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """All that was imported when the ready line came, as Python itself tells it."""
    directory = tmp_path_factory.mktemp("start")
    with open(directory / "imports", "wb") as told:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--port", "0", "--data-dir", str(directory / "data")],
            stdout=subprocess.PIPE,
            stderr=told,
        )
        assert process.stdout is not None
        with process.stdout:
            ready = process.stdout.readline()
            process.kill()
            process.wait()
    text = (directory / "imports").read_text()
    assert ready.startswith(b"tidelog ready on "), text
    return {line.rpartition("|")[2].strip() for line in text.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize("module", FOR_LATER)
def test_a_broker_starts_without_what_it_does_not_use_yet(imported: set[str], module: str) -> None:
    assert not [name for name in imported if name == module or name.startswith(f"{module}.")]


def test_a_broker_starts_with_few_modules(imported: set[str]) -> None:
    ours = [name for name in imported if name.partition(".")[0] == "tidelog"]
    assert 100 < len(ours) <= MOST_MODULES


def test_what_is_for_later_exists() -> None:
    source = Path(__file__).resolve().parents[2] / "src"
    for module in FOR_LATER:
        if module.startswith("tidelog."):
            place = source / module.replace(".", "/")
            assert place.is_dir() or place.with_suffix(".py").is_file(), module
