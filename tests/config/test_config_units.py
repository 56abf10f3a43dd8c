"""Durations and sizes where a setting takes a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.config.errors import ConfigError
from tidelog.config.sources import load
from tidelog.config.units import plain_number


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "1h30m", "5400000"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "1000", "1000"),
        ("log.retention.hours", "2w", "336"),
        ("leader.imbalance.check.interval.seconds", "5m", "300"),
        ("retention.bytes", "10GB", "10000000000"),
        ("segment.bytes", "64MiB", "67108864"),
        ("max.message.bytes", "1.5 kB", "1500"),
        ("log.cleaner.dedupe.buffer.size", "128mib", "134217728"),
        ("remote.log.manager.copy.max.bytes.per.second", "1MB", "1000000"),
        # Names and values that have nothing to do with either.
        ("num.partitions", "7d", "7d"),
        ("cleanup.policy", "compact", "compact"),
        ("broker.rack", "1b", "1b"),
    ],
)
def test_a_duration_or_size_is_the_number_that_the_name_asks_for(name: str, text: str, number: str) -> None:
    assert plain_number(name, text) == number


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("retention.ms", "7days", "not a duration"),
        ("retention.ms", "10GB", "not a duration"),
        ("retention.bytes", "7d", "not a size"),
        ("retention.bytes", "10G", "not a size"),
        ("log.retention.hours", "90m", "not a whole number of hours"),
        ("retention.ms", "0.5ms", "not a whole number of ms"),
    ],
)
def test_what_is_none_is_refused_with_an_example_or_the_unit(name: str, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        plain_number(name, text)


def test_every_way_to_set_something_takes_them_and_says_where_one_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.retention.ms=7d\n")
    settings = load([str(file)], {"KAFKA_LOG_RETENTION_BYTES": "1GiB"}, ["log.segment.bytes=64MiB"])
    assert {name: setting.text for name, setting in settings.by_name.items()} == {
        "log.retention.ms": "604800000",
        "log.retention.bytes": "1073741824",
        "log.segment.bytes": "67108864",
    }
    file.write_text("log.retention.ms=7 days\n")
    with pytest.raises(ConfigError) as caught:
        load([str(file)])
    assert caught.value.explain().startswith(f"{file}:1: log.retention.ms: '7 days' is not a duration")
