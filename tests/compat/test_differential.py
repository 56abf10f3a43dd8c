"""The same raw requests to Apache Kafka and to us: error codes, shapes and values of the answers are the same.

What Apache Kafka 4.3.0 answered is kept in `golden/`, one file per script, so that it need not run each time.
`pytest tests/compat/test_differential.py --broker=kafka --record` observes it again; without `--record` the same run
proves that the record still holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import scripts_administration
import scripts_cluster
import scripts_groups
import scripts_records
from bench.systems.cluster import TidelogCluster
from bench.systems.process import BrokerProcess
from wiretap import Wire

GOLDEN = Path(__file__).parent / "golden"
SCRIPTS = (
    *scripts_records.SCRIPTS,
    *scripts_cluster.SCRIPTS,
    *scripts_administration.SCRIPTS,
    *scripts_groups.SCRIPTS,
)


@pytest.fixture(scope="module")
def fresh(system: type[BrokerProcess], tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that no other test has touched: the scripts name their topics and groups themselves."""
    if system is TidelogCluster:
        pytest.skip("the answers that were kept are those of a single broker, which leads every partition")
    with system(tmp_path_factory.mktemp("differential"), {"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


def differences(expected: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    lines = []
    for label in dict.fromkeys((*expected, *seen)):
        if expected.get(label) != seen.get(label):
            lines += [f"{label}:", f"  kafka:   {expected.get(label)}", f"  seen:    {seen.get(label)}"]
    return lines


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_answers_are_those_of_apache_kafka(
    script: Callable[[Wire], Iterator[tuple[str, Any]]], fresh: BrokerProcess, request: pytest.FixtureRequest
) -> None:
    wire = Wire(fresh.host, fresh.port)
    seen = json.loads(json.dumps(dict(script(wire))))
    wire.close()
    path = GOLDEN / f"{script.__name__}.json"
    if request.config.getoption("--record"):
        lines = [f" {json.dumps(label)}: {json.dumps(answer, sort_keys=True)}" for label, answer in seen.items()]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    expected = json.loads(path.read_text())
    found = differences(expected, seen)
    assert not found, "\n".join(found)
